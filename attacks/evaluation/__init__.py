"""From attack scores and the truth to result records."""

from attacks.evaluation.info import AttackInfo
from attacks.evaluation.measure import measure
from attacks.evaluation.observation import AttackObservation, AttackScores
from attacks.evaluation.result import AttackResult, SampleSplit
from attacks.evaluation.targets import ALL_ITEMS, TOUCHED_ITEMS, Targets
from attacks.evaluation.users import UserResult, measure_users

__all__ = [
    "ALL_ITEMS",
    "TOUCHED_ITEMS",
    "AttackInfo",
    "AttackObservation",
    "AttackResult",
    "AttackScores",
    "SampleSplit",
    "Targets",
    "UserResult",
    "measure",
    "measure_users",
]
