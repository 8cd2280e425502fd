"""What clients of DFMR upload: names, shapes and proven bounds of every block, all of them whole numbers."""

import math

import numpy as np
from jaxtyping import Int8, Int64

from privfed.contracts import Block, Schema
from privfed.methods.dfmr.config import DFMRConfig
from privfed.methods.dfmr.discrete import IntegerGrid

FIELD, COUPLING, LOSS, INERTIA = "field", "coupling", "loss", "inertia"
CLIENTS, TOTALS, PRODUCTS = "clients", "totals", "products"
ITEMS, PROXIMAL = "items", "pull"

_LOSS_BITS = 40


def statistics_schema(config: DFMRConfig, grid: IntegerGrid) -> Schema:
    """Blocks of the first query of a round: q2, M, and what the settings need of moments, loss and inertia."""
    pairs = math.comb(grid.d, 2)
    schema = {
        FIELD: _integers((grid.d,), grid.field_bound),
        COUPLING: _integers((pairs,), grid.kappa_bound),
    }
    if config.alpha:
        schema |= {CLIENTS: _integers((1,), 1), TOTALS: _integers((grid.d,), 1), PRODUCTS: _integers((pairs,), 1)}
    if config.guarded:
        schema |= {
            LOSS: _integers((1,), (_largest_loss(grid) >> loss_shift(grid)) + 1),
            INERTIA: _integers((1,), grid.inertia_bound),
        }
    return schema


def bit_schema(grid: IntegerGrid) -> Schema:
    """Blocks of one bit: C for every item of a client's support, and its g."""
    return {
        ITEMS: _integers((grid.n_items, 1), grid.contribution_bound),
        PROXIMAL: _integers((1,), grid.proximal_bound),
    }


def loss_shift(grid: IntegerGrid) -> int:
    """Powers of two that a client's share of the objective is rounded down by, so that it has 40 bits at most."""
    return max(0, _largest_loss(grid).bit_length() - _LOSS_BITS)


def products_of(codes: Int8[np.ndarray, "rows d"]) -> Int64[np.ndarray, "d d"]:
    """codes^T codes, exactly: sums of ones stay far below 2^53."""
    real = codes.astype(np.float64)
    return (real.T @ real).astype(np.int64)


def symmetric(pairs: Int64[np.ndarray, "pairs"], d: int, diagonal: int = 0) -> Int64[np.ndarray, "d d"]:
    """The symmetric matrix with these entries above the diagonal, row by row, and one number on it."""
    matrix = np.zeros((d, d), np.int64)
    matrix[np.triu_indices(d, 1)] = pairs
    return matrix + matrix.T + diagonal * np.eye(d, dtype=np.int64)


def _largest_loss(grid: IntegerGrid) -> int:
    """Bound of 4 d^2 K times one client's share of the objective.

    No squared error is above (2d)^2 and no pair's above (4d)^2, and an item's weight stands before m pairs at most.
    """
    weights = int(np.maximum(grid.purchase.astype(object), grid.examine.astype(object)).sum())
    return 4 * grid.d**2 * grid.n_items * (max(grid.w, grid.s) + 4 * weights)


def _integers(shape: tuple[int, ...], bound: int) -> Block:
    return Block(shape, "integer", bound=max(bound, 1))
