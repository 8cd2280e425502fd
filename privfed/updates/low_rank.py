"""`LowRank`: a block per client as a sum of outer products, one per local step.

A client that trains on one row at a time has the gradient delta a^T in every affine layer, so E local steps of
SGD change a weight by sum_e left_e right_e^T. Norms, clipping and sums need the factors only: the squared L2 norm
is the sum over (L L^T) * (R R^T), and the sum over all clients and steps is one matrix product.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.tiles import TILE, tile_size
from privfed.contracts.schema import Block, UpdateError
from privfed.updates.parts import as_array, cached, check_owner, check_unique, largest, places

_MATERIALISED_AT_ONCE = 4
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """Outer products: the block of client `owner[j]` is `sum_e left[j, e] right[j, e]^T`, of shape (rows, cols).

    The factors are how a simulation computes. What a device sends is the block itself, and `nbytes` says so. A method
    that knows the left factor for mostly zeros says `sparse`; how a sum is rounded must not depend on anybody's data.
    """

    block: str
    owner: Int64[Tensor, " h"]
    left: Float[Tensor, "h steps rows"]
    right: Float[Tensor, "h steps cols"]
    sparse: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks of all owners, as they would travel."""
        return len(self.owner) * self.left.shape[2] * self.right.shape[2] * self.left.element_size()

    def check(self, block: Block, clients: int) -> None:
        """Refuse factors that do not fit `block` or each other, or owners outside the cohort."""
        check_owner(self.block, self.owner, self.left, block, clients)
        check_unique(self.block, self.owner)
        if self.left.shape[:2] != self.right.shape[:2] or self.left.dtype != self.right.dtype:
            raise UpdateError(
                f"block {self.block!r}: factors of {tuple(self.left.shape[:2])} {self.left.dtype} and "
                f"{tuple(self.right.shape[:2])} {self.right.dtype} (clients, steps) do not multiply; give both alike"
            )
        shape = (self.left.shape[2], self.right.shape[2])
        if shape != block.shape:
            raise UpdateError(
                f"block {self.block!r} was declared with shape {block.shape} but the factors span {shape} per client"
            )

    def finite(self) -> bool:
        """Whether both factors are finite and so small that no coordinate of a product can overflow."""
        reach = largest(self.left) * largest(self.right) * max(self.left.shape[1], 1)
        return math.isfinite(reach) and reach <= torch.finfo(self.left.dtype).max

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order per client in float64: order 2 from Gram matrices, order 1 a few clients at a time."""
        if order == 2:
            own = _squared_norms(self.left, self.right)
        else:
            own = torch.empty(len(self.owner), dtype=torch.float64)
            for some in _slices(len(self.owner), _at_once()):
                # Unlike order 2, sums of magnitudes do not follow from the factors.
                dense = torch.bmm(self.left[some].transpose(1, 2), self.right[some])
                own[some] = dense.abs().sum((1, 2), dtype=torch.float64)
        return torch.zeros(clients, dtype=torch.float64).index_add_(0, self.owner, own)

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply one factor, the narrower, in place."""
        # Scaling either factor scales the product; the narrower one has fewer values.
        narrow = min(self.left, self.right, key=lambda factor: factor.shape[2])
        narrow.mul_(factors[self.owner].view(-1, 1, 1).to(narrow.dtype))

    def add_to(self, total: Tensor) -> None:
        """One product over all clients and steps; of a sparse left factor, only of what is not 0."""
        # sum_j sum_e left_je right_je^T as [rows, clients x steps] times [clients x steps, cols].
        left, right = self.left.flatten(0, 1), self.right.flatten(0, 1)
        if self.sparse and left.is_cpu:
            _add_products(total.numpy(), as_array(left, total), as_array(right, total))
        else:
            total.add_(left.T @ right)

    def in_double(self) -> "LowRank":
        """The same products of float64 factors, so that rounding of float32 products does not add up in the sum."""
        return replace(self, left=self.left.double(), right=self.right.double())

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """True where every row has an owner."""
        return int((slots[self.owner] >= 0).sum()) == rows

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Multiply out the blocks of the chosen clients."""
        slot = slots[self.owner]
        chosen = (slot >= 0).nonzero().squeeze(1)
        for some in torch.split(chosen, _at_once()) if len(chosen) else ():
            first, left, right = int(slot[some[0]]), self.left[some].transpose(1, 2), self.right[some]
            if out.dtype == left.dtype and torch.equal(slot[some], torch.arange(first, first + len(some))):
                # All clients in order is the usual case, and no product is copied.
                torch.bmm(left, right, out=out[first : first + len(some)])
            else:
                out.index_copy_(0, slot[some], torch.bmm(left, right).to(out.dtype))

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k cols"]:
        """Rows of the products, without the products."""
        place = places(self.owner, owner)
        found = self.right.new_empty(len(ids), self.right.shape[2])
        for some in _slices(len(ids), _ROWS_AT_ONCE):
            # Clients without an entry read the first one, and are set to 0 at the end.
            at = place[some].clamp(min=0)
            left = self.left[at, :, ids[some]]
            torch.bmm(left.unsqueeze(1), self.right[at], out=found[some].unsqueeze(1))
        return found.mul_((place >= 0).unsqueeze(1))

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Every coordinate of an owner is sent, zeros included."""
        slot = slots[self.owner]
        out[slot[slot >= 0]] = True


