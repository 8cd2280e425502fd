"""Matrix decompositions that survive a solver which fails.

An iterative LAPACK or ARPACK routine may fail on some processor for a matrix that another routine decomposes without
trouble. Each function here tries the fastest routine first, then others for the same decomposition, at last of the
whole matrix. What it raises is what the last of them raised. The first routine alone decides the result wherever it
does not fail; another one may choose other signs, or another basis of an eigenspace.

Tensors are decomposed where they live; where that fails, by the routines of the host, which brings the results back.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import scipy
import torch
from jaxtyping import Float, Float64
from scipy.sparse import csr_array
from torch import Tensor

from privfed.compute.devices import on_host

Eigenpairs = tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, "side d"]]

_ROUNDING = 1e-5
"""Share of the largest eigenvalue below which others are zero but for rounding of sums in single precision."""

_LEFT = 1e-10
"""Share of a matrix's largest number that a factor of fewer columns may leave."""

_BLOCK = 64
"""Side of the blocks in which a matrix is transposed: two of them fit into a core's first cache."""

_Result = TypeVar("_Result")


@cache
def failures() -> tuple[type[Exception], ...]:
    """What a routine raises that does not converge, or finds a pivot of zero or below."""
    return np.linalg.LinAlgError, vars(torch.linalg)["LinAlgError"], scipy.sparse.linalg.ArpackError


def first_that_works(*solvers: Callable[[], _Result]) -> _Result:
    """The result of the first of `solvers` that does not fail."""
    for solve in solvers[:-1]:
        try:
            return solve()
        except failures():
            continue
    return solvers[-1]()


def eigenpairs(matrix: Float64[np.ndarray, "side side"]) -> Eigenpairs:
    """Eigenvalues of a symmetric matrix, ascending, and unit eigenvectors, one per column."""
    return first_that_works(
        # Divide and conquer, then relatively robust representations, then QR iteration: slower each time, and sturdier.
        lambda: tuple(np.linalg.eigh(matrix)),
        lambda: scipy.linalg.eigh(matrix),
        lambda: scipy.linalg.eigh(matrix, driver="ev"),
    )


def largest_eigenpairs(matrix: Float64[np.ndarray, "side side"], max_pairs: int) -> Eigenpairs:
    """At most `max_pairs` of the `eigenpairs`, those of the largest eigenvalues; `max_pairs` is at least 1."""
    side = len(matrix)
    # More may be wanted than there are; None takes all.
    part = (side - max_pairs, side - 1) if max_pairs < side else None

    def of_all() -> Eigenpairs:
        values, vectors = eigenpairs(matrix)
        return values[-max_pairs:], vectors[:, -max_pairs:]

    return first_that_works(
        lambda: scipy.linalg.eigh(matrix, subset_by_index=part, check_finite=False),
        # Bisection and inverse iteration fail on other matrices than the default does.
        lambda: scipy.linalg.eigh(matrix, subset_by_index=part, driver="evx"),
        of_all,
    )


def leading_eigenvectors(
    matrix: Float64[np.ndarray, "side side"], dim: int, start: Float64[np.ndarray, " side"]
) -> Float64[np.ndarray, "side d"]:
    """Eigenvectors of the largest eigenvalues of a symmetric matrix, one per column: `dim`, or all where dim >= side.

    Those of eigenvalues that are zero but for rounding are left out, because any basis of their space is as good.

    Args:
        matrix: too large for all pairs, or not.
        dim: how many.
        start: vector that the iteration starts from.
    """

    def iterated() -> Eigenpairs:
        values, vectors = scipy.sparse.linalg.eigsh(matrix, k=dim, which="LA", v0=start)
        return values, vectors

    exact = partial(largest_eigenpairs, matrix, dim)
    values, vectors = exact() if dim >= len(matrix) else first_that_works(iterated, exact)
    return vectors[:, values > _ROUNDING * np.abs(values).max()]


def singular_triplets(
    matrix: Float64[np.ndarray, "rows columns"],
) -> tuple[Float64[np.ndarray, "rows d"], Float64[np.ndarray, " d"], Float64[np.ndarray, "d columns"]]:
    """U, s, V^T of a matrix U s V^T, the largest singular value first; d is its smaller side."""
    left, values, right = first_that_works(
        # Divide and conquer first; QR iteration (gesvd) takes longer and converges where that does not.
        lambda: tuple(np.linalg.svd(matrix, full_matrices=False)),
        lambda: scipy.linalg.svd(matrix, full_matrices=False, lapack_driver="gesvd"),
    )
    return left, values, right


