"""Epsilon in graded words, and what it does to the odds of a suspicion."""

import math
from typing import Literal

Grade = Literal["strong", "moderate", "weak", "none"]

GRADES: dict[Grade, float] = {"strong": 1.0, "moderate": 3.0, "weak": 10.0}
"""The highest epsilon of each grade; above the last, and at infinity, nothing is guaranteed that is worth the word."""
SUSPICION = 0.01
"""The suspicion that sentences start from: 1 in 100."""
_ROUNDING = 1e-9


def grade(epsilon: float) -> Grade:
    """The word for an epsilon: strong to 1, moderate to 3, weak to 10, none above."""
    return next((word for word, most in GRADES.items() if epsilon <= most + _ROUNDING), "none")


def suspicion_after(epsilon: float) -> int:
    """To how many in 100 a suspicion of 1 in 100 can grow at most, rounded up."""
    if epsilon > 40:
        return 100
    odds = SUSPICION / (1 - SUSPICION) * math.exp(epsilon)
    return math.ceil(100 * odds / (1 + odds) - _ROUNDING)


def odds_sentence(epsilon: float) -> str:
    """The bound in one clause, for example "a suspicion of 1 in 100 grows to at most 3 in 100"."""
    if grade(epsilon) == "none":
        return "nothing worth the word bounds what a suspicion can grow to"
    return f"a suspicion of 1 in 100 grows to at most {suspicion_after(epsilon)} in 100"
