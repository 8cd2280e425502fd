"""Matrix factorisation by alternating least squares, from purchases and from what was only examined.

With scores r_ui = u . v_i, the disjoint sets P_u (purchased), E_u (examined) and O_u (the rest) of every user, and
T_u = P_u + O_u, the objective is

    sum_u [ sum_P (1 - r_ui)^2  +  sum_E a (b - r_uj)^2  +  sum_O s_k r_uk^2                          points
          + sum_E c_j ( sum_P (g1 - (r_ui - r_uj))^2 + sum_O (g2 - (r_uj - r_uk))^2 ) ]               pairs
    + l (|U|^2 + |V|^2).

No E: eALS (He et al., SIGIR 2016), whose s_i grows with an item's popularity. With E, a = 0: VALS (Ding et al., IJCAI
2018), purchased over examined by the margin g1 and examined over the rest by g2. With E, c = 0: examinations as a
second level of confidence (Hu et al., ICDM 2008).

The pairs of a user collapse into its own sums. With S = sum_E c_j and B = sum_E c_j r_uj, half the gradient in r_u is

    on E:  c_j (|T| r_uj - sum_T r_ut - M),   M = g2 |O| - g1 |P|,
    on T:  S r_ut - B - S g1 in P,  + S g2 in O,

so given the items every user solves one d x d system, with sums over its own lists and over the whole catalogue. The
items of a user are coupled by its pairs: they are solved one after the other, each exactly given all others, with B
and sum_E r_uj kept up to date. Without pairs that is the exact minimum over all items. No step raises the objective.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from privfed.compute.compiled import compiled
from privfed.data import Histories


class ObjectiveError(ValueError):
    """The constants of an objective, factors and lists do not belong together."""


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """Purchases of each user, and other examined items: disjoint, each item once, ascending within a user."""

    purchased: Histories
    examined: Histories

    @classmethod
    def from_histories(cls, purchased: Histories, examined: Histories | None = None) -> "Feedback":
        """From any lists of the same users: what was purchased does not count as examined."""
        n_users, n_items = purchased.n_users, purchased.n_items
        bought = purchased.pairs(n_items)
        seen = np.empty(0, dtype=np.int64)
        if examined is not None:
            seen = np.setdiff1d(examined.owners * n_items + examined.items, bought)
        return cls(*(Histories.from_pairs(key // n_items, key % n_items, n_users, n_items) for key in (bought, seen)))

    def subset(self, users: Int64[np.ndarray, "n"]) -> "Feedback":
        """That of `users`, in the order given."""
        return Feedback(self.purchased.subset(users), self.examined.subset(users))

    def by_item(self) -> "Feedback":
        """The same with users and items exchanged."""
        return Feedback(_transposed(self.purchased), _transposed(self.examined))


@dataclass(frozen=True, slots=True, eq=False)
class ALSObjective:
    """The constants of the objective.

    Attributes:
        missing: s, the weight of a zero on each item that a user neither purchased nor examined.
        pairs: c, the weight of the pairs of each examined item.
        examined_weight: a, the weight of an examined item's own target.
        examined_target: b, the score that it should have.
        margins: g1, by which a purchased item should score above an examined one, and g2, by which an examined one
            should score above the rest.
        regularisation: l.

    Raises:
        ObjectiveError: a weight is negative, or the regularisation is not positive: a half step would have no minimum.
    """

    missing: Float64[np.ndarray, "items"]
    pairs: Float64[np.ndarray, "items"]
    examined_weight: float
    examined_target: float
    margins: tuple[float, float]
    regularisation: float

    def __post_init__(self) -> None:
        least = min(self.missing.min(initial=0), self.pairs.min(initial=0), self.examined_weight)
        if least < 0 or self.regularisation <= 0:
            raise ObjectiveError(
                f"the smallest weight is {least:g} and the regularisation {self.regularisation:g}: weights must be at "
                f"least 0 and the regularisation above 0"
            )

    def users(self, items: Float64[np.ndarray, "items dim"], feedback: Feedback) -> Float64[np.ndarray, "users dim"]:
        """The users' factors that minimise the objective given the items'; each depends on its own lists only.

        Raises:
            ObjectiveError: weights, factors and lists are of different catalogues.
        """
        self._check(items, feedback)
        weighted = items * self.missing[:, None]
        out = np.empty((feedback.purchased.n_users, items.shape[1]))
        _solve_users(
            (items.T @ weighted, items.T @ items, items.sum(0)),
            items,
            _lists(feedback),
            (self.missing, self.pairs),
            self._numbers(),
            out,
        )
        return out

    def items(
        self,
        users: Float64[np.ndarray, "users dim"],
        items: Float64[np.ndarray, "items dim"],
        feedback: Feedback,
    ) -> Float64[np.ndarray, "items dim"]:
        """The items' factors after one pass over them, in the order of their ids.

        Args:
            users: their factors.
            items: factors to start from; they matter where there are pairs.
            feedback: of the users.

        Raises:
            ObjectiveError: weights, factors and lists are of different catalogues or populations.
        """
        self._check(items, feedback)
        if len(users) != feedback.purchased.n_users:
            raise ObjectiveError(
                f"there are factors of {len(users)} users but lists of {feedback.purchased.n_users}: pass one row for "
                f"each user of the lists"
            )
        out = items.copy()
        numbers = self._numbers()
        own = _pair_sums(users, items, _lists(feedback), self.pairs, numbers)
        strength, coupling = own[:, 0], own[:, 3]
        weighted = users * strength[:, None]
        _solve_items(
            (users.T @ users, users.T @ weighted, weighted.sum(0), users.T @ coupling, items.sum(0)),
            users,
            _lists(feedback.by_item()),
            (self.missing, self.pairs),
            numbers,
            own,
            out,
        )
        return out

    def _check(self, items: Float64[np.ndarray, "items dim"], feedback: Feedback) -> None:
        sizes = {len(self.missing), len(self.pairs), len(items), feedback.purchased.n_items, feedback.examined.n_items}
        if len(sizes) > 1:
            raise ObjectiveError(
                f"the weights are of {len(self.missing)} and {len(self.pairs)} items, the factors of {len(items)} and "
                f"the lists of {feedback.purchased.n_items} and {feedback.examined.n_items}: take all of one catalogue"
            )

    def _numbers(self) -> "Numbers":
        return (self.examined_weight, self.examined_target, *self.margins, self.regularisation)


Numbers = tuple[float, float, float, float, float]
"""a, b, g1, g2, l."""

Lists = tuple[
    Int64[np.ndarray, "rows_and_one"],
    Int64[np.ndarray, "purchases"],
    Int64[np.ndarray, "rows_and_one"],
    Int64[np.ndarray, "examinations"],
]
"""Offsets and entries of what was purchased, then of what was examined."""


def popularity_weights(
    counts: Int64[np.ndarray, "items"], total: float, exponent: float
) -> Float64[np.ndarray, "items"]:
    """Weights in proportion to popularity^exponent that add up to `total` (eALS, eq. 8)."""
    weights = counts.astype(np.float64)
    weights **= exponent
    weights *= total / max(weights.sum(), 1.0)
    return weights


def _transposed(histories: Histories) -> Histories:
    return Histories.from_pairs(histories.items, histories.owners, histories.n_items, histories.n_users)


def _lists(feedback: Feedback) -> Lists:
    return feedback.purchased.indptr, feedback.purchased.items, feedback.examined.indptr, feedback.examined.items


@compiled
def _dot(left: Float64[np.ndarray, "dim"], right: Float64[np.ndarray, "dim"]) -> float:
    """Inner product."""
    total = 0.0
    for f in range(len(left)):
        total += left[f] * right[f]
    return total


@compiled
def _add(
    matrix: Float64[np.ndarray, "dim dim"],
    side: Float64[np.ndarray, "dim"],
    row: Float64[np.ndarray, "dim"],
    weight: float,
    target: float,
) -> None:
    """Add weight x row row^T to the lower triangle of `matrix`, and target x row to `side`."""
    for f in range(len(row)):
        side[f] += target * row[f]
        share = weight * row[f]
        for g in range(f + 1):
            matrix[f, g] += share * row[g]


@compiled
def _solve(
    matrix: Float64[np.ndarray, "dim dim"], side: Float64[np.ndarray, "dim"], out: Float64[np.ndarray, "dim"]
) -> None:
    """Solve matrix x out = side by Cholesky's method, from and in the lower triangle of a positive definite matrix."""
    d = len(side)
    for f in range(d):
        for g in range(f + 1):
            value = matrix[f, g] - _dot(matrix[f, :g], matrix[g, :g])
            matrix[f, g] = np.sqrt(value) if f == g else value / matrix[g, g]
    for f in range(d):
        out[f] = (side[f] - _dot(matrix[f, :f], out[:f])) / matrix[f, f]
    for f in range(d - 1, -1, -1):
        out[f] /= matrix[f, f]
        for g in range(f):
            out[g] -= matrix[f, g] * out[f]


