"""The item phase of DFMR at one bit f: what a client sends about its items, and what the server adds.

With the whole objective written as L = const - V_if V*_if in one item bit, the field is, as integers,

    2 d^2 K V*_if = q2_f + g_f - (M V_i)_f + M_ff V_if + sum_u C_uif  (+ the balance term, server only)

q2 and M are sums of `field` and `coupling`; C and g_f sum what `item_terms` gives over clients. Clients use A = U_u.p1
in full, bit f included: that adds the term in p1_f that the server could otherwise add only by knowing how many clients
examined the item. An item may be any of the catalogue, so a sweep may decide items in blocks of any size.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int8, Int32, Int64, UInt64

from privfed.compute.compiled import compiled
from privfed.methods.dfmr.discrete.errors import DiscreteError
from privfed.methods.dfmr.discrete.grid import GridNumbers, IntegerGrid
from privfed.methods.dfmr.discrete.shapes import as_indices, check_bit, check_shapes
from privfed.methods.dfmr.discrete.support import ItemSupport, SupportArrays


class BitQuery(NamedTuple):
    """The server's message for one bit of the item codes.

    Attributes:
        column: item codes at this bit, now.
        bit: f.
        previous_bit: the bit that the server just changed, -1 where it changed none.
        change: new minus old item codes there.
    """

    column: Int8[np.ndarray, "items"]
    bit: int
    previous_bit: int
    change: Int8[np.ndarray, "items"]


def item_terms(
    grid: IntegerGrid,
    support: ItemSupport,
    users: Int64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    scores: Int32[np.ndarray, "entries"],
    totals: Int64[np.ndarray, "d"],
    column: Int8[np.ndarray, "items"],
    bit: int,
    previous_bit: int,
    change: Int8[np.ndarray, "items"],
) -> tuple[Int64[np.ndarray, "rows"], Int64[np.ndarray, "n"]]:
    """Uploads of the called clients for one bit of their items.

    Args:
        grid: hyper-parameters.
        support: supports of all hosted users.
        users: the called ones, each at most once, in any order.
        codes: user codes, -1 or 1.
        scores: U_u.V_i of every entry before the server's last change. Those of called users are brought up to date
            IN PLACE; fake items are left alone.
        totals: p1 = sum of all item codes after that change.
        column: item codes at this bit, now.
        bit: f.
        previous_bit: the bit that the server just changed, -1 where it changed none.
        change: new minus old item codes at `previous_bit`; not read where that is -1.

    Returns:
        C_uif of the users' entries stacked in the order of `users`, 0 for fake items; and g_uf per user. Both in units
        of 1 / (2 d^2 K) of the field.

    Raises:
        DiscreteError: Arrays that do not belong together.
    """
    entries, population = len(support.items), support.n_users
    check_bit(grid, bit)
    check_bit(grid, previous_bit, -1)
    check_shapes(
        grid, support, users,
        codes=(codes, (population, grid.d)), scores=(scores, (entries,)), totals=(totals, (grid.d,)),
        column=(column, (grid.n_items,)), change=(change, (grid.n_items,)),
    )  # fmt: skip
    values = np.empty(int(support.counts[users].sum()), dtype=np.int64)
    proximal = np.empty(len(users), dtype=np.int64)
    _item_terms(
        support.arrays, grid.numbers, as_indices(users), codes, scores, totals,
        BitQuery(np.ascontiguousarray(column), bit, previous_bit, np.ascontiguousarray(change)), values, proximal,
    )  # fmt: skip
    return values, proximal


@compiled
def _item_terms(
    support: SupportArrays,
    grid: GridNumbers,
    users: UInt64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    scores: Int32[np.ndarray, "entries"],
    totals: Int64[np.ndarray, "d"],
    query: BitQuery,
    values: Int64[np.ndarray, "rows"],
    proximal: Int64[np.ndarray, "n"],
) -> None:
    """Kinds are unpredictable, so they select by masks (-1 or 0) and tables rather than by branches."""
    indptr, items, kind, _, n_examined, n_rest = support
    weights, w, s, g1, g2, g3 = grid
    column, bit, previous_bit, change = query
    d = codes.shape[1]
    totals_sum = totals.sum()
    # Looked up by kind, [fake, purchased, examined]; row 0 stays 0, so a fake item sends 0.
    constant = np.zeros(3, dtype=np.int64)
    slope = np.zeros(3, dtype=np.int64)
    pairs = np.zeros(3, dtype=np.int64)
    partners = np.zeros(3, dtype=np.int64)
    out = np.uint64(0)
    for k in range(len(users)):
        user = users[k]
        start, stop = indptr[user], indptr[user + np.uint64(1)]
        x = np.int64(codes[user, bit])
        step = np.int64(codes[user, previous_bit]) if previous_bit >= 0 else np.int64(0)
        # A = U_u.p1 is twice the sum of p1 where the code is 1, less the sum of p1.
        positive = np.int64(0)
        for g in range(d):
            positive += totals[g] if codes[user, g] > 0 else np.int64(0)
        a_all = 2 * positive - totals_sum
        a_both = b_both = s_both = a_bought = b_bought = s_bought = np.int64(0)
        # First pass: bring scores up to date with the last bit, and sum a, c and c a over both kinds and purchases.
        for e in range(start, stop):
            of, item = kind[e], items[e]
            own, bought = -np.int64(of != 0), -np.int64(of == 1)
            score = np.int64(scores[e]) + ((step * np.int64(change[item])) & own)
            scores[e] = score
            weight = weights[of, item]
            weighted = weight * score
            values[out + (e - start)] = weight
            a_both += score & own
            b_both += weighted
            s_both += weight
            a_bought += score & bought
            b_bought += weighted & bought
            s_bought += weight & bought
        proximal[k] = x * b_both
        n_seen, n_other = n_examined[user], n_rest[user]
        s_seen = s_both - s_bought
        seen = g3 * s_seen - b_both + b_bought
        # C = x [constant + slope a + weight (pairs - partners a)] with a = score - x v, and x squared is 1.
        constant[1] = x * (d * (w + s) + g2 * s_bought - b_bought + seen)
        slope[1] = s - w + s_both
        pairs[1] = x * (g1 * n_seen + g2 * n_other + a_all - a_bought)
        partners[1] = n_seen + n_other
        constant[2] = x * ((g2 - g1) * s_bought + seen)
        slope[2] = s_seen
        pairs[2] = x * (g3 * n_other + a_all - a_both)
        partners[2] = n_other
        # Second pass: the terms themselves, which need the sums over all of the user's entries.
        for e in range(start, stop):
            of = kind[e]
            xa = x * np.int64(scores[e]) - np.int64(column[items[e]])
            values[out] = constant[of] + slope[of] * xa + values[out] * (pairs[of] - partners[of] * xa)
            out += np.uint64(1)


def pair_scores(
    grid: IntegerGrid,
    support: ItemSupport,
    users: Int64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
) -> None:
    """U_u.V_i of every entry of the called users that is not a fake item, from scratch, IN PLACE into `scores`.

    Raises:
        DiscreteError: Arrays that do not belong together.
    """
    check_shapes(
        grid, support, users, codes=(codes, (support.n_users, grid.d)),
        item_codes=(item_codes, (grid.n_items, grid.d)), scores=(scores, (len(support.items),)),
    )  # fmt: skip
    _pair_scores(support.arrays, as_indices(users), codes, item_codes, scores)


@compiled
def _pair_scores(
    support: SupportArrays,
    users: UInt64[np.ndarray, "n"],
    codes: Int8[np.ndarray, "population d"],
    item_codes: Int8[np.ndarray, "items d"],
    scores: Int32[np.ndarray, "entries"],
) -> None:
    indptr, items, kind = support.indptr, support.items, support.kind
    d = codes.shape[1]
    for user in users:
        for e in range(indptr[user], indptr[user + np.uint64(1)]):
            if kind[e] != 0:
                item = items[e]
                score = np.int64(0)
                for g in range(d):
                    score += codes[user, g] * item_codes[item, g]
                scores[e] = score


def server_field(
    q2_f: int,
    proximal_total: int,
    coupling: Int64[np.ndarray, "d d"],
    item_codes: Int8[np.ndarray, "items d"],
    bit: int,
) -> Int64[np.ndarray, "items"]:
    """q2_f + g_f - (M V_i)_f + M_ff V_if: the field of every item at one bit, without C and balance.

    Args:
        q2_f: sum over clients of their `field` at this bit.
        proximal_total: g_f, sum over clients of their second result at this bit.
        coupling: M; its diagonal does not matter.
        item_codes: V, now.
        bit: f.

    Raises:
        DiscreteError: M is not as wide as the codes, or there is no such bit.
    """
    d = item_codes.shape[1]
    if coupling.shape != (d, d) or not 0 <= bit < d:
        raise DiscreteError(
            f"bit {bit} of a coupling of shape {coupling.shape}: codes have {d} bits, M must be {d} x {d}"
        )
    row = coupling[bit].copy()
    row[bit] = 0
    return _opposed(q2_f, proximal_total, row, item_codes)


@compiled
def _opposed(
    q2_f: int, proximal_total: int, row: Int64[np.ndarray, "d"], item_codes: Int8[np.ndarray, "items d"]
) -> Int64[np.ndarray, "items"]:
    """Both numbers less row.V_i, which is twice the sum of `row` where the code is 1, less its sum."""
    n_items, d = item_codes.shape
    constant = q2_f + proximal_total + row.sum()
    out = np.empty(n_items, dtype=np.int64)
    for i in range(n_items):
        positive = np.int64(0)
        for g in range(d):
            positive += row[g] if item_codes[i, g] > 0 else np.int64(0)
        out[i] = constant - 2 * positive
    return out
