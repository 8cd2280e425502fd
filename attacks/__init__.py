"""Attacks and empirical audits as pure functions of what an adversary saw.

This package stands alone: it needs numpy and scipy (and jaxtyping for the shapes in its signatures), and
knows nothing about how the uploads came to be.

    views = [ServerView(round=t, uploads=uploads[t]) for t in range(rounds)]
    results = run(CORE, views, Knowledge(popularity), Targets.trained_vs_never_seen(train, seen))
"""

from attacks.bootstrap import percentile_interval, user_weights
from attacks.ceilings import advantage_ceiling, tpr_ceiling
from attacks.evaluate import Observation, Scored, measure, observe, run
from attacks.membership import (
    CORE,
    Attack,
    MultiRoundVote,
    PopularityGuesser,
    RankOneSign,
    RowNorm,
    RowSupport,
    Vote,
)
from attacks.metrics import Estimate, RateAtFpr, Roc, Separation, auc_gain, pooled_auc, separation, user_auc
from attacks.result import AttackResult
from attacks.view import (
    ALL_ITEMS,
    TOUCHED_ITEMS,
    Knowledge,
    Scores,
    ServerView,
    Support,
    Targets,
    ViewError,
    support,
)

__all__ = [
    "ALL_ITEMS",
    "CORE",
    "TOUCHED_ITEMS",
    "Attack",
    "AttackResult",
    "Estimate",
    "Knowledge",
    "MultiRoundVote",
    "Observation",
    "PopularityGuesser",
    "RankOneSign",
    "RateAtFpr",
    "Roc",
    "RowNorm",
    "RowSupport",
    "Scored",
    "Scores",
    "Separation",
    "ServerView",
    "Support",
    "Targets",
    "ViewError",
    "Vote",
    "advantage_ceiling",
    "auc_gain",
    "measure",
    "observe",
    "percentile_interval",
    "pooled_auc",
    "run",
    "separation",
    "support",
    "tpr_ceiling",
    "user_auc",
    "user_weights",
]
