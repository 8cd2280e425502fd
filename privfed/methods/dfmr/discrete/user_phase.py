"""The user phase of DFMR: each client updates its own code, bit by bit, and sends nothing.

With pair(S, T; c, g) = sum over i in S, j in T of c_i (g - a_i + a_j)(v_i - v_j), where a leaves bit f out and v is
item codes at f, the field of a user bit is

    2 d^2 K U*_uf = w sum_P (d - a) v - s sum_not-P (d + a) v
                    + pair(P, E; lam c, g1) + pair(P, O; lam c, g2) + pair(E, O; (1 - lam) c, g3) + balance

Sums over O are those over the catalogue, known from p1 and V^T V, less those over P and E. Sums over P and E of
every bit are made in one pass; only a client whose code has begun to change makes those of later bits anew.
"""

import numpy as np
from jaxtyping import Int8, Int32, Int64, UInt8, UInt64

from privfed.compute.compiled import compiled
from privfed.methods.dfmr.discrete.grid import GridNumbers, IntegerGrid
from privfed.methods.dfmr.discrete.shapes import as_indices, check_shapes
from privfed.methods.dfmr.discrete.support import ItemSupport, SupportArrays

# Sums over a user's entries of one kind: of v, c v, a v and c a v at every bit; and of c, a and c a.
_V, _CV, _AV, _CAV = range(4)
_C, _A, _CA = range(3)


def update_codes(
    grid: IntegerGrid,
    support: ItemSupport,
    users: Int64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
    gram: Int64[np.ndarray, "d d"],
    totals: Int64[np.ndarray, "d"],
    balance: Int64[np.ndarray, "n d"] | None = None,
) -> tuple[Int8[np.ndarray, "n d"], Int64[np.ndarray, "n"]]:
    """One sweep over the bits of the called users; ties keep a bit.

    Args:
        grid: hyper-parameters.
        support: supports of all hosted users.
        users: the called ones, each at most once, in any order.
        codes: user codes; not written to.
        item_codes: V.
        scores: U_u.V_i of every entry, up to date for `users`; brought IN PLACE to the new codes. Cover entries are
            neither read nor written.
        gram: V^T V.
        totals: p1, the sum of all item codes.
        balance: 4 d^2 K alpha X of the called users, rounded; None where alpha is 0.

    Returns:
        New codes of the called users, and how many bits of each flipped.

    Raises:
        DiscreteError: Arrays that do not belong together.
    """
    check_shapes(
        grid, support, users, codes=(codes, (support.n_users, grid.d)),
        item_codes=(item_codes, (grid.n_items, grid.d)), scores=(scores, (len(support.items),)),
        gram=(gram, (grid.d, grid.d)), totals=(totals, (grid.d,)),
        **({} if balance is None else {"balance": (balance, (len(users), grid.d))}),
    )  # fmt: skip
    new = codes[users]
    flips = _update_codes(
        support.arrays, grid.numbers, as_indices(users), item_codes, scores, gram, totals,
        np.zeros((0, grid.d), np.int64) if balance is None else balance, new,
    )  # fmt: skip
    return new, flips


@compiled
def _update_codes(
    support: SupportArrays,
    grid: GridNumbers,
    users: UInt64[np.ndarray, "n"],
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
    gram: Int64[np.ndarray, "d d"],
    totals: Int64[np.ndarray, "d"],
    balance: Int64[np.ndarray, "n_or_0 d"],
    new: Int8[np.ndarray, "n d"],
) -> Int64[np.ndarray, "n"]:
    indptr, items, kind, n_purchased, n_examined, _ = support
    weights, w, s, g1, g2, g3 = grid
    constants = (w, s, g1, g2, g3)
    n_items, d = item_codes.shape
    flips = np.zeros(len(users), dtype=np.int64)
    # One user's sums over entries of each kind: [v, c v, a v, c a v; kind; bit], and [c, a, c a; kind].
    by_bit = np.empty((4, 3, d), dtype=np.int64)
    overall = np.empty((3, 3), dtype=np.int64)
    # Sum of a v over the whole catalogue at every bit: V^T V u, d^2 additions instead of a pass over all items.
    av_all = np.empty(d, dtype=np.int64)
    for k in range(len(users)):
        user = users[k]
        start, stop = indptr[user], indptr[user + np.uint64(1)]
        n_bought, n_seen = n_purchased[user], n_examined[user]
        _sum_entries(items, kind, start, stop, item_codes, scores, weights, n_bought, n_seen, by_bit, overall)
        a_all = np.int64(0)
        av_all[:] = 0
        for f in range(d):
            a_all += new[k, f] * totals[f]
            sign = np.int64(new[k, f] < 0)
            # (x ^ -1) + 1 is -x: adds or takes away a row of V^T V without a multiplication or a branch.
            for g in range(d):
                av_all[g] += (gram[f, g] ^ -sign) + sign
        for f in range(d):
            # Sums made before the first flip hold until a score moves; most codes never move again.
            if flips[k]:
                _sum_scores(items, kind, start, stop, item_codes, scores, weights, f, by_bit)
            x = np.int64(new[k, f])
            without = (a_all - x * totals[f], av_all[f] - x * gram[f, f])
            star = _field(f, x, n_bought, n_seen, n_items, d, by_bit, overall, totals[f], without, constants)
            if len(balance) > 0:
                star += balance[k, f]
            if (star > 0 and x < 0) or (star < 0 and x > 0):
                new[k, f] = -x
                flips[k] += 1
                a_all -= 2 * x * totals[f]
                for g in range(d):
                    av_all[g] -= 2 * x * gram[f, g]
                _flip(items, kind, start, stop, item_codes, scores, f, -2 * x, by_bit, overall)
    return flips