@compiled
def _solve_users(
    catalogue: tuple[Float64[np.ndarray, "dim dim"], Float64[np.ndarray, "dim dim"], Float64[np.ndarray, "dim"]],
    items: Float64[np.ndarray, "items dim"],
    lists: Lists,
    weights: tuple[Float64[np.ndarray, "items"], Float64[np.ndarray, "items"]],
    numbers: Numbers,
    out: Float64[np.ndarray, "users dim"],
) -> None:
    """Fill `out`; `catalogue` holds V^T diag(s) V, V^T V and the sum of all items."""
    zeros, gram, everything = catalogue
    bought_from, bought, seen_from, seen = lists
    missing, pairs = weights
    weight, target, over_seen, over_rest, regularisation = numbers
    n_items, d = items.shape
    matrix, side, weighted, others = np.empty((d, d)), np.empty(d), np.empty(d), np.empty(d)
    for u in range(len(out)):
        mine, examined = bought[bought_from[u] : bought_from[u + 1]], seen[seen_from[u] : seen_from[u + 1]]
        strength = 0.0
        weighted[:] = 0
        others[:] = everything
        for j in examined:
            strength += pairs[j]
            weighted += pairs[j] * items[j]
            others -= items[j]
        apart = n_items - len(examined)
        margin = over_rest * (apart - len(mine)) - over_seen * len(mine)
        for f in range(d):
            side[f] = -strength * over_rest * everything[f]
            for g in range(f + 1):
                coupling = weighted[f] * others[g] + others[f] * weighted[g]
                matrix[f, g] = zeros[f, g] + strength * gram[f, g] - coupling
            matrix[f, f] += regularisation
        for i in mine:
            _add(matrix, side, items[i], 1 - missing[i], 1 + strength * (over_seen + over_rest))
        for j in examined:
            own = weight - missing[j] + pairs[j] * apart - strength
            _add(matrix, side, items[j], own, weight * target + pairs[j] * margin + strength * over_rest)
        _solve(matrix, side, out[u])


