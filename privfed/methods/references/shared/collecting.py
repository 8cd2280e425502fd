"""The server that the references share: everybody's lists, collected once."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.compute.devices import placed
from privfed.contracts import Block, Schema
from privfed.data import Histories
from privfed.federation import Federation, Message
from privfed.methods.references.als.server import revealed

HISTORY, POPULARITY = "history", "popularity"


class CollectingServer(ABC):
    """Collects every list in round 0 and learns from them; a closed form has nothing left to do afterwards.

    Attributes:
        schema: of the one query: a row over the catalogue, 1 for every item that the user has.
        tensors: all that devices need to score: the model, and `popularity` for users of whom it says nothing.
    """

    def __init__(self, n_items: int, model: Mapping[str, Tensor]) -> None:
        self.schema: Schema = {HISTORY: Block((n_items, 1), bound=1)}
        self.tensors = {**model, POPULARITY: torch.zeros(n_items)}

    @abstractmethod
    def fit(self, lists: Histories) -> Mapping[str, Tensor]:
        """The model's tensors, named and shaped as those given at the start."""

    def round(self, federation: Federation, t: int) -> None:
        """Collect and learn in round 0."""
        if t == 0:
            self.learn(self.collect(federation, t))

    def collect(self, federation: Federation, t: int) -> Histories:
        """The lists of the cohort of round `t`; rows that a plan clipped or perturbed are read as `revealed` does."""
        release = federation.collect("reveal", federation.sample_cohort(t), self.public(), self.schema)
        return revealed(release.uploads[HISTORY][:, :, 0], examines=False).purchased

    def learn(self, lists: Histories) -> None:
        """Fit the model, where anybody has anything."""
        if len(lists):
            self.tensors = {**self.fit(lists), POPULARITY: shares(lists)}

    def public(self) -> Message:
        """The model, from which a device scores its own list; never the lists."""
        return Message(self.tensors)

    def state(self) -> dict[str, Tensor]:
        """The model; a closed form keeps no lists."""
        return dict(self.tensors)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.tensors = dict(state)


def shares(lists: Histories) -> Float[Tensor, " items"]:
    """Number of users of each item, as a share of the most popular one's."""
    counts = placed(lists.popularity()).float()
    return counts / counts.max().clamp(min=1)
