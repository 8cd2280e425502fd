"""Claim of differential privacy that a mechanism is audited against."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

Neighbours: TypeAlias = Literal["add_or_remove", "replace", "zero_out"]
Unit: TypeAlias = Literal["user", "record"]
Arithmetic: TypeAlias = Literal["real", "machine"]

_NUMBERS = ("epsilon", "delta")
_CHOICES = {"neighbours": get_args(Neighbours), "unit": get_args(Unit), "arithmetic": get_args(Arithmetic)}


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-differential privacy of `steps` calls of a mechanism on the same people.

    Attributes:
        epsilon: Claimed epsilon of all steps together, at least 0 and finite.
        delta: Claimed delta, in [0, 1).
        neighbours: How neighbouring inputs differ: one unit more, another unit in its place, or zeros in its place.
        unit: What differs: all rows of one user, or a single row.
        steps: Calls that the claim covers.
        arithmetic: "real" if the claim is about noise as a law on the real line, "machine" if the bits of released
            floating-point numbers are part of it.

    Raises:
        ValueError: If a field is outside its range.
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = "add_or_remove"
    unit: Unit = "user"
    steps: int = 1
    arithmetic: Arithmetic = "real"

    def __post_init__(self) -> None:
        if not (0 <= self.epsilon < math.inf and 0 <= self.delta < 1 and self.steps >= 1):
            raise ValueError(
                f"Got epsilon={self.epsilon}, delta={self.delta}, steps={self.steps}; pass a finite epsilon of at "
                "least 0, a delta of at least 0 and below 1, and at least one step."
            )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; pass one of {', '.join(choices)}.")

    @classmethod
    def parse(cls, text: str) -> "Claim":
        """Claim from text such as "epsilon=2,delta=1e-5,neighbours=replace".

        Raises:
            ValueError: If a field is unknown, is no number, or epsilon is missing.
        """
        pairs = dict(_pair(part) for part in text.split(",") if part.strip())
        unknown = sorted(pairs.keys() - {*_NUMBERS, *_CHOICES, "steps"})
        if unknown or "epsilon" not in pairs:
            raise ValueError(
                f"The claim is {text!r}; pass epsilon and, where needed, delta, neighbours, unit, steps and "
                "arithmetic, such as epsilon=2,delta=1e-5."
            )
        try:
            numbers = {name: float(pairs.pop(name)) for name in _NUMBERS if name in pairs}
            steps = int(pairs.pop("steps", "1"))
        except ValueError:
            raise ValueError(f"The claim is {text!r}; pass numbers for epsilon, delta and steps.") from None
        return cls(
            **numbers,
            neighbours=cast("Neighbours", pairs.get("neighbours", "add_or_remove")),
            unit=cast("Unit", pairs.get("unit", "user")),
            steps=steps,
            arithmetic=cast("Arithmetic", pairs.get("arithmetic", "real")),
        )

    def sentence(self) -> str:
        """The claim in words."""
        steps = f" over {self.steps} calls" if self.steps > 1 else ""
        relation = self.neighbours.replace("_", " ")
        return f"({self.epsilon:g}, {self.delta:g})-differential privacy of one {self.unit}{steps}, {relation}"


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name.strip(), value.strip()
