"""What the numbers that reach this package must be."""

import math
from fractions import Fraction
from numbers import Integral

from secure_agg.errors import ConfigurationError


def whole(name: str, value: int, least: int) -> int:
    """The value as a Python integer, whatever integer type it came in.

    Raises:
        ConfigurationError: it is not a whole number, or below `least`.
    """
    if not isinstance(value, Integral) or value < least:
        raise ConfigurationError(f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)


def positive(name: str, value: float | Fraction) -> Fraction:
    """The value exactly.

    Raises:
        ConfigurationError: it is not a positive finite number.
    """
    if not 0 < value < math.inf:
        raise ConfigurationError(f"{name} is {value!r}; give a positive finite number")
    return Fraction(value)
