"""What `private-gram` is worth over popularity before anybody takes part: a rule of public numbers.

    NDCG / popularity's = exp(a + b ln(n mu) + c ln(items) + d ln(mean history)),  at least 1

n mu, people times the mu of the release, is the signal over the noise of a sum. Within a catalogue quality follows n mu
whatever the number of people, so open histories of a few hundred people of the same kind forecast it well
(`privfed.forecast(sample=...)`). Between catalogues it differs by what they are, which no public number says: the rule
is for those who have no such sample, and its interval is wide. Constants come from `benchmarks.quality.forecast`, which
fits them on validation parts of several catalogues and sizes; a test compares them with its file of results.
"""

import math
from dataclasses import dataclass

INTERCEPT, BY_REACH, BY_ITEMS, BY_HISTORY = -2.1997, 0.23, 0.0914, 0.0661
SPREAD = 0.331
"""Root mean square of the logarithm of measured over expected, on catalogues that were each left out of the fit."""
SAMPLE_SPREAD = 0.128
"""The same of forecasts from samples."""


@dataclass(frozen=True, slots=True)
class ExpectedRatio:
    """NDCG over that of popularity.

    Attributes:
        low: one standard deviation below.
        expected: by rule or sample.
        high: one standard deviation above.
    """

    low: float
    expected: float
    high: float

    @classmethod
    def around(cls, ratio: float, spread: float) -> "ExpectedRatio":
        """A ratio and the range of its standard deviation on the logarithm; nothing is below popularity."""
        low, expected, high = (max(ratio * math.exp(off), 1.0) for off in (-spread, 0.0, spread))
        return cls(low, expected, high)


def expected_ratio(people: float, items: int, history: float, mu: float) -> ExpectedRatio:
    """NDCG of `private-gram` over that of popularity, by the rule.

    Args:
        people: whose contributions are expected in a sum.
        items: of the catalogue.
        history: mean number of items that a person trains on.
        mu: of the release.
    """
    log = INTERCEPT + BY_REACH * math.log(people * mu) + BY_ITEMS * math.log(items) + BY_HISTORY * math.log(history)
    return ExpectedRatio.around(math.exp(log), SPREAD)
