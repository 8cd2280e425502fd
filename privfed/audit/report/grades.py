"""Epsilon in graded words, and what it does to the odds of a suspicion."""

import math
from typing import Literal

Grade = Literal["strong", "moderate", "weak", "none"]

GRADES: dict[Grade, float] = {"strong": 1.0, "moderate": 3.0, "weak": 10.0}
"""The highest epsilon of each grade; above the last, and at infinity, nothing is guaranteed that is worth the word."""
SUSPICION = 0.01
"""The suspicion that sentences start from: 1 in 100."""
MOST_DELTA = SUSPICION
"""The largest delta of a guarantee worth the word: one above excuses more than the suspicion that sentences start from.

The default, users^-1.1, is above it for fewer than 66 users.
"""
_ROUNDING = 1e-9


def delta_excuses(delta: float, users: int = 0) -> bool:
    """Whether delta alone takes the worth of any epsilon: it is above `MOST_DELTA`, or lets one user be published.

    Args:
        delta: probability with which epsilon may fail.
        users: of the federation; 0 where they are not known.
    """
    return delta > MOST_DELTA or delta * users >= 1.0


def grade(epsilon: float, delta: float, users: int = 0) -> Grade:
    """The word for a guarantee: strong to epsilon 1, moderate to 3, weak to 10; none above, or by `delta_excuses`."""
    if delta_excuses(delta, users):
        return "none"
    return next((word for word, most in GRADES.items() if epsilon <= most + _ROUNDING), "none")


def suspicion_after(epsilon: float) -> int:
    """To how many in 100 a suspicion of 1 in 100 can grow at most, rounded up."""
    if epsilon > 40:
        return 100
    odds = SUSPICION / (1 - SUSPICION) * math.exp(epsilon)
    return math.ceil(100 * odds / (1 + odds) - _ROUNDING)


def guarantee_words(epsilon: float, delta: float, users: int = 0) -> str:
    """The grade as the noun of a sentence: "a strong guarantee", or "no meaningful guarantee" and why."""
    word = grade(epsilon, delta, users)
    if word != "none":
        return f"a {word} guarantee"
    return f"no meaningful guarantee{' (delta is too large)' if delta_excuses(delta, users) else ''}"


def odds_sentence(epsilon: float, delta: float, users: int = 0) -> str:
    """The bound in one clause, for example "a suspicion of 1 in 100 grows to at most 3 in 100"."""
    if grade(epsilon, delta, users) == "none":
        return "nothing worth the word bounds what a suspicion can grow to"
    return f"a suspicion of 1 in 100 grows to at most {suspicion_after(epsilon)} in 100"
