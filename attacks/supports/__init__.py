"""Attacks on the rows that a client names in a sparse secure sum: which of them are examinations, which padding?"""

from attacks.supports.examinations import SUPPORT_ATTACKS, Affinity, ExaminedShare, InSupport, SupportAttack
from attacks.supports.leakage import (
    CountRecovery,
    count_recovery,
    debiased_count,
    intersect_supports,
    intersection_posterior,
    padding_probability,
    realised_posterior,
    recover_examined_count,
    rr_epsilon_add_remove,
    rr_epsilon_swap,
    support_auc,
    support_epsilon_bound,
    support_posterior,
    uniform_padding_posterior,
)
from attacks.supports.observe import observe_support
from attacks.supports.user_codes import CodeRecovery, code_recovery

__all__ = [
    "SUPPORT_ATTACKS",
    "Affinity",
    "CodeRecovery",
    "CountRecovery",
    "ExaminedShare",
    "InSupport",
    "SupportAttack",
    "code_recovery",
    "count_recovery",
    "debiased_count",
    "intersect_supports",
    "intersection_posterior",
    "observe_support",
    "padding_probability",
    "realised_posterior",
    "recover_examined_count",
    "rr_epsilon_add_remove",
    "rr_epsilon_swap",
    "support_auc",
    "support_epsilon_bound",
    "support_posterior",
    "uniform_padding_posterior",
]
