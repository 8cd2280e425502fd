"""pfl's mechanisms: every user's postprocessing, the sum, and the server's.

Inputs are updates, one row per user. The audit's generator draws the seed of the round, as pfl's algorithms draw it
for the contexts of users and server.
"""

import copy
import math
import tempfile
import warnings
from contextlib import chdir
from typing import Any

import numpy as np

from attacks.mechanism.adapters.package import package
from attacks.mechanism.claim import Claim
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


def banded_claim(noise_multiplier: float, rounds: int, separation: int, *, delta: float = 1e-5) -> Claim:
    """What `PLDPrivacyAccountant` says of as many participations as the separation allows."""
    accountant = _accountant(noise_multiplier, delta, math.ceil(rounds / separation))
    return Claim(float(accountant.epsilon), delta)


def banded(noise_multiplier: float, rounds: int, separation: int, *, clip: float = 1.0, delta: float = 1e-5) -> Release:
    """Every round's sum with the noise of `BandedMatrixFactorizationMechanism`; users take part from the first on.

    It factorises with torch, which becomes pfl's framework in this process.

    Args:
        noise_multiplier: `noise_parameter` of a `PLDPrivacyAccountant`.
        rounds: `num_iterations`.
        separation: `min_separation`; rounds between, nobody takes part in.
        clip: Clipping bound.
        delta: Of the accountant.
    """
    torch = package("pfl.internal.ops.pytorch_ops", "pfl")
    package("pfl.internal.ops.selector", "pfl").set_framework_module(torch)
    kind = package("pfl.privacy.ftrl_mechanism", "pfl").BandedMatrixFactorizationMechanism
    # It leaves its matrix in a folder of the working directory, where a second one would find the first one's.
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        made = kind(clip, rounds, separation, lambda times: _accountant(noise_multiplier, delta, times))
    centrally = package("pfl.privacy.privacy_mechanism", "pfl").CentrallyAppliedPrivacyMechanism

    def release(updates: Any, generator: Any) -> list[dict[str, Any]]:
        # It remembers the noise of earlier rounds.
        fresh = centrally(copy.deepcopy(made))
        # How many users a round has must not move the randomness of the next.
        each = [np.random.default_rng(_seed(generator)) for _ in range(rounds)]
        present = [updates if step % separation == 0 else updates[:0] for step in range(rounds)]
        with warnings.catch_warnings():
            # It makes a tensor of a tensor, of which torch warns.
            warnings.simplefilter("ignore", UserWarning)
            return [_round(fresh, own, numbers) for own, numbers in zip(present, each, strict=True)]

    return release


def _accountant(noise_multiplier: float, delta: float, times: int) -> Any:
    return package("pfl.privacy.privacy_accountant", "pfl").PLDPrivacyAccountant(
        num_compositions=times,
        sampling_probability=1.0,
        mechanism="gaussian",
        noise_parameter=noise_multiplier,
        delta=delta,
    )


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
    tensors = {name: _tensor(vector) for name, vector in vectors.items()}
    return package("pfl.stats", "pfl").MappedVectorStatistics(tensors, weight=1.0)


def _tensor(vector: np.ndarray) -> Any:
    """In pfl's framework; where none is chosen, arrays will do."""
    selector = package("pfl.internal.ops.selector", "pfl")
    try:
        framework = selector.get_framework_module()
    except AssertionError:
        return vector
    return framework.to_tensor(vector)


def _seed(generator: Any) -> int:
    return int(generator.integers(1, 2**32 - 1))
