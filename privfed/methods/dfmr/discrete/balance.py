"""Balanced, uncorrelated companions X, Y of the codes, row by row (discrete collaborative filtering, SIGIR 2016).

Of all Y with centred columns and Y^T Y = m I, the one closest to codes V is sqrt(m) (V - mean) (centred V^T V)^(-1/2):
a row needs only its own code, the mean and a d x d matrix, so Y is never stored and a client makes its own X. Where
the codes have a null direction any completion gives the same trace, so zero there is an exact substitute.
"""

import numpy as np
from jaxtyping import Float64, Int8

from privfed.compute.linear_algebra import eigenpairs

_NULL = 1e-9  # an eigenvalue below this share of the number of rows is a null direction


def inverse_root(mean: Float64[np.ndarray, "d"], gram: Float64[np.ndarray, "d d"]) -> Float64[np.ndarray, "d d"]:
    """Pseudo-inverse square root of the centred Gram matrix of codes; zero in null directions.

    Args:
        mean: column means of the codes.
        gram: codes^T codes, not centred; as codes are -1 or 1 its diagonal holds the number of rows.
    """
    rows = np.trace(gram) / len(mean)
    values, vectors = eigenpairs(gram - rows * np.outer(mean, mean))
    kept = values > _NULL * rows
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    root: Float64[np.ndarray, "d d"] = (vectors * scale) @ vectors.T
    return root


def balanced_rows(
    codes: Int8[np.ndarray, "n d"],
    mean: Float64[np.ndarray, "d"],
    root: Float64[np.ndarray, "d d"],
    rows: int,
) -> Float64[np.ndarray, "n d"]:
    """Rows of X (or Y) that belong to the given codes.

    Args:
        codes: some rows of the whole code table.
        mean: column means of the whole table.
        root: its `inverse_root`.
        rows: number of rows of the whole table.
    """
    balanced: Float64[np.ndarray, "n d"] = np.sqrt(rows) * (codes - mean) @ root
    return balanced
