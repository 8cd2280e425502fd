"""jax_privacy: one step of clipped gradients and noise, for a linear model whose per-example gradient is its row.

Inputs are float32 rows, one per record. The audit's generator draws the key of the noise.
"""

from typing import Any

import numpy as np

from attacks.mechanism.adapters.package import package
from attacks.mechanism.claim import Claim
from attacks.mechanism.release import Release


def claim(noise_multiplier: float, *, delta: float = 1e-5, steps: int = 1) -> Claim:
    """What the package's PLD accountant says of steps on all records."""
    events = package("dp_accounting", "dp_accounting")
    accountant = package("jax_privacy.accounting", "jax_privacy").PldAccountantConfig().create_accountant()
    accountant.compose(events.GaussianDpEvent(noise_multiplier), steps)
    return Claim(float(accountant.get_epsilon(delta)), delta, "add_or_remove", "record", steps)


def step(noise_multiplier: float, *, clip: float = 1.0, batch: float = 1.0, nan_safe: bool = True) -> Release:
    """`clipped_grad` and `gaussian_privatizer`.

    Args:
        noise_multiplier: Standard deviation of the noise in units of the sensitivity.
        clip: `l2_clip_norm`.
        batch: What the sum is divided by.
        nan_safe: As `clipped_grad` calls it.
    """
    jax, clipping = package("jax", "jax_privacy"), package("jax_privacy.clipping", "jax_privacy")
    noise = package("jax_privacy.noise_addition", "jax_privacy")
    relation = package("dp_accounting", "dp_accounting").NeighboringRelation.ADD_OR_REMOVE_ONE
    clipped = clipping.clipped_grad(
        lambda weights, rows: rows[0] @ weights, l2_clip_norm=clip, normalize_by=batch, nan_safe=nan_safe
    )
    stddev = noise_multiplier * clipped.sensitivity(relation)

    @jax.jit  # type: ignore[untyped-decorator]
    def noisy(rows: Any, key: Any) -> Any:
        total = clipped(jax.numpy.zeros(rows.shape[1], rows.dtype), rows)
        privatizer = noise.gaussian_privatizer(stddev=stddev, prng_key=key)
        return privatizer.update(total, privatizer.init(total))[0]

    def release(rows: Any, generator: Any) -> np.ndarray:
        key = jax.random.key(int(generator.integers(2**31)))
        return np.asarray(noisy(np.asarray(rows, np.float32), key))

    return release
