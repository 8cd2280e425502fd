"""Shamir secret sharing: any `threshold` shares reconstruct a secret of 32 bytes, fewer reveal nothing about it.

The secret is the value at zero of a polynomial of degree `threshold - 1` whose other coefficients are uniform; the
share of party x is the value at x, for x = 1, 2, ... All arithmetic is modulo p = 2^256 + 297, the smallest prime above
2^256, so every secret of 32 bytes is a number of the field and a share takes 33 bytes.

Limits: a share is not authenticated, and a wrong one silently reconstructs a wrong secret, so compare the result with
something public, such as the public key of a reconstructed private key; `decode` finds the wrong shares then. Python's
integers are not constant time: whoever can time this process finely may learn something about the numbers in it.

Sources: A. Shamir, How to share a secret, Communications of the ACM 22(11), 1979. S. Gao, A new algorithm for decoding
Reed-Solomon codes, 2003.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from operator import mul

import numpy as np
from numpy.typing import NDArray

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
_SUBSETS_TRIED = 2048
"""At this many subsets of shares or fewer, decoding tries them all where the number of wrong shares is beyond half."""

_Polynomial = NDArray[np.object_]
"""Coefficients, lowest first, without leading zeros; none for the zero polynomial."""


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
    used, values = _lowest(shares, threshold)
    secret = _interpolate_at_zero(used, values, PRIME)
    if secret >> (8 * SECRET_BYTES):
        raise SharesRefused(
            f"the shares of {threshold} parties rebuild no secret of {SECRET_BYTES} bytes; "
            "they are of different secrets, so leave this round"
        )
    return secret.to_bytes(SECRET_BYTES, "big")


def share_of(party: int, shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The share of one party that agrees with those of the `threshold` lowest other parties.

    Raises:
        ShareError, MalformedMessage: as `reconstruct`.
    """
    used, values = _lowest({other: share for other, share in shares.items() if other != party}, threshold)
    value: int = sum(map(mul, _lagrange_weights(used, PRIME, party), values)) % PRIME
    return value.to_bytes(SHARE_BYTES, "big")


def decode(
    shares: Mapping[int, bytes], threshold: int, accept: Callable[[bytes], bool] | None = None
) -> tuple[bytes, frozenset[int]]:
    """Reconstruct the secret although some shares are wrong, and name the parties whose shares are.

    Up to (n - threshold) / 2 wrong ones of n are corrected. With a public check of the secret more are, up to
    n - threshold, where all subsets of `threshold` shares are few enough to try them. It takes time quadratic in n.
    Beyond half, parties that collude can arrange that the secret is right and honest parties' shares look wrong.

    Args:
        shares: share of each party x.
        threshold: threshold of the split.
        accept: public check of a secret.

    Returns:
        The secret, and the parties of the wrong shares.

    Raises:
        ShareError, MalformedMessage: as `reconstruct`.
        SharesRefused: the shares decode to no secret of 32 bytes, or to none that is accepted.
    """
    _lowest(shares, threshold)
    parties = sorted(shares)
    points, values = np.array(parties, object), _numbers(shares, parties)
    polynomial = _nearest(points, values, threshold)
    if (polynomial is None or not _fits(_at_zero(polynomial), accept)) and accept is not None:
        polynomial = _search(points, values, threshold, accept)
    if polynomial is None or not _fits(_at_zero(polynomial), accept):
        raise SharesRefused(
            f"the {len(shares)} shares, of which {threshold} would do, rebuild no secret that fits; too many are wrong"
        )
    right = _evaluate(polynomial[::-1].tolist(), parties, PRIME)
    wrong = frozenset(party for party, value, due in zip(parties, values, right, strict=True) if value != due)
    return _at_zero(polynomial).to_bytes(SECRET_BYTES, "big"), wrong


def check_share(share: bytes) -> None:
    """Refuse bytes that cannot be a share.

    Raises:
        MalformedMessage: the bytes are not 33 bytes long, or the number is not below the prime.
    """
    if len(share) != SHARE_BYTES:
        raise MalformedMessage(f"a share of {len(share)} bytes was given; shares have {SHARE_BYTES}, drop its sender")
    if int.from_bytes(share, "big") >= PRIME:
        raise MalformedMessage("a share is not below 2^256 + 297 and so is no number of the field; drop its sender")


def _lowest(shares: Mapping[int, bytes], threshold: int) -> tuple[tuple[int, ...], list[int]]:
    """The lowest parties and their shares as numbers; all shares are checked."""
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
    return used, _numbers(shares, used).tolist()


def _numbers(shares: Mapping[int, bytes], parties: Iterable[int]) -> _Polynomial:
    return np.array([int.from_bytes(shares[party], "big") for party in parties], object)


def _fits(secret: int, accept: Callable[[bytes], bool] | None) -> bool:
    if secret >> (8 * SECRET_BYTES):
        return False
    return accept is None or accept(secret.to_bytes(SECRET_BYTES, "big"))


