"""How well scores separate members from non-members, with bootstrap intervals over users."""

from attacks.metrics.bootstrap import SHARES, interval, percentile_interval, user_weights
from attacks.metrics.estimate import Estimate, auc_gain, user_mean
from attacks.metrics.ranking import Ranking, user_auc
from attacks.metrics.separation import RocCurve, Separation, TprAtFpr, pooled_auc, separation
from attacks.metrics.slices import Slice

__all__ = [
    "SHARES",
    "Estimate",
    "Ranking",
    "RocCurve",
    "Separation",
    "Slice",
    "TprAtFpr",
    "auc_gain",
    "interval",
    "percentile_interval",
    "pooled_auc",
    "separation",
    "user_auc",
    "user_mean",
    "user_weights",
]
