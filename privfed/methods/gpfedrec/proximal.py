"""`ProximalTables`: uploads of whole item tables of which only sampled rows were trained, without the tables.

GPFedRec's proximal term moves every row that no gradient touched by the same share of its way from the global table to
the personal target (KDD 2024, eq. 7, solved in closed form; `local_training`). So an upload is two tables that the
server sent, one number and the trained rows, and it is written out where it goes, a few tables at a time in the cache.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.tiles import tile_size
from privfed.contracts import Block, UpdateError
from privfed.updates import Dense

_CACHED = 2


@dataclass(frozen=True, slots=True, eq=False)
class ProximalTables:
    """Client c sends share[c] (targets[c] - base), and `values` in place of that for the rows that it trained.

    It reads `targets` and `base` when it is written, so use it before the server that sent them changes them: until its
    query is over.

    Attributes:
        block: name of the declared block.
        targets: personal target of every client.
        base: the global table.
        share: how far untouched rows went.
        places: client x items + row of every trained row, ascending.
        values: what trained rows moved by.
    """

    block: str
    targets: Float[Tensor, "n items dim"]
    base: Float[Tensor, "items dim"]
    share: Float[Tensor, " n"]
    places: Int64[Tensor, " k"]
    values: Float[Tensor, "k dim"]
    _factors: list[Float[Tensor, " n"]] = field(default_factory=list)

    @property
    def owner(self) -> Int64[Tensor, " n"]:
        """Every client, in order."""
        return torch.arange(len(self.targets))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tables, as they travel."""
        return len(self.targets) * self.base.nbytes

    def finite(self) -> bool:
        """Whether trained rows are finite and no difference of two sent tables can overflow."""
        largest = _largest(self.targets) + _largest(self.base)
        return largest <= torch.finfo(self.base.dtype).max and math.isfinite(self.values.sum())

    def check(self, block: Block, clients: int) -> None:
        """Refuse tables that do not fit `block`, or more of them than there are clients."""
        if tuple(self.base.shape) != block.shape or len(self.targets) > clients:
            raise UpdateError(
                f"block {self.block!r} was declared with shape {block.shape} for {clients} clients but the update "
                f"holds {tuple(self.base.shape)} for {len(self.targets)}; send one table per client"
            )

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order per client, in float64."""
        total = torch.zeros(clients, dtype=torch.float64)
        for some, tables in self._tables():
            # Measured as a stored table would be, so that a clip does not depend on the representation.
            total[some] = Dense(self.block, torch.arange(len(tables)), tables).norm_power(order, len(tables))
        return total

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply every client's values when they are written, with the roundings that stored values would have."""
        # Kept one by one, because (x f) g and x (f g) round differently.
        self._factors.append(factors[: len(self.targets)].to(self.base.dtype))
        self.values.mul_(self._factors[-1][self.places // len(self.base)].unsqueeze(1))

    def add_to(self, total: Tensor) -> None:
        """Add every client's table, accumulated in the dtype of `total`."""
        for _, tables in self._tables():
            total.add_(tables.sum(0, dtype=total.dtype))

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """True where every row has an owner."""
        return int((slots[: len(self.targets)] >= 0).sum()) == rows

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Write tables where they go; straight into `out` where it takes all of them in order."""
        slot = slots[: len(self.targets)]
        if len(slot) == len(out) and torch.equal(slot, self.owner):
            # The usual case of all clients in order: no buffer and no second copy.
            for some, rows in self._tiles():
                self._table(some, rows, out[some])
            return
        for some, tables in self._tables():
            keep = slot[some] >= 0
            out.index_copy_(0, slot[some][keep], tables[keep].to(out.dtype))

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k dim"]:
        """Trained rows by bisection, others from the tables that were sent; zero for clients without a table."""
        items, last = len(self.base), len(self.targets) - 1
        known = owner.clamp(max=last)
        wanted = known * items + ids
        found = self.targets.flatten(0, 1).index_select(0, wanted).sub_(self.base.index_select(0, ids))
        # One multiplication per factor, as in `_table`: a row that is looked up equals the written one to the bit.
        for factor in (self.share, *self._factors):
            found.mul_(factor[known].unsqueeze(1))
        if len(self.places):
            place = torch.searchsorted(self.places, wanted).clamp_(max=len(self.places) - 1)
            # Bisection returns a position in any case; only an equal key is a trained row.
            hit = (self.places[place] == wanted).nonzero().squeeze(1)
            found.index_copy_(0, hit, self.values.index_select(0, place[hit]))
        return found.mul_((owner <= last).unsqueeze(1))

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Every coordinate of a table is sent."""
        slot = slots[: len(self.targets)]
        out[slot[slot >= 0]] = True

    def _tiles(self) -> Iterator[tuple[slice, slice]]:
        """A few clients at a time, and which trained rows are theirs."""
        clients, step = len(self.targets), _CACHED if self.places.is_cpu else tile_size()
        firsts = torch.arange(0, clients + step, step).clamp_(max=clients)
        # `places` ascend client by client, so the trained rows of a tile are one slice.
        ends = torch.searchsorted(self.places, firsts * len(self.base)).tolist()
        for first, *rows in zip(range(0, clients, step), ends[:-1], ends[1:], strict=True):
            yield slice(first, min(first + step, clients)), slice(*rows)

    def _tables(self) -> Iterator[tuple[slice, Float[Tensor, "some items dim"]]]:
        """All tables, a few at a time, in a buffer that is used again."""
        buffer = self.base.new_empty(0)
        for some, rows in self._tiles():
            if not len(buffer):
                buffer = self.base.new_empty(some.stop, *self.base.shape)
            yield some, self._table(some, rows, buffer[: some.stop - some.start])

    def _table(self, some: slice, rows: slice, out: Float[Tensor, "some items dim"]) -> Float[Tensor, "some items dim"]:
        """The tables of clients `some`, whose trained rows are `rows`, written to `out`."""
        torch.sub(self.targets[some], self.base, out=out)
        for factor in (self.share, *self._factors):
            out.mul_(factor[some].view(-1, 1, 1))
        items = len(self.base)
        # `places` count from client 0, `out` from the tile's first; `scale_` has multiplied `values` already.
        out.flatten(0, 1).index_copy_(0, self.places[rows] - some.start * items, self.values[rows])
        return out


def _largest(values: Tensor) -> float:
    """The largest magnitude; NaN where there is one."""
    low, high = values.aminmax() if values.numel() else (torch.zeros(()), torch.zeros(()))
    return float(torch.maximum(-low, high))