def largest_singular_vectors(
    rows: csr_array, dim: int, start: Float64[np.ndarray, " least"]
) -> tuple[Float64[np.ndarray, " dim"], Float64[np.ndarray, "dim columns"]]:
    """The `dim` largest singular values of a sparse matrix, in any order, and their right singular vectors, as rows.

    Args:
        rows: the matrix.
        dim: below both of its sides.
        start: vector that the iteration starts from, as long as the smaller side.
    """

    def iterated() -> tuple[np.ndarray, np.ndarray]:
        _, values, right = scipy.sparse.linalg.svds(rows, k=dim, v0=start)
        return values, right

    def by_squares() -> tuple[np.ndarray, np.ndarray]:
        # The smaller of both Gram matrices, [least, least]. Squaring loses digits of small singular values, so this
        # comes last; a value of 0 has no right vector to scale, and its row stays 0.
        wide = rows.shape[0] < rows.shape[1]
        squares, vectors = largest_eigenpairs((rows @ rows.T if wide else rows.T @ rows).toarray(), dim)
        values = np.sqrt(squares.clip(min=0))
        return values, ((rows.T @ vectors) / np.where(values > 0, values, 1) if wide else vectors).T

    return first_that_works(iterated, by_squares)


def orthonormal_columns(matrix: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "rows d"]:
    """Q of the QR decomposition."""
    return first_that_works(
        lambda: np.linalg.qr(matrix)[0],
        lambda: scipy.linalg.qr(matrix, mode="economic")[0],
    )


def least_squares(
    matrix: Float64[np.ndarray, "rows columns"], right: Float64[np.ndarray, " rows"]
) -> Float64[np.ndarray, " columns"]:
    """The shortest x of smallest |matrix x - right|."""
    return first_that_works(
        # By singular values, then by QR with pivots, which involves no iteration that could fail.
        lambda: np.linalg.lstsq(matrix, right, rcond=None)[0],
        lambda: scipy.linalg.lstsq(matrix, right, lapack_driver="gelsy")[0],
    )


def solve_positive(
    matrix: Float64[np.ndarray, "side side"], right: Float64[np.ndarray, "side columns"]
) -> Float64[np.ndarray, "side columns"]:
    """X of matrix X = right, the matrix symmetric and positive definite, if only before rounding."""

    def by_eigenpairs() -> np.ndarray:
        values, vectors = eigenpairs(matrix)
        solved: np.ndarray = vectors @ ((vectors.T @ right) / _positive(values)[:, None])
        return solved

    return first_that_works(
        # Cholesky fails where rounding took positive definiteness away; eigenvalues can then be lifted above 0.
        lambda: scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix, check_finite=False), right, check_finite=False),
        by_eigenpairs,
    )


def inverse_positive(matrix: Float64[np.ndarray, "side side"], lift: float = 0.0) -> Float64[np.ndarray, "side side"]:
    """The inverse of a symmetric matrix with `lift` added to its diagonal, symmetric to the bit.

    The sum is positive definite, if only before rounding.
    """

    def lifted() -> Float64[np.ndarray, "side side"]:
        copy = matrix.copy()
        copy.flat[:: len(matrix) + 1] += lift
        return copy

    def by_triangles() -> np.ndarray:
        # Factor and inverse take the place of the copy.
        factor, _ = scipy.linalg.cho_factor(lifted().T, lower=True, overwrite_a=True, check_finite=False)
        inverse, singular = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
        if singular:
            raise np.linalg.LinAlgError("a factor has a zero on its diagonal")
        return mirrored(inverse.T)

    def by_eigenpairs() -> np.ndarray:
        values, vectors = eigenpairs(lifted())
        roots = vectors / np.sqrt(_positive(values))
        inverse: np.ndarray = roots @ roots.T
        return inverse

    return first_that_works(by_triangles, by_eigenpairs)


def orthogonal_roots(
    kernel: Float64[np.ndarray, "side side"],
) -> tuple[Float64[np.ndarray, "side d"], Float64[np.ndarray, " d"]]:
    """Orthogonal columns H and their squared lengths, so that H H^T is a positive semidefinite matrix of rank d.

    Of any other symmetric matrix, the nearest positive semidefinite one.
    """

    def by_pivots() -> tuple[np.ndarray, np.ndarray]:
        # Columns are taken until nothing but rounding is left: few for kernels of few public features.
        least = len(kernel) * np.finfo(np.float64).eps * kernel.diagonal().max()
        factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(kernel.T, lower=1, tol=least)
        columns = np.empty((len(kernel), rank))
        columns[pivots - 1] = np.tril(factor[:, :rank])
        if np.abs(columns @ columns.T - kernel).max() > _LEFT * np.abs(kernel).max():
            raise np.linalg.LinAlgError("the matrix is not positive semidefinite")
        scales, turn = eigenpairs(columns.T @ columns)
        return columns @ turn, np.maximum(scales, 0)

    def by_eigenpairs() -> tuple[np.ndarray, np.ndarray]:
        scales, vectors = eigenpairs(kernel)
        scales = np.maximum(scales, 0)
        return vectors * np.sqrt(scales), scales

    return first_that_works(by_pivots, by_eigenpairs)


