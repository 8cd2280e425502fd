"""Pseudorandom ring elements: the keystream of a cipher read as unsigned integers, at the speed of the cipher.

The keystream of each key is addressed by position, so a vector can be cut into segments that threads fill in parallel
(OpenSSL releases the interpreter lock), and all keystreams over one segment are added while it is still in cache.

Sources: NIST SP 800-38A (AES in counter mode), RFC 8439 (ChaCha20).
"""

import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError

RingElements = NDArray[np.unsignedinteger[Any]]
"""Elements of the ring of the integers modulo 2^b, one per unsigned machine word."""

CHUNK = 1 << 18
"""Bytes of keystream generated at a time: they fit a second-level cache and amortise the cost of the calls."""

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
        """Bytes of keystream per counter value."""
        return 64 if self is StreamCipher.CHACHA20 else 16


def keystream(key: bytes, out: RingElements, cipher: StreamCipher = StreamCipher.AES256) -> None:
    """Overwrite `out` with the first `out.nbytes` bytes of the key's keystream.

    Args:
        key: used for one keystream only; `cipher.key_bytes` long.
        out: a contiguous one-dimensional array of little-endian unsigned integers.
        cipher: cipher of the keystream.

    Raises:
        ConfigurationError: the key has another length, or `out` is another kind of array.
    """
    _check_array_and_keys(out, [key], cipher)
    context, view = _keystream_context(key, 0, cipher), out.view(np.uint8).data
    for start in range(0, len(view), CHUNK):
        chunk = view[start : start + CHUNK]
        context.update_into(_ZEROS[: len(chunk)], chunk)  # encrypting zeros yields the keystream itself


def keystream_pieces(key: bytes, count: int, dtype: Any) -> Iterator[RingElements]:
    """The first `count` integers of the key's AES-256 keystream, piece by piece in one buffer that is used again.

    Args:
        key: used for one keystream only; 32 bytes.
        count: number of integers.
        dtype: `numpy.uint8`, `uint16`, `uint32` or `uint64`.

    Raises:
        ConfigurationError: a key of another length.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    buffer: RingElements = np.empty(min(count, CHUNK // kind.itemsize), kind)
    _check_array_and_keys(buffer, [key], StreamCipher.AES256)
    context, view = _keystream_context(key, 0, StreamCipher.AES256), buffer.view(np.uint8).data
    for start in range(0, count, len(buffer) or 1):
        piece = buffer[: count - start]
        context.update_into(_ZEROS[: piece.nbytes], view[: piece.nbytes])
        yield piece


def add_keystreams(
    total: RingElements,
    plus: Sequence[bytes],
    minus: Sequence[bytes] = (),
    cipher: StreamCipher = StreamCipher.AES256,
    threads: int = 1,
) -> None:
    """Add the keystreams of `plus` to `total` and subtract those of `minus`, in place, modulo 2^w of the dtype.

    Args:
        total: a contiguous one-dimensional array of little-endian unsigned integers.
        plus: keys whose keystreams are added.
        minus: keys whose keystreams are subtracted.
        cipher: cipher of the keystreams.
        threads: number of segments processed in parallel; the result does not depend on it.

    Raises:
        ConfigurationError: a key of another length, another kind of array, or fewer than one thread.
    """
    _check_array_and_keys(total, [*plus, *minus], cipher)
    check_threads(threads)
    if threads == 1 or total.nbytes <= CHUNK:
        _add_segment(total, 0, plus, minus, cipher)
        return
    # Segments begin at multiples of CHUNK bytes, hence at whole cipher blocks, where the counter can be set directly.
    elements_per_chunk = CHUNK // total.itemsize
    per_thread = -(-total.size // (threads * elements_per_chunk)) * elements_per_chunk
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(_add_segment, total[start : start + per_thread], start * total.itemsize, plus, minus, cipher)
            for start in range(0, total.size, per_thread)
        ]
    for job in jobs:
        job.result()


def random_uints(count: int, dtype: Any, key: bytes | None = None) -> RingElements:
    """Uniform unsigned integers, from the operating system or reproducibly from a 32-byte key.

    Args:
        count: number of integers.
        dtype: `numpy.uint8`, `uint16`, `uint32` or `uint64`.
        key: `None` draws a fresh key from `secrets`; a given key makes the result reproducible, for simulations.

    Raises:
        ConfigurationError: a negative count, a dtype that is not unsigned, or a key that is not 32 bytes long.
    """
    if np.dtype(dtype).kind != "u" or count < 0:
        raise ConfigurationError(
            f"{count} integers of {np.dtype(dtype)} were requested; give a count from 0 and an unsigned dtype like "
            "uint32"
        )
    integers: RingElements = np.empty(count, np.dtype(dtype).newbyteorder("<"))
    keystream(secrets.token_bytes(32) if key is None else key, integers)
    return integers


def check_threads(threads: int) -> None:
    """Refuse fewer than one thread.

    Raises:
        ConfigurationError: `threads` is below 1.
    """
    if threads < 1:
        raise ConfigurationError(f"threads is {threads}; give 1 or more")


def _add_segment(
    segment: RingElements, offset: int, plus: Sequence[bytes], minus: Sequence[bytes], cipher: StreamCipher
) -> None:
    """Add and subtract all keystreams over one segment that begins `offset` bytes into them."""
    added = [_keystream_context(key, offset, cipher) for key in plus]
    subtracted = [_keystream_context(key, offset, cipher) for key in minus]
    # One reused buffer of a chunk: each chunk of the segment is read and written once per key while it is in cache.
    buffer = np.empty(min(CHUNK // segment.itemsize, segment.size), segment.dtype)
    for start in range(0, segment.size, len(buffer) or 1):
        chunk = segment[start : start + len(buffer)]
        mask = buffer[: len(chunk)]
        view, zeros = mask.view(np.uint8).data, _ZEROS[: mask.nbytes]
        for context in added:
            context.update_into(zeros, view)
            np.add(chunk, mask, out=chunk)
        for context in subtracted:
            context.update_into(zeros, view)
            np.subtract(chunk, mask, out=chunk)


def _keystream_context(key: bytes, offset: int, cipher: StreamCipher) -> CipherContext:
    """The key's keystream from byte `offset`, a multiple of the block size."""
    # A key makes one keystream only, so the nonce may be zero and the whole counter block holds the block number.
    counter = offset // cipher.block_bytes
    if cipher is StreamCipher.CHACHA20:
        return Cipher(algorithms.ChaCha20(key, counter.to_bytes(4, "little") + bytes(12)), mode=None).encryptor()
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()


def _check_array_and_keys(array: RingElements, keys: Sequence[bytes], cipher: StreamCipher) -> None:
    usable = array.ndim == 1 and array.flags.c_contiguous and array.flags.writeable
    if not usable or array.dtype.kind != "u" or array.dtype != array.dtype.newbyteorder("<"):
        raise ConfigurationError(
            f"got an array of {array.dtype} and shape {array.shape}; give a writeable, contiguous array of "
            "little-endian unsigned integers with one axis"
        )
    for key in keys:
        if len(key) != cipher.key_bytes:
            raise ConfigurationError(f"a key of {len(key)} bytes was given; {cipher} takes {cipher.key_bytes}")
