"""Checks of numbers that callers pass in."""

import math
from fractions import Fraction
from numbers import Integral

from secure_agg.errors import ConfigurationError


def check_integer(name: str, value: int, *, minimum: int) -> int:
    """The value as a Python integer, whatever integer type it has.

    Raises:
        ConfigurationError: it is not an integer, or is below `minimum`.
    """
    if not isinstance(value, Integral) or value < minimum:
        raise ConfigurationError(f"{name} is {value!r}; give a whole number of at least {minimum}")
    return int(value)


def check_positive(name: str, value: float | Fraction) -> Fraction:
    """The exact value of a positive finite number.

    Raises:
        ConfigurationError: it is not positive and finite.
    """
    if not 0 < value < math.inf:
        raise ConfigurationError(f"{name} is {value!r}; give a positive finite number")
    return Fraction(value)


def check_probability(name: str, value: float) -> None:
    """Refuse a number outside (0, 1).

    Raises:
        ConfigurationError: it is outside.
    """
    if not 0.0 < value < 1.0:
        raise ConfigurationError(f"{name} is {value!r}; give a probability between 0 and 1, such as 2^-40")
