"""The objective of DFMR itself, per user, for a guard on its descent; without the balance terms.

    w sum_P (d - a)^2 + s sum_not-P (d + a)^2
      + sum over i in P: lam c_i [sum_E (g1 - a_i + a_j)^2 + sum_O (g2 - a_i + a_k)^2]
      + sum over j in E: (1 - lam) c_j sum_O (g3 - a_j + a_k)^2

times 1/(4 d^2), with a = U_u.V_i, ratings 1/2 + a/(2d) and margins in units of 1/(2d). Sums over the catalogue come
from p1 and V^T V.
"""

import numpy as np
from jaxtyping import Float64, Int8, Int32, Int64, UInt64

from privfed.compute.compiled import compiled
from privfed.methods.dfmr.discrete.grid import GridNumbers, IntegerGrid
from privfed.methods.dfmr.discrete.shapes import as_indices, check_shapes
from privfed.methods.dfmr.discrete.support import ItemSupport, SupportArrays


def objective(
    grid: IntegerGrid,
    support: ItemSupport,
    users: Int64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    scores: Int32[np.ndarray, "entries"],
    gram: Int64[np.ndarray, "d d"],
    totals: Int64[np.ndarray, "d"],
) -> Float64[np.ndarray, "n"]:
    """4 d^2 K times the loss of each called user, without the balance terms.

    Those add -2 x the sum of (rounded 4 d^2 K alpha X) x U for users, and the same with Y and V for items.

    Args:
        grid: hyper-parameters.
        support: supports of all hosted users.
        users: the called ones, in any order.
        codes: user codes.
        scores: U_u.V_i of every entry, up to date for `users`.
        gram: V^T V.
        totals: p1, the sum of all item codes.

    Raises:
        DiscreteError: Arrays that do not belong together.
    """
    check_shapes(
        grid, support, users, codes=(codes, (support.n_users, grid.d)), scores=(scores, (len(support.items),)),
        gram=(gram, (grid.d, grid.d)), totals=(totals, (grid.d,)),
    )  # fmt: skip
    return _objective(support.arrays, grid.numbers, as_indices(users), codes, scores, gram, totals)


@compiled
def _objective(
    support: SupportArrays,
    grid: GridNumbers,
    users: UInt64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    scores: Int32[np.ndarray, "entries"],
    gram: Int64[np.ndarray, "d d"],
    totals: Int64[np.ndarray, "d"],
) -> Float64[np.ndarray, "n"]:
    indptr, items, kind, n_purchased, n_examined, _ = support
    weights, w, s, g1, g2, g3 = grid
    n_items = weights.shape[1]
    d = codes.shape[1]
    losses = np.empty(len(users), dtype=np.float64)
    for k in range(len(users)):
        user = users[k]
        # Whole catalogue first; purchases and examinations are taken away below to leave the rest.
        a_rest = square_rest = np.int64(0)
        for f in range(d):
            a_rest += codes[user, f] * totals[f]
            inner = np.int64(0)
            for g in range(d):
                inner += gram[f, g] if codes[user, g] > 0 else -gram[f, g]
            square_rest += codes[user, f] * inner
        a_seen = square_seen = points = np.int64(0)
        # Weighted sums of 1, (margin - a) and (margin - a)^2 over purchases, for both margins, and over examinations.
        weight_p = first_1 = second_1 = first_2 = second_2 = 0.0
        weight_e = first_3 = second_3 = 0.0
        for e in range(indptr[user], indptr[user + np.uint64(1)]):
            a = np.int64(scores[e])
            if kind[e] == 1:
                c = np.float64(weights[1, items[e]])
                a_rest -= a
                square_rest -= a * a
                points += (d - a) * (d - a)
                weight_p += c
                first_1 += c * (g1 - a)
                second_1 += c * ((g1 - a) * (g1 - a))
                first_2 += c * (g2 - a)
                second_2 += c * ((g2 - a) * (g2 - a))
            elif kind[e] == 2:
                c = np.float64(weights[2, items[e]])
                a_rest -= a
                square_rest -= a * a
                a_seen += a
                square_seen += a * a
                weight_e += c
                first_3 += c * (g3 - a)
                second_3 += c * ((g3 - a) * (g3 - a))
        n_seen = n_examined[user]
        n_rest = n_items - n_purchased[user] - n_seen
        others = (n_seen + n_rest) * d * d + 2 * d * (a_seen + a_rest) + square_seen + square_rest
        losses[k] = (
            np.float64(w) * points
            + np.float64(s) * others
            + n_seen * second_1 + 2.0 * a_seen * first_1 + weight_p * square_seen
            + n_rest * second_2 + 2.0 * a_rest * first_2 + weight_p * square_rest
            + n_rest * second_3 + 2.0 * a_rest * first_3 + weight_e * square_rest
        )  # fmt: skip
    return losses
