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
from privfed.compute.vector_lanes import LANES, filled, load, total
from privfed.data import Histories
from privfed.methods.shared.normal_equations import add_matrix, add_rows, padded, problem_of, solve, start


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
        table = padded(items)
        out = np.empty((feedback.purchased.n_users, table.shape[1]))
        _solve_users(
            (table.T @ (table * self.missing[:, None]), table.T @ table, table.sum(0)),
            table,
            _lists(feedback),
            (self.missing, self.pairs),
            self._numbers(),
            out,
        )
        return out[:, : items.shape[1]]

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
        if users.shape != (feedback.purchased.n_users, items.shape[1]):
            raise ObjectiveError(
                f"there are users' factors of shape {users.shape}, but lists of {feedback.purchased.n_users} users and "
                f"items' factors of width {items.shape[1]}: pass one row of that width for each user of the lists"
            )
        table, out, numbers = padded(users), padded(items), self._numbers()
        own = _pair_sums(table, out, _lists(feedback), self.pairs, numbers)
        strength, coupling = own[:, 0], own[:, 3]
        weighted = table * strength[:, None]
        _solve_items(
            (table.T @ table, table.T @ weighted, weighted.sum(0), table.T @ coupling, out.sum(0)),
            table,
            _lists(feedback.by_item()),
            (self.missing, self.pairs),
            numbers,
            own,
            out,
        )
        return out[:, : items.shape[1]]

    def _check(self, items: Float64[np.ndarray, "items dim"], feedback: Feedback) -> None:
        sizes = {len(self.missing), len(self.pairs), len(items), feedback.purchased.n_items, feedback.examined.n_items}
        if len(sizes) > 1 or (self.missing.ndim, self.pairs.ndim, items.ndim) != (1, 1, 2):
            raise ObjectiveError(
                f"the weights are of {len(self.missing)} and {len(self.pairs)} items, the factors of {len(items)} and "
                f"the lists of {feedback.purchased.n_items} and {feedback.examined.n_items}: take all of one catalogue"
            )
        if feedback.purchased.n_users != feedback.examined.n_users:
            raise ObjectiveError(
                f"there are purchases of {feedback.purchased.n_users} users and examinations of "
                f"{feedback.examined.n_users}: pass lists of the same users"
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
def _dot(left: Float64[np.ndarray, "side"], right: Float64[np.ndarray, "side"]) -> float:
    """Inner product."""
    products = filled(0.0)
    for first in range(0, len(left), LANES):
        products = products + load(left, (first,)) * load(right, (first,))
    product: float = total(products)
    return product


@compiled
def _solve_users(
    catalogue: tuple[Float64[np.ndarray, "side side"], Float64[np.ndarray, "side side"], Float64[np.ndarray, "side"]],
    items: Float64[np.ndarray, "items side"],
    lists: Lists,
    weights: tuple[Float64[np.ndarray, "items"], Float64[np.ndarray, "items"]],
    numbers: Numbers,
    out: Float64[np.ndarray, "users side"],
) -> None:
    """Fill `out`; `catalogue` holds V^T diag(s) V, V^T V and the sum of all items."""
    zeros, gram, everything = catalogue
    bought_from, bought, seen_from, seen = lists
    missing, pairs = weights
    weight, target, over_seen, over_rest, regularisation = numbers
    n_items, side = items.shape
    problem, weighted, others = problem_of(side), np.empty(side), np.empty(side)
    for u in range(len(out)):
        mine, examined = bought[bought_from[u] : bought_from[u + 1]], seen[seen_from[u] : seen_from[u + 1]]
        start(problem, zeros, regularisation)
        strength = 0.0
        if len(examined):
            weighted[:] = 0
            others[:] = everything
            for j in examined:
                strength += pairs[j]
                weighted += pairs[j] * items[j]
                others -= items[j]
            add_matrix(problem, gram, strength)
            for f in range(side):
                problem.side[f] = -strength * over_rest * everything[f]
                for g in range(f // LANES * LANES, side):
                    problem.matrix[f, g] -= weighted[f] * others[g] + others[f] * weighted[g]
            apart = n_items - len(examined)
            margin = over_rest * (apart - len(mine)) - over_seen * len(mine)
            own = weight - missing[examined] + pairs[examined] * apart - strength
            targets = weight * target + pairs[examined] * margin + strength * over_rest
            add_rows(problem, items, examined, own, targets)
        targets = np.full(len(mine), 1 + strength * (over_seen + over_rest))
        add_rows(problem, items, mine, 1 - missing[mine], targets)
        solve(problem)
        out[u] = problem.side


@compiled
def _pair_sums(
    users: Float64[np.ndarray, "users side"],
    items: Float64[np.ndarray, "items side"],
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
        Float64[np.ndarray, "side side"],
        Float64[np.ndarray, "side side"],
        Float64[np.ndarray, "side"],
        Float64[np.ndarray, "side"],
        Float64[np.ndarray, "side"],
    ],
    users: Float64[np.ndarray, "users side"],
    lists: Lists,
    weights: tuple[Float64[np.ndarray, "items"], Float64[np.ndarray, "items"]],
    numbers: Numbers,
    sums: Float64[np.ndarray, "users 5"],
    out: Float64[np.ndarray, "items side"],
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
    side = users.shape[1]
    problem, change = problem_of(side), np.empty(side)
    for i in range(len(out)):
        buyers, examiners = bought[bought_from[i] : bought_from[i + 1]], seen[seen_from[i] : seen_from[i + 1]]
        start(problem, strengths, regularisation)
        add_matrix(problem, gram, missing[i])
        for f in range(side):
            problem.side[f] = coupling[f] - over_rest * strongest[f]
        targets = 1 + sums[buyers, 0] * (over_seen + over_rest)
        add_rows(problem, users, buyers, np.full(len(buyers), 1 - missing[i]), targets)
        own, targets = np.empty(len(examiners)), np.empty(len(examiners))
        for e in range(len(examiners)):
            u = examiners[e]
            strength, apart, margin, before, scores = sums[u]
            others = _dot(users[u], everything) - scores
            own[e] = weight - missing[i] + pairs[i] * apart - strength
            targets[e] = weight * target + pairs[i] * (margin + others) + strength * over_rest - before
        add_rows(problem, users, examiners, own, targets)
        solve(problem)
        for f in range(side):
            change[f] = problem.side[f] - out[i, f]
            out[i, f] += change[f]
            everything[f] += change[f]
        for u in examiners:
            step = _dot(users[u], change)
            sums[u, 3] += pairs[i] * step
            sums[u, 4] += step
            for f in range(side):
                coupling[f] += pairs[i] * step * users[u, f]
