"""Refusing vectors outside a clip: a proof to two servers that a shared vector of integers has a bounded L2 norm.

The vector x of d integers is shared in the field, with digits and proofs behind it. The servers check, on shares,

    norm      sum of x_i^2 + slack = B,            slack in [0, 16^s) by s digits, B the bound on the squared norm
    ranges    -T <= y_k < T for k = 1 .. 128,      y_k + T by m digits, y_k = <z_k, x>, T = 16^m / 2 with T^2 >= 34 B
    digits    sum_i r_i V(b_i) = 0, twice,         for all digits b_i, V the polynomial with zeros 0 .. 15

of which the first holds modulo p and is meant over the integers. The signs z_k in {-1, 0, 1}^d (with probabilities
1/4, 1/2, 1/4) close the gap. They are drawn from a hash of the shares of x, so x is fixed before they are.

Completeness: y_k is sub-Gaussian with variance proxy |x|^2 / 2, so P(|y_k| >= T) <= 2 exp(-34), and one of 128 lies
outside with probability below 2^-40. A client that sees this draws new shares; the servers never do.

Soundness: let some |x_i| >= 2T, centred modulo p. Whatever the other terms sum to, z_i = 0 and z_i = 1 cannot both put
y_k into the 2T values of [-T, T), nor can 0 and -1. So y_k is there with probability at most 1/2, and all 128 are with
at most 2^-128 for each hash that a cheater computes. Otherwise all |x_i| < 2T, the squares sum to less than
4 d T^2 < p - 16^s (`NormBound` refuses other sizes), and the sum of squares and slack is B over the integers.
Coefficients r are drawn from a hash of all shares, and twice, so that a number that is no digit survives with 2^-128
for each hash. The checks are combined with coefficients, and the proofs opened at points, that follow from a key of the
two servers: a cheater has one attempt per upload, of probability below 2^-64 + 3 Q / (p - Q), under 2^-48 for a million
elements (Q of `products`).

Zero knowledge: a server sees its uniform share, hashes of the other's that are blinded or of a fresh seed, and the
opened elements, which are uniform up to what acceptance determines (`products`). Signs are conditioned on an event of
probability 1 - 2^-40 that depends on x. Both hold against one server that deviates: an honest one opens an upload at
one point only. Soundness needs both servers honest, as one alone can make the sum wrong anyway.

Sources: Rothblum, Omri, Chen and Talwar, "PINE: Efficient Verification of a Euclidean Norm Bound of a Secret-Shared
Vector" (USENIX Security 2024), for tests against wrap-around by random signs, here without tests that may fail and with
another argument for their soundness; draft-irtf-cfrg-vdaf for joint and query randomness.
"""

import hashlib
import secrets
import struct
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer
from secure_agg.errors import ConfigurationError, MalformedMessage
from secure_agg.primitives.keys import length_prefixed
from secure_agg.primitives.prg import random_uints
from secure_agg.two_server import field
from secure_agg.two_server.field import Elements
from secure_agg.two_server.products import BASE, ProductProof

RANGES: Final = 128
"""Sums with random signs that have to be small."""
RANGE_SLACK: Final = 34
"""Least ratio of their squared range to the squared norm: 256 exp(-34) < 2^-40."""

_DIGIT_BITS: Final = 4
_HASH_BYTES: Final = 32
_SEED_BYTES: Final = 32
_BLOCK: Final = 1 << 12
_SECOND = struct.Struct(f"{_SEED_BYTES}s{_HASH_BYTES}s{_HASH_BYTES}s")
"""Server 1's share: seed, then the hashes of server 0's shares of the vector and of the digits."""


