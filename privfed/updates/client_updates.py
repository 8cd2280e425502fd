"""`ClientUpdates`: what a cohort of clients computed, stacked, before any guard has touched it.

It never travels: only what a guard makes of it does. Operations consume: `scale_` works in place.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from privfed.contracts.schema import Schema, UpdateError
from privfed.updates.code_products import CodeProducts
from privfed.updates.low_rank import LowRank
from privfed.updates.parts import Dense, Part, Rows
from privfed.updates.symmetric import Symmetric


class ClientUpdates:
    """The updates of `clients`, in that order, as parts over the blocks of `schema`.

    Raises:
        UpdateError: a part names an undeclared block or does not fit it.
    """

    def __init__(self, clients: Int64[Tensor, " clients"], schema: Schema, parts: Sequence[Part]) -> None:
        self.clients, self.schema, self.parts = clients, schema, tuple(parts)
        for part in self.parts:
            if part.block not in schema:
                raise UpdateError(f"block {part.block!r} was not declared by the server; declared are {sorted(schema)}")
            part.check(schema[part.block], len(clients))
        for name in schema:
            self._refuse_overlap([part for part in self.parts if part.block == name], name)

    def _refuse_overlap(self, parts: Sequence[Part], block: str) -> None:
        """A coordinate sent in two parts would have a larger norm than the parts show."""
        if len(parts) < 2:
            return
        # [clients, *shape] flags, made only for blocks that come in several parts.
        everyone, sent = torch.arange(len(self)), torch.zeros((len(self), *self.schema[block].shape), dtype=torch.bool)
        for part in parts:
            reached = torch.zeros_like(sent)
            part.touched(everyone, reached)
            if bool((sent & reached).any()):
                raise UpdateError(f"block {block!r}: a client sends the same coordinate in two parts; send it once")
            sent |= reached

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def nbytes(self) -> int:
        """Bytes of all clients' values as represented."""
        return sum(part.nbytes for part in self.parts)

    def finite(self) -> bool:
        """Whether no value is NaN or infinite."""
        return all(part.finite() for part in self.parts)

    def norm_powers(self, order: int) -> Float[Tensor, "clients blocks"]:
        """Sum of |weight x value|^order per client and real block; a joint norm is its row sum, rooted."""
        real = [name for name, block in self.schema.items() if block.kind == "real"]
        # float64: a norm that rounding made too small would let more through than the clip allows.
        powers = torch.zeros(len(self), len(real), dtype=torch.float64)
        for part in self.parts:
            if part.block in real:
                weight = self.schema[part.block].weight
                powers[:, real.index(part.block)] += part.norm_power(order, len(self)) * weight**order
        return powers

    def norms(self, order: int) -> Float[Tensor, " clients"]:
        """Joint L1 (order 1) or L2 (order 2) norm of every client over all real blocks, float64."""
        if order not in (1, 2):
            raise UpdateError(f"norm order is {order}; only 1 and 2 are defined for updates")
        total = self.norm_powers(order).sum(1)
        return total if order == 1 else total.sqrt()

    def scale_(self, factors: Float[Tensor, " clients"] | Float[Tensor, "clients blocks"]) -> "ClientUpdates":
        """Multiply every client's real values in place, by one factor or by one per real block; integers stay exact."""
        real = [name for name, block in self.schema.items() if block.kind == "real"]
        for part in self.parts:
            if part.block in real:
                part.scale_(factors if factors.dim() == 1 else factors[:, real.index(part.block)])
        return self

    def largest(self, block: str) -> int:
        """The largest magnitude of an integer block's values, over all clients; 0 where nobody sends one.

        Raises:
            UpdateError: the block comes in a representation of real numbers.
        """
        most = 0
        for part in self.parts:
            if part.block != block:
                continue
            if not isinstance(part, CodeProducts | Dense | Rows):
                raise UpdateError(f"block {block!r} comes as {type(part).__name__}, which holds no whole numbers")
            values = part.weights if isinstance(part, CodeProducts) else part.values
            if values.numel():
                low, high = values.aminmax()
                # Python's integers, because -(-2^63) overflows an int64.
                most = max(most, -int(low), int(high))
        return most

    def add_to(self, sums: dict[str, Tensor], *, precise: bool = False) -> None:
        """Add the sum over clients into `sums`.

        Args:
            sums: of the blocks, in float64 or int64.
            precise: whether products are summed in float64 too, as noise needs that is sized for the exact sum.
        """
        for part in self.parts:
            (part.in_double() if precise and isinstance(part, LowRank | Symmetric) else part).add_to(sums[part.block])

    def slots(self, positions: Int64[Tensor, " n"]) -> Int64[Tensor, " clients"]:
        """Index of each client's values when `positions` are materialised, or -1."""
        slots = torch.full((len(self),), -1)
        slots[positions] = torch.arange(len(positions))
        return slots

    def materialise(self, positions: Int64[Tensor, " n"], out: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Dense copies `[n, *shape]` of the clients at `positions`, written over `out` where given."""
        slots = self.slots(positions)
        if out is None:
            out = {
                name: torch.empty(
                    (len(positions), *block.shape), dtype=torch.float32 if block.kind == "real" else torch.int64
                )
                for name, block in self.schema.items()
            }
        for name, values in out.items():
            self._write(name, slots, values)
        return out

    def _write(self, block: str, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        parts = [part for part in self.parts if part.block == block]
        if len(parts) != 1 or not parts[0].fills(slots, len(out)):
            # What nobody sends must read 0; a single part that fills every row overwrites it all anyway.
            out.zero_()
        for part in parts:
            part.write(slots, out)

    def touched(self, positions: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Which coordinates the clients at `positions` send at all, bool `[n, *shape]`."""
        slots = self.slots(positions)
        out = {name: torch.zeros((len(positions), *b.shape), dtype=torch.bool) for name, b in self.schema.items()}
        for part in self.parts:
            part.touched(slots, out[part.block])
        return out

    def rows_at(self, block: str, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k width"]:
        """Row `ids[j]` of the table block of client `owner[j]`, zero where untouched."""
        parts = [part for part in self.parts if part.block == block and len(part.owner)]
        if len(parts) == 1 and len(ids):
            return parts[0].rows_at(owner, ids)
        found = torch.zeros(len(ids), self.schema[block].shape[1])
        for part in parts if len(ids) else ():
            # Parts do not overlap (checked above), so adding the zeros of all others changes no value.
            found += part.rows_at(owner, ids)
        return found

    def holds(self) -> Bool[Tensor, "clients blocks"]:
        """Whether each client sends anything of each block, in the order of the schema; zeros count as sent."""
        names = list(self.schema)
        held = torch.zeros(len(self), len(names), dtype=torch.bool)
        for part in self.parts:
            held[part.owner, names.index(part.block)] = True
        return held

    def stacked(self, block: str) -> Float[Tensor, "clients ..."]:
        """One block of every client, `[clients, *shape]`; zero where a client sent nothing."""
        found = torch.empty((len(self), *self.schema[block].shape))
        self._write(block, torch.arange(len(self)), found)
        return found
