"""What one upload of FedCIA shows: its leading eigenvector is the sender's history."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from privfed.contracts import Schema
from privfed.methods.attack_surface import AttackSurface, ItemBlocks
from privfed.methods.fedcia.server import SIMILARITY
from privfed.updates import unpacked

_STEPS = 30


class OuterProducts(AttackSurface):
    """The surface of item-item matrices: one number per item, its entry of the leading eigenvector.

    An upload is c x x^T and noise, so the eigenvector is x over its length, and the noise of the whole matrix moves it
    by no more than a spectral norm of noise over c.
    """

    has_item_rows = True

    def item_blocks(self, config: Any, schema: Schema) -> ItemBlocks:  # noqa: ARG002 (names do not depend on it)
        """Rows made of the packed matrix."""
        return ItemBlocks(None, rows=_leading)


def _leading(blocks: Mapping[str, Tensor]) -> Float[Tensor, "n items 1"]:
    """The leading eigenvectors, as long as the roots of their eigenvalues; an adversary's work, matrix by matrix."""
    packed = blocks[SIMILARITY]
    # A triangle with m items on its side has m (m + 1) / 2 numbers.
    items = (math.isqrt(1 + 8 * packed.shape[1]) - 1) // 2
    return torch.stack([_eigenvector(unpacked(one, items)).float().unsqueeze(1) for one in packed])


def _eigenvector(matrix: Float64[Tensor, "items items"]) -> Float64[Tensor, " items"]:
    """By power iteration from popularity as the matrix has it: positive, so no history is orthogonal to the start."""
    vector = matrix.abs().sum(1)
    for _ in range(_STEPS):
        vector = matrix @ (vector / vector.norm().clamp(min=torch.finfo(vector.dtype).tiny))
    # The last product is the eigenvalue times a unit vector.
    scaled: Tensor = vector / vector.norm().clamp(min=torch.finfo(vector.dtype).tiny).sqrt()
    return scaled
