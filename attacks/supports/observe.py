"""Run attacks over the rounds an adversary saw and measure what they found.

Two steps, so that one pass over the rounds serves several games: :func:`observe` lets every attack look (no
truth in sight), :func:`measure` compares what they said with :class:`~attacks.view.Targets`. :func:`run` does
both. :func:`observe_scores` looks at users' own recommendations instead of uploads, :func:`observe_support` at which
rows clients send into a secure sum.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from attacks.evaluation.observation import AttackObservation, score_timed
from attacks.membership.popularity import PopularityGuesser
from attacks.supports.examinations import SUPPORT_ATTACKS, SupportAttack
from attacks.views.supports import SupportView


def observe_support(view: SupportView, attacks: Sequence[SupportAttack] = SUPPORT_ATTACKS) -> AttackObservation:
    """Let the popularity guesser, and each attack for which the view holds enough, look at what clients send.

    Measure it with `view.prior` as the knowledge.

    Args:
        view: Supports of the audited users. Those who took no part in training must be left out of it.
        attacks: By default all; those whose evidence the view lacks are left out.
    """
    everybody = np.ones(view.n_users, dtype=bool)
    popularity = PopularityGuesser()
    scored = [score_timed(popularity, partial(popularity.score, view, view.prior), everybody)]
    scored += [
        score_timed(attack, partial(attack.score, view), everybody) for attack in attacks if attack.applies(view)
    ]
    return AttackObservation(tuple(scored), None)
