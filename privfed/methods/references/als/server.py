"""The server of the least squares references: everybody's lists, collected once, and the items' factors."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.contracts import Block, Schema
from privfed.data import Histories
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams
from privfed.methods.method import PublicInfo
from privfed.methods.references.als.config import EALSConfig
from privfed.methods.shared.als import Feedback

HISTORY = "history"
_LISTS = ("purchased", "examined")


class ALSServer:
    """Collects in the first round, then solves for users and items once a round, without a query.

    Users' factors are not kept: they follow from the items' and are solved anew in every round.
    """

    def __init__(self, config: EALSConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, shape = config, (public_info.n_items, config.dim)
        unit = streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], public_info.n_items * config.dim)
        self.items = unit.view(shape) * config.initial_scale
        self.schema: Schema = {HISTORY: Block((public_info.n_items, 1), bound=1)}
        self._learn(revealed(torch.zeros(0, public_info.n_items), examines=False))

    def round(self, federation: Federation, t: int) -> None:
        """Collect every row in round 0; one pass over users and items, where anybody purchased anything."""
        if t == 0:
            release = federation.collect("reveal", federation.sample_cohort(t), self.public(), self.schema)
            self._learn(revealed(release.uploads[HISTORY][:, :, 0], examines=self.config.examines))
        if len(self.feedback.purchased):
            objective, items = self.config.objective(self.weights), on_host(self.items.double())
            users = objective.users(items, self.feedback)
            self.items = placed(objective.items(users, items, self.feedback)).float()

    def public(self) -> Message:
        """The items' factors and weights, from which a device solves for its own; never the lists."""
        return Message({"items": self.items, **self.weights})

    def state(self) -> dict[str, Tensor]:
        """The items' factors, and the lists."""
        tensors = {"items": self.items}
        for name in _LISTS:
            lists = getattr(self.feedback, name)
            tensors |= {
                f"{name}.offsets": placed(lists.indptr),
                f"{name}.items": placed(lists.items),
            }
        return tensors

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.items = state["items"]
        offsets_and_items = ((on_host(state[f"{name}.offsets"]), on_host(state[f"{name}.items"])) for name in _LISTS)
        self._learn(Feedback(*(Histories(offsets, items, len(self.items)) for offsets, items in offsets_and_items)))

    def _learn(self, feedback: Feedback) -> None:
        self.feedback = feedback
        self.weights = {name: placed(w).float() for name, w in self.config.weights(feedback).items()}


def revealed(rows: Float[Tensor, "clients items"], *, examines: bool) -> Feedback:
    """The lists behind rows in which a purchase is 1 and an examination is -1.

    A plan may scale a row down to its bound and add noise. An entry counts where it is larger than half the largest
    of its row; without noise that gives back the lists, whatever the scale.

    Args:
        rows: as released.
        examines: whether negative entries are examinations; otherwise they are noise.
    """
    low, high = rows.aminmax(dim=1, keepdim=True)
    half = torch.maximum(high, -low) / 2
    bought = (rows > half).nonzero()
    seen = (rows < -half).nonzero() if examines else bought[:0]
    columns = (on_host(found.T.contiguous()) for found in (bought, seen))
    return Feedback(*(Histories.from_pairs(user, item, *rows.shape) for user, item in columns))