@dataclass(frozen=True, slots=True)
class NormBound:
    """A bound on the squared L2 norm of vectors of integers, and the proof that a shared vector is within it.

    Attributes:
        length: number of integers.
        squared: largest squared norm.

    Raises:
        ConfigurationError: a length or bound below 1, or so large that a norm could wrap around in the field.
    """

    length: int
    squared: int

    def __post_init__(self) -> None:
        check_integer("length", self.length, minimum=1)
        check_integer("squared", self.squared, minimum=1)
        if 4 * self.length * self.half_range**2 + BASE**self.slack_digits >= field.MODULUS:
            raise ConfigurationError(
                f"a squared norm of {self.squared} for {self.length} integers could wrap around in the field; take "
                "coarser steps, so that their product stays below 2^48"
            )

    @property
    def slack_digits(self) -> int:
        """s: digits of the bound less the squared norm."""
        return -(-self.squared.bit_length() // _DIGIT_BITS)

    @property
    def range_digits(self) -> int:
        """m: digits of a sum with random signs, plus T."""
        return next(m for m in count(1) if (BASE**m // 2) ** 2 >= RANGE_SLACK * self.squared)

    @property
    def half_range(self) -> int:
        """T."""
        return int(BASE**self.range_digits) // 2

    @property
    def digits(self) -> int:
        """Number of digits in a share."""
        return RANGES * self.range_digits + self.slack_digits

    @property
    def proofs(self) -> tuple[ProductProof, ProductProof, ProductProof]:
        """Of the squares, and twice of the digits."""
        digits = ProductProof.of_length(self.digits, "digits")
        return ProductProof.of_length(self.length, "squares"), digits, digits

    @property
    def elements(self) -> int:
        """Field elements of a share: the vector, the digits, the proofs."""
        return self.length + self.digits + sum(proof.size for proof in self.proofs)

    @property
    def share_bytes(self) -> tuple[int, int]:
        """Bytes of the shares of server 0 and of server 1."""
        return field.ELEMENT_BYTES * self.elements + 2 * _HASH_BYTES, _SECOND.size

    @property
    def verifier_bytes(self) -> int:
        """Bytes that each server opens to the other."""
        return _HASH_BYTES + field.ELEMENT_BYTES * (1 + sum(proof.revealed for proof in self.proofs))

    def prove(self, context: bytes, vector: NDArray[np.int64], seed: bytes | None = None) -> tuple[bytes, bytes]:
        """The shares of a vector with the proof of its norm, for server 0 and server 1.

        Args:
            context: bytes that bind the proof to sum and client; never used for two vectors.
            vector: `[length]`.
            seed: 32 fresh bytes for server 1; `None` draws them.

        Raises:
            ConfigurationError: another shape, or a vector outside the bound.
        """
        if vector.shape != (self.length,) or vector.dtype != np.int64:
            raise ConfigurationError(
                f"{vector.dtype} of shape {vector.shape} were given; give int64 of ({self.length},)"
            )
        # The magnitudes are checked first, since the squares of larger ones could overflow.
        largest = max(abs(int(vector.min())), abs(int(vector.max())))
        squared = int(np.square(vector).sum()) if largest**2 <= self.squared else largest**2
        if squared > self.squared:
            raise ConfigurationError(
                f"a vector of squared norm {squared} was given and the bound is {self.squared}; clip it, and round it "
                "within the bound"
            )
        return self._prove(context, field.from_signed(vector), self.squared - squared, seed)

    def _prove(self, context: bytes, vector: Elements, slack: int, seed: bytes | None) -> tuple[bytes, bytes]:
        length, digits = self.length, self.digits
        while True:
            seed, blind = seed or secrets.token_bytes(_SEED_BYTES), secrets.token_bytes(_HASH_BYTES)
            second = field.expand(seed, self.elements)
            masked = field.subtract(vector, second[:length])
            vector_hash, seed_hash = _vector_hash(context, blind, masked), _seed_hash(context, seed)
            joint = _joint(context, vector_hash, seed_hash)
            sums = field.centred(signed_sums(joint, vector))
            if _all_within(sums, self.half_range):
                break
            seed = None
        decomposed = _digits(
            np.append(sums + self.half_range, slack), [*[self.range_digits] * RANGES, self.slack_digits]
        )
        masked_digits = field.subtract(decomposed, second[length : length + digits])
        digits_hash = _digits_hash(context, blind, masked_digits)
        checked = self._checked(vector, decomposed, _coefficients(context, joint, digits_hash, digits), 0)
        fronts = secrets.token_bytes(_SEED_BYTES)
        front, proofs = field.expand(fronts, sum(proof.wires for proof in self.proofs)), []
        for proof, vectors in zip(self.proofs, checked, strict=True):
            proofs.append(proof.prove(vectors, front[: proof.wires]))
            front = front[proof.wires :]
        masked_proofs = field.subtract(np.concatenate(proofs), second[length + digits :])
        first = field.encode(np.concatenate([masked, masked_digits, masked_proofs])) + blind + seed_hash
        return first, _SECOND.pack(seed, vector_hash, digits_hash)

    def vector_share(self, server: int, share: bytes) -> Elements:
        """A server's share of the vector, `[length]`.

        Raises:
            MalformedMessage: it is none.
        """
        return self._opened(server, share, self.length)

    def verifier(self, context: bytes, server: int, share: bytes, query_key: bytes) -> bytes:
        """What a server opens to the other about one upload.

        Args:
            context: as in `prove`.
            server: 0 or 1.
            share: its share.
            query_key: 32 bytes that both servers and nobody else know, for this upload only.

        Raises:
            MalformedMessage: the share is none.
        """
        length, digits = self.length, self.digits
        held = self._opened(server, share, self.elements)
        vector, shared_digits, proofs = held[:length], held[length : length + digits], held[length + digits :]
        if server == 0:
            blind, seed_hash = share[-2 * _HASH_BYTES : -_HASH_BYTES], share[-_HASH_BYTES:]
            vector_hash, digits_hash = _vector_hash(context, blind, vector), _digits_hash(context, blind, shared_digits)
        else:
            seed, vector_hash, digits_hash = _SECOND.unpack(share)
            seed_hash = _seed_hash(context, seed)
        joint = _joint(context, vector_hash, seed_hash)
        checked = self._checked(vector, shared_digits, _coefficients(context, joint, digits_hash, digits), server)
        points, combination = self._query(query_key)
        results, opened = [], []
        for proof, vectors, point in zip(self.proofs, checked, points, strict=True):
            result, shown = proof.query(vectors, proofs[: proof.size], point)
            proofs = proofs[proof.size :]
            results.append(result)
            opened.append(shown)
        split = RANGES * self.range_digits
        values = field.dot(shared_digits[:split].reshape(RANGES, -1), _powers(self.range_digits))
        slack = field.dot(shared_digits[split:], _powers(self.slack_digits))
        constants = (self.squared, self.half_range) if server == 0 else (0, 0)
        norm = field.subtract(field.add(results[0], slack), field.constant(constants[0]))
        ranges = field.subtract(
            field.add(signed_sums(joint, vector), np.full(RANGES, constants[1], np.uint64)), values
        )  # fmt: skip
        checks = np.concatenate([np.stack([norm, *results[1:]]), ranges])
        both = hashlib.sha256(length_prefixed(b"joint", joint, digits_hash)).digest()
        return both + field.encode(np.concatenate([field.dot(checks, combination)[None], *opened]))

    def accepts(self, first: bytes, second: bytes) -> bool:
        """Whether what the two servers opened shows a vector within the bound.

        Raises:
            MalformedMessage: one of them is no such message.
        """
        elements = (self.verifier_bytes - _HASH_BYTES) // field.ELEMENT_BYTES
        opened = field.add(*(field.decode(one[_HASH_BYTES:], elements) for one in (first, second)))
        if first[:_HASH_BYTES] != second[:_HASH_BYTES] or opened[0] != 0:
            return False
        opened = opened[1:]
        for proof in self.proofs:
            if not proof.holds(opened[: proof.revealed]):
                return False
            opened = opened[proof.revealed :]
        return True

    def _checked(
        self, vector: Elements, digits: Elements, coefficients: tuple[Elements, Elements], server: int
    ) -> list[list[Elements]]:
        """What each of the three proofs is of; coefficients are public, so one server holds them, the other zeros."""
        return [[vector], *([each if server == 0 else np.zeros_like(each), digits] for each in coefficients)]

    def _query(self, query_key: bytes) -> tuple[list[int], Elements]:
        """A point for each proof, none of them a root of unity, and coefficients of the checks."""
        order = max(proof.points for proof in self.proofs)
        drawn = field.expand(query_key, len(self.proofs) + 3 + RANGES + 8)
        points = [int(point) for point in drawn[:11] if pow(int(point), order, field.MODULUS) != 1][:3]
        return points, drawn[11:]

    def _opened(self, server: int, share: bytes, elements: int) -> Elements:
        if len(share) != self.share_bytes[server]:
            raise MalformedMessage(f"a share of {len(share)} bytes was given; {self.share_bytes[server]} were expected")
        if server == 1:
            return field.expand(share[:_SEED_BYTES], elements)
        return field.decode(memoryview(share)[: field.ELEMENT_BYTES * self.elements], self.elements)[:elements]


def signed_sums(joint: bytes, vector: Elements) -> Elements:
    """The sums of a vector under all random signs, `[RANGES]`, from the hash that draws the signs."""
    sums = np.zeros((3, RANGES), np.int64)
    for start in range(0, len(vector), _BLOCK):
        part = vector[start : start + _BLOCK]
        key = hashlib.sha256(length_prefixed(b"signs", joint, start.to_bytes(8, "big"))).digest()
        coins = np.unpackbits(random_uints(RANGES // 4 * len(part), np.uint8, key)).reshape(len(part), 2, RANGES)
        signs = coins[:, 0].astype(np.float64) - coins[:, 1]  # [block, RANGES]
        # Exact: sums of a block are integers below 2^22 * 2^12.
        sums += (field.limbs(part) @ signs).astype(np.int64)
    return field.from_limb_sums(sums)


def _all_within(sums: NDArray[np.int64], half_range: int) -> bool:
    return bool(((sums >= -half_range) & (sums < half_range)).all())


def _digits(numbers: NDArray[np.int64], widths: list[int]) -> Elements:
    """The digits of all numbers, lowest first, in as many places as each has."""
    places = _DIGIT_BITS * np.concatenate([np.arange(width) for width in widths])
    digits: Elements = ((np.repeat(numbers, widths) >> places) & (BASE - 1)).astype(np.uint64)
    return digits


def _powers(places: int) -> Elements:
    return np.array([BASE**place for place in range(places)], np.uint64)


def _vector_hash(context: bytes, blind: bytes, share: Elements) -> bytes:
    return hashlib.sha256(length_prefixed(b"vector", context, blind) + field.encode(share)).digest()


def _digits_hash(context: bytes, blind: bytes, share: Elements) -> bytes:
    return hashlib.sha256(length_prefixed(b"digits", context, blind) + field.encode(share)).digest()


def _seed_hash(context: bytes, seed: bytes) -> bytes:
    return hashlib.sha256(length_prefixed(b"seed", context, seed)).digest()


def _joint(context: bytes, vector_hash: bytes, seed_hash: bytes) -> bytes:
    return hashlib.sha256(length_prefixed(b"ranges", context, vector_hash, seed_hash)).digest()


def _coefficients(context: bytes, joint: bytes, digits_hash: bytes, digits: int) -> tuple[Elements, Elements]:
    key = hashlib.sha256(length_prefixed(b"coefficients", context, joint, digits_hash)).digest()
    drawn = field.expand(key, 2 * digits)
    return drawn[:digits], drawn[digits:]
