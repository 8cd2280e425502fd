"""Which methods run behind which mechanisms, and what those can claim."""

from dataclasses import dataclass

from privfed.methods import Method
from privfed.privacy import Mechanism
from privfed.privacy.mechanisms.registry import examples
from privfed.setup.refusals import method_profile

EXAMPLES = examples()
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
    """Why `method`, whatever its settings, cannot run behind `mechanism`; None where it can."""
    return mechanism.refusal(method_profile(method))