def _at_zero(polynomial: _Polynomial) -> int:
    return int(polynomial[0]) if len(polynomial) else 0


def _search(
    points: _Polynomial, values: _Polynomial, threshold: int, accept: Callable[[bytes], bool]
) -> _Polynomial | None:
    """The polynomial through some `threshold` of the values whose value at zero is accepted, where they are few."""
    if math.comb(len(points), threshold) > _SUBSETS_TRIED:
        return None
    for subset in map(list, combinations(range(len(points)), threshold)):
        if _fits(_interpolate_at_zero(tuple(points[subset]), values[subset].tolist(), PRIME), accept):
            return _through(points[subset], values[subset])
    return None


def _nearest(points: _Polynomial, values: _Polynomial, threshold: int) -> _Polynomial | None:
    """The polynomial of degree below the threshold that misses at most (n - threshold) / 2 of n values, if any."""
    # Gao's algorithm: with E the polynomial that vanishes at the wrong points, E f = E g modulo prod (x - x_i), where g
    # goes through all values. The extended Euclidean algorithm on the product and g, stopped half way, finds E f and E.
    count = len(points)
    above, below = _vanishing(points), _through(points, values)
    factor_above, factor_below = _poly([]), _poly([1])
    while 2 * (len(below) - 1) >= count + threshold:
        quotient, rest = _divide(above, below)
        above, below = below, rest
        factor_above, factor_below = factor_below, _subtract(factor_above, _multiply(quotient, factor_below))
    polynomial, rest = _divide(below, factor_below)
    return None if len(rest) or len(polynomial) > threshold else polynomial


def _vanishing(points: _Polynomial) -> _Polynomial:
    """The product of all x - x_i."""
    product = _poly([1])
    for x in points:
        product = _times_root(product, x)
    return product


def _through(points: _Polynomial, values: _Polynomial) -> _Polynomial:
    """The polynomial of lowest degree through the points, by Newton's divided differences."""
    span = int(points.max() - points.min())
    inverses = np.array([0, *_batch_inverse(range(1, span + 1), PRIME)], object)
    differences = values.copy()
    for level in range(1, len(points)):
        gaps = (points[level:] - points[:-level]).astype(np.int64)
        differences[level:] = (differences[level:] - differences[level - 1 : -1]) * inverses[gaps] % PRIME
    polynomial = _poly([])
    for x, difference in zip(points[::-1], differences[::-1], strict=True):
        polynomial = _times_root(polynomial, x)
        polynomial = _subtract(polynomial, _poly([-difference % PRIME]))
    return polynomial


def _times_root(polynomial: _Polynomial, root: int) -> _Polynomial:
    """The polynomial times x - root."""
    raised = np.concatenate([np.array([0], object), polynomial])
    raised[: len(polynomial)] -= polynomial * root
    return _trimmed(raised)


def _multiply(left: _Polynomial, right: _Polynomial) -> _Polynomial:
    product = np.zeros(max(len(left) + len(right) - 1, 0), object)
    for place, coefficient in enumerate(left):
        product[place : place + len(right)] += coefficient * right
    return _trimmed(product)


def _subtract(left: _Polynomial, right: _Polynomial) -> _Polynomial:
    difference = np.zeros(max(len(left), len(right)), object)
    difference[: len(left)] += left
    difference[: len(right)] -= right
    return _trimmed(difference)


def _divide(dividend: _Polynomial, divisor: _Polynomial) -> tuple[_Polynomial, _Polynomial]:
    """Quotient and remainder."""
    rest, inverse = dividend.copy(), pow(int(divisor[-1]), -1, PRIME)
    places = len(dividend) - len(divisor) + 1
    quotient = np.zeros(max(places, 0), object)
    for place in reversed(range(places)):
        end = place + len(divisor)
        quotient[place] = rest[end - 1] * inverse % PRIME
        rest[place:end] = (rest[place:end] - quotient[place] * divisor) % PRIME
    return _trimmed(quotient), _trimmed(rest)


def _poly(coefficients: Sequence[int]) -> _Polynomial:
    return _trimmed(np.array(coefficients, object))


def _trimmed(coefficients: _Polynomial) -> _Polynomial:
    """Reduced modulo the prime, without leading zeros."""
    reduced: _Polynomial = coefficients % PRIME
    kept = np.flatnonzero(reduced)
    return reduced[: kept[-1] + 1] if len(kept) else reduced[:0]


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
def _lagrange_weights(points: tuple[int, ...], prime: int, at: int = 0) -> tuple[int, ...]:
    """Lagrange basis at zero, prod_{j != i} x_j / (x_j - x_i): public, the same for all secrets of a survivor set.

    At another point, which is none of those given, x_j - at stands above the line.
    """
    # Written as (prod_j x_j) / (x_i prod_{j != i} (x_j - x_i)): products run over small integers, and a single modular
    # inverse serves all denominators.
    numerator = math.prod([x - at for x in points]) % prime
    denominators = [(x - at) * math.prod([other - x for other in points if other != x]) % prime for x in points]
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
