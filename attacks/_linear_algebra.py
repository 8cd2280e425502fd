"""Matrix decompositions that survive a failing solver: the fastest routine first, then others.

An iterative LAPACK or ARPACK routine may fail on some processor for a matrix that another routine decomposes without
trouble. The first routine alone decides the result unless it fails; another one may choose other signs.
"""

from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Bool, Float64
from scipy.sparse import csr_array

_FAILURES = (np.linalg.LinAlgError, scipy.sparse.linalg.ArpackError)
_Result = TypeVar("_Result")


def _first_that_works(*solvers: Callable[[], _Result]) -> _Result:
    for solve in solvers[:-1]:
        try:
            return solve()
        except _FAILURES:
            continue
    return solvers[-1]()


def eigenpairs(
    matrices: Float64[np.ndarray, "*any side side"],
) -> tuple[Float64[np.ndarray, "*any side"], Float64[np.ndarray, "*any side side"]]:
    """Eigenvalues of each symmetric matrix, ascending, and unit eigenvectors, one per column."""
    return _first_that_works(
        lambda: np.linalg.eigh(matrices)[:2],
        lambda: _one_by_one(matrices, "evr"),
        lambda: _one_by_one(matrices, "ev"),
    )


def _one_by_one(
    matrices: Float64[np.ndarray, "*any side side"], driver: Literal["evr", "ev"]
) -> tuple[np.ndarray, np.ndarray]:
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    values, vectors = zip(*(scipy.linalg.eigh(matrix, driver=driver) for matrix in flat), strict=True)
    return np.stack(values).reshape(matrices.shape[:-1]), np.stack(vectors).reshape(matrices.shape)


def orthonormal_columns(matrix: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "rows d"]:
    """Q of the QR decomposition of a matrix."""
    return _first_that_works(
        lambda: np.linalg.qr(matrix)[0],
        lambda: scipy.linalg.qr(matrix, mode="economic")[0],
    )


def largest_singular_vectors(
    table: Bool[np.ndarray, "rows columns"], width: int
) -> tuple[Float64[np.ndarray, " width"], Float64[np.ndarray, "width columns"]]:
    """The `width` largest singular values, ascending, and their right singular vectors, one per row."""
    rows = csr_array(table.astype(np.float64))

    def truncated() -> tuple[np.ndarray, np.ndarray]:
        # A fixed start makes the result independent of the global random state.
        start = np.ones(min(rows.shape))
        _, values, right = scipy.sparse.linalg.svds(rows, k=width, v0=start, return_singular_vectors=True)
        return values, right

    def complete(driver: Literal["gesdd", "gesvd"]) -> tuple[np.ndarray, np.ndarray]:
        _, values, right = scipy.linalg.svd(rows.toarray(), full_matrices=False, lapack_driver=driver)
        return values[width - 1 :: -1], right[width - 1 :: -1]

    return _first_that_works(truncated, lambda: complete("gesdd"), lambda: complete("gesvd"))
