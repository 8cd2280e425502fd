"""Attacks and empirical audits as pure functions of what an adversary saw.

This package stands alone: it needs numpy and scipy (and jaxtyping for the shapes in its signatures), and
knows nothing about how the uploads came to be.

    views = [ServerView(round=t, uploads=uploads[t]) for t in range(rounds)]
    results = run(CORE, views, Knowledge(popularity), Targets.trained_vs_never_seen(train, seen))
"""

from attacks.bootstrap import percentile_interval, user_weights
from attacks.bounds import (
    EpsilonBound,
    clopper_pearson_epsilon,
    delta_from_mu,
    epsilon_from_mu,
    gdp_epsilon,
    mu_from_epsilon,
)
from attacks.ceilings import advantage_ceiling, tpr_ceiling
from attacks.evaluate import Observation, Scored, measure, observe, observe_scores, run
from attacks.membership import (
    BIAS,
    CORE,
    INPUT,
    Attack,
    Declared,
    DecoderBias,
    InputRows,
    MultiRoundVote,
    PopularityGuesser,
    RankOneSign,
    RowNorm,
    RowSupport,
    ScoreThreshold,
    Vote,
)
from attacks.metrics import Estimate, RateAtFpr, Roc, Separation, auc_gain, pooled_auc, separation, user_auc
from attacks.result import AttackResult
from attacks.view import (
    ALL_ITEMS,
    TOUCHED_ITEMS,
    Knowledge,
    Scores,
    ScoreView,
    ServerView,
    Support,
    Targets,
    ViewError,
    support,
)

__all__ = [
    "ALL_ITEMS",
    "BIAS",
    "CORE",
    "INPUT",
    "TOUCHED_ITEMS",
    "Attack",
    "AttackResult",
    "Declared",
    "DecoderBias",
    "EpsilonBound",
    "Estimate",
    "InputRows",
    "Knowledge",
    "MultiRoundVote",
    "Observation",
    "PopularityGuesser",
    "RankOneSign",
    "RateAtFpr",
    "Roc",
    "RowNorm",
    "RowSupport",
    "ScoreThreshold",
    "ScoreView",
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
    "clopper_pearson_epsilon",
    "delta_from_mu",
    "epsilon_from_mu",
    "gdp_epsilon",
    "measure",
    "mu_from_epsilon",
    "observe",
    "observe_scores",
    "percentile_interval",
    "pooled_auc",
    "run",
    "separation",
    "support",
    "tpr_ceiling",
    "user_auc",
    "user_weights",
]
