"""pfl's mechanisms: every user's postprocessing, the sum, and the server's.

Inputs are updates, one row per user. The audit's generator draws the seed of the round, as pfl's algorithms draw it
for the contexts of users and server.
"""

from typing import Any

import numpy as np

from attacks.mechanism.adapters.package import package
from attacks.mechanism.release import Release


def gaussian(epsilon: float, delta: float, *, clip: float = 1.0) -> Release:
    """Central `GaussianMechanism`, calibrated by `construct_single_iteration` to this claim."""
    return _central(_gaussian(clip, epsilon, delta))


def local_gaussian(epsilon: float, delta: float, *, clip: float = 1.0) -> Release:
    """What every user sends that has `GaussianMechanism` as a local mechanism, calibrated to this claim."""
    made = _gaussian(clip, epsilon, delta)

    def release(updates: Any, generator: Any) -> list[Any]:
        sent = [made.privatize(_statistics(row), seed=_seed(generator))[0] for row in updates]
        return [dict(statistics.items()) for statistics in sent]

    return release


def laplace(epsilon: float, *, clip: float = 1.0) -> Release:
    """Central `LaplaceMechanism` of this epsilon."""
    return _central(package("pfl.privacy.laplace_mechanism", "pfl").LaplaceMechanism(clip, epsilon))


def joint_gaussian(epsilon: float, delta: float, *, clip: float = 1.0) -> Release:
    """`JointMechanism` of two `GaussianMechanism`, each for half of the update, the claim and its delta."""
    halves = {key: (_gaussian(clip, epsilon / 2, delta / 2), [key]) for key in ("left", "right")}
    return _central(package("pfl.privacy.joint_mechanism", "pfl").JointMechanism(halves), halves=True)


def adaptive_clipping(noise_multiplier: float, *, indicator_noise: float, clip: float = 1.0) -> Release:
    """`AdaptiveClippingGaussianMechanism`; the next clipping bound leaves, too.

    Args:
        noise_multiplier: Relative standard deviation of the noise.
        indicator_noise: Standard deviation of the noise on the sum of clipping indicators.
        clip: First clipping bound.
    """
    adaptive = package("pfl.privacy.adaptive_clipping", "pfl").AdaptiveClippingGaussianMechanism
    make = package("pfl.privacy.gaussian_mechanism", "pfl").GaussianMechanism

    def release(updates: Any, generator: Any) -> dict[str, Any]:
        made = adaptive(lambda bound: make(bound, noise_multiplier), clip, indicator_noise, 0.5)
        return _round(made, updates, generator) | {"bound": made.mutable_clipping_bound.value()}

    return release


def _gaussian(clip: float, epsilon: float, delta: float) -> Any:
    kind = package("pfl.privacy.gaussian_mechanism", "pfl").GaussianMechanism
    return kind.construct_single_iteration(clip, epsilon, delta)


def _central(local: Any, *, halves: bool = False) -> Release:
    """A mechanism without state, applied centrally."""
    made = package("pfl.privacy.privacy_mechanism", "pfl").CentrallyAppliedPrivacyMechanism(local)
    return lambda updates, generator: _round(made, updates, generator, halves=halves)


def _round(made: Any, updates: Any, generator: Any, *, halves: bool = False) -> dict[str, Any]:
    """The noisy sum of one round."""
    contexts, metrics = package("pfl.context", "pfl"), package("pfl.metrics", "pfl")
    population = package("pfl.common_types", "pfl").Population.TRAIN
    seed = _seed(generator)
    total = None
    # A user whose update is zero opens the sum, so that it exists where nobody takes part.
    for row in np.vstack([np.zeros_like(updates, shape=(1, updates.shape[1])), updates]):
        user = contexts.UserContext(num_datapoints=1, seed=_seed(generator))
        one, _ = made.postprocess_one_user(stats=_statistics(row, halves=halves), user_context=user)
        total = one if total is None else total + one
    server = contexts.CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=len(updates) + 1,
        population=population,
        algorithm_params=None,
        model_train_params=None,
        seed=seed,
    )
    released, _ = made.postprocess_server(stats=total, central_context=server, aggregate_metrics=metrics.Metrics())
    return dict(released.items())


def _statistics(row: np.ndarray, *, halves: bool = False) -> Any:
    vectors = {"left": row[: len(row) // 2], "right": row[len(row) // 2 :]} if halves else {"update": row}
    return package("pfl.stats", "pfl").MappedVectorStatistics(vectors, weight=1.0)


def _seed(generator: Any) -> int:
    return int(generator.integers(1, 2**32 - 1))
