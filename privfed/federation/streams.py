"""Addressed randomness: every random word has an address, so results do not depend on chunking, order or engine.

Word i of (purpose, round, ask, user) is word i of AES-128-CTR under that user's key, with the counter block
purpose(1) | round(3) | ask(4) | user(4) | block(4) (NIST SP 800-38A, CTR). There is no generator state to save.

A simulation derives all keys from one seed, which makes its noise predictable to anyone who holds the seed. A
deployment gives each device its own key from the operating system and never sends it.
"""

import hashlib
import hmac
import math
import secrets
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from jaxtyping import Float, UInt32
from torch import Tensor


class Purpose(IntEnum):
    """What a random word is for; two uses in one step must not share one."""

    MEMBERSHIP = 1
    INITIALISE = 2
    NEGATIVES = 3
    SHUFFLE = 4
    NOISE = 5
    EPOCH_ORDER = 6


SERVER, PUBLIC = -1, -2
"""Pseudo-users: the server's own key, and the key of values that everybody may know (initial parameters)."""


class Streams:
    """Random words by address, under one key per user.

    Attributes:
        simulated: True when every key follows from one seed; a guarantee then says so.
    """

    def __init__(self, root: bytes, *, simulated: bool) -> None:
        self._root, self.simulated = root, simulated
        self._ciphers: dict[int, AES] = {}

    @classmethod
    def from_seed(cls, seed: int) -> "Streams":
        """Keys of a simulation, all derived from `seed`."""
        return cls(hashlib.sha256(b"privfed simulation seed" + str(seed).encode()).digest(), simulated=True)

    @classmethod
    def from_system(cls) -> "Streams":
        """Keys of a deployment, from the operating system; they cannot be derived again."""
        return cls(secrets.token_bytes(32), simulated=False)

    def words(
        self, purpose: Purpose, round: int, ask: int, users: Sequence[int], count: int
    ) -> UInt32[np.ndarray, "users count"]:
        """`count` uniform 32-bit words for every user."""
        out = np.empty((len(users), count + 4), np.uint32)
        zeros = memoryview(bytes(4 * count))
        head = bytes([purpose]) + round.to_bytes(3, "little") + ask.to_bytes(4, "little")
        for row, user in zip(out, users, strict=True):
            counter = head + (user & 0xFFFFFFFF).to_bytes(4, "little") + bytes(4)
            Cipher(self._cipher(user), CTR(counter)).encryptor().update_into(zeros, memoryview(row).cast("B"))
        return out[:, :count]

    def uniform(
        self, purpose: Purpose, round: int, ask: int, users: Sequence[int], count: int
    ) -> Float[Tensor, "users count"]:
        """Uniform numbers in (0, 1): the middles of 2^53 cells, float64."""
        return torch.from_numpy(_unit(self.words(purpose, round, ask, users, 2 * count)))

    def laplace(
        self, purpose: Purpose, round: int, ask: int, users: Sequence[int], count: int
    ) -> Float[Tensor, "users count"]:
        """Laplace draws of scale 1: a fair sign times -log(uniform), float32."""
        words = _wide(self.words(purpose, round, ask, users, 2 * count))
        magnitude = torch.from_numpy(((words >> np.uint64(11)).astype(np.float32) + np.float32(0.5)))
        magnitude.mul_(2.0**-53).log_()
        sign = torch.from_numpy((words & np.uint64(1)).astype(np.float32)).mul_(2).sub_(1)
        return magnitude.mul_(sign)

    def normal(
        self, purpose: Purpose, round: int, ask: int, users: Sequence[int], count: int
    ) -> Float[Tensor, "users count"]:
        """Standard normal draws by Box and Muller (1958) from 53-bit uniforms, float32."""
        half = -(-count // 2)
        u = self.uniform(purpose, round, ask, users, 2 * half)
        radius = u[:, :half].log().mul_(-2).sqrt_()
        angle = u[:, half:].mul(2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)[:, :count].float()

    def _cipher(self, user: int) -> AES:
        cipher = self._ciphers.get(user)
        if cipher is None:
            label = b"user" + user.to_bytes(8, "little", signed=True)
            cipher = AES(hmac.digest(self._root, label, "sha256")[:16])
            self._ciphers[user] = cipher
        return cipher


def _wide(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint64)


def _unit(words: np.ndarray) -> np.ndarray:
    unit: np.ndarray = ((_wide(words) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return unit
