"""Singleton rows: a row of a sum that few clients could have touched points at the known participants of the sum.

A secure sum hides who touched a row. If nobody did, it is zero, so nobody in the sum has the item; and if a row moved
that hardly any client touches, each of the few participants is a likely owner (in a sum of one, certainly). With p_i
the probability that a user has item i, n clients in the sum and no negatives, a participant has an item whose row moved
with probability

    P(has i | row i moved) = p_i / (1 - (1 - p_i)^n),        and 0 if the row did not move

(Bayes; the numerator needs no likelihood, as a user's own item always moves its row). Sums over other cohorts are new
evidence: the likelihood ratios 1 / P(row moved | user does not have i) multiply over the sums that the user takes part
in, and a single such sum in which the row stayed zero rules the item out (the intersection attack of Berthold & Langos,
"Dummy traffic against long term intersection attacks", PET 2003, on item rows).

Neither p_i nor the number of negatives per client is known. A client is assumed to touch row i independently with
hazard l_i = alpha popularity_i + beta, where alpha stands for owners, who prefer popular items, and beta for uniform
negatives:

    p_i = 1 - exp(-alpha popularity_i),        P(row i untouched by n clients) = exp(-n l_i).

Both are found by maximum likelihood from which rows of the sum moved, a concave problem in two numbers. So popularity
may be on any scale.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import minimize

from attacks._scaling import floor_non_candidates
from attacks.views.knowledge import Knowledge
from attacks.views.rows import upload_support
from attacks.views.sums import SumView
from attacks.views.types import Scores

_MIN_PROBABILITY = 1e-300
"""Smallest probability whose logarithm is taken."""


@dataclass(frozen=True)
class SingletonRows:
    """Score each item by the log-odds that a participant has it, given which rows of its sums moved."""

    name: ClassVar[str] = "singleton rows"
    observable: ClassVar[str] = "which rows of the sum of the uploads moved"
    adversary: ClassVar[str] = "server"
    knowledge: ClassVar[tuple[str, ...]] = ("item popularity", "who took part in the sum", "how many did")
    unit: ClassVar[str] = "interaction"
    cost: ClassVar[str] = "O(items * width) per sum"
    explains: ClassVar[str] = (
        "Rules out every item whose row is zero in a sum that a user is in, and suspects the user of rows that few "
        "others could have moved."
    )

    def sum_accumulator(self) -> "SingletonRowAccumulator":
        """Empty accumulator to which sums are added."""
        return SingletonRowAccumulator()


@dataclass(eq=False)
class SingletonRowAccumulator:
    """Evidence from the sums so far.

    Sums of unknown size, and sums whose untouched rows cannot be identified because noise lies on all rows, are no
    evidence and are skipped.

    Attributes:
        rounds: Number of sums used that each audited user takes part in; empty before the first.
    """

    rounds: Int64[np.ndarray, "users"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    _evidence: Scores = field(default_factory=lambda: np.zeros((0, 0)), init=False, repr=False)
    _possible: Bool[np.ndarray, "users items"] = field(
        default_factory=lambda: np.zeros((0, 0), dtype=bool), init=False, repr=False
    )
    _hazards: list[Float64[np.ndarray, "items"]] = field(default_factory=list, init=False, repr=False)

    def add(self, view: SumView, knowledge: Knowledge) -> None:
        """Add the evidence of one more sum.

        Raises:
            ViewError: If the popularity covers another catalogue than the sum.
        """
        support = upload_support(view.total)
        if view.clients is None or not support.identifiable[0]:
            return
        moved = support.rows[0]  # [items]
        if not self.rounds.size:
            self.rounds = np.zeros(len(view.members), dtype=np.int64)
            self._evidence = np.zeros((len(view.members), view.total.n_items))
            self._possible = np.ones_like(self._evidence, dtype=bool)
        owning, negative = touch_hazards(knowledge.popularity_for(view.total), moved, view.clients)
        # P(row moved | user does not have the item): the other clients in any way, or the user by a negative.
        otherwise = -np.expm1(-(view.clients - 1) * (owning + negative) - negative)
        self._evidence[view.members] -= np.log(np.maximum(otherwise, _MIN_PROBABILITY))
        self._possible[view.members] &= moved
        self._hazards.append(owning)
        self.rounds += view.members

    def scores(self) -> Scores:
        """Log-odds of every audited user's items; one below all others for items that are ruled out."""
        has = -np.expm1(-np.mean(self._hazards, axis=0))
        prior = np.log(np.maximum(has, _MIN_PROBABILITY)) - np.log(np.maximum(1 - has, _MIN_PROBABILITY))
        return floor_non_candidates(prior + self._evidence, self._possible)


def touch_hazards(
    popularity: Float64[np.ndarray, "items"], moved: Bool[np.ndarray, "items"], clients: int
) -> tuple[Float64[np.ndarray, "items"], float]:
    """Hazards with which a client touches each row as an owner, and any row as a negative.

    Maximises sum_moved log(1 - exp(-n l_i)) - n sum_unmoved l_i over alpha, beta >= 0, where l_i = alpha popularity_i +
    beta.

    Args:
        popularity: Popularity of the items on any scale; negative values count as 0.
        moved: Rows of the sum that are not zero.
        clients: Number of clients in the sum, n.

    Returns:
        alpha popularity_i, and beta.
    """
    popular = np.maximum(popularity, 0.0)
    scale = popular.mean()
    shares = popular / scale if scale > 0 else popular
    floor = 1e-9

    def loss(hazard: Float64[np.ndarray, "2"]) -> tuple[float, Float64[np.ndarray, "2"]]:
        x = hazard[0] * shares + hazard[1] + floor
        untouched = np.exp(-x[moved])
        value = x[~moved].sum() - np.log1p(-untouched).sum()
        slope = np.where(moved, 0.0, 1.0)
        slope[moved] = -untouched / (1 - untouched)
        return float(value), np.array([slope @ shares, slope.sum()])

    start = -np.log1p(-min(moved.mean(), 1 - 1e-9)) / 2
    # The problem is scaled to hazards of the whole sum, which are of order one, and divided by the clients afterwards.
    optimum = minimize(loss, np.full(2, start), jac=True, method="L-BFGS-B", bounds=[(0, 50), (0, 50)]).x / clients
    return optimum[0] * shares, float(optimum[1])
