"""Run attacks on a target recommender and its shadow recommenders."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from attacks.evaluation.observation import AttackObservation, score_timed
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.score_threshold import ScoreThreshold
from attacks.shadow.attack import ShadowAttack
from attacks.views.knowledge import Knowledge
from attacks.views.scores import ScoreView
from attacks.views.shadows import ShadowView


def observe_shadows(view: ShadowView, knowledge: Knowledge, attacks: Sequence[ShadowAttack]) -> AttackObservation:
    """Run popularity, the score threshold and each attack; measure with :func:`attacks.measure`.

    The score threshold uses the same target without shadows, so it shows what the shadows are worth.

    Args:
        view: Target and shadow recommenders.
        knowledge: Prior knowledge of the adversary.
        attacks: For example :data:`attacks.shadow.SHADOW_ATTACKS`.

    Raises:
        ViewError: If the popularity covers another catalogue than the view.
    """
    everyone = np.ones(view.n_users, dtype=bool)
    target = ScoreView(0, view.target)
    scores = [
        score_timed(baseline, partial(baseline.score, target, knowledge), everyone)
        for baseline in (PopularityGuesser(), ScoreThreshold())
    ]
    scores += [score_timed(attack, partial(attack.score, view), everyone) for attack in attacks]
    return AttackObservation(tuple(scores), None)
