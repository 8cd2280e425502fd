"""The overflow bound: a sum in the ring is exact if the magnitude of the true sum stays below half the modulus.

Every encoding proves when it is built that

    clients * ceil(bound * scale) + noise_bound < 2^(b-1)

for values of magnitude at most `bound`, encoded in steps of 1/scale, and noise of magnitude at most `noise_bound` steps
on the sum. The proof uses integers and fractions, never floating point.
"""

import math
from fractions import Fraction
from numbers import Integral

from secure_agg.checks import check_integer
from secure_agg.encoding.ring import MAX_BITS, Ring
from secure_agg.errors import ConfigurationError, RingOverflowError


def required_bits(*, clients: int, bound: float, scale: float = 1, noise_bound: int = 0) -> int:
    """Smallest b with clients * ceil(bound * scale) + noise_bound < 2^(b-1).

    Args:
        clients: maximum number of values in a sum.
        bound: maximum magnitude of one value.
        scale: steps per unit; 1 for integers.
        noise_bound: maximum magnitude, in steps, of the noise on the sum.

    Raises:
        ConfigurationError: clients below 1, bound or scale not positive and finite, or a negative noise bound.
    """
    steps = math.ceil(exact_fraction("bound", bound) * exact_fraction("scale", scale))
    noise = check_integer("noise_bound", noise_bound, minimum=0)
    max_sum = check_integer("clients", clients, minimum=1) * steps + noise
    return max_sum.bit_length() + 1


def check_overflow_bound(ring: Ring, *, clients: int, bound: float, scale: float = 1, noise_bound: int = 0) -> None:
    """Refuse a sum that could wrap around: require clients * ceil(bound * scale) + noise_bound < 2^(bits-1).

    The inequality is decided exactly: floats enter as the fractions they represent. Arguments as in `required_bits`.

    Raises:
        RingOverflowError: the inequality fails.
        ConfigurationError: an argument is out of its range.
    """
    required = required_bits(clients=clients, bound=bound, scale=scale, noise_bound=noise_bound)
    if required > ring.bits:
        wider_ring = f"a ring of {required} bits, " if required <= MAX_BITS else ""
        raise RingOverflowError(
            f"the sum of {clients} clients within {bound} at {scale} steps per unit and noise within {noise_bound} "
            f"steps needs {required} bits and the ring has {ring.bits}, {required - ring.bits} too few; "
            f"take {wider_ring}a coarser scale, a smaller clip or fewer clients"
        )


def exact_fraction(name: str, value: float) -> Fraction:
    """The exact value of a positive finite number.

    Raises:
        ConfigurationError: it is not positive and finite.
    """
    if not (isinstance(value, Integral) or math.isfinite(value)) or value <= 0:
        raise ConfigurationError(f"{name} is {value!r}; give a positive finite number")
    return Fraction(int(value) if isinstance(value, Integral) else float(value))
