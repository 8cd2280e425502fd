"""Run attacks over the rounds an adversary saw and measure what they found.

Two steps, so that one pass over the rounds serves several games: :func:`observe` lets every attack look (no
truth in sight), :func:`measure` compares what they said with :class:`~attacks.view.Targets`. :func:`run` does
both. :func:`observe_scores` looks at users' own recommendations instead of uploads, :func:`observe_support` at which
rows clients send into a secure sum.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from attacks.evaluation.info import AttackInfo
from attacks.views.rows import UploadSupport
from attacks.views.types import Scores, UserMask


@dataclass(frozen=True, eq=False)
class AttackScores:
    """What one attack said.

    Attributes:
        attack: The attack.
        scores: Its scores; of the last round for a single-round attack, of all rounds for a vote.
        present: Users it had anything to look at; the others are not measured.
        rounds: Rounds the scores are made of.
        seconds: Time spent scoring.
    """

    attack: AttackInfo
    scores: Scores
    present: UserMask
    rounds: int
    seconds: float


@dataclass(frozen=True, eq=False)
class AttackObservation:
    """What all attacks said after the last round, before any truth is looked at.

    Attributes:
        scored: One entry per attack; the popularity guesser is always the first.
        support: Rows touched in the last round; None where no upload was looked at.
    """

    by_attack: tuple[AttackScores, ...]
    support: UploadSupport | None


def score_timed(attack: AttackInfo, look: Callable[[], Scores], present: UserMask) -> AttackScores:
    began = time.perf_counter()
    scores = look()
    return AttackScores(attack, scores, present, 1, time.perf_counter() - began)
