"""Packed words are the words, in exactly as many bytes as their bits fill, and there is one encoding of each."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secure_agg.additive import AdditiveShare, add, reconstruct, split
from secure_agg.encoding import FixedPoint, IntegerCode, Ring, Rounding
from secure_agg.errors import ConfigurationError, HeadroomError, MalformedMessage
from secure_agg.packing import PIECE, pack, packed_bytes, unpack, word_dtype
from secure_agg.prg import random_words

widths = st.integers(1, 64)


def some_words(count, bits, seed=0):
    words = np.random.default_rng([seed, bits]).integers(0, 2**64, count, np.uint64) & np.uint64(2**bits - 1)
    return words.astype(word_dtype(bits))


@given(widths, st.integers(0, 300), st.integers(0, 2**32))
@example(20, 2 * PIECE + 5, 0)
@example(33, PIECE + 1, 0)
@settings(max_examples=200, deadline=None)
def test_packing_is_one_long_number_with_the_first_word_lowest(bits, count, seed):
    words = some_words(count, bits, seed)
    data = pack(words, bits).tobytes()
    assert len(data) == packed_bytes(count, bits) == (count * bits + 7) // 8
    assert int.from_bytes(data, "little") == sum(int(word) << (i * bits) for i, word in enumerate(words))
    back = unpack(data, bits, count)
    assert back.dtype == words.dtype
    np.testing.assert_array_equal(back, words)


@given(widths, st.integers(1, 200))
def test_bits_above_the_width_do_not_travel(bits, count):
    words = random_words(count, word_dtype(bits), bytes(32))
    low = words & words.dtype.type(2**bits - 1)
    assert pack(words, bits).tobytes() == pack(low, bits).tobytes()


@given(widths.filter(lambda bits: bits % 8), st.integers(1, 100), st.data())
def test_there_is_one_encoding(bits, count, data):
    packed = bytearray(pack(some_words(count, bits), bits).tobytes())
    spare = 8 * len(packed) - count * bits
    for wrong in (packed[:-1], packed + b"\0"):
        with pytest.raises(MalformedMessage, match=f"where {count} words of {bits} bits take {len(packed)}"):
            unpack(bytes(wrong), bits, count)
    if spare:
        packed[-1] |= 128 >> data.draw(st.integers(0, spare - 1))
        with pytest.raises(MalformedMessage, match=f"after the last of {count} words"):
            unpack(bytes(packed), bits, count)


def test_whole_machine_words_are_not_copied():
    for bits in (8, 16, 32, 64):
        words = some_words(100, bits)
        assert np.shares_memory(pack(words, bits), words)
        data = words.tobytes()
        assert np.shares_memory(unpack(data, bits, 100), np.frombuffer(data, np.uint8))


@given(st.integers(2, 64), st.integers(1, 40), st.data())
def test_sums_of_packed_words_are_those_of_whole_numbers(bits, count, data):
    """2^b divides 2^w: what machine words add up to, cut to b bits, is the sum modulo 2^b."""
    ring = Ring(bits)
    vectors = [
        data.draw(st.lists(st.integers(-ring.half, ring.half - 1), min_size=count, max_size=count)) for _ in "abc"
    ]
    lifted = [ring.lift(np.array(vector)) for vector in vectors]
    arrived = [ring.unpack(ring.pack(words).tobytes(), count) for words in lifted]
    total = ring.sum(arrived)
    assert [int(word) for word in total] == [sum(column) % ring.modulus for column in zip(*vectors, strict=True)]
    for vector, words in zip(vectors, arrived, strict=True):
        assert ring.centred(words).tolist() == vector


@pytest.mark.parametrize("bits", [13, 20, 41])
def test_codes_err_by_no_more_than_they_say_in_a_narrow_ring(bits):
    rng = np.random.default_rng(0)
    reals, wholes = rng.uniform(-2, 2, (7, 400)), rng.integers(-9, 10, (7, 400))
    integer = IntegerCode(Ring(bits), 9, 7)
    assert (integer.decode(Ring(bits).sum(map(integer.encode, wholes))) == wholes.sum(0)).all()
    for rounding in Rounding:
        code = FixedPoint.for_sum(Ring(bits), bound=2.0, clients=7, rounding=rounding)
        opened = code.decode(code.ring.sum(code.encode(row) for row in reals))
        assert np.abs(opened - reals.sum(0)).max() <= code.error_bound() < 2**14 / 2**bits * 7


def test_a_ring_says_how_many_bits_a_sum_needs():
    with pytest.raises(HeadroomError, match=r"needs 12 bits and the ring has 10, 2 too few; take a ring of 12 bits"):
        FixedPoint.for_sum(Ring(10), bound=1.0, clients=1024)
    assert FixedPoint.for_sum(Ring(12), bound=1.0, clients=1024).resolution == 1.0


@pytest.mark.parametrize("bits", [5, 20, 45])
def test_additive_shares_of_a_narrow_ring(bits):
    ring = Ring(bits)
    vectors = [some_words(101, bits, seed) for seed in range(4)]
    splits = [split(words, 3, ring=ring) for words in vectors]
    sent = [[AdditiveShare.decode(s.encode(), ring=ring, shape=(101,)) for s in shares] for shares in splits]
    assert len(sent[0][0].encode()) == 32 + 8 + ring.packed_bytes(101)
    opened = reconstruct([add(shares[party] for shares in sent) for party in range(3)])
    np.testing.assert_array_equal(opened, ring.sum(vectors))


def test_words_of_another_ring_are_not_packed():
    with pytest.raises(ConfigurationError, match="the ring of 20 bits takes"):
        Ring(20).pack(np.zeros(3, np.uint16))
