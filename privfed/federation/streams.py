"""Addressed randomness: every random word has an address, so results do not depend on chunking, order or engine.

Word i of (purpose, round, query, user) is word i of the AES-128 counter-mode key stream (NIST SP 800-38A, 6.5)
under that user's own key, with the counter block purpose(1) | round(3) | query(4) | 0(4) | block(4), little-endian.
There is no generator state to save.

A simulation derives all keys from one seed, which makes its noise predictable to anyone who holds the seed. Keys of
what hides data (`HIDING`) follow from the run too, so that two runs of one seed share initial values and samples and no
word of noise: the difference of two releases with equal noise would be free of it. A deployment gives each device its
own key from the operating system and never sends it.
"""

import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from jaxtyping import Float, Float64, Int64, UInt32
from torch import Tensor

from privfed.compute.devices import placed
from privfed.federation.rounded_noise import further_bits, laplace_steps, normal_steps


class Purpose(IntEnum):
    """What a random word is for; two uses in one step must not share one."""

    MEMBERSHIP = 1
    INITIALISE = 2
    SAMPLES = 3
    NOISE = 4
    EPOCH_ORDER = 5
    DROPOUT = 6
    LATENT = 7
    SHARE = 8
    RUN = 9
    PADDING = 10
    THINNING = 11
    ROUNDING = 12
    FURTHER_BITS = 13
    TIER = 14


HIDING = frozenset({Purpose.NOISE, Purpose.SHARE, Purpose.RUN, Purpose.ROUNDING, Purpose.FURTHER_BITS})
"""Purposes whose words hide data: noise, masks and rounding. No two runs share them."""

_KEY_WORDS = 8

Ratio = float | Float64[np.ndarray, "*#users count"]
"""Scale of noise in steps of a grid: one for all draws, or one for each."""

RoundedLaw = Callable[..., None]

_WORDS_PER_BLOCK, _SLACK, _CACHED_CONTEXTS = 4, 15, 100_000

SERVER, PUBLIC = -1, -2
"""Pseudo-users: the server's own key, and the key of values that everybody may know (initial parameters)."""


