"""Run attacks on the uploads of several rounds, or on users' own recommendations.

:func:`observe` and :func:`observe_scores` compute scores without access to the truth; :func:`attacks.measure` compares
them with :class:`attacks.Targets`. :func:`run` does both for uploads.
"""

import time
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from attacks.evaluation.measure import measure
from attacks.evaluation.observation import AttackObservation, AttackScores, score_timed
from attacks.evaluation.result import AttackResult
from attacks.evaluation.targets import ALL_ITEMS, Targets
from attacks.membership.attack import UploadAttack
from attacks.membership.multi_round_vote import MultiRoundVote, VoteAccumulator
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.score_threshold import ScoreThreshold
from attacks.views.knowledge import Knowledge
from attacks.views.rows import upload_support
from attacks.views.scores import ScoreView
from attacks.views.server import ServerView
from attacks.views.types import ViewError


def observe(attacks: Sequence[UploadAttack], views: Iterable[ServerView], knowledge: Knowledge) -> AttackObservation:
    """Run each attack on the rounds, with one view in memory at a time.

    Single-round attacks score the last round; :class:`MultiRoundVote` combines all rounds.

    Args:
        attacks: For example :data:`attacks.membership.CORE_ATTACKS`. The popularity guesser is added if missing.
        views: Rounds in order, all of the same audited users; may be a generator.
        knowledge: Prior knowledge of the adversary.

    Raises:
        ViewError: If there is no view, or views disagree in shape.
    """
    singles = [attack for attack in attacks if not isinstance(attack, MultiRoundVote | PopularityGuesser)]
    votes = {attack: attack.start() for attack in attacks if isinstance(attack, MultiRoundVote)}
    seconds = dict.fromkeys(votes, 0.0)
    last: ServerView | None = None
    for view in views:
        for attack, vote in votes.items():
            began = time.perf_counter()
            vote.add(view, knowledge)
            seconds[attack] += time.perf_counter() - began
        last = view
    if last is None:
        raise ViewError("There is no round to attack; pass at least one ServerView.")
    scores = [_score(attack, last, knowledge) for attack in (PopularityGuesser(), *singles)]
    scores += [_vote_scores(attack, vote, seconds[attack]) for attack, vote in votes.items()]
    return AttackObservation(tuple(scores), upload_support(last))


def observe_scores(view: ScoreView, knowledge: Knowledge) -> AttackObservation:
    """Run the popularity guesser and the score threshold on users' own recommendations.

    Args:
        view: Scores of the audited users after the last round.
        knowledge: Prior knowledge of the adversary.
    """
    everyone = np.ones(view.n_users, dtype=bool)
    scores = [
        score_timed(attack, partial(attack.score, view, knowledge), everyone)
        for attack in (PopularityGuesser(), ScoreThreshold())
    ]
    return AttackObservation(tuple(scores), None)


def run(
    attacks: Sequence[UploadAttack],
    views: Iterable[ServerView],
    knowledge: Knowledge,
    targets: Targets,
    *,
    scopes: Sequence[str] = (ALL_ITEMS,),
    resamples: int = 200,
    seed: int = 0,
) -> list[AttackResult]:
    """:func:`observe`, then :func:`attacks.measure`; the popularity guesser always gives a result.

    Raises:
        ViewError: As in the two steps.
    """
    return measure(
        observe(attacks, views, knowledge), knowledge, targets, scopes=scopes, resamples=resamples, seed=seed
    )


def _score(attack: UploadAttack, view: ServerView, knowledge: Knowledge) -> AttackScores:
    return score_timed(attack, partial(attack.score, view, knowledge), view.present())


def _vote_scores(attack: MultiRoundVote, vote: VoteAccumulator, seconds: float) -> AttackScores:
    return AttackScores(attack, vote.scores(), vote.rounds > 0, int(vote.rounds.max()), seconds)
