"""opake: one step of clipped gradients and noise, for a linear model whose per-example gradient is its row.

Inputs are a float tensor, one row per record. The audit's generator draws the key of the noise.
"""

from typing import Any

from attacks.empirical import epsilon_from_mu
from attacks.mechanism.adapters.package import package
from attacks.mechanism.claim import Claim
from attacks.mechanism.release import Release


def claim(noise_multiplier: float, *, delta: float = 1e-5, steps: int = 1) -> Claim:
    """What a Gaussian mechanism of this noise has; `opake.accounting` of 0.16.1 cannot be imported by Python 3.11."""
    return Claim(epsilon_from_mu(steps**0.5 / noise_multiplier, delta), delta, "add_or_remove", "record", steps)


def step(noise_multiplier: float, *, clip: float = 1.0, batch: float = 1.0) -> Release:
    """`clipped_grad` and `gaussian_noise`.

    Args:
        noise_multiplier: As opake calls it.
        clip: Clipping norm.
        batch: What the sum is divided by.
    """
    torch, random = package("torch", "torch"), package("opake.random", "opake")
    clipping, noise = package("opake.dpsgd.clipping", "opake"), package("opake.dpsgd.noise", "opake")

    def release(rows: Any, generator: Any) -> Any:
        clipped, state = clipping.clipped_grad(
            lambda weights, row: (row @ weights).sum(), clipping_norm=clip, batch_argnums=1, normalize_by=batch
        )
        gradient, _ = clipped(torch.zeros(rows.shape[1]), rows, state=state)
        key = random.key(int(torch.randint(2**31, (), generator=generator)))
        add, noise_state = noise.gaussian_noise(noise_multiplier=noise_multiplier, key=key)
        return add(gradient, noise_state)[0].pytree

    return release