@compiled
def _sum_entries(
    items: UInt64[np.ndarray, "entries"],
    kind: UInt8[np.ndarray, "entries"],
    start: int,
    stop: int,
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
    weights: Int64[np.ndarray, "kinds items"],
    n_bought: int,
    n_seen: int,
    by_bit: Int64[np.ndarray, "4 3 d"],
    overall: Int64[np.ndarray, "3 3"],
) -> None:
    """All sums of one user, from the entries whose code is 1: twice those, less the sum over all, is the signed sum."""
    d = item_codes.shape[1]
    by_bit[:] = 0
    overall[:] = 0
    for e in range(start, stop):
        of, item = kind[e], items[e]
        if of != 0:
            a, c = np.int64(scores[e]), weights[of, item]
            overall[_C, of] += c
            overall[_A, of] += a
            overall[_CA, of] += c * a
            for f in range(d):
                mask = np.int64(-1) if item_codes[item, f] > 0 else np.int64(0)
                by_bit[_V, of, f] -= mask
                by_bit[_CV, of, f] += c & mask
                by_bit[_AV, of, f] += a & mask
                by_bit[_CAV, of, f] += (c * a) & mask
    for of in range(1, 3):
        count = n_bought if of == 1 else n_seen
        for f in range(d):
            by_bit[_V, of, f] = 2 * by_bit[_V, of, f] - count
            by_bit[_CV, of, f] = 2 * by_bit[_CV, of, f] - overall[_C, of]
            by_bit[_AV, of, f] = 2 * by_bit[_AV, of, f] - overall[_A, of]
            by_bit[_CAV, of, f] = 2 * by_bit[_CAV, of, f] - overall[_CA, of]


@compiled
def _field(
    f: int,
    x: np.int64,
    n_bought: int,
    n_seen: int,
    n_items: int,
    d: int,
    by_bit: Int64[np.ndarray, "4 3 d"],
    overall: Int64[np.ndarray, "3 3"],
    v_all: int,
    without: tuple[int, int],
    constants: tuple[int, int, int, int, int],
) -> np.int64:
    """2 d^2 K U*_uf; `without` holds the sums of a and a v over the catalogue with bit f left out of a."""
    w, s, g1, g2, g3 = constants
    n_other = n_items - n_bought - n_seen
    v_p, v_e, cv_p, cv_e = by_bit[_V, 1, f], by_bit[_V, 2, f], by_bit[_CV, 1, f], by_bit[_CV, 2, f]
    c_p, c_e = overall[_C, 1], overall[_C, 2]
    a_p, a_e = overall[_A, 1] - x * v_p, overall[_A, 2] - x * v_e
    ca_p, ca_e = overall[_CA, 1] - x * cv_p, overall[_CA, 2] - x * cv_e
    av_p, av_e = by_bit[_AV, 1, f] - x * n_bought, by_bit[_AV, 2, f] - x * n_seen
    cav_p, cav_e = by_bit[_CAV, 1, f] - x * c_p, by_bit[_CAV, 2, f] - x * c_e
    # Everything but purchases, and the rest.
    v_n, a_n, av_n = v_all - v_p, without[0] - a_p, without[1] - av_p
    v_o, a_o, av_o = v_n - v_e, a_n - a_e, av_n - av_e
    points = w * (d * v_p - av_p) - s * (d * v_n + av_n)
    margins = (g1 * n_seen + g2 * n_other) * cv_p - c_p * (g1 * v_e + g2 * v_o) + g3 * (n_other * cv_e - c_e * v_o)
    purchase_pairs = ca_p * v_n - (n_seen + n_other) * cav_p + cv_p * a_n - c_p * av_n
    examine_pairs = ca_e * v_o - n_other * cav_e + cv_e * a_o - c_e * av_o
    star: np.int64 = points + margins + purchase_pairs + examine_pairs
    return star


@compiled
def _flip(
    items: UInt64[np.ndarray, "entries"],
    kind: UInt8[np.ndarray, "entries"],
    start: int,
    stop: int,
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
    f: int,
    step: np.int64,
    by_bit: Int64[np.ndarray, "4 3 d"],
    overall: Int64[np.ndarray, "3 3"],
) -> None:
    """Scores and their sums, after bit f moved by `step`."""
    for of in range(1, 3):
        overall[_A, of] += step * by_bit[_V, of, f]
        overall[_CA, of] += step * by_bit[_CV, of, f]
    for e in range(start, stop):
        if kind[e] != 0:
            scores[e] += step * np.int64(item_codes[items[e], f])


@compiled
def _sum_scores(
    items: UInt64[np.ndarray, "entries"],
    kind: UInt8[np.ndarray, "entries"],
    start: int,
    stop: int,
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
    weights: Int64[np.ndarray, "kinds items"],
    f: int,
    by_bit: Int64[np.ndarray, "4 3 d"],
) -> None:
    """The sums of a v and c a v at one bit, anew."""
    both = weighted_both = bought = weighted_bought = np.int64(0)
    for e in range(start, stop):
        of, item = kind[e], items[e]
        av = np.int64(scores[e]) * np.int64(item_codes[item, f])
        cav = weights[of, item] * av
        is_own, is_bought = -np.int64(of != 0), -np.int64(of == 1)
        both += av & is_own
        weighted_both += cav
        bought += av & is_bought
        weighted_bought += cav & is_bought
    by_bit[_AV, 1, f], by_bit[_CAV, 1, f] = bought, weighted_bought
    by_bit[_AV, 2, f], by_bit[_CAV, 2, f] = both - bought, weighted_both - weighted_bought
