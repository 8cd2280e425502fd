"""How much of a user's private code can be rebuilt from what is public.

A method with discrete codes keeps the user code on the device, but the item codes and the purchases are public, so
anybody may run the user update without the examinations. The method makes that guess; here it is only compared with the
truth. Bits are not independent within a user, hence intervals over users.

The baseline is not one half. If a bit is lopsided over users, guessing its majority does better, and a rebuilt code
reveals something about its user only by how far it exceeds that.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int8

from attacks.metrics.estimate import Estimate, user_mean
from attacks.views.types import ViewError

CHANCE = 0.5
"""Share of bits that a random guess gets right."""


@dataclass(frozen=True)
class CodeRecovery:
    """Accuracy of rebuilt user codes.

    Attributes:
        bits: Share of correct bits, mean over users.
        users: Share of users with at least `threshold` of their bits correct.
        majority: Share of bits that equal each bit's majority over these very users (the upper limit of a guess without
            any personal evidence).
        gain: `bits` minus `majority`, paired by user.
        chance: :data:`CHANCE`.
        threshold: Share of bits from which a user counts as recovered.
        n_users: Number of users compared.
        n_bits: Length of a code.
    """

    bits: Estimate
    users: Estimate
    majority: Estimate
    gain: Estimate
    chance: float
    threshold: float
    n_users: int
    n_bits: int


def code_recovery(
    guess: Int8[np.ndarray, "users bits"],
    truth: Int8[np.ndarray, "users bits"],
    *,
    threshold: float = 0.9,
    resamples: int = 200,
    seed: int = 0,
) -> CodeRecovery:
    """Compare rebuilt user codes with the real ones.

    Args:
        guess: Rebuilt codes of -1 and +1.
        truth: Real codes of the same users, in the same order.
        threshold: Share of bits from which a user counts as recovered, in (0, 1].
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ViewError: If shapes differ, are empty, or a value is neither -1 nor +1.
        ValueError: If the threshold is outside its range.
    """
    if guess.shape != truth.shape or truth.ndim != 2 or 0 in truth.shape:
        raise ViewError(
            f"The guess has shape {guess.shape} and the truth {truth.shape}; pass two non-empty [users, bits] arrays "
            "of the same users."
        )
    if not ((np.abs(guess) == 1).all() and (np.abs(truth) == 1).all()):
        raise ViewError("A code holds a value other than -1 and +1; unpack bits to signs first.")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; pass a share of bits above 0 and at most 1.")
    accuracy = (guess == truth).mean(axis=1)
    majority = np.where(truth.sum(axis=0, dtype=np.int64) >= 0, 1, -1)
    baseline = (majority == truth).mean(axis=1)
    recovered = (accuracy >= threshold).astype(np.float64)
    bits, users, most_frequent, gain = (
        user_mean(values, resamples=resamples, seed=seed)
        for values in (accuracy, recovered, baseline, accuracy - baseline)
    )
    return CodeRecovery(bits, users, most_frequent, gain, CHANCE, threshold, *truth.shape)
