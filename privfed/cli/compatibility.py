"""Which methods run behind which mechanisms, and what those can claim."""

from dataclasses import dataclass

from privfed.methods import Method
from privfed.privacy import (
    CentralGaussian,
    ClipOnly,
    DistributedGaussian,
    InteractionDPSGD,
    LocalGaussian,
    LocalLaplace,
    SecureSum,
    SharedSum,
    UnclippedNoise,
    Unprotected,
)
from privfed.privacy.mechanisms.base import NO_INTEGERS
from privfed.privacy.mechanisms.interaction_dpsgd import NO_RECORDS
from privfed.privacy.plan import Mechanism

EXAMPLES: dict[str, Mechanism] = {
    "none": Unprotected(),
    "none:release=total": Unprotected(release="total"),
    "clip": ClipOnly(clip_norm=1.0),
    "published-noise": UnclippedNoise(scale=0.3),
    "local-laplace": LocalLaplace(clip_norm=1.0, epsilon0=1.0),
    "local-gaussian": LocalGaussian(clip_norm=1.0, noise_multiplier=1.0),
    "interaction-dpsgd": InteractionDPSGD(clip_norm=1.0, noise_multiplier=1.0),
    "central-gaussian": CentralGaussian(clip_norm=1.0, noise_multiplier=1.0),
    "secure-sum": SecureSum(clip_norm=1.0),
    "shared-sum": SharedSum(clip_norm=1.0),
    "distributed-gaussian": DistributedGaussian(clip_norm=1.0, noise_multiplier=1.0, n_min_honest=100),
}
"""One mechanism of every kind, by the words that name it on the command line."""


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How a method and a mechanism go together.

    Attributes:
        reason: why they do not; None where they do.
        unbounded: why epsilon is infinite all the same; None where it is finite.
    """

    reason: str | None
    unbounded: str | None


def fit(method: Method, mechanism: Mechanism) -> Compatibility:
    """Whether `method` runs behind `mechanism`, and whether that gives a guarantee."""
    return Compatibility(refusal(method, mechanism), mechanism.unbounded_reason)


def refusal(method: Method, mechanism: Mechanism) -> str | None:
    """Why `method` cannot run behind `mechanism`; None where it can."""
    if method.release == "individual" and mechanism.release == "total":
        return f"its server needs {method.reads}, and behind this mechanism it sees only their sum"
    if mechanism.noisy_steps is not None and not method.interaction_level:
        return NO_RECORDS
    if method.integers and not mechanism.protects_integers:
        return NO_INTEGERS
    return None
