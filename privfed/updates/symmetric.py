"""`Symmetric`: a symmetric matrix per client, the outer product of a private vector with itself, as its upper triangle.

A symmetric matrix says everything twice. Packed, its upper triangle comes row by row and what stands off the diagonal
is multiplied by sqrt(2), so that the L2 norm of the packed numbers is the Frobenius norm of the matrix: clip, noise and
encoding are right by construction, and noise of standard deviation s on every packed number is s on the diagonal of the
unpacked sum and s / sqrt(2) off it. The block may leave the diagonal out.

The vectors are how a simulation computes: |v v^T|^2 is |v|^4, without the diagonal |v|^4 - sum_i v_i^4, and the sum
over all clients is one matrix product. Nothing of size clients x packed numbers exists unless a caller materialises
single uploads.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.linear_algebra import mirrored, upper_gram
from privfed.contracts.schema import Block, UpdateError
from privfed.updates.parts import cached, check_owner, check_unique, largest

_ROOT = math.sqrt(2)


def packed_size(side: int, *, diagonal: bool = True) -> int:
    """Number of entries of a packed symmetric matrix of `side` rows."""
    return side * (side + 1) // 2 if diagonal else side * (side - 1) // 2


def unpacked(packed: Float[Tensor, " size"], side: int, *, diagonal: bool = True) -> Float64[Tensor, "side side"]:
    """The symmetric matrix of packed numbers; zeros on a diagonal that was left out.

    Raises:
        UpdateError: so many numbers are no triangle of that side.
    """
    if len(packed) != packed_size(side, diagonal=diagonal):
        raise UpdateError(
            f"{len(packed)} numbers do not pack a symmetric matrix of {side} rows, which takes "
            f"{packed_size(side, diagonal=diagonal)}"
        )
    # Compiled: index arrays of the triangle would take more memory than the numbers themselves.
    if packed.is_cpu:
        return torch.from_numpy(mirrored(_upper(packed.double().numpy(), side, diagonal)))
    rows, columns, lengths = _triangle(side, diagonal=diagonal)
    out = torch.zeros(side, side, dtype=torch.float64)
    out[rows, columns] = out[columns, rows] = packed.double() / lengths
    return out


def squared_norms(vectors: Float[Tensor, "h side"], *, diagonal: bool = True) -> Float64[Tensor, " h"]:
    """Squared Frobenius norms of the outer products v v^T, or of what they hold off the diagonal."""
    out = torch.empty(len(vectors), dtype=torch.float64)
    for some in cached(*vectors.shape):
        # |v v^T|^2 = (sum_i v_i^2)^2, of which sum_i v_i^4 lies on the diagonal.
        squares = vectors[some].double().square()
        out[some] = squares.sum(1).square_()
        if not diagonal:
            out[some] -= squares.square_().sum(1)
    return out.clamp_(min=0)


@dataclass(frozen=True, slots=True, eq=False)
class Symmetric:
    """Outer products: the block of client `owner[j]` packs `weights[j] vectors[j] vectors[j]^T`.

    Attributes:
        block: name of the declared block, of `packed_size` numbers.
        owner: positions in the cohort.
        weights: factors, float64, so that a norm is exact.
        vectors: one per client.
        diagonal: whether the diagonal is part of the block.
    """

    block: str
    owner: Int64[Tensor, " h"]
    weights: Float64[Tensor, " h"]
    vectors: Float[Tensor, "h side"]
    diagonal: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the packed blocks of all owners, as they would travel."""
        return len(self.owner) * self._size * self.vectors.element_size()

    def check(self, block: Block, clients: int) -> None:
        """Refuse vectors that do not fit `block`, or owners outside the cohort."""
        check_owner(self.block, self.owner, self.vectors, block, clients)
        check_unique(self.block, self.owner)
        if len(self.weights) != len(self.vectors):
            raise UpdateError(
                f"block {self.block!r}: {len(self.weights)} weights for {len(self.vectors)} vectors; give one each"
            )
        if block.shape != (self._size,):
            without = "" if self.diagonal else " without its diagonal"
            raise UpdateError(
                f"block {self.block!r} was declared with shape {block.shape}, but a symmetric matrix of "
                f"{self.vectors.shape[1]} rows{without} packs into {self._size} numbers"
            )

    def finite(self) -> bool:
        """Whether everything is finite and so small that no product can overflow."""
        if not self.vectors.numel():
            return True
        # The largest packed value there can be: weight times two entries times sqrt(2).
        reach = largest(self.vectors) ** 2 * _ROOT * largest(self.weights)
        return math.isfinite(reach) and reach <= torch.finfo(self.vectors.dtype).max

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |packed value|^order per client in float64, from the vectors alone."""
        if order == 2:
            own = squared_norms(self.vectors, diagonal=self.diagonal) * self.weights.square()
        else:
            sizes = self.vectors.double().abs()
            squares = sizes.square().sum(1)
            # sqrt(2) sum_{i<j} |v_i v_j| = ((sum_i |v_i|)^2 - sum_i v_i^2) / sqrt(2).
            own = (sizes.sum(1).square() - squares).clamp(min=0) / _ROOT
            own = (own + squares if self.diagonal else own) * self.weights.abs()
        return torch.zeros(clients, dtype=torch.float64).index_add_(0, self.owner, own)

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply the weights, in place."""
        self.weights.mul_(factors[self.owner])

    def add_to(self, total: Float[Tensor, " size"]) -> None:
        """One product over all clients, in the dtype of the vectors, added in that of `total`."""
        # A symmetric product takes the root of a weight on either side.
        roots, signs = self.weights.abs().sqrt().to(self.vectors.dtype), self.weights.sign().to(self.vectors.dtype)
        rooted = self.vectors * roots.unsqueeze(1)
        if total.is_cpu:
            # Rows of weight 0 stay: without them the sum over all others would be taken in another order.
            for sign, of_sign in ((1, signs >= 0), (-1, signs < 0)):
                if len(chosen := rooted.numpy()[of_sign.numpy()]):
                    _add_triangle(upper_gram(chosen), total.numpy(), self.diagonal, sign)
            return
        # [side, h] times [h, side].
        matrix = (rooted * signs.unsqueeze(1)).T @ rooted
        rows, columns, lengths = _triangle(len(matrix), diagonal=self.diagonal)
        total.add_(matrix[rows, columns] * lengths)

    def in_double(self) -> "Symmetric":
        """The same outer products of float64 vectors."""
        return replace(self, vectors=self.vectors.double())

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """True where every row has an owner."""
        return int((slots[self.owner] >= 0).sum()) == rows

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Multiply out the triangles of the chosen clients."""
        slot = slots[self.owner]
        chosen = slot >= 0
        vectors, weights = self.vectors[chosen], self.weights[chosen]
        if out.is_cpu:
            packed = torch.from_numpy(_packed(vectors.float().numpy(), weights.numpy(), self.diagonal))
        else:
            rows, columns, lengths = _triangle(vectors.shape[1], diagonal=self.diagonal)
            packed = weights.unsqueeze(1) * vectors[:, rows] * lengths * vectors[:, columns]
        out.index_copy_(0, slot[chosen], packed.to(out.dtype))

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Tensor:  # noqa: ARG002
        """A packed triangle has no rows.

        Raises:
            UpdateError: always.
        """
        raise UpdateError(f"block {self.block!r} is a packed triangle, so it has no rows to look up")

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Every coordinate of an owner is sent, zeros included."""
        slot = slots[self.owner]
        out[slot[slot >= 0]] = True

    @property
    def _size(self) -> int:
        return packed_size(self.vectors.shape[1], diagonal=self.diagonal)


