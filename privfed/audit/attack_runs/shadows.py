"""Shadow models: the same experiment with other inclusion bits and other randomness, to compare with.

An adversary with shadows knows the method, its settings and the data but for the interactions that inclusion bits
decided (`attacks.shadow`), which is what differential privacy grants it. In each shadow the same interactions get
new bits, and nothing of the run's own randomness comes back: keys, initial private parameters and sampling follow
from another seed. What is compared is what devices show their users.
"""

import numpy as np
import torch
from jaxtyping import Float32

from attacks.shadow import MANY_SHADOW_ATTACKS, SHADOW_ATTACKS, ShadowAttack
from attacks.views import OutputActivation, ShadowView
from privfed.experiment import Experiment
from privfed.setup.config import TapConfig
from privfed.setup.inclusion import InclusionBits

MANY = 8
"""Shadows from which on attacks run that want both worlds of each interaction."""

_SEEDS_APART = 1_000_003
"""Between the seeds of a run's shadows, so that no shadow is another run of the same audit."""


def shadow_view(experiment: Experiment, target: Float32[np.ndarray, "users items"]) -> ShadowView:
    """Train the shadows of a run and let the audited users' devices score.

    Args:
        experiment: trained, with inclusion bits.
        target: scores of its audited users' devices.

    Raises:
        ValueError: the run has no inclusion bits to randomise again.
    """
    inclusion = experiment.inclusion
    if inclusion is None:
        raise ValueError(
            "shadow models randomise a run's inclusion bits again, and this run has none: set taps.inclusion=0.2"
        )
    users = torch.from_numpy(inclusion.users)
    scores, worlds = [], []
    for number in range(1, experiment.config.taps.shadows + 1):
        seed = number * _SEEDS_APART + experiment.config.seed
        shadow = shadow_of(experiment, inclusion.resample(seed), seed)
        shadow.run(parts=())
        scores.append(shadow.recommend_each(users, shadow.config.rounds).numpy())
        worlds.append(shadow.trained.train.mask(inclusion.users))
    output: OutputActivation = "sigmoid" if experiment.registered.attack_surface.scores_are_logits else "softmax"
    return ShadowView(target, np.stack(scores), np.stack(worlds), output)


def shadow_of(experiment: Experiment, inclusion: InclusionBits, seed: int) -> Experiment:
    """The same experiment under other inclusion bits and another seed, with nothing tapped."""
    config = experiment.config
    taps = TapConfig(places=(), users=config.taps.users)
    # The parts are shuffled already where the control is, so it is left out.
    changes = {"seed": seed, "taps": taps, "evaluate_every": config.rounds, "control": None}
    return Experiment(config.model_copy(update=changes), inclusion.applied_to(experiment.parts))


def applicable(shadows: int) -> tuple[ShadowAttack, ...]:
    """The attacks that make something of so many shadows."""
    return SHADOW_ATTACKS + (MANY_SHADOW_ATTACKS if shadows >= MANY else ())
