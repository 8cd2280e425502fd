"""Run attacks over the rounds an adversary saw and measure what they found.

Two steps, so that one pass over the rounds serves several games: :func:`observe` lets every attack look (no
truth in sight), :func:`measure` compares what they said with :class:`~attacks.view.Targets`. :func:`run` does
both. :func:`observe_scores` looks at users' own recommendations instead of uploads, :func:`observe_support` at which
rows clients send into a secure sum.
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
    """Let each attack look at the rounds, one view in memory at a time.

    Single-round attacks speak about the last round; :class:`MultiRoundVote` about all of them.

    Args:
        attacks: For example :data:`attacks.membership.CORE`. The popularity guesser is added if missing.
        views: Rounds in order, all of the same audited users; may be a generator.
        knowledge: What the adversary knew beforehand.

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
    scored = [_look(attack, last, knowledge) for attack in (PopularityGuesser(), *singles)]
    scored += [_count(attack, vote, seconds[attack]) for attack, vote in votes.items()]
    return AttackObservation(tuple(scored), upload_support(last))


def observe_scores(view: ScoreView, knowledge: Knowledge) -> AttackObservation:
    """Let the popularity guesser and the score threshold look at users' own recommendations.

    Args:
        view: Scores of the audited users after the last round.
        knowledge: What the adversary knew beforehand.
    """
    everybody = np.ones(view.n_users, dtype=bool)
    scored = [
        score_timed(attack, partial(attack.score, view, knowledge), everybody)
        for attack in (PopularityGuesser(), ScoreThreshold())
    ]
    return AttackObservation(tuple(scored), None)


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
    """:func:`observe`, then :func:`measure`; the popularity guesser is always a row.

    Raises:
        ViewError: As the two steps do.
    """
    return measure(
        observe(attacks, views, knowledge), knowledge, targets, scopes=scopes, resamples=resamples, seed=seed
    )


def _look(attack: UploadAttack, view: ServerView, knowledge: Knowledge) -> AttackScores:
    return score_timed(attack, partial(attack.score, view, knowledge), view.present())


def _count(attack: MultiRoundVote, vote: VoteAccumulator, seconds: float) -> AttackScores:
    return AttackScores(attack, vote.scores(), vote.rounds > 0, int(vote.rounds.max()), seconds)
