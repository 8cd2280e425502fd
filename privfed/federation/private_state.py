"""Private tensors of the users that a process hosts: staged by a step, committed when a release is confirmed."""

from collections.abc import Mapping

import torch
from jaxtyping import Int64
from torch import Tensor


class PrivateState:
    """Named tensors `[users, *shape]` with transactional updates.

    Rounds are lost on real networks; a device must then continue from what it had before the round.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.current = dict(tensors)
        self._staged: list[tuple[Tensor, Mapping[str, Tensor]]] = []

    def of(self, users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Committed values of `users`, copies `[n, *shape]`."""
        return {name: values.index_select(0, users) for name, values in self.current.items()}

    def staged(self, users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Values that the latest step of exactly these `users` staged; their committed ones if there was none."""
        for owners, values in reversed(self._staged):
            if owners.equal(users):
                return dict(values)
        return self.of(users)

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

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Replace committed tensors and forget staged ones."""
        self._staged.clear()
        for name, values in state.items():
            self.current[name] = torch.clone(values)


class PrivateHalves:
    """Clients whose private state is one `PrivateState`: the transaction and checkpoint half of `Clients`."""

    private: PrivateState

    def commit(self) -> None:
        """The release was confirmed: staged state becomes current."""
        self.private.commit()

    def discard(self) -> None:
        """The round was lost: forget staged state."""
        self.private.discard()

    def state(self) -> dict[str, Tensor]:
        """Committed private tensors."""
        return self.private.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.private.load(state)