class Streams:
    """Random words by address, under one key per user.

    Attributes:
        simulated: True when every key follows from one seed; a guarantee then says so.
    """

    def __init__(self, root: bytes, *, simulated: bool, hiding_root: bytes | None = None) -> None:
        self._root, self._hiding_root, self.simulated = root, hiding_root or root, simulated
        self._contexts: dict[int, CipherContext] = {}
        self._hiding: dict[int, CipherContext] = {} if hiding_root else self._contexts
        self._public: CipherContext | None = None
        self._numbers: Int64[np.ndarray, " hosted"] | None = None
        self._drawn = np.empty(0)

    @classmethod
    def from_seed(cls, seed: int, run: str = "") -> "Streams":
        """Keys of a simulation, all derived from `seed`.

        Args:
            seed: of the simulation.
            run: everything else that decides what is released, as a string; keys of noise follow from it too. An empty
                one leaves all keys to the seed.
        """
        root = hashlib.sha256(b"privfed simulation seed" + str(seed).encode()).digest()
        hiding_root = hmac.digest(root, b"noise of run" + run.encode(), "sha256") if run else None
        return cls(root, simulated=True, hiding_root=hiding_root)

    @classmethod
    def from_system(cls) -> "Streams":
        """Keys of a deployment, from the operating system; they cannot be derived again."""
        return cls(secrets.token_bytes(32), simulated=False)

    @classmethod
    def of_outsider(cls, known: "Streams", world: int) -> "Streams":
        """Keys of an outsider, who knows only the public key of a run and draws all else independently.

        Args:
            known: keys of the run; only the public one is taken from them.
            world: equal numbers give equal keys, none of which is a key of any run.
        """
        label = b"privfed outsider" + world.to_bytes(8, "little", signed=True)
        own = cls(hashlib.sha256(label).digest(), simulated=True)
        own._public = known._key_stream(PUBLIC)
        return own

    @classmethod
    def of_party(cls, root: bytes, public: bytes, entropy: bytes = b"") -> "Streams":
        """Keys of one party of a deployment: its own from a secret root, and the public one that all parties share.

        Args:
            root: 32 secret bytes from the operating system.
            public: 32 bytes that every party knows.
            entropy: of the party's process; keys of noise follow from it too, so that no other process draws the same.
        """
        hiding_root = hmac.digest(root, b"noise of process" + entropy, "sha256") if entropy else None
        own = cls(root, simulated=False, hiding_root=hiding_root)
        own._public = cls(public, simulated=False)._key_stream(PUBLIC)
        return own

    def numbered(self, users: Int64[np.ndarray, " hosted"]) -> "Streams":
        """The same keys for somebody who hosts `users` only and numbers them from 0."""
        hosted = Streams(self._root, simulated=self.simulated, hiding_root=self._hiding_root)
        hosted._contexts, hosted._hiding = self._contexts, self._hiding
        hosted._public, hosted._numbers = self._public, users
        return hosted

    def words(
        self, purpose: Purpose, round: int, query_id: int, users: Sequence[int], count: int
    ) -> UInt32[np.ndarray, "users count"]:
        """`count` uniform 32-bit words for every user."""
        if not (count and len(users)):
            return np.empty((len(users), count), np.uint32)
        blocks = -(-count // _WORDS_PER_BLOCK)
        width = blocks * _WORDS_PER_BLOCK
        # [blocks, 4] words of 32 bits: purpose and round | query | 0 | block.
        counters = np.zeros((blocks, _WORDS_PER_BLOCK), "<u4")
        counters[:, 0] = (purpose & 0xFF) | (round << 8)
        counters[:, 1], counters[:, 3] = query_id, np.arange(blocks)
        plain = counters.data.cast("B")
        if self._numbers is not None:
            # Keys belong to users of the whole population, whoever hosts them; pseudo-users keep their numbers.
            users = [int(self._numbers[user]) if user >= 0 else user for user in users]
        # `update_into` wants room for one block less a byte beyond what it writes, so users' ranges overlap by that
        # much, and each overwrites the slack of the one before.
        flat = np.empty(len(users) * width + _WORDS_PER_BLOCK, "<u4")
        out = flat.data.cast("B")
        hiding = purpose in HIDING
        known = self._hiding if hiding else self._contexts
        start, written = 0, len(plain)
        for user in users:
            stream = known.get(user) or self._key_stream(user, hiding=hiding)
            stream.update_into(plain, out[start : start + written + _SLACK])
            start += written
        return flat[: len(users) * width].reshape(len(users), width)[:, :count]

    def uniform(
        self, purpose: Purpose, round: int, query_id: int, users: Sequence[int], count: int
    ) -> Float[Tensor, "users count"]:
        """Uniform numbers in (0, 1): the middles of 2^53 cells, float64."""
        return placed(_unit(self.words(purpose, round, query_id, users, 2 * count)))

    def laplace_steps(
        self, purpose: Purpose, round: int, query_id: int, users: Sequence[int], count: int, ratio: Ratio
    ) -> Float64[Tensor, "users count"]:
        """Whole numbers, in float64: Laplace variables of scale `ratio`, rounded exactly (`rounded_noise`).

        They lie in a buffer that the next such draw uses again.
        """
        return self._steps(laplace_steps, purpose, round, query_id, users, count, ratio)

    def normal_steps(
        self, purpose: Purpose, round: int, query_id: int, users: Sequence[int], count: int, ratio: Ratio
    ) -> Float64[Tensor, "users count"]:
        """Whole numbers, in float64: normal variables of standard deviation `ratio`, rounded exactly.

        The first numbers do not depend on how many are drawn. They lie in a buffer that the next such draw uses again.
        """
        return self._steps(normal_steps, purpose, round, query_id, users, count, ratio)

    def _steps(
        self,
        law: RoundedLaw,
        purpose: Purpose,
        round: int,
        query_id: int,
        users: Sequence[int],
        count: int,
        ratio: Ratio,
    ) -> Float64[Tensor, "users count"]:
        """Draws of `law`, each from words of its own and, where these do not decide, from further bits."""
        # Even: normal variables come in pairs.
        width = count + count % 2
        words = _wide(self.words(purpose, round, query_id, users, 2 * width))
        scales = np.full((1, 1), ratio) if isinstance(ratio, float) else np.zeros((len(users), width))
        if not isinstance(ratio, float):
            scales[:, :count] = ratio

        def further(place: int, bits: int) -> int:
            row, index = divmod(place, width)
            # A key of its own per address: further bits are independent of all words, and the same each time.
            key = self.words(Purpose.FURTHER_BITS, round, query_id, [users[row]], _KEY_WORDS)[0].tobytes()
            return further_bits(key + bytes([purpose]), index, bits)

        # A fresh buffer of this size costs as much as the draws: its pages have to be mapped.
        if self._drawn.size < words.size:
            self._drawn = np.empty(words.size)
        steps = self._drawn[: words.size]
        law(words.reshape(-1), scales.reshape(-1), further, steps)
        return placed(steps.reshape(len(users), width)[:, :count])

    def normal(
        self, purpose: Purpose, round: int, query_id: int, users: Sequence[int], count: int
    ) -> Float[Tensor, "users count"]:
        """Standard normal draws by Box and Muller (1958) from 53-bit uniforms, float32: for models, never for privacy.

        Raises:
            ValueError: the purpose is to hide data, for which floating-point noise is no good (`normal_steps`).
        """
        if purpose in HIDING:
            raise ValueError(
                f"floating-point draws were asked for {purpose.name}, which has to hide data: use normal_steps"
            )
        half = -(-count // 2)
        u = self.uniform(purpose, round, query_id, users, 2 * half)
        # u [users, 2 half]: the first columns make radii, the others angles.
        radius = u[:, :half].log().mul_(-2).sqrt_()
        angle = u[:, half:].mul(2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)[:, :count].float()

    def _key_stream(self, user: int, *, hiding: bool = False) -> CipherContext:
        if user == PUBLIC and self._public is not None:
            return self._public
        contexts = self._hiding if hiding else self._contexts
        stream = contexts.get(user)
        if stream is None:
            label = b"user" + user.to_bytes(8, "little", signed=True)
            root = self._hiding_root if hiding else self._root
            key = AES(hmac.digest(root, label, "sha256")[:16])
            # Counter mode with the counter blocks written out: one context per user serves every address.
            stream = Cipher(key, ECB()).encryptor()  # noqa: S305
            # Contexts can be derived again, so forgetting all of them is safe and simpler than an order of use.
            if len(contexts) >= _CACHED_CONTEXTS:
                contexts.clear()
            contexts[user] = stream
        return stream


def _wide(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint64)


def _unit(words: np.ndarray) -> np.ndarray:
    # 53 bits and the middle of their cell: never 0 or 1, so that a logarithm is finite.
    unit: np.ndarray = ((_wide(words) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return unit
