"""PureSVD (Cremonesi, Koren & Turrin, RecSys 2010): the leading right singular vectors of the users' items.

With X = U S Q^T cut at rank k, the scores of a user with row x are x Q Q^T, which need nothing of
the user but that row.
"""

import numpy as np
from jaxtyping import Float64

from privfed.compute.linear_algebra import largest_singular_vectors, singular_triplets
from privfed.compute.memory import refuse_beyond_memory
from privfed.data import Histories
from privfed.methods.shared.incidence import incidence


def item_factors(histories: Histories, dim: int, seed: int = 0) -> Float64[np.ndarray, "items dim"]:
    """Q, the strongest direction first; columns beyond the rank that X can have are zero, as all are of empty lists.

    Args:
        histories: of the users; each item once.
        dim: k, at least 1.
        seed: of the vector that the iteration starts from, which decides rounding and signs only.
    """
    users, items = histories.n_users, histories.n_items
    dense = 2 * users * items if dim >= min(users, items) else 0
    refuse_beyond_memory(
        8 * (items * dim + dense),
        f"puresvd with {dim:,} directions of {users:,} users and {items:,} items",
        "set a smaller dim (below both numbers, lists stay sparse), or take a smaller catalogue",
    )
    factors = np.zeros((histories.n_items, dim))
    if not len(histories):
        return factors
    rows = incidence(histories)
    least = min(rows.shape)
    if dim < least:
        start = np.random.default_rng(seed).standard_normal(least)
        strengths, right = largest_singular_vectors(rows, dim, start)
        right = right[np.argsort(-strengths)]
    else:
        right = singular_triplets(rows.toarray())[2]
    factors[:, : len(right)] = right.T
    return factors
