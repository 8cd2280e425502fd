"""Measured epsilons, distinguished by what they prove: a bound, an estimate, or a credible bound.

* :class:`LowerBound` holds with a confidence for every mechanism, as far as `assumes` is true. Only it can reject a
  claim, so only it has a `rejects`.
* :class:`EpsilonEstimate` is the best guess under a model of the scores. It may lie above the truth.
* :class:`CredibleBound` holds with a probability under a prior. It may reject true claims more often than that.

A function that asks for one of them cannot be given another; `kind` says the same in a file. Each carries the
`evidence` it was computed from, so that it can be computed again.

All of them need randomised membership. Natural members differ from the rest without any training, and no epsilon
follows from that difference.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

CONFIDENCE = 0.95
"""Confidence of bounds and intervals where none is given."""


@dataclass(frozen=True)
class TrialCounts:
    """Numbers of trials in two worlds, and of those that reached a threshold.

    Attributes:
        n_members: Number of trials with the member.
        n_nonmembers: Number of trials without the member.
        true_positives: Number of members at or above the threshold.
        false_positives: Number of non-members at or above the threshold.
        cuts: Number of thresholds tried; they share 1 - confidence.
    """

    n_members: int
    n_nonmembers: int
    true_positives: int
    false_positives: int
    cuts: int = 1


@dataclass(frozen=True)
class CanaryGuesses:
    """Guesses about canaries of one run, each of which was included by its own fair bit.

    Attributes:
        canaries: Number of canaries (m).
        guesses: Number of canaries guessed; the auditor abstains from the others (r).
        correct: Number of correct guesses (v).

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
    """Canary clients of one run, scored by their cosine with the release.

    Attributes:
        inserted: Number of canaries that took part.
        unseen: Number of canaries that did not, to which the null was fitted; 0 if the null is known.
        dimensions: Length of an update.
        cuts: Number of thresholds tried; 0 for an estimate.
    """

    inserted: int
    unseen: int
    dimensions: int
    cuts: int = 0


@dataclass(frozen=True)
class SecretGuesses:
    """Secrets of fair bits, and how many of them were recovered from the release.

    Attributes:
        trials: Number of secrets.
        right: Number of secrets guessed with at most `errors` wrong bits.
        bits: Number of bits of a secret.
        errors: Number of wrong bits that a correct guess may have.
    """

    trials: int
    right: int
    bits: int
    errors: int = 0


EpsilonEvidence: TypeAlias = TrialCounts | CanaryGuesses | CanaryCosines | SecretGuesses


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """Fields of every measured epsilon.

    Attributes:
        estimator: Name of the method.
        epsilon: Measured epsilon; 0 if nothing was found, which is no evidence of privacy.
        delta: Delta of the claim.
        confidence: Confidence of the bound over all thresholds, or of the interval.
        trials: Number of trials or canaries.
        evidence: Counts from which it was computed.
        assumes: Assumptions besides randomised membership, or "".
        note: Caveat for the reader, or "".
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
        mu: Bound on mu if the claim is mu-GDP; None otherwise.
        kind: "lower bound".
    """

    mu: float | None = None
    kind: Literal["lower bound"] = field(default="lower bound", init=False)

    def rejects(self, claimed: float) -> bool:
        """Whether a claim of epsilon `claimed` at `delta` is rejected with `confidence`."""
        return self.epsilon > claimed


@dataclass(frozen=True, kw_only=True)
class EpsilonEstimate(_Measured):
    """Best guess, with an interval and with the estimate that chance alone gives.

    Attributes:
        lo: Lower end of the interval.
        hi: Upper end.
        placebo: 95th percentile of the estimate without any leakage; an estimate below it is uninformative.
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
        prior: Prior distribution.
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