def _squared_norms(left: Float[Tensor, "h steps rows"], right: Float[Tensor, "h steps cols"]) -> Float[Tensor, " h"]:
    """Squared L2 norms of the products as they come out when multiplied, or a little more.

    Products add up in the factors' own precision, where steps that cancel leave their rounding behind: at most
    steps x eps x sum_e |left_e| |right_e|, which is part of the norm, so that no clip falls short of what is sent.
    A few clients at a time, so that their float64 copies stay in the cache.
    """
    out = torch.empty(len(left), dtype=torch.float64)
    rounding = left.shape[1] * torch.finfo(left.dtype).eps
    for some in cached(len(left), left.shape[1] * (left.shape[2] + right.shape[2])):
        one, other = _gram(left[some]), _gram(right[some])
        # [h]: sum_e |left_e| |right_e|, from the diagonals of both Gram matrices.
        reach = (one.diagonal(dim1=1, dim2=2) * other.diagonal(dim1=1, dim2=2)).sqrt().sum(1)
        # |sum_e left_e right_e^T|^2 = sum_ef (left_e . left_f)(right_e . right_f); of both signs, hence the floor.
        norms = (one * other).sum((1, 2)).clamp(min=0).sqrt()
        out[some] = (norms + rounding * reach).square()
    return out


def _gram(factor: Float[Tensor, "h steps size"]) -> Float[Tensor, "h steps steps"]:
    exact = factor.double()
    return torch.bmm(exact, exact.transpose(1, 2))


@compiled
def _add_products(
    total: Num[np.ndarray, "rows cols"], left: Num[np.ndarray, "k rows"], right: Num[np.ndarray, "k cols"]
) -> None:
    """Add left^T right to the total: in its precision, and nothing where left is 0."""
    for j in range(len(left)):
        for i in range(left.shape[1]):
            if left[j, i] != 0:
                _add_scaled(total[i], left[j, i], right[j])


# A function of its own, whose rows are taken before they are read: in one loop with the search it has no vector units.
@compiled
def _add_scaled(total: Num[np.ndarray, " cols"], factor: float, row: Num[np.ndarray, " cols"]) -> None:
    wide = total.dtype.type(factor)
    for column in range(len(row)):
        total[column] += wide * row[column]


def _at_once() -> int:
    """Clients whose products are written out together."""
    return _MATERIALISED_AT_ONCE * tile_size() // TILE


def _slices(size: int, step: int) -> list[slice]:
    return [slice(first, first + step) for first in range(0, size, step)]