def _triangle(
    side: int, *, diagonal: bool
) -> tuple[Int64[Tensor, " size"], Int64[Tensor, " size"], Float64[Tensor, " size"]]:
    """Row and column of every packed number, and what it is multiplied by."""
    rows, columns = torch.triu_indices(side, side, offset=0 if diagonal else 1)
    return rows, columns, torch.full(rows.shape, _ROOT, dtype=torch.float64).masked_fill_(rows == columns, 1.0)


@compiled
def _packed(vectors: Float32[np.ndarray, "h side"], weights: Float64[np.ndarray, " h"], diagonal: bool) -> np.ndarray:  # noqa: FBT001 (compiled code takes no keywords)
    h, side = vectors.shape
    out = np.empty((h, side * (side + 1) // 2 if diagonal else side * (side - 1) // 2), dtype=np.float32)
    for j in range(h):
        at = 0
        for row in range(side):
            scaled = weights[j] * vectors[j, row]
            if diagonal:
                out[j, at] = scaled * vectors[j, row]
                at += 1
            # Weight, row, sqrt(2), column: the same order of products as off the processor.
            scaled *= _ROOT
            for column in range(row + 1, side):
                out[j, at] = scaled * vectors[j, column]
                at += 1
    return out


@compiled
def _add_triangle(matrix: np.ndarray, total: np.ndarray, diagonal: bool, sign: int) -> None:  # noqa: FBT001 (as above)
    side, at = len(matrix), 0
    root = sign * _ROOT
    for row in range(side):
        if diagonal:
            total[at] += sign * matrix[row, row]
            at += 1
        for column in range(row + 1, side):
            total[at] += root * matrix[row, column]
            at += 1


@compiled
def _upper(packed: Float64[np.ndarray, " size"], side: int, diagonal: bool) -> np.ndarray:  # noqa: FBT001 (as above)
    out = np.zeros((side, side), dtype=np.float64)
    at = 0
    for row in range(side):
        if diagonal:
            out[row, row] = packed[at]
            at += 1
        for column in range(row + 1, side):
            out[row, column] = packed[at] / _ROOT
            at += 1
    return out
