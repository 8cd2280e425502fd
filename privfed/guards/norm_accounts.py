"""What has left every device of the norm that it may send under an account: a filter, which a device keeps by itself.

Squared norms are counted in units of what a single query of the account may use, so a year of them adds up to at most
1. A query is counted before anything of it leaves, once for whoever repeats it, and never taken back: that a round was
aborted is the server's word.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

QueryAddress = tuple[int, int]
"""Cohort, and number of the query within it."""

Rows = dict[str, Float64[Tensor, " users"]]
"""By account, a number of each user; of those beyond the end it is 0."""


class NormAccounts:
    """Accounts of the users that a process hosts, by name.

    Attributes:
        address: of the query in progress; None before the first.
    """

    def __init__(self) -> None:
        self.address: QueryAddress | None = None
        self._spent: Rows = {}
        self._now: Rows = {}

    def begin(self, address: QueryAddress) -> None:
        """A query begins; one that is made again replaces itself."""
        if address != self.address:
            self._spent = self.spent
            self._now, self.address = {}, address

    @property
    def spent(self) -> Rows:
        """What has left, the query in progress included."""
        names = {**self._spent, **self._now}
        sizes = {name: max(len(rows[name]) for rows in (self._spent, self._now) if name in rows) for name in names}
        return {name: _row(self._spent, name, size) + _row(self._now, name, size) for name, size in sizes.items()}

    def left(self, name: str, users: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """What some users may still send, the query in progress left out."""
        return (1 - _of(self._spent, name, users)).clamp(min=0)

    def record_sent(self, name: str, users: Int64[Tensor, " n"], squares: Float64[Tensor, " n"]) -> None:
        """Count what is about to leave."""
        row = _row(self._now, name, _size(users))
        row[users] = torch.maximum(row[users], squares)
        self._now[name] = row

    def sent(self, name: str, users: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
        """What the query in progress was charged with."""
        return _of(self._now, name, users)

    @property
    def charges(self) -> dict[str, tuple[list[int], list[float]]]:
        """What the query in progress was charged with: users who send anything, and squared norms."""
        users = {name: row.nonzero().squeeze(1) for name, row in self._now.items()}
        return {name: (some.tolist(), self._now[name][some].tolist()) for name, some in users.items() if len(some)}

    def state(self) -> dict[str, list[float]]:
        """What has left, for a checkpoint."""
        return {name: values.tolist() for name, values in self.spent.items()}

    def load(self, state: Mapping[str, Sequence[float]]) -> None:
        """Continue from `state()`."""
        self._spent = {name: torch.tensor(values, dtype=torch.float64) for name, values in state.items()}
        self._now, self.address = {}, None


def _size(users: Int64[Tensor, " n"]) -> int:
    return int(users.max()) + 1 if len(users) else 0


def _row(rows: Mapping[str, Tensor], name: str, size: int) -> Float64[Tensor, " users"]:
    """A copy of an account, of so many users at least."""
    found = rows.get(name, torch.zeros(0, dtype=torch.float64))
    return torch.cat([found, found.new_zeros(max(size - len(found), 0))])


def _of(rows: Mapping[str, Tensor], name: str, users: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    return _row(rows, name, _size(users))[users]
