"""Shamir secret sharing: any `threshold` shares reconstruct a secret of 32 bytes, fewer reveal nothing about it.

The secret is the value at zero of a polynomial of degree `threshold - 1` whose other coefficients are uniform; the
share of party x is the value at x, for x = 1, 2, ... All arithmetic is modulo p = 2^256 + 297, the smallest prime above
2^256, so every secret of 32 bytes is a number of the field and a share takes 33 bytes.

Limits: a share is not authenticated, and a wrong one silently reconstructs a wrong secret, so compare the result with
something public, such as the public key of a reconstructed private key. Python's integers are not constant time:
whoever can time this process finely may learn something about the numbers in it.

Source: A. Shamir, How to share a secret, Communications of the ACM 22(11), 1979.
"""

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul

from secure_agg.errors import ConfigurationError, MalformedMessage, ShareError, SharesRefused

PRIME = 2**256 + 297
"""Order of the field."""

SECRET_BYTES = 32
SHARE_BYTES = 33
"""A share is a number below the prime, big-endian."""

MAX_SHARES = 2**16 - 1
"""Parties are numbered 1 to MAX_SHARES."""

_STEPS_PER_REDUCTION = 32
_CACHED_SURVIVOR_SETS = 32


def split(secret: bytes, threshold: int, shares: int) -> list[bytes]:
    """Split a secret so that any `threshold` of `shares` parties can rebuild it.

    Args:
        secret: 32 bytes.
        threshold: number of shares that reconstruct it; with 1 every share is the secret itself.
        shares: number of shares.

    Returns:
        Element i is the share of party x = i + 1, 33 bytes.

    Raises:
        ConfigurationError: another length, or not 1 <= threshold <= shares <= 65535.
    """
    if len(secret) != SECRET_BYTES:
        raise ConfigurationError(f"a secret of {len(secret)} bytes was given; split one of {SECRET_BYTES}")
    if not 1 <= threshold <= shares <= MAX_SHARES:
        raise ConfigurationError(
            f"threshold {threshold} of {shares} shares was requested; choose 1 <= threshold <= shares <= {MAX_SHARES}"
        )
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret, "big"))
    return [value.to_bytes(SHARE_BYTES, "big") for value in _evaluate(coefficients, range(1, shares + 1), PRIME)]


def reconstruct(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Reconstruct the secret from the `threshold` shares of the lowest parties among those given.

    Args:
        shares: share of each party x; those not needed are checked, but do not enter the result.
        threshold: threshold of the split.

    Returns:
        The secret, 32 bytes.

    Raises:
        ShareError: fewer shares than the threshold, or a party outside 1 to 65535.
        MalformedMessage: a share that `check_share` refuses.
        SharesRefused: the interpolated value is no secret of 32 bytes, so the shares are not all of one secret. The
            converse does not hold: shares of different secrets nearly always reconstruct some third one.
    """
    if not 1 <= threshold <= len(shares):
        raise ShareError(f"{len(shares)} shares were given for a threshold of {threshold}; give that many, at least 1")
    parties = sorted(shares)
    if parties[0] < 1 or parties[-1] > MAX_SHARES:
        raise ShareError(
            f"shares of parties {parties[0]} to {parties[-1]} were given; parties are numbered 1 to {MAX_SHARES}"
        )
    for share in shares.values():
        check_share(share)
    used = tuple(parties[:threshold])
    secret = _interpolate_at_zero(used, [int.from_bytes(shares[party], "big") for party in used], PRIME)
    if secret >> (8 * SECRET_BYTES):
        raise SharesRefused(
            f"the shares of {threshold} parties rebuild no secret of {SECRET_BYTES} bytes; "
            "they are of different secrets, so leave this round"
        )
    return secret.to_bytes(SECRET_BYTES, "big")


def check_share(share: bytes) -> None:
    """Refuse bytes that cannot be a share.

    Raises:
        MalformedMessage: the bytes are not 33 bytes long, or the number is not below the prime.
    """
    if len(share) != SHARE_BYTES:
        raise MalformedMessage(f"a share of {len(share)} bytes was given; shares have {SHARE_BYTES}, drop its sender")
    if int.from_bytes(share, "big") >= PRIME:
        raise MalformedMessage("a share is not below 2^256 + 297 and so is no number of the field; drop its sender")


def _evaluate(coefficients: Sequence[int], points: Iterable[int], prime: int) -> list[int]:
    """Values of a polynomial, highest coefficient first, at small points, by Horner's rule."""
    # A product with a small point grows by the bits of the point only (at most 16), so reducing modulo the prime once
    # per block of steps keeps the numbers small and saves most of the divisions.
    blocks = [
        coefficients[start : start + _STEPS_PER_REDUCTION]
        for start in range(0, len(coefficients), _STEPS_PER_REDUCTION)
    ]
    values = []
    for x in points:
        value = 0
        for block in blocks:
            for coefficient in block:
                value = value * x + coefficient
            value %= prime
        values.append(value)
    return values


def _interpolate_at_zero(points: tuple[int, ...], values: Sequence[int], prime: int) -> int:
    """The value at zero of the polynomial of lowest degree through the points."""
    value: int = sum(map(mul, _lagrange_weights(points, prime), values)) % prime
    return value


@lru_cache(_CACHED_SURVIVOR_SETS)
def _lagrange_weights(points: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Lagrange basis at zero, prod_{j != i} x_j / (x_j - x_i): public, the same for all secrets of a survivor set."""
    # Written as (prod_j x_j) / (x_i prod_{j != i} (x_j - x_i)): products run over small integers, and a single modular
    # inverse serves all denominators.
    numerator = math.prod(points) % prime
    denominators = [x * math.prod([other - x for other in points if other != x]) % prime for x in points]
    return tuple(numerator * inverse % prime for inverse in _batch_inverse(denominators, prime))


def _batch_inverse(numbers: Sequence[int], prime: int) -> list[int]:
    """Modular inverses of all numbers at the cost of one inversion (Montgomery's trick)."""
    # prefix[i] is the product of the first i numbers. From the inverse of prefix[i + 1], multiplying by prefix[i] gives
    # the inverse of number i, and multiplying by number i the inverse of prefix[i].
    prefix = list(accumulate(numbers, lambda product, number: product * number % prime, initial=1))
    inverse = pow(prefix[-1], -1, prime)
    inverses = []
    for number, product in zip(reversed(numbers), reversed(prefix[:-1]), strict=True):
        inverses.append(inverse * product % prime)
        inverse = inverse * number % prime
    return inverses[::-1]
