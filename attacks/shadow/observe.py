"""Let attacks look at a target beside its shadows."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from attacks.evaluation.info import AttackInfo
from attacks.evaluation.observation import AttackObservation, AttackScores
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.score_threshold import ScoreThreshold
from attacks.shadow.attack import ShadowAttack
from attacks.views.knowledge import Knowledge
from attacks.views.scores import ScoreView
from attacks.views.shadows import ShadowView
from attacks.views.types import Scores


def observe_shadows(view: ShadowView, knowledge: Knowledge, attacks: Sequence[ShadowAttack]) -> AttackObservation:
    """Popularity, the score threshold on the same target, and each attack; measure with :func:`attacks.measure`.

    The threshold is beside them because it shows what the shadows are worth.

    Args:
        view: Target and shadows.
        knowledge: What the adversary knew beforehand.
        attacks: For example :data:`attacks.shadow.SHADOWED`.

    Raises:
        ViewError: If the popularity covers another catalogue than the view.
    """
    everybody = np.ones(view.n_users, dtype=bool)
    alone = ScoreView(0, view.target)
    looks: list[tuple[AttackInfo, Callable[[], Scores]]] = [
        (base, partial(base.score, alone, knowledge)) for base in (PopularityGuesser(), ScoreThreshold())
    ]
    looks += [(attack, partial(attack.score, view)) for attack in attacks]
    scored = []
    for attack, look in looks:
        began = time.perf_counter()
        scores = look()
        scored.append(AttackScores(attack, scores, everybody, 1, time.perf_counter() - began))
    return AttackObservation(tuple(scored), None)
