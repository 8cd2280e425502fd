"""What `private-gram` is worth over popularity before anybody takes part: a rule of public numbers.

Quality over popularity follows how much signal a release holds, n mu, and how many items it is spread over:

    NDCG / popularity's = exp(a + b ln(n mu) + c ln(items) + d ln(mean history)),  and not below 1.

The four constants and the spread of what catalogues do around the rule come from `benchmarks.quality.forecast`, which
fits them on the validation parts of several catalogues; a test compares them with its file of results.
"""

import math
from dataclasses import dataclass

INTERCEPT, BY_REACH, BY_ITEMS, BY_HISTORY = 0.0, 0.0, 0.0, 0.0
SPREAD = 0.0
"""Standard deviation over catalogues of the logarithm of measured over expected, each left out of its own fit."""
MOST = 4.0
"""Quality over popularity that no catalogue of the fit exceeds."""


@dataclass(frozen=True, slots=True)
class ExpectedRatio:
    """NDCG over that of popularity: expected, and the range in which two of three catalogues lie.

    Attributes:
        low: one standard deviation below.
        expected: by the rule.
        high: one standard deviation above.
    """

    low: float
    expected: float
    high: float


def expected_ratio(people: float, items: int, history: float, mu: float) -> ExpectedRatio:
    """NDCG of `private-gram` over that of popularity.

    Args:
        people: whose contributions are expected in a sum.
        items: of the catalogue.
        history: mean number of items that a person trains on.
        mu: of the release.
    """
    log = INTERCEPT + BY_REACH * math.log(people * mu) + BY_ITEMS * math.log(items) + BY_HISTORY * math.log(history)
    low, middle, high = (min(max(math.exp(log + off), 1.0), MOST) for off in (-SPREAD, 0.0, SPREAD))
    return ExpectedRatio(low, middle, high)
