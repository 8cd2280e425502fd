"""Private tensors of the users that a process hosts: staged by a step, committed when a release is confirmed.

They live in memory, or in files of a folder (`privfed.federation.sharded_state`), which changes nothing of a result. A
method says how many users there are and where each starts, and a `Storage` makes the state:

    self.private = data.private_state(lambda users: {"w": torch.zeros(len(users), dim)})
"""

import math
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import moved
from privfed.compute.memory import refuse_beyond_memory
from privfed.federation.messages import Message

Start = Callable[[Int64[Tensor, " n"]], dict[str, Tensor]]
"""First values `[n, *shape]` of some users, the same whichever other users are called; of no users, only shapes."""


@runtime_checkable
class Ranges(Protocol):
    """Rows that are read range by range: a tensor in memory, or one of a file that nobody wants whole."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all rows together."""

    def __getitem__(self, rows: slice, /) -> Tensor:
        """Some rows."""


class ClientStateError(ValueError):
    """Private state cannot be kept where, or loaded from what, was given."""


def refuse_other_state(state: Mapping[str, Ranges], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse private tensors of other names or shapes: compiled code, which reads memory unchecked, is given them.

    Raises:
        ClientStateError: they are of other users, or of other settings.
    """
    found = {name: tuple(values.shape) for name, values in state.items()}
    if found != wanted:
        raise ClientStateError(
            f"client state of shapes {wanted} was expected, and the checkpoint holds {found}: continue with the "
            "data and settings that it was written with"
        )


class PrivateState:
    """Named tensors `[users, *shape]` with transactional updates.

    Rounds are aborted on real networks; a device must then continue from what it had before the round.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.current = dict(tensors)
        self._staged: list[tuple[Tensor, Mapping[str, Tensor]]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Names of a user's tensors."""
        return tuple(self.current)

    def rows(self, users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Committed values of `users`, copies `[n, *shape]`."""
        return {name: values.index_select(0, users) for name, values in self.current.items()}

    def staged(self, users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Values that the latest step of exactly these `users` staged; their committed ones if there was none."""
        for owners, values in reversed(self._staged):
            if owners.equal(users):
                return dict(values)
        return self.rows(users)

    def stage(self, users: Int64[Tensor, " n"], values: Mapping[str, Tensor]) -> None:
        """Keep new values aside until `commit`."""
        self._staged.append((users, values))

    def commit(self) -> None:
        """Make staged values current, in the order they were staged."""
        for users, values in self._staged:
            for name, new in values.items():
                self.current[name].index_copy_(0, users, new)
        self._staged.clear()

    def discard(self) -> None:
        """Forget staged values."""
        self._staged.clear()

    def state(self) -> dict[str, Tensor]:
        """Committed tensors, as copies that the next commit leaves alone."""
        return {name: values.clone() for name, values in self.current.items()}

    def ranges(self) -> Mapping[str, Ranges]:
        """Committed tensors as they are until the next commit, to be written away range by range."""
        return dict(self.current)

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Replace committed tensors and forget staged ones.

        Raises:
            ClientStateError: they are of other users, or of other settings.
        """
        refuse_other_state(state, {name: tuple(values.shape) for name, values in self.current.items()})
        self._staged.clear()
        for name, values in state.items():
            self.current[name] = moved(values[:]).clone()


class Storage(Protocol):
    """Storage of private tensors.

    Attributes:
        in_memory: whether they must fit there.
    """

    in_memory: bool

    def keep(self, name: str, count: int, start: Start) -> PrivateState:
        """The state of `count` users (or of whatever else there is one row each of).

        Args:
            name: of what there is a row each; different for every state of a process.
            count: how many.
            start: where they start.
        """

    def claim(self) -> None:
        """Make sure, before a run does anything, that all this can be kept."""

    def remove(self) -> None:
        """Forget it all, once a run is over: a checkpoint has what is committed."""


class InMemory:
    """Everything in memory, made at once."""

    in_memory = True

    def keep(self, name: str, count: int, start: Start) -> PrivateState:  # noqa: ARG002 (there is no file to name)
        """The state of `count` users.

        Raises:
            MemoryLimitError: it does not fit the memory that there is.
        """
        each = sum(values.element_size() * math.prod(values.shape[1:]) for values in start(torch.arange(0)).values())
        refuse_beyond_memory(
            count * each,
            f"private state of {count:,} rows of {each:,} bytes",
            "keep it in files (privfed run --client-state disk), choose smaller settings of the method, or fewer users",
        )
        return PrivateState(start(torch.arange(count)))

    def claim(self) -> None:
        """It is there already."""

    def remove(self) -> None:
        """It goes when nobody holds it."""


MEMORY = InMemory()


def alike(values: Mapping[str, Tensor]) -> Start:
    """Everybody starts from the same `values`."""
    return lambda users: {name: value.expand(len(users), *value.shape).clone() for name, value in values.items()}


class StatefulClients:
    """Clients whose private state is one `PrivateState`: the transactions and checkpoints of `Clients`."""

    private: PrivateState

    def receive(self, step: str, message: Message) -> None:
        """A query begins: there is nothing to do."""

    def commit(self) -> None:
        """The release was confirmed: staged state becomes current."""
        self.private.commit()

    def discard(self) -> None:
        """The round was aborted: forget staged state."""
        self.private.discard()

    def state(self) -> dict[str, Tensor]:
        """Committed private tensors."""
        return self.private.state()

    def ranges(self) -> Mapping[str, Ranges]:
        """Committed private tensors as they are until the next commit, to be written away range by range."""
        return self.private.ranges()

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Continue from `state()`."""
        self.private.load(state)
