"""Random ring words from a key, at the speed of the cipher.

A mask is the keystream of a block or stream cipher read as unsigned words. The stream of each key is addressed by
position, so a vector can be cut into segments that threads fill side by side (OpenSSL leaves the interpreter lock),
and all streams of one segment are added while the segment is still in cache.

Sources: NIST SP 800-38A (AES in counter mode), RFC 8439 (ChaCha20).
"""

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError

Words = NDArray[np.unsignedinteger[Any]]

CHUNK = 1 << 18
"""Bytes of keystream made and added at a time: they fit a second-level cache and hide the cost of the calls."""

_ZEROS = bytes(CHUNK)


class StreamCipher(StrEnum):
    """The cipher whose keystream is the mask."""

    AES256 = "aes-256-ctr"
    AES128 = "aes-128-ctr"
    CHACHA20 = "chacha20"

    @property
    def key_bytes(self) -> int:
        """Length of a key in bytes."""
        return 16 if self is StreamCipher.AES128 else 32

    @property
    def block_bytes(self) -> int:
        """Bytes of keystream for one step of the counter."""
        return 64 if self is StreamCipher.CHACHA20 else 16


def keystream(key: bytes, out: Words, cipher: StreamCipher = StreamCipher.AES256) -> None:
    """Overwrite `out` with the first `out.nbytes` bytes of the key's stream.

    Args:
        key: used for one stream only; `cipher.key_bytes` long.
        out: a contiguous array of little-endian unsigned words, one-dimensional.
        cipher: which stream.

    Raises:
        ConfigurationError: the key has another length, or `out` is not such an array.
    """
    _accept(out, [key], cipher)
    stream, view = _stream(key, 0, cipher), out.view(np.uint8).data
    for start in range(0, len(view), CHUNK):
        piece = view[start : start + CHUNK]
        stream.update_into(_ZEROS[: len(piece)], piece)


def add_streams(
    total: Words,
    plus: Sequence[bytes],
    minus: Sequence[bytes] = (),
    cipher: StreamCipher = StreamCipher.AES256,
    threads: int = 1,
) -> None:
    """Add every stream of `plus` to `total` and take every stream of `minus` away, in place, in the ring of the dtype.

    Args:
        total: a contiguous array of little-endian unsigned words, one-dimensional.
        plus: keys whose streams are added.
        minus: keys whose streams are subtracted.
        cipher: which stream.
        threads: segments worked on side by side; the result does not depend on it.

    Raises:
        ConfigurationError: a key of another length, another kind of array, or fewer than one thread.
    """
    _accept(total, [*plus, *minus], cipher)
    accept_threads(threads)
    if threads == 1 or total.nbytes <= CHUNK:
        _add_segment(total, 0, plus, minus, cipher)
        return
    words_per_chunk = CHUNK // total.itemsize
    per_thread = -(-total.size // (threads * words_per_chunk)) * words_per_chunk
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(_add_segment, total[start : start + per_thread], start * total.itemsize, plus, minus, cipher)
            for start in range(0, total.size, per_thread)
        ]
    for job in jobs:
        job.result()


def random_words(count: int, dtype: Any, key: bytes | None = None) -> Words:
    """Uniform words of an unsigned dtype, from the operating system or reproducibly from a 32-byte key.

    Args:
        count: how many.
        dtype: `numpy.uint8`, `uint16`, `uint32` or `uint64`.
        key: `None` draws a fresh key from `secrets`; a key given makes the words a simulation.

    Raises:
        ConfigurationError: a negative count, a dtype that is not unsigned, or a key that is not 32 bytes long.
    """
    if np.dtype(dtype).kind != "u" or count < 0:
        raise ConfigurationError(
            f"{count} words of {np.dtype(dtype)} were asked for; give a count from 0 and an unsigned dtype like uint32"
        )
    words: Words = np.empty(count, np.dtype(dtype).newbyteorder("<"))
    keystream(secrets.token_bytes(32) if key is None else key, words)
    return words


def accept_threads(threads: int) -> None:
    """Return quietly when there is at least one.

    Raises:
        ConfigurationError: there is not.
    """
    if threads < 1:
        raise ConfigurationError(f"threads is {threads}; give 1 or more")


def _add_segment(
    segment: Words, offset: int, plus: Sequence[bytes], minus: Sequence[bytes], cipher: StreamCipher
) -> None:
    """All streams over one segment that begins `offset` bytes into them."""
    adding = [_stream(key, offset, cipher) for key in plus]
    taking = [_stream(key, offset, cipher) for key in minus]
    mask = np.empty(min(CHUNK // segment.itemsize, segment.size), segment.dtype)
    for start in range(0, segment.size, len(mask) or 1):
        piece = segment[start : start + len(mask)]
        here = mask[: len(piece)]
        view, zeros = here.view(np.uint8).data, _ZEROS[: here.nbytes]
        for stream in adding:
            stream.update_into(zeros, view)
            np.add(piece, here, out=piece)
        for stream in taking:
            stream.update_into(zeros, view)
            np.subtract(piece, here, out=piece)


def _stream(key: bytes, offset: int, cipher: StreamCipher) -> CipherContext:
    """The key's stream from byte `offset`, a multiple of the block; a key makes one stream, so the nonce is zero."""
    counter = offset // cipher.block_bytes
    if cipher is StreamCipher.CHACHA20:
        return Cipher(algorithms.ChaCha20(key, counter.to_bytes(4, "little") + bytes(12)), mode=None).encryptor()
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()


def _accept(words: Words, keys: Sequence[bytes], cipher: StreamCipher) -> None:
    fits = words.ndim == 1 and words.flags.c_contiguous and words.flags.writeable
    if not fits or words.dtype.kind != "u" or words.dtype != words.dtype.newbyteorder("<"):
        raise ConfigurationError(
            f"got an array of {words.dtype} and shape {words.shape}; give a writeable, contiguous array of "
            "little-endian unsigned words with one axis"
        )
    for key in keys:
        if len(key) != cipher.key_bytes:
            raise ConfigurationError(f"a key of {len(key)} bytes was given; {cipher} takes {cipher.key_bytes}")
