"""What `private-gram` is worth over popularity before anybody takes part: a rule of public numbers.

    NDCG / popularity's = exp(a + b ln(n mu) + c ln(items) + d ln(mean history)),  at least 1

n mu, people times the mu of the release, is the signal over the noise of a sum. Within a catalogue quality follows n mu
whatever the number of people, so open histories of a few hundred people of the same kind forecast it well
(`privfed.forecast(sample=...)`). Between catalogues it differs by what they are, which no public number says: the rule
is for those who have no such sample, and its interval is wide. Constants come from `benchmarks.quality.forecast`, which
fits them on validation parts of several catalogues and sizes; a test compares them with its file of results.

A sample behind little noise shows less than everybody would, because it is small. What is added for that is a power of
the noise's mu above where it begins, fitted on the same catalogues.

In a year of refreshes people join, and lists are worth publishing once popular items stand out of the noise on the
running total, because only then are pairs asked for. When that is, public numbers say if everybody joins evenly.
"""

import math
from dataclasses import dataclass

import numpy as np

from privfed.contracts import RunningTotals
from privfed.methods.private_gram.config import STANDS_OUT

INTERCEPT, BY_REACH, BY_ITEMS, BY_HISTORY = -2.188, 0.2239, 0.0938, 0.0712
SPREAD = 0.346
"""Root mean square of the logarithm of measured over expected, on catalogues that were each left out of the fit."""
SAMPLE_LIMITS, BY_SAMPLE = 3.0, 0.133
"""mu of the noise on a sample from which on the sample itself limits what it shows, and the power of what is added."""
SAMPLE_SPREAD = 0.154
"""As SPREAD, of forecasts from samples."""
TWENTIETH = 0.0024
"""What the 20th most popular item is of a unit history, over the root of the mean history: the least of the fit."""


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
    def around(cls, ratio: float, spread: float, floor: float = 0.0) -> "ExpectedRatio":
        """A ratio and the range of its standard deviation on the logarithm."""
        low, expected, high = (max(ratio * math.exp(off), floor) for off in (-spread, 0.0, spread))
        return cls(low, expected, high)


def expected_ratio(reach: float, items: int, history: float) -> ExpectedRatio:
    """NDCG of `private-gram` over that of popularity, by the rule.

    Args:
        reach: n mu of the release.
        items: of the catalogue.
        history: mean number of items that a person trains on.
    """
    log = INTERCEPT + BY_REACH * math.log(reach) + BY_ITEMS * math.log(items) + BY_HISTORY * math.log(history)
    return ExpectedRatio.around(math.exp(log), SPREAD, floor=1.0)


def beyond_sample(sample: int, people: float, reach: float) -> float:
    """Factor by which everybody does better than a sample with the same n mu: 1 where noise limits what it shows.

    Args:
        sample: its people.
        people: everybody.
        reach: n mu of either.
    """
    return math.pow(sample_excess(sample, people, reach), BY_SAMPLE)


def sample_excess(sample: int, people: float, reach: float) -> float:
    """Mu of the noise on a sample over where the sample begins to limit; everybody's own mu limits nothing."""
    return max(reach / sample / max(SAMPLE_LIMITS, reach / people), 1.0)


def first_with_head(refreshes: int, reach: float, share: float, twentieth: float) -> int | None:
    """The first refresh of a year, from 1, at which 20 items stand out of the noise; None where there is none.

    Everybody is taken to join evenly over the year, with the whole history. A single release is one from the start.

    Args:
        refreshes: of the year.
        reach: n mu of the last total.
        share: of mu^2 that popularity gets.
        twentieth: what the 20th most popular item is of a unit history, on average.
    """
    if refreshes == 1:
        return 1
    column = RunningTotals(refreshes).column
    noise = np.sqrt(np.cumsum(column**2) / (column**2).sum())
    joined = np.arange(1, refreshes + 1) / refreshes
    stands_out = joined * reach * twentieth * math.sqrt(share) / noise >= STANDS_OUT
    return int(stands_out.argmax()) + 1 if stands_out.any() else None
