"""Masks: sums of streams against a naive sum, uniform elements, and what is refused."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_agg.errors import ConfigurationError
from secure_agg.primitives import prg
from secure_agg.primitives.prg import CHUNK, StreamCipher, add_keystreams, keystream, random_uints

DTYPES = (np.uint8, np.uint16, np.uint32, np.uint64)
KEY = bytes(range(32))


def whole_stream(key, length, cipher):
    """The first bytes of a stream, by one call of the cipher."""
    if cipher is StreamCipher.CHACHA20:
        made = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    else:
        made = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return made.update(bytes(length))


def naive_sum(start, plus, minus, cipher):
    """In Python's integers, reduced at the end."""
    bits = 8 * start.itemsize

    def elements(key):
        return [int(word) for word in np.frombuffer(whole_stream(key, start.nbytes, cipher), start.dtype)]

    total = [int(word) for word in start]
    for key in plus:
        total = [a + b for a, b in zip(total, elements(key), strict=True)]
    for key in minus:
        total = [a - b for a, b in zip(total, elements(key), strict=True)]
    return [value % 2**bits for value in total]


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.sampled_from(list(StreamCipher)),
    st.integers(0, 300),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_added_streams_are_the_naive_sum(dtype, cipher, length, adding, taking, threads, random):
    start = np.frombuffer(random.randbytes(length * np.dtype(dtype).itemsize), dtype).copy()
    plus = [random.randbytes(cipher.key_bytes) for _ in range(adding)]
    minus = [random.randbytes(cipher.key_bytes) for _ in range(taking)]
    expected = naive_sum(start, plus, minus, cipher)
    add_keystreams(start, plus, minus, cipher, threads)
    assert start.tolist() == expected


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("cipher", StreamCipher)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extra", [-1, 0, 1, 77])
def test_vectors_longer_than_a_chunk_do_not_depend_on_the_threads(dtype, cipher, threads, extra):
    count = 3 * CHUNK // np.dtype(dtype).itemsize + extra
    key, other = KEY[: cipher.key_bytes], bytes(cipher.key_bytes)
    total = np.full(count, 250, dtype)
    add_keystreams(total, [key], [other], cipher, threads)
    one, two = (np.frombuffer(whole_stream(k, total.nbytes, cipher), dtype) for k in (key, other))
    assert np.array_equal(total, np.full(count, 250, dtype) + one - two)


@pytest.mark.parametrize("cipher", StreamCipher)
def test_a_keystream_overwrites(cipher):
    key = KEY[: cipher.key_bytes]
    elements = np.full(2 * CHUNK // 8 + 5, 9, np.uint64)
    keystream(key, elements, cipher)
    assert elements.tobytes() == whole_stream(key, elements.nbytes, cipher)


def test_adding_and_taking_the_same_streams_leaves_everything():
    keys = [bytes([number]) * 32 for number in range(1, 5)]
    total = random_uints(1000, np.uint32, KEY)
    before = total.copy()
    add_keystreams(total, keys)
    assert (total != before).mean() > 0.99
    add_keystreams(total, (), keys)
    assert np.array_equal(total, before)


def test_no_streams_and_no_elements():
    total = np.arange(10, dtype=np.uint16)
    add_keystreams(total, [])
    assert total.tolist() == list(range(10))
    for cipher in StreamCipher:
        empty = np.empty(0, np.uint32)
        keystream(bytes(cipher.key_bytes), empty, cipher)
        add_keystreams(empty, [bytes(cipher.key_bytes)], cipher=cipher, threads=2)
    assert random_uints(0, np.uint64).shape == (0,)


def test_streams_of_different_keys_and_ciphers_differ():
    made = set()
    for cipher in StreamCipher:
        for last in range(8):
            elements = np.empty(4, np.uint32)
            keystream(bytes(cipher.key_bytes - 1) + bytes([last]), elements, cipher)
            made.add(elements.tobytes())
    assert len(made) == 24


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key", [None, KEY])
def test_random_uints_are_uniform(dtype, key):
    elements = random_uints(400_000 // np.dtype(dtype).itemsize, dtype, key)
    assert elements.dtype == dtype
    for position in range(elements.itemsize):
        byte = elements.view(np.uint8)[position :: elements.itemsize]
        assert chisquare(np.bincount(byte, minlength=256)).pvalue > 1e-9


def test_random_elements_are_fresh_each_call_unless_a_key_makes_them_a_simulation():
    assert not np.array_equal(random_uints(8, np.uint32), random_uints(8, np.uint32))
    assert np.array_equal(random_uints(8, np.uint32, KEY), random_uints(8, np.uint32, KEY))
    assert np.array_equal(random_uints(8, np.uint32, KEY), random_uints(80, np.uint32, KEY)[:8])


@pytest.mark.parametrize("cipher", StreamCipher)
@pytest.mark.parametrize("wrong", [-1, 1])
def test_keys_of_another_length_are_refused_and_nothing_is_added(cipher, wrong):
    key, total = bytes(cipher.key_bytes + wrong), np.zeros(4, np.uint32)
    message = f"a key of {len(key)} bytes was given; {cipher} takes {cipher.key_bytes}"
    with pytest.raises(ConfigurationError, match=message):
        keystream(key, total, cipher)
    for plus, minus in (([KEY[: cipher.key_bytes], key], []), ([KEY[: cipher.key_bytes]], [key])):
        with pytest.raises(ConfigurationError, match=message):
            add_keystreams(total, plus, minus, cipher)
    assert not total.any()


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        (np.zeros(8, np.uint32)[::2], "contiguous"),
        (np.zeros((4, 4), np.uint32), "one axis"),
        (np.zeros(8, ">u4"), "little-endian"),
        (np.frombuffer(bytes(8), np.uint32), "writeable"),
        (np.zeros(8, np.int32), "int32"),
        (np.zeros(8, np.float64), "float64"),
    ],
)
def test_other_arrays_are_refused(elements, message):
    with pytest.raises(ConfigurationError, match=message):
        keystream(KEY, elements)
    with pytest.raises(ConfigurationError, match=message):
        add_keystreams(elements, [KEY])


@pytest.mark.parametrize("threads", [0, -1])
def test_fewer_than_one_thread_is_refused(threads):
    with pytest.raises(ConfigurationError, match=f"threads is {threads}"):
        add_keystreams(np.zeros(4, np.uint32), [KEY], threads=threads)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, bool])
def test_random_elements_of_another_kind_are_refused(dtype):
    with pytest.raises(ConfigurationError, match="unsigned dtype"):
        random_uints(4, dtype)


def test_random_elements_of_a_short_key_are_refused():
    with pytest.raises(ConfigurationError, match="a key of 16 bytes"):
        random_uints(4, np.uint32, bytes(16))


def test_a_failing_thread_is_heard(monkeypatch):
    def broken(*_):
        raise MemoryError

    monkeypatch.setattr(prg, "_add_segment", broken)
    with pytest.raises(MemoryError):
        add_keystreams(np.zeros(CHUNK, np.uint32), [KEY], threads=2)


def test_a_negative_count_is_refused():
    with pytest.raises(ConfigurationError, match="-1 integers"):
        random_uints(-1, np.uint32)
