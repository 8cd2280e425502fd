"""Run attacks on the rows that clients send into a secure sum."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from attacks.evaluation.observation import AttackObservation, score_timed
from attacks.membership.popularity import PopularityGuesser
from attacks.supports.examinations import SUPPORT_ATTACKS, SupportAttack
from attacks.views.supports import SupportView


def observe_support(view: SupportView, attacks: Sequence[SupportAttack] = SUPPORT_ATTACKS) -> AttackObservation:
    """Run the popularity guesser, and each attack for which the view holds enough, on the rows that clients send.

    Measure the result with :func:`attacks.measure` and `view.prior` as the knowledge.

    Args:
        view: Supports of the audited users. Those who took no part in training must be left out of it.
        attacks: Attacks, by default all; those whose evidence the view lacks are left out.
    """
    everyone = np.ones(view.n_users, dtype=bool)
    popularity = PopularityGuesser()
    scores = [score_timed(popularity, partial(popularity.score, view, view.prior), everyone)]
    scores += [score_timed(attack, partial(attack.score, view), everyone) for attack in attacks if attack.applies(view)]
    return AttackObservation(tuple(scores), None)
