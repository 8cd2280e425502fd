"""Normal equations of many small least squares problems, as machine code: one problem after the other.

A problem is a symmetric positive definite matrix and a right hand side. Weighted rows of a table are added to both,
then it is solved by L D L^T, Cholesky's method without square roots. All of this comes down to sums of products of two
rows, of which some stay in registers (`privfed.compute.vector_lanes`), in an order that depends on the problem alone.

Of a matrix only the blocks of `LANES` columns that hold its upper triangle are used. Its side is a multiple of `LANES`:
rows are `padded` with zeros, and whatever is added to the diagonal keeps the matrix positive definite.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from privfed.compute.compiled import compiled
from privfed.compute.vector_lanes import LANES, filled, load, spread, store, total

_ROWS = 32
"""Rows of a table that are copied, and then multiplied while they are in a core's first cache."""

_PANEL = 4
"""Rows of a matrix that are factored together: an even number, and a divisor of `LANES`."""

_ABOVE = np.triu(np.ones((LANES, LANES)), 1)


class Problem(NamedTuple):
    """Memory of one problem after the other.

    Attributes:
        matrix: of the problem, until it is solved.
        side: right hand side, and then the solution.
        left, right: copies of rows, weighted and not.
        factor: of the matrix: -L^T without its diagonal.
    """

    matrix: Float64[np.ndarray, "side side"]
    side: Float64[np.ndarray, "side"]
    left: Float64[np.ndarray, "copies side"]
    right: Float64[np.ndarray, "copies side"]
    factor: Float64[np.ndarray, "side side"]


def padded(rows: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows side"]:
    """The rows with as many zeros behind as make their width a multiple of `LANES`."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % LANES)))


@compiled
def problem_of(side: int) -> Problem:
    """Memory for problems of that side."""
    return Problem(
        np.empty((side, side)),
        np.empty(side),
        np.empty((_ROWS, side)),
        np.empty((_ROWS, side)),
        np.empty((side, side)),
    )


@compiled
def start(problem: Problem, matrix: Float64[np.ndarray, "side side"], ridge: float) -> None:
    """A new problem: of a matrix with `ridge` added to its diagonal, and a right hand side of zeros."""
    to, side = problem.matrix, len(matrix)
    problem.side[:] = 0
    for f in range(side):
        for first in range(f // LANES * LANES, side, LANES):
            store(to, (f, first), load(matrix, (f, first)))
        to[f, f] += ridge


@compiled
def add_matrix(problem: Problem, matrix: Float64[np.ndarray, "side side"], weight: float) -> None:
    """Add a matrix, weighted, to that of the problem."""
    to, side = problem.matrix, len(matrix)
    for f in range(side):
        for first in range(f // LANES * LANES, side, LANES):
            store(to, (f, first), load(to, (f, first)) + filled(weight) * load(matrix, (f, first)))


@compiled
def add_rows(
    problem: Problem,
    table: Float64[np.ndarray, "rows side"],
    taken: Int64[np.ndarray, " n"],
    weights: Float64[np.ndarray, " n"],
    targets: Float64[np.ndarray, " n"],
) -> None:
    """Add weight x row row^T to the matrix, and target x row to the right hand side, for every row taken."""
    matrix, side, left, right, _ = problem
    for begin in range(0, len(taken), _ROWS):
        count = min(_ROWS, len(taken) - begin)
        for first in range(0, len(side), LANES):
            sums = load(side, (first,))
            for r in range(count):
                row = load(table, (taken[begin + r], first))
                store(left, (r, first), filled(weights[begin + r]) * row)
                store(right, (r, first), row)
                sums = sums + filled(targets[begin + r]) * row
            store(side, (first,), sums)
        _add_products(left, right, count, 0, len(side), matrix)


@compiled
def _add_products(
    left: Float64[np.ndarray, "terms side"],
    right: Float64[np.ndarray, "terms side"],
    terms: int,
    begin: int,
    end: int,
    matrix: Float64[np.ndarray, "side side"],
) -> None:
    """Add left^T right, of the first `terms` rows of both, to the rows of the matrix from `begin` to `end`."""
    for first in range(begin // LANES * LANES, len(matrix), LANES):
        # Two rows of the matrix at a time: as many sums as the registers of common processors hold.
        for f in range(begin, min(end, first + LANES), 2):
            one, two = load(matrix, (f, first)), load(matrix, (f + 1, first))
            for t in range(terms):
                row = load(right, (t, first))
                one = one + spread(left, (t, f)) * row
                two = two + spread(left, (t, f + 1)) * row
            store(matrix, (f, first), one)
            store(matrix, (f + 1, first), two)


@compiled
def solve(problem: Problem) -> bool:
    """Put the solution in the place of the right hand side; where a pivot is not above 0, NaN, and return False."""
    matrix, side, _, _, factor = problem
    for begin in range(0, len(side), _PANEL):
        _add_products(factor, matrix, begin, begin, begin + _PANEL, matrix)
        for k in range(begin, begin + _PANEL):
            block, own = k // LANES * LANES, side[k]
            for first in range(block, len(side), LANES):
                row = load(matrix, (k, first))
                for j in range(begin, k):
                    row = row + spread(factor, (j, k)) * load(matrix, (j, first))
                store(matrix, (k, first), row)
                if first == block:
                    pivot = matrix[k, k]
                    if not pivot > 0:
                        side[:] = np.nan
                        return False
                    row = row * load(_ABOVE, (k - block, 0))
                row = row * filled(-1 / pivot)
                store(factor, (k, first), row)
                store(side, (first,), load(side, (first,)) + row * filled(own))
    for k in range(len(side) - 1, -1, -1):
        products = filled(0.0)
        for first in range(k // LANES * LANES, len(side), LANES):
            products = products + load(factor, (k, first)) * load(side, (first,))
        side[k] = side[k] / matrix[k, k] + total(products)
    return True
