"""Encoding of real numbers and integers as ring elements, with a proof at set-up that their sum cannot overflow."""

from secure_agg.encoding.fixed_point import FixedPoint, Rounding
from secure_agg.encoding.integers import IntegerEncoding
from secure_agg.encoding.overflow import check_overflow_bound, required_bits
from secure_agg.encoding.ring import MAX_BITS, MIN_BITS, Ring
from secure_agg.primitives.prg import RingElements

__all__ = [
    "MAX_BITS",
    "MIN_BITS",
    "FixedPoint",
    "IntegerEncoding",
    "Ring",
    "RingElements",
    "Rounding",
    "check_overflow_bound",
    "required_bits",
]
