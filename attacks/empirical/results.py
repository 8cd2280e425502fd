"""Measured epsilons, told apart by what they are worth: a bound, an estimate, or a belief.

* :class:`LowerBound` holds with a confidence, whatever the mechanism, as far as `assumes` is true. Only it can deny a
  claim, so only it has a `denies`.
* :class:`EpsilonEstimate` is the best guess under a model of the scores. It may lie above the truth.
* :class:`CredibleBound` holds with a probability under a prior. It may deny true claims more often than that.

A function that asks for one of them cannot be given another; `kind` says the same in a file. Each carries the
`evidence` it was computed from, so that it can be computed again.

Every one of them needs membership that a coin decided. Natural members differ from the rest without any training, and
no epsilon follows from that difference.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

CONFIDENCE = 0.95
"""Confidence of bounds and intervals where none is given."""


@dataclass(frozen=True)
class TrialCounts:
    """Trials in two worlds and how many of them reached a cut.

    Attributes:
        n_members: Trials with the member.
        n_nonmembers: Trials without.
        true_positives: Members at or above the cut.
        false_positives: Non-members at or above it.
        cuts: Thresholds tried; they share 1 - confidence.
    """

    n_members: int
    n_nonmembers: int
    true_positives: int
    false_positives: int
    cuts: int = 1


@dataclass(frozen=True)
class CanaryGuesses:
    """Guesses about canaries of one run, each of which was in or out by its own fair coin.

    Attributes:
        canaries: Coins thrown (m).
        guesses: Canaries that a guess was made about, the others abstained from (r).
        correct: Guesses that were right (v).

    Raises:
        ValueError: If not 0 <= correct <= guesses <= canaries, or there is no guess.
    """

    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        if not (1 <= self.guesses <= self.canaries and 0 <= self.correct <= self.guesses):
            raise ValueError(
                f"Got {self.canaries} canaries, {self.guesses} guesses and {self.correct} correct ones; pass at least "
                "one guess, at most one for each canary, and no more correct ones than guesses."
            )


@dataclass(frozen=True)
class CanaryCosines:
    """Canary clients of one run, scored by their cosine with what was released.

    Attributes:
        inserted: Canaries that took part.
        unseen: Canaries that did not, which the null was fitted to; 0 where it is known.
        dimensions: Length of an update.
        cuts: Thresholds tried; 0 for an estimate.
    """

    inserted: int
    unseen: int
    dimensions: int
    cuts: int = 0


@dataclass(frozen=True)
class SecretGuesses:
    """Secrets of fair coins, and how many of them were read off what was released.

    Attributes:
        trials: Secrets.
        right: Those that were guessed with at most `errors` wrong coins.
        bits: Coins of a secret.
        errors: Wrong coins that a right guess may have.
    """

    trials: int
    right: int
    bits: int
    errors: int = 0


EpsilonEvidence: TypeAlias = TrialCounts | CanaryGuesses | CanaryCosines | SecretGuesses


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What all measured epsilons have.

    Attributes:
        estimator: Name of the method.
        epsilon: The number; 0 where nothing was found, which is no evidence of privacy.
        delta: At which it is meant.
        confidence: Of the bound, all cuts considered, or of the interval.
        trials: Draws, coins or canaries behind it.
        evidence: Counts that it was computed from.
        assumes: What must hold besides a coin-decided membership, or "".
        note: What a reader must know about this one, or "".
    """

    estimator: str
    epsilon: float
    delta: float
    confidence: float
    trials: int
    evidence: EpsilonEvidence
    assumes: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class LowerBound(_Measured):
    """With `confidence`, no claim below `epsilon` is true.

    Attributes:
        mu: The same for mu-GDP where the claim is of that form; None otherwise.
        kind: "lower bound".
    """

    mu: float | None = None
    kind: Literal["lower bound"] = field(default="lower bound", init=False)

    def rejects(self, claimed: float) -> bool:
        """Whether a claim of `claimed` at `delta` is ruled out, with `confidence`."""
        return self.epsilon > claimed


@dataclass(frozen=True, kw_only=True)
class EpsilonEstimate(_Measured):
    """A best guess, with an interval for its scatter and a floor for what chance alone gives.

    Attributes:
        lo: Lower end of the interval.
        hi: Upper end.
        placebo: 95th percentile of the estimate where nothing leaks; below it the estimate says nothing.
        kind: "estimate".
    """

    lo: float
    hi: float
    placebo: float
    kind: Literal["estimate"] = field(default="estimate", init=False)


@dataclass(frozen=True, kw_only=True)
class CredibleBound(_Measured):
    """With posterior probability `confidence`, epsilon is at least `epsilon`.

    Attributes:
        prior: The belief beforehand.
        kind: "credible bound".
    """

    prior: str
    kind: Literal["credible bound"] = field(default="credible bound", init=False)


MeasuredEpsilon: TypeAlias = LowerBound | EpsilonEstimate | CredibleBound
"""Any measured epsilon; `kind` tells which."""


def check_confidence(confidence: float) -> None:
    """Raises a ValueError unless a confidence lies between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; pass a value between 0 and 1, such as 0.95.")