def upper_gram(rows: Float[np.ndarray, "rows side"]) -> Float[np.ndarray, "side side"]:
    """Upper triangle of the sum of the outer products of rows with themselves; zeros below it.

    Half the work of a product of two matrices, in the dtype of the rows.
    """
    product = scipy.linalg.blas.get_blas_funcs("syrk", (rows,))
    # Column by column to the routine, so that nothing is copied and its lower triangle is the upper one here.
    upper: np.ndarray = product(1.0, np.ascontiguousarray(rows).T, lower=1).T
    return upper


def mirrored(upper: Float64[np.ndarray, "side side"]) -> Float64[np.ndarray, "side side"]:
    """The symmetric matrix of an upper triangle, in place."""
    for first in range(0, len(upper), _BLOCK):
        block = slice(first, first + _BLOCK)
        upper[block, :first] = upper[:first, block].T
        corner = np.triu(upper[block, block])
        upper[block, block] = corner + np.triu(corner, 1).T
    return upper


def _positive(values: Float64[np.ndarray, " side"]) -> Float64[np.ndarray, " side"]:
    """Eigenvalues of a matrix that is positive definite before rounding, none below what rounding makes of zero."""
    least = len(values) * np.finfo(np.float64).eps * values.max(initial=np.finfo(np.float64).tiny)
    positive: np.ndarray = np.maximum(values, least)
    return positive


def eigenpairs_of(
    matrices: Float64[Tensor, "*any side side"],
) -> tuple[Float64[Tensor, "*any side"], Float64[Tensor, "*any side side"]]:
    """`eigenpairs` of each of some tensors."""
    values, vectors = first_that_works(
        lambda: tuple(torch.linalg.eigh(matrices)), lambda: _one_by_one(eigenpairs, matrices)
    )
    return values, vectors


def singular_triplets_of(
    matrix: Float64[Tensor, "rows columns"],
) -> tuple[Float64[Tensor, "rows d"], Float64[Tensor, " d"], Float64[Tensor, "d columns"]]:
    """`singular_triplets` of a tensor."""
    left, values, right = first_that_works(
        lambda: tuple(torch.linalg.svd(matrix, full_matrices=False)), lambda: _one_by_one(singular_triplets, matrix)
    )
    return left, values, right


def solve_positive_of(
    matrices: Float64[Tensor, "batch side side"], right: Float64[Tensor, "batch side"]
) -> Float64[Tensor, "batch side"]:
    """Solution x of matrix x = right for each of some symmetric matrices, positive definite if only before rounding."""
    columns = right.unsqueeze(2)
    solved: Tensor = first_that_works(
        lambda: torch.cholesky_solve(columns, torch.linalg.cholesky(matrices)),
        lambda: torch.linalg.solve(matrices, columns),
        lambda: _one_by_one(solve_positive, matrices, columns)[0],
    )
    return solved[:, :, 0]


def inverse_positive_of(matrix: Float64[Tensor, "side side"]) -> Float64[Tensor, "side side"]:
    """`inverse_positive` of a tensor."""
    return first_that_works(
        lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)),
        lambda: _one_by_one(inverse_positive, matrix)[0],
    )


def _one_by_one(decompose: Callable[..., Any], *batches: Float64[Tensor, "..."]) -> tuple[Tensor, ...]:
    """`decompose` of each matrix of the batches, on the host; tensors of what it returns, on the device."""
    batch, device = batches[0].shape[:-2], batches[0].device
    flat = [on_host(matrices).reshape(-1, *matrices.shape[-2:]) for matrices in batches]
    results = [decompose(*matrices) for matrices in zip(*flat, strict=True)]
    parts = zip(*(result if isinstance(result, tuple) else (result,) for result in results), strict=True)
    stacked = [torch.from_numpy(np.stack(part)).to(device) for part in parts]
    return tuple(part.reshape(*batch, *part.shape[1:]) for part in stacked)
