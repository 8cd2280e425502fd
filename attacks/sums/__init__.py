"""Attacks on a sum of uploads, by a server that sees no single upload."""

from attacks.sums.aggregate_match import AggregateMatch, aggregate_match
from attacks.sums.attack import SumAccumulator, SumAttack
from attacks.sums.observe import UploadAttackOnSum, observe_sums
from attacks.sums.singleton_rows import SingletonRows

__all__ = [
    "AggregateMatch",
    "SingletonRows",
    "SumAccumulator",
    "SumAttack",
    "UploadAttackOnSum",
    "aggregate_match",
    "observe_sums",
]
