"""`CodeProducts`: per client, the products of every two bits of a private code, times a private whole number.

The block of a client with code x in {-1, +1}^d and weight k holds k x_f x_g for f < g, in the order of the upper
triangle. The sum over all clients is the upper triangle of X^T diag(k) X, made without a table of clients x pairs
(DFMR's matrix M).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int8, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import on_host, placed
from privfed.contracts.schema import Block, UpdateError
from privfed.updates.parts import check_owner, check_unique


@dataclass(frozen=True, slots=True, eq=False)
class CodeProducts:
    """Products of code bits: the block of client `owner[j]` is `weights[j] codes[j, f] codes[j, g]`, f < g."""

    block: str
    owner: Int64[Tensor, " h"]
    weights: Int64[Tensor, " h"]
    codes: Int8[Tensor, "h d"]

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks of all owners, as they would travel."""
        return len(self.owner) * math.comb(self.codes.shape[1], 2) * self.weights.element_size()

    def check(self, block: Block, clients: int) -> None:
        """Refuse codes that do not fit `block`, or owners outside the cohort."""
        check_owner(self.block, self.owner, self.weights, block, clients)
        check_unique(self.block, self.owner)
        pairs = math.comb(self.codes.shape[1], 2)
        if block.shape != (pairs,) or block.kind != "integer":
            raise UpdateError(
                f"block {self.block!r} was declared as {block.kind} of shape {block.shape}, but codes of "
                f"{self.codes.shape[1]} bits have {pairs} products, which are integers"
            )

    def finite(self) -> bool:
        """Whole numbers always are."""
        return True

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order per client in float64: every product has the magnitude of the weight."""
        own = self.weights.double().abs().pow(order) * math.comb(self.codes.shape[1], 2)
        return torch.zeros(clients, dtype=torch.float64).index_add_(0, self.owner, own)

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:  # noqa: ARG002
        """Integer blocks are never scaled.

        Raises:
            UpdateError: always.
        """
        raise UpdateError(f"block {self.block!r} holds whole numbers, which a factor would not leave whole")

    def add_to(self, total: Int64[Tensor, " pairs"]) -> None:
        """The upper triangle of X^T diag(k) X, exactly (modulo 2^64)."""
        total.add_(placed(_weighted_products(on_host(self.codes), on_host(self.weights))))

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """True where every row has an owner."""
        return int((slots[self.owner] >= 0).sum()) == rows

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Multiply out the products of the chosen clients."""
        slot = slots[self.owner]
        chosen = slot >= 0
        products = placed(_every_product(on_host(self.codes[chosen]), on_host(self.weights[chosen])))
        out.index_copy_(0, slot[chosen], products.to(out.dtype))

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Tensor:  # noqa: ARG002
        """A vector has no rows.

        Raises:
            UpdateError: always.
        """
        raise UpdateError(f"block {self.block!r} is a vector, so it has no rows to look up")

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Every coordinate of an owner is sent."""
        slot = slots[self.owner]
        out[slot[slot >= 0]] = True


@compiled
def _weighted_products(codes: Int8[np.ndarray, "h d"], weights: Int64[np.ndarray, "h"]) -> Int64[np.ndarray, "pairs"]:
    """A product of two bits is 1 where they agree, so agreements are summed: twice their weights less all weights."""
    rows, d = codes.shape
    agree = np.zeros((d, d), dtype=np.int64)
    mask = np.empty(d, dtype=np.int64)
    everything = np.int64(0)
    for row in range(rows):
        weight = weights[row]
        everything += weight
        for f in range(d):
            # mask[g] ^ flip is the weight where bits f and g agree, else 0: no branch and no product in the inner loop.
            mask[f] = weight if codes[row, f] > 0 else 0
        for f in range(d):
            flip = np.int64(0) if codes[row, f] > 0 else weight
            for g in range(d):
                agree[f, g] += mask[g] ^ flip
    out = np.empty(d * (d - 1) // 2, dtype=np.int64)
    pair = 0
    for f in range(d - 1):
        for g in range(f + 1, d):
            # Agreements less disagreements, which are all weights less agreements.
            out[pair] = 2 * agree[f, g] - everything
            pair += 1
    return out


@compiled
def _every_product(codes: Int8[np.ndarray, "h d"], weights: Int64[np.ndarray, " h"]) -> Int64[np.ndarray, "h pairs"]:
    rows, d = codes.shape
    out = np.empty((rows, d * (d - 1) // 2), dtype=np.int64)
    signed = np.empty(d, dtype=np.int64)
    for row in range(rows):
        for g in range(d):
            signed[g] = weights[row] if codes[row, g] > 0 else -weights[row]
        pair = 0
        for f in range(d - 1):
            for g in range(f + 1, d):
                out[row, pair] = signed[g] if codes[row, f] > 0 else -signed[g]
                pair += 1
    return out
