"""Singleton rows: a row of a sum that few others could have touched points at whoever is known to be in it.

A secure sum hides who touched a row. Where nobody did it is zero, so nobody in the sum has the item; and where a row
moved that hardly anyone touches, each of the few participants is a likely owner (in a sum of one, certainly). With p_i
the probability that a user has item i, n clients in the sum and no negatives, a participant has an item whose row moved
with probability

    P(has i | row i moved) = p_i / (1 - (1 - p_i)^n),        and 0 where the row did not move

(Bayes; the numerator needs no likelihood, as an own item always moves its row). Sums over other cohorts are new
evidence: the likelihood ratios 1 / P(row moved | user does not have i) multiply over the sums that hold the user, and a
single sum in which the row stayed zero ends it (the intersection attack of Berthold & Langos, "Dummy traffic against
long term intersection attacks", PET 2003, on item rows).

Neither p_i nor how many negatives clients draw is known. A client is taken to touch row i independently with hazard
l_i = alpha popularity_i + beta, where alpha makes owners of the popular and beta draws negatives evenly:

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

    def sum_accumulator(self) -> "RowTally":
        """An empty accumulator to add sums to."""
        return SingletonRowAccumulator()


@dataclass(eq=False)
class SingletonRowAccumulator:
    """Evidence from the sums seen so far.

    Sums of unknown size, and sums whose untouched rows cannot be told because noise lies on all, say nothing and are
    passed over.

    Attributes:
        rounds: Sums that each audited user was in; empty before the first.
    """

    rounds: Int64[np.ndarray, "users"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    _evidence: Scores = field(default_factory=lambda: np.zeros((0, 0)), init=False, repr=False)
    _possible: Bool[np.ndarray, "users items"] = field(
        default_factory=lambda: np.zeros((0, 0), dtype=bool), init=False, repr=False
    )
    _hazards: list[Float64[np.ndarray, "items"]] = field(default_factory=list, init=False, repr=False)

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        """Look at one more sum.

        Raises:
            ViewError: If the popularity covers another catalogue than the sum.
        """
        moved = upload_support(seen.total)
        if seen.clients is None or not moved.identifiable[0]:
            return
        if not self.rounds.size:
            self.rounds = np.zeros(len(seen.members), dtype=np.int64)
            self._evidence = np.zeros((len(seen.members), seen.total.n_items))
            self._possible = np.ones_like(self._evidence, dtype=bool)
        owned, drawn = touch_hazards(knowledge.popularity_for(seen.total), moved.rows[0], seen.clients)
        otherwise = -np.expm1(-(seen.clients - 1) * (owned + drawn) - drawn)
        self._evidence[seen.members] -= np.log(np.maximum(otherwise, _MIN_PROBABILITY))
        self._possible[seen.members] &= moved.rows[0]
        self._hazards.append(owned)
        self.rounds += seen.members

    def scores(self) -> Scores:
        """Log-odds of every audited user's items; one below all others for those ruled out."""
        has = -np.expm1(-np.mean(self._hazards, axis=0))
        prior = np.log(np.maximum(has, _MIN_PROBABILITY)) - np.log(np.maximum(1 - has, _MIN_PROBABILITY))
        return floor_non_candidates(prior + self._evidence, self._possible)


def touch_hazards(
    popularity: Float64[np.ndarray, "items"], moved: Bool[np.ndarray, "items"], clients: int
) -> tuple[Float64[np.ndarray, "items"], float]:
    """Hazards per client of touching each row as an owner, and of touching any row as a negative.

    Maximises sum_moved log(1 - exp(-n l_i)) - n sum_still l_i over alpha, beta >= 0, where l_i = alpha popularity_i +
    beta.

    Args:
        popularity: On any scale; negative values count as 0.
        moved: Rows of the sum that are not zero.
        clients: In the sum, n.

    Returns:
        alpha popularity_i, and beta.
    """
    popular = np.maximum(popularity, 0.0)
    scale = popular.mean()
    shares = popular / scale if scale > 0 else popular
    floor = 1e-9

    def loss(hazard: Float64[np.ndarray, "2"]) -> tuple[float, Float64[np.ndarray, "2"]]:
        x = hazard[0] * shares + hazard[1] + floor
        quiet = np.exp(-x[moved])
        value = x[~moved].sum() - np.log1p(-quiet).sum()
        slope = np.where(moved, 0.0, 1.0)
        slope[moved] = -quiet / (1 - quiet)
        return float(value), np.array([slope @ shares, slope.sum()])

    start = -np.log1p(-min(moved.mean(), 1 - 1e-9)) / 2
    found = minimize(loss, np.full(2, start), jac=True, method="L-BFGS-B", bounds=[(0, 50), (0, 50)]).x / clients
    return found[0] * shares, float(found[1])
