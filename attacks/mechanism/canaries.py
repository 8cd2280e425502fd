"""Bound from a single call: many users with a coordinate of their own, each there by a fair bit.

Where a release has a number for each coordinate of a record, users that fill one coordinate each do not disturb each
other, and one call answers as many questions as there are coordinates. It is what slow mechanisms can afford.

Where earlier calls showed that a unit only moves Gaussian noise, the guesses are held against Gaussian differential
privacy, which they bound higher than they do epsilon and delta; otherwise against these.
"""

import numpy as np

from attacks.empirical import LowerBound, count_guesses, one_run_epsilon, one_run_gdp_epsilon
from attacks.mechanism.claim import Claim
from attacks.mechanism.inputs import SIZES, Example
from attacks.mechanism.release import CapturedRelease

MIN_CANARIES = 64
"""Coordinates of a record from which one call is worth a bound."""

_GUESSED = 4
"""One in so many canaries is guessed in, and as many out."""


def one_call(
    release: CapturedRelease, example: Example, claim: Claim, seed: int, confidence: float, *, gaussian: bool
) -> LowerBound | None:
    """Lower bound on epsilon from one call; None where the mechanism's inputs or outputs are not of that form.

    Args:
        release: The mechanism.
        example: Form of its inputs.
        claim: The claim.
        seed: Of inclusion bits and of the call, of which nothing was seen before.
        confidence: Of the bound.
        gaussian: Whether earlier calls showed Gaussian noise that a unit moves and does nothing else to.
    """
    (rows,) = example.columns.values() if example.plain else (None,)
    if rows is None or not np.issubdtype(rows.dtype, np.floating) or claim.steps > 1:
        return None
    m = int(np.prod(rows.shape[1:]))
    if m < MIN_CANARIES:
        return None
    included = np.random.default_rng([seed, m]).random(m) < 0.5
    canaries = (np.eye(m) * SIZES[1]).reshape(m, *rows.shape[1:]).astype(rows.dtype)
    try:
        numbers = release.trials({next(iter(example.columns)): _present(canaries, included, claim)}, [seed]).numbers[0]
    except Exception:  # whatever it raises, it refuses this input
        return None
    if len(numbers) < m or not np.isfinite(numbers[:m]).all():
        return None
    guesses = count_guesses(numbers[:m], included, guess_in=m // _GUESSED, guess_out=m // _GUESSED, seed=seed)
    if gaussian and claim.delta > 0:
        return one_run_gdp_epsilon(guesses, delta=claim.delta, confidence=confidence)
    return one_run_epsilon(guesses, delta=claim.delta, confidence=confidence)


def _present(canaries: np.ndarray, included: np.ndarray, claim: Claim) -> np.ndarray:
    """Rows of the canaries that are in, and what the claim's neighbours have in place of the others."""
    if claim.neighbours == "add_or_remove":
        return np.asarray(canaries[included])
    absent = -canaries if claim.neighbours == "replace" else np.zeros_like(canaries)
    shape = (len(included), *[1] * (canaries.ndim - 1))
    return np.asarray(np.where(included.reshape(shape), canaries, absent))
