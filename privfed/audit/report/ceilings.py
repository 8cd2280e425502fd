"""The ceiling that a claimed epsilon puts on attacks, and when an attack lies above it.

A ceiling (`attacks.empirical.ceilings`) is only ever compared with games whose membership was decided by inclusion
bits: members taken from the data as they are differ from non-members in popularity too, which no epsilon bounds.
"""

import math

import numpy as np
import scipy

from attacks.empirical import tpr_ceiling
from attacks.metrics.bootstrap import LEVEL, freedom
from privfed.audit.report import formatting
from privfed.audit.report.records import AttackRow, CeilingRow, GuaranteeRow, Interval

_ROUNDING = 1e-9
"""Rounding error of a ceiling, far below what any measurement resolves."""

_RESAMPLES = 200
"""Of the intervals of attacks."""

_BEHIND_NOISE = {
    "local": ("wire", "sum", "model"),
    "distributed": ("wire", "sum", "model"),
    "central": ("sum", "model"),
}
"""Taps that lie behind the noise, by trust: elsewhere a finite epsilon promises nothing."""


TOO_WEAK = 0.995
"""A ceiling above it leaves no attack room to be above it: the claim is too weak to be tested so."""


def too_weak_to_test(ceiling: CeilingRow) -> bool:
    """Whether a claim allows so much that no attack could deny it."""
    return ceiling.auc >= TOO_WEAK


def has_ceiling(row: AttackRow, guarantee: GuaranteeRow) -> bool:
    """Whether a claim bounds an attack: it is finite, inclusion bits decided the game, and noise lies before it."""
    finite = 0 <= guarantee.epsilon < math.inf
    return finite and row.membership == "randomised" and row.tap in _BEHIND_NOISE.get(guarantee.trust, ())


def interaction_level(guarantee: GuaranteeRow) -> tuple[float, float]:
    """(epsilon, delta) for adding or removing one interaction of a person.

    A guarantee for replacing a person's data covers it as it is, and so does one whose unit is the interaction. One for
    adding or removing a whole person covers it by two steps, out with the one history and in with the other: 2 epsilon
    and (1 + e^epsilon) delta.
    """
    if guarantee.neighbours == "replace_one" or guarantee.unit == "interaction":
        return guarantee.epsilon, guarantee.delta
    return _twice(guarantee)


def inclusion_auc_ceiling(guarantee: GuaranteeRow) -> float:
    """Highest AUC that a claim allows in the game of inclusion bits.

    An AUC compares an included interaction with one that was left out, in one run: worlds in which they change places
    differ in two interactions. A claim about one interaction is taken twice for that; one about a whole person
    covers both, since each AUC is of one person's pairs.
    """
    return auc_ceiling(*(_twice(guarantee) if guarantee.unit == "interaction" else interaction_level(guarantee)))


def _twice(guarantee: GuaranteeRow) -> tuple[float, float]:
    """(epsilon, delta) of two steps from neighbour to neighbour."""
    return 2 * guarantee.epsilon, min(1.0, (1 + math.exp(min(guarantee.epsilon, 700.0))) * guarantee.delta)


def auc_ceiling(epsilon: float, delta: float) -> float:
    """Area under `tpr_ceiling`: straight from (0, delta) over its one corner to (1 - delta, 1), then flat."""
    corner = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    fprs = [0.0, corner, 1 - delta, 1.0]
    return float(np.trapezoid([tpr_ceiling(fpr, epsilon, delta) for fpr in fprs], fprs))


def comparisons(row: AttackRow) -> int:
    """Numbers of an attack that are held against a ceiling."""
    return 1 + sum(point.tpr is not None for point in row.tpr_at_fpr)


def excesses(row: AttackRow, guarantee: GuaranteeRow, among: int = 1) -> list[str]:
    """Where an attack beats the ceiling even at the lower end of its interval, one phrase each; empty where nowhere.

    Args:
        row: the attack.
        guarantee: the claim.
        among: how many such numbers are looked at together; each end is lowered for it (`lower_end`).
    """
    epsilon, delta = interaction_level(guarantee)
    highest = inclusion_auc_ceiling(guarantee)
    lowest = lower_end(row.auc, row.n_users, among)
    above = lowest > highest + _ROUNDING
    phrases = [f"AUC {formatting.share(lowest)} where at most {formatting.share(highest)} is possible"] if above else []
    for point in row.tpr_at_fpr:
        if point.tpr is None:
            continue
        lowest = lower_end(point.tpr, row.n_users, among)
        if lowest > tpr_ceiling(point.fpr, epsilon, delta) + _ROUNDING:
            phrases.append(f"TPR {formatting.share(lowest)} at FPR {point.fpr:g}")
    return phrases


def lower_end(interval: Interval, n_users: int, among: int = 1) -> float:
    """Lower end of an interval over users, which agreement between a few of them does not make certain.

    Of `among` such ends one or more lie above the truth with a chance of about 2.5 % together, or less (`wider`).

    Where all users have the same value a bootstrap has no width. There the end is Hoeffding's (1963, theorem 1): the
    mean m under which the mean of n values in [0, 1] comes out at v or above with a chance of at most
    exp(-n kl(v, m)).
    """
    if interval.hi > interval.lo or n_users < 1:
        return interval.value - (interval.value - interval.lo) * wider(among, n_users)
    allowed = math.log(2 * among / (1 - LEVEL)) / n_users
    low, high = 0.0, interval.value
    while high - low > _ROUNDING:
        middle = (low + high) / 2
        low, high = (middle, high) if _divergence(interval.value, middle) > allowed else (low, middle)
    return low


def wider(among: int, n_users: int) -> float:
    """How many times as wide an interval over users is that holds together with others, `among` in all.

    Bonferroni with Student's t: both the spread between the users and the end of the bootstrap are estimates, and so
    far out in the tails it shows (of 100 intervals over 50 users a normal quantile alone misses 12 % instead of 2.5 %).
    The interval itself is Student's already.
    """
    if among <= 1 or n_users <= 1:
        return 1.0
    tail = (1 - LEVEL) / 2
    degrees = freedom(n_users, _RESAMPLES)
    return float(scipy.stats.t.isf(tail / among, degrees) / scipy.stats.t.isf(tail, degrees))


def _divergence(value: float, mean: float) -> float:
    """Kullback and Leibler's divergence of two Bernoulli variables, `mean` strictly between 0 and 1."""
    parts = ((value, mean), (1 - value, 1 - mean))
    return sum(seen * math.log(seen / expected) for seen, expected in parts if seen > 0)
