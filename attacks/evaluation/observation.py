"""Scores of all attacks on one observation, before they are compared with the truth."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from attacks.evaluation.info import AttackInfo
from attacks.views.rows import UploadSupport
from attacks.views.types import Scores, UserMask


@dataclass(frozen=True, eq=False)
class AttackScores:
    """Scores of one attack.

    Attributes:
        attack: The attack.
        scores: Its scores, of the last round for a single-round attack and of all rounds for a vote.
        present: Users for whom the attack had data; the others are not measured.
        rounds: Number of rounds that the scores combine.
        seconds: Time spent on scoring.
    """

    attack: AttackInfo
    scores: Scores
    present: UserMask
    rounds: int
    seconds: float


@dataclass(frozen=True, eq=False)
class AttackObservation:
    """Scores of all attacks after the last round, before the truth is used.

    Attributes:
        by_attack: One entry per attack; the popularity guesser is always the first.
        support: Rows touched in the last round; None if no upload was observed.
    """

    by_attack: tuple[AttackScores, ...]
    support: UploadSupport | None


def score_timed(attack: AttackInfo, score: Callable[[], Scores], present: UserMask) -> AttackScores:
    """Run an attack on a single round and measure its time.

    Args:
        attack: The attack.
        score: Function that gives its scores.
        present: Users for whom the attack had data.
    """
    began = time.perf_counter()
    scores = score()
    return AttackScores(attack, scores, present, 1, time.perf_counter() - began)
