"""The trainer that the references share: everybody's lists, collected once, and passes over them round after round."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.contracts import Block, Schema
from privfed.data import Histories
from privfed.federation import SERVER, Federation, Message, Purpose, Streams
from privfed.methods.method import PublicInfo
from privfed.methods.references.als.server import revealed
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.shared.server_optimiser import ServerOptimiser

_OFFSETS, _ITEMS = "lists/offsets", "lists/items"
_PARAMETERS, _OPTIMISERS = "parameters/", "optimisers/"
_KEY_WORDS = 8

Parameters = Mapping[str, Tensor]


class DivergedError(ValueError):
    """The central loss is not a number any more."""


class Draws:
    """Random numbers of a server in one round; every call has an address of its own."""

    def __init__(self, streams: Streams, round: int) -> None:
        self._streams, self._round, self._number = streams, round, count()

    def words(self, number: int) -> Int64[Tensor, " number"]:
        """Uniform whole numbers below 2^32."""
        drawn = self._streams.words(Purpose.SAMPLES, self._round, next(self._number), [SERVER], number)
        return placed(drawn[0].astype(np.int64))

    def order(self, number: int) -> Int64[Tensor, " number"]:
        """A permutation."""
        drawn = self._streams.uniform(Purpose.SAMPLES, self._round, next(self._number), [SERVER], number)
        return drawn[0].argsort(stable=True)

    def normal(self, rows: int, width: int) -> Float[Tensor, "rows width"]:
        """Standard normal numbers."""
        drawn = self._streams.normal(Purpose.SAMPLES, self._round, next(self._number), [SERVER], rows * width)
        return drawn[0].view(rows, width)

    def kept(self, number: int, dropout: float) -> Bool[Tensor, " number"]:
        """True but for a share of `dropout`."""
        return self.words(number) >= int(dropout * 2**32)


class TrainingServer(ABC):
    """Collects every list in round 0, keeps them, and takes passes over them in every round.

    It draws under a key of its own, from which no client's key follows.

    Attributes:
        schema: of the one query: a row over the catalogue, 1 for every item that the user has.
        parameters: what is learned, by name.
    """

    def __init__(self, public_info: PublicInfo, streams: Streams, parameters: Parameters, epochs: int) -> None:
        self.n_users, self.n_items, self.epochs = public_info.n_users, public_info.n_items, epochs
        self.schema: Schema = {HISTORY: Block((self.n_items, 1), bound=1)}
        self.parameters = dict(parameters)
        self._key = streams.words(Purpose.SAMPLES, 0, 0, [SERVER], _KEY_WORDS).tobytes()
        self._simulated = streams.simulated
        self.keep(Histories(np.zeros(self.n_users + 1, np.int64), np.zeros(0, np.int64), self.n_items))
        self._message = self.published(self.lists)

    @abstractmethod
    def epoch(self, lists: Histories, draws: Draws) -> None:
        """One pass over the lists, of which at least one has an item."""

    @abstractmethod
    def published(self, lists: Histories) -> Message:
        """What devices need to score, from the parameters; never the lists."""

    @property
    def lists(self) -> Histories:
        """The collected lists by pseudonym; those of users outside the first cohort are empty."""
        return Histories(on_host(self._kept[_OFFSETS]), on_host(self._kept[_ITEMS]), self.n_items)

    def round(self, federation: Federation, t: int) -> None:
        """Collect in round 0; passes over the lists, where anybody has anything."""
        if t == 0:
            self.keep(self._collect(federation))
        lists = self.lists
        if len(lists):
            draws = Draws(Streams(self._key, simulated=self._simulated), t)
            for _ in range(self.epochs):
                self.epoch(lists, draws)
        self._message = self.published(lists)

    def public(self) -> Message:
        """The model as of the last round."""
        return self._message

    def state(self) -> dict[str, Tensor]:
        """Parameters and lists."""
        return {**{_PARAMETERS + name: value for name, value in self.parameters.items()}, **self._kept}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = below(_PARAMETERS, state)
        offsets, items = (on_host(state[name]) for name in (_OFFSETS, _ITEMS))
        self.keep(Histories(offsets, items, self.n_items))
        self._message = self.published(self.lists)

    def keep(self, lists: Histories) -> None:
        """Keep the lists, and what follows from them alone."""
        self._kept = {_OFFSETS: placed(lists.indptr), _ITEMS: placed(lists.items)}

    def _collect(self, federation: Federation) -> Histories:
        """The cohort's lists, at its members' pseudonyms; noisy rows are read as `revealed` does."""
        release = federation.collect("reveal", federation.sample_cohort(0), self.public(), self.schema)
        cohort = revealed(release.uploads[HISTORY][:, :, 0], examines=False).purchased
        owners = on_host(release.pseudonyms)[cohort.owners]
        return Histories.from_pairs(owners, cohort.items, self.n_users, self.n_items)


class Learning(Protocol):
    """Settings that gradient descent reads."""

    @property
    def lr(self) -> float:
        """Learning rate of Adam."""

    @property
    def weight_decay(self) -> float:
        """L2 penalty on all parameters in the gradient."""

    @property
    def epochs(self) -> int:
        """Passes over the lists in a round."""


class AdamServer(TrainingServer):
    """A trainer by Adam on the gradients of a loss.

    Args:
        name: of the method, for errors.
        config: settings.
        public_info: numbers of users and items.
        streams: of random numbers.
        parameters: at the start.
        parts: beginnings of names of parameters that are trained in turns, each with moments of its own.
    """

    def __init__(
        self,
        name: str,
        config: Learning,
        public_info: PublicInfo,
        streams: Streams,
        parameters: Parameters,
        parts: Sequence[str] = ("",),
    ) -> None:
        self.name, self.lr = name, config.lr
        self.optimisers = {part: ServerOptimiser("adam", config.lr, config.weight_decay) for part in parts}
        super().__init__(public_info, streams, parameters, config.epochs)

    def descend(self, loss: Callable[..., Float[Tensor, ""]], *batch: object, part: str = "") -> None:
        """One step on the parameters of `part`, down `loss(parameters, *batch)`.

        Raises:
            DivergedError: the loss is not finite.
        """
        moving = {name: value for name, value in self.parameters.items() if name.startswith(part)}
        tracked = {name: value.detach().requires_grad_() for name, value in moving.items()}
        value = loss({**self.parameters, **tracked}, *batch)
        if not value.isfinite():
            raise DivergedError(
                f"training of {self.name} diverged: its loss is {value.item()}; lower its lr, now {self.lr:g}, and "
                f"start again"
            )
        gradients = torch.autograd.grad(value, list(tracked.values()))
        downhill = {name: -gradient for name, gradient in zip(tracked, gradients, strict=True)}
        self.parameters |= self.optimisers[part].step(moving, downhill)

    def state(self) -> dict[str, Tensor]:
        """Parameters, lists and Adam's moments."""
        moments = {
            f"{_OPTIMISERS}{part}/{name}": value
            for part, optimiser in self.optimisers.items()
            for name, value in optimiser.state().items()
        }
        return super().state() | moments

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        for part, optimiser in self.optimisers.items():
            optimiser.load(below(f"{_OPTIMISERS}{part}/", state))
        super().load(state)


def below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def with_lists(lists: Histories) -> Bool[Tensor, " users"]:
    """Users whose list has an item."""
    return placed(lists.counts > 0)
