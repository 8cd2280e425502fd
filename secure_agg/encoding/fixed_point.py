"""Fixed-point encoding of bounded real numbers, with nearest or stochastic rounding.

Source: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (ICML 2021), for scaled rounding and centred residues.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer
from secure_agg.encoding.overflow import check_overflow_bound, exact_fraction, required_bits
from secure_agg.encoding.ring import Ring, as_signed, describe
from secure_agg.errors import ConfigurationError, RingOverflowError
from secure_agg.primitives.prg import RingElements, random_uints

CHUNK = 1 << 16
"""Values encoded at a time: the working arrays stay in cache, and their memory does not grow with the vector."""

_KEY_BYTES = 32
_MAX_BOUND = Fraction(2**900)
"""Bounds lie between its inverse and itself; with bound * scale between 1 and 2^63, float64 holds 1/scale exactly."""


class Rounding(StrEnum):
    """Rounding of a value between two steps."""

    NEAREST = "nearest"
    """The nearer step, the even one on a tie: the smallest error of a single value."""

    STOCHASTIC = "stochastic"
    """The upper step with probability equal to the fraction, else the lower: unbiased for every value."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Real numbers as integer multiples of 1/scale.

    The scale is a power of two, so value * scale is exact in float64 and rounding is the only error of the encoding.

    A value may not exceed the bound by even one unit in the last place. Clipping in float32 rounds the bound itself
    to float32, possibly upwards: clip to, and build the encoding with, a bound that float32 holds, such as a power of
    two or `float(numpy.float32(clip))`.

    Attributes:
        ring: ring of the elements.
        bound: maximum magnitude of one value, between 2^-900 and 2^900.
        clients: maximum number of vectors in a sum.
        scale: steps per unit, a power of two with bound * scale >= 1, so that a step is no wider than the bound.
        rounding: rounding of values between two steps.
        noise_bound: maximum magnitude, in steps, of integer noise that the sum will carry.

    Raises:
        RingOverflowError: clients * ceil(bound * scale) + noise_bound is not below 2^(bits-1).
        ConfigurationError: an attribute is out of its range.
    """

    ring: Ring
    bound: float
    clients: int
    scale: float
    rounding: Rounding
    noise_bound: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _check_bound(self.bound))
        object.__setattr__(self, "clients", check_integer("clients", self.clients, minimum=1))
        object.__setattr__(self, "noise_bound", check_integer("noise_bound", self.noise_bound, minimum=0))
        if not isinstance(self.rounding, Rounding):
            raise ConfigurationError(f"rounding is {self.rounding!r}; give Rounding.NEAREST or Rounding.STOCHASTIC")
        coarsest, scale = _coarsest_scale(self.bound), exact_fraction("scale", self.scale)
        if scale < coarsest or not _is_power_of_two(scale):
            raise ConfigurationError(
                f"scale is {self.scale}; give a power of two, which multiplies without a rounding error, of at least "
                f"{coarsest}, at which a step is no wider than the bound {self.bound}"
            )
        check_overflow_bound(
            self.ring, clients=self.clients, bound=self.bound, scale=self.scale, noise_bound=self.noise_bound
        )
        object.__setattr__(self, "scale", float(scale))

    @classmethod
    def for_sum(
        cls, ring: Ring, *, bound: float, clients: int, noise_bound: int = 0, rounding: Rounding = Rounding.NEAREST
    ) -> "FixedPoint":
        """The encoding of the finest scale whose sums fit into the ring.

        Args:
            ring: ring of the elements.
            bound: maximum magnitude of one value, between 2^-900 and 2^900.
            clients: maximum number of vectors in a sum.
            noise_bound: maximum magnitude, in steps, of integer noise that the sum will carry.
            rounding: rounding of values between two steps.

        Raises:
            RingOverflowError: not even the coarsest scale fits; the message says how many bits are missing.
            ConfigurationError: an argument is out of its range.
        """
        bound = _check_bound(bound)
        coarsest = _coarsest_scale(bound)
        check_overflow_bound(ring, clients=clients, bound=bound, scale=coarsest, noise_bound=noise_bound)
        # At the coarsest scale the bound is S steps with 1 <= S < 2. Each client may take at most M steps, so doubling
        # the scale j times fits exactly when ceil(S * 2^j) <= M, that is 2^j <= M // S, since M and 2^j are integers.
        max_steps = (ring.half_modulus - 1 - int(noise_bound)) // int(clients)
        doublings = (max_steps // Fraction(bound * coarsest)).bit_length() - 1
        return cls(ring, bound, clients, math.ldexp(coarsest, doublings), rounding, noise_bound)

    @property
    def resolution(self) -> float:
        """Width of a step, 1/scale, exactly."""
        return 1 / self.scale

    def error_bound(self) -> float:
        """Maximum |decoded sum - true sum| over all inputs of up to `clients` vectors, excluding noise.

        Each client errs by up to half a step under nearest rounding and by less than a step under stochastic
        rounding. A sum of L > 53 bits, which only a ring of more than 54 bits can hold, is rounded once more when it
        becomes a float64: neighbours are then up to 2^(L-53) steps apart, and the error is up to half of that.
        """
        per_client = Fraction(1, 2) if self.rounding is Rounding.NEAREST else Fraction(1)
        sum_bits = (
            required_bits(clients=self.clients, bound=self.bound, scale=self.scale, noise_bound=self.noise_bound) - 1
        )
        float64_error = Fraction(2) ** (sum_bits - 54) if sum_bits > 53 else Fraction(0)
        return float((self.clients * per_client + float64_error) / Fraction(self.scale))

    def encode(self, values: NDArray[np.floating[Any]], key: bytes | None = None) -> RingElements:
        """Encode one client's values, keeping their shape.

        Stochastic rounding goes up with the fraction as its probability, to within 2^-32, so the mean of an encoded
        value is within 2^-32 steps of the value.

        Args:
            values: any shape, float32 or float64, finite, of magnitude at most `bound`.
            key: used by stochastic rounding only. `None` draws from the operating system; 32 bytes, used for nothing
                else, make the rounding reproducible, for simulations.

        Raises:
            ConfigurationError: another dtype, a value not finite or over the bound, or a key of another length.
        """
        if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
            raise ConfigurationError(
                f"got {describe(values)}; give a numpy array of float32 or float64, or use IntegerEncoding for integers"
            )
        flat, elements = values.reshape(-1), self.ring.zeros(values.shape)
        signed, workspace = as_signed(elements).reshape(-1), np.empty(min(CHUNK, flat.size))
        starts = range(0, flat.size, CHUNK)
        stochastic = self.rounding is Rounding.STOCHASTIC
        # One key per chunk, so that the result does not depend on how far an earlier chunk read its stream.
        keys = random_uints(_KEY_BYTES * len(starts), np.uint8, key).tobytes() if stochastic else b""
        for number, start in enumerate(starts):
            chunk = flat[start : start + CHUNK]  # [<= CHUNK]
            self._check_within_bound(chunk)
            # Exact: float32 widens to float64 without loss, and the scale is a power of two. (A product too small for
            # float64 is far nearer to 0 than to any other step.) Rounded, it is an integer of magnitude at most
            # ceil(bound * scale) < 2^(bits-1), and such a float64 converts to a signed machine word exactly.
            steps = np.multiply(chunk, self.scale, out=workspace[: chunk.size], dtype=np.float64)
            if stochastic:
                _round_stochastically_(steps, keys[_KEY_BYTES * number : _KEY_BYTES * (number + 1)])
            else:
                np.rint(steps, out=steps)
            # Assigning to the signed view writes two's complement, which is v mod 2^w of the unsigned elements.
            signed[start : start + CHUNK] = steps
        return self.ring.reduce_(elements)

    def decode(self, elements: RingElements, clients: int | None = None) -> NDArray[np.float64]:
        """Decode a sum, keeping its shape, to within `error_bound` and the noise.

        Args:
            elements: sum of encoded vectors.
            clients: number of vectors in the sum, where known: more than the encoding was built for are refused,
                because their sum may have wrapped around.

        Raises:
            ConfigurationError: the elements belong to another ring, or `clients` is below 1.
            RingOverflowError: `clients` is above the encoding's.
        """
        residues = self.ring.signed(elements)
        if clients is not None and check_integer("clients", clients, minimum=1) > self.clients:
            raise RingOverflowError(
                f"{clients} clients were added and the encoding is built for {self.clients}, so the sum may have "
                "wrapped around; build the encoding for as many clients as can take part"
            )
        total: NDArray[np.float64] = np.empty(elements.shape)
        np.multiply(residues, self.resolution, out=total, dtype=np.float64)
        return total

    def _check_within_bound(self, values: NDArray[np.floating[Any]]) -> None:
        lowest, highest = float(values.min()), float(values.max())
        # A NaN makes both extremes NaN, for which no comparison holds; hence `not (... <= ...)`.
        if not (-self.bound <= lowest and highest <= self.bound):
            raise ConfigurationError(
                f"values from {lowest} to {highest} were given; the encoding takes finite values of magnitude up to "
                f"{self.bound}, so clip the values or build the encoding with a larger bound"
            )


def _round_stochastically_(steps: NDArray[np.float64], key: bytes) -> None:
    """Round in place: up if a uniform 32-bit integer is below fraction * 2^32, else down.

    The probability of rounding up is the fraction rounded up to a multiple of 2^-32. It is 0 for an integer, so no
    result leaves [floor, ceil]. The fraction itself is exact except for values in (-1/2, 0), where it is within 2^-54.
    """
    lower = np.floor(steps)
    np.subtract(steps, lower, out=steps)
    np.multiply(steps, 2.0**32, out=steps)
    rounds_up = random_uints(steps.size, np.uint32, key) < steps
    np.add(lower, rounds_up, out=steps)


def _is_power_of_two(positive: Fraction) -> bool:
    # A reduced fraction is a power of two iff it is 2^e / 1 or 1 / 2^e, that is iff the product has one set bit.
    return (positive.numerator * positive.denominator).bit_count() == 1


def _coarsest_scale(bound: float) -> float:
    """Smallest power of two at which the bound is at least one step."""
    # bound = m * 2^e with 1/2 <= m < 1, so bound * 2^(1-e) lies in [1, 2).
    return math.ldexp(1.0, 1 - math.frexp(bound)[1])


def _check_bound(bound: float) -> float:
    exact = exact_fraction("bound", bound)
    if not 1 / _MAX_BOUND <= exact <= _MAX_BOUND:
        raise ConfigurationError(f"bound is {bound}; give a number between 2^-900 and 2^900")
    return float(exact)