@compiled
def _pair_sums(
    users: Float64[np.ndarray, "users dim"],
    items: Float64[np.ndarray, "items dim"],
    lists: Lists,
    pairs: Float64[np.ndarray, "items"],
    numbers: Numbers,
) -> Float64[np.ndarray, "users 5"]:
    """S, |T|, M, B and sum_E r_uj of every user."""
    bought_from, _, seen_from, seen = lists
    over_seen, over_rest = numbers[2], numbers[3]
    sums = np.zeros((len(users), 5))
    for u in range(len(users)):
        apart = len(items) - (seen_from[u + 1] - seen_from[u])
        mine = bought_from[u + 1] - bought_from[u]
        sums[u, 1], sums[u, 2] = apart, over_rest * (apart - mine) - over_seen * mine
        for j in seen[seen_from[u] : seen_from[u + 1]]:
            score = _dot(users[u], items[j])
            sums[u, 0] += pairs[j]
            sums[u, 3] += pairs[j] * score
            sums[u, 4] += score
    return sums


@compiled
def _solve_items(
    population: tuple[
        Float64[np.ndarray, "dim dim"],
        Float64[np.ndarray, "dim dim"],
        Float64[np.ndarray, "dim"],
        Float64[np.ndarray, "dim"],
        Float64[np.ndarray, "dim"],
    ],
    users: Float64[np.ndarray, "users dim"],
    lists: Lists,
    weights: tuple[Float64[np.ndarray, "items"], Float64[np.ndarray, "items"]],
    numbers: Numbers,
    sums: Float64[np.ndarray, "users 5"],
    out: Float64[np.ndarray, "items dim"],
) -> None:
    """Solve for the items of `out` in turn.

    Args:
        population: U^T U, U^T diag(S) U, sum S u, sum B u, and the sum of all items; the last two change.
        users: their factors.
        lists: users who purchased, and users who examined, each item.
        weights: s and c.
        numbers: the other constants.
        sums: of the users' pairs; the last two columns change.
        out: the items' factors, before and after.
    """
    gram, strengths, strongest, coupling, everything = population
    bought_from, bought, seen_from, seen = lists
    missing, pairs = weights
    weight, target, over_seen, over_rest, regularisation = numbers
    d = users.shape[1]
    matrix, side, new = np.empty((d, d)), np.empty(d), np.empty(d)
    for i in range(len(out)):
        examiners = seen[seen_from[i] : seen_from[i + 1]]
        for f in range(d):
            side[f] = coupling[f] - over_rest * strongest[f]
            for g in range(f + 1):
                matrix[f, g] = missing[i] * gram[f, g] + strengths[f, g]
            matrix[f, f] += regularisation
        for u in bought[bought_from[i] : bought_from[i + 1]]:
            _add(matrix, side, users[u], 1 - missing[i], 1 + sums[u, 0] * (over_seen + over_rest))
        for u in examiners:
            strength, apart, margin, own, scores = sums[u]
            others = _dot(users[u], everything) - scores
            _add(
                matrix,
                side,
                users[u],
                weight - missing[i] + pairs[i] * apart - strength,
                weight * target + pairs[i] * (margin + others) + strength * over_rest - own,
            )
        _solve(matrix, side, new)
        for f in range(d):
            new[f] -= out[i, f]
            out[i, f] += new[f]
            everything[f] += new[f]
        for u in examiners:
            change = _dot(users[u], new)
            sums[u, 3] += pairs[i] * change
            sums[u, 4] += change
            for f in range(d):
                coupling[f] += pairs[i] * change * users[u, f]
