"""opake: steps of clipped gradients and noise, for a linear model whose per-example gradient is its row.

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


def correlated_claim(
    noise_multiplier: float, rounds: int, separation: int, bands: int, *, delta: float = 1e-5
) -> Claim:
    """What Gaussian noise of this multiplier has at the sensitivity that `BandMfStrategy` names."""
    strategy = package("opake.dpftrl", "opake-dpftrl").band_mf_strategy(bands=bands)
    sensitivity = float(strategy.sensitivity(n_steps=rounds, min_sep=separation))
    return Claim(epsilon_from_mu(sensitivity / noise_multiplier, delta), delta, "add_or_remove", "record")


def correlated(noise_multiplier: float, rounds: int, separation: int, bands: int, *, clip: float = 1.0) -> Release:
    """Every round's gradient with the noise of `mf_gaussian_noise`; records take part from the first round on.

    Args:
        noise_multiplier: As opake calls it.
        rounds: `n_steps`.
        separation: `min_sep`; rounds between, nobody takes part in.
        bands: Of `band_mf_strategy`.
        clip: Clipping norm.
    """
    torch, random = package("torch", "torch"), package("opake.random", "opake")
    ftrl = package("opake.dpftrl", "opake-dpftrl")
    strategy = ftrl.band_mf_strategy(bands=bands)

    def release(rows: Any, generator: Any) -> list[Any]:
        clipped, state = ftrl.clipped_grad(
            lambda weights, row: (row @ weights).sum(), clipping_norm=clip, batch_argnums=1, normalize_by=1.0
        )
        weights = torch.zeros(rows.shape[1])
        key = random.key(int(torch.randint(2**31, (), generator=generator)))
        add, noise_state = ftrl.mf_gaussian_noise(
            weights, strategy, n_steps=rounds, min_sep=separation, noise_multiplier=noise_multiplier, key=key
        )
        left = []
        for step in range(rounds):
            gradient, state = clipped(weights, rows if step % separation == 0 else rows * 0, state=state)
            noised, noise_state = add(gradient, noise_state)
            left.append(noised.pytree)
        return left

    return release
