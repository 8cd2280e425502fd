"""Packed elements are the elements, in exactly as many bytes as their bits fill, and there is one encoding of each."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secure_agg.additive import AdditiveShare, add, reconstruct, split
from secure_agg.encoding import FixedPoint, IntegerEncoding, Ring, Rounding
from secure_agg.encoding.packing import CHUNK, element_dtype, pack, packed_bytes, unpack
from secure_agg.errors import ConfigurationError, MalformedMessage, RingOverflowError
from secure_agg.primitives.prg import random_uints

widths = st.integers(1, 64)


def some_elements(count, bits, seed=0):
    elements = np.random.default_rng([seed, bits]).integers(0, 2**64, count, np.uint64) & np.uint64(2**bits - 1)
    return elements.astype(element_dtype(bits))


@given(widths, st.integers(0, 300), st.integers(0, 2**32))
@example(20, 2 * CHUNK + 5, 0)
@example(33, CHUNK + 1, 0)
@settings(max_examples=200, deadline=None)
def test_packing_is_one_long_number_with_the_first_element_lowest(bits, count, seed):
    elements = some_elements(count, bits, seed)
    data = pack(elements, bits).tobytes()
    assert len(data) == packed_bytes(count, bits) == (count * bits + 7) // 8
    assert int.from_bytes(data, "little") == sum(int(element) << (i * bits) for i, element in enumerate(elements))
    back = unpack(data, bits, count)
    assert back.dtype == elements.dtype
    np.testing.assert_array_equal(back, elements)


@given(widths, st.integers(1, 200))
def test_bits_above_the_width_do_not_travel(bits, count):
    elements = random_uints(count, element_dtype(bits), bytes(32))
    low = elements & elements.dtype.type(2**bits - 1)
    assert pack(elements, bits).tobytes() == pack(low, bits).tobytes()


@given(widths.filter(lambda bits: bits % 8), st.integers(1, 100), st.data())
def test_there_is_one_encoding(bits, count, data):
    packed = bytearray(pack(some_elements(count, bits), bits).tobytes())
    spare = 8 * len(packed) - count * bits
    for wrong in (packed[:-1], packed + b"\0"):
        with pytest.raises(MalformedMessage, match=f"where {count} elements of {bits} bits take {len(packed)}"):
            unpack(bytes(wrong), bits, count)
    if spare:
        packed[-1] |= 128 >> data.draw(st.integers(0, spare - 1))
        with pytest.raises(MalformedMessage, match=f"after the last of {count} elements"):
            unpack(bytes(packed), bits, count)


def test_whole_machine_elements_are_not_copied():
    for bits in (8, 16, 32, 64):
        elements = some_elements(100, bits)
        assert np.shares_memory(pack(elements, bits), elements)
        data = elements.tobytes()
        assert np.shares_memory(unpack(data, bits, 100), np.frombuffer(data, np.uint8))


@given(st.integers(2, 64), st.integers(1, 40), st.data())
def test_sums_of_packed_elements_are_those_of_integers(bits, count, data):
    """2^b divides 2^w: what machine words add up to, cut to b bits, is the sum modulo 2^b."""
    ring = Ring(bits)
    vectors = [
        data.draw(st.lists(st.integers(-ring.half_modulus, ring.half_modulus - 1), min_size=count, max_size=count))
        for _ in "abc"
    ]
    lifted = [ring.from_integers(np.array(vector)) for vector in vectors]
    arrived = [ring.unpack(ring.pack(elements).tobytes(), count) for elements in lifted]
    total = ring.sum(arrived)
    assert [int(element) for element in total] == [sum(column) % ring.modulus for column in zip(*vectors, strict=True)]
    for vector, elements in zip(vectors, arrived, strict=True):
        assert ring.centred(elements).tolist() == vector


@pytest.mark.parametrize("bits", [13, 20, 41])
def test_codes_err_by_no_more_than_they_say_in_a_narrow_ring(bits):
    rng = np.random.default_rng(0)
    reals, wholes = rng.uniform(-2, 2, (7, 400)), rng.integers(-9, 10, (7, 400))
    integer = IntegerEncoding(Ring(bits), 9, 7)
    assert (integer.decode(Ring(bits).sum(map(integer.encode, wholes))) == wholes.sum(0)).all()
    for rounding in Rounding:
        encoding = FixedPoint.for_sum(Ring(bits), bound=2.0, clients=7, rounding=rounding)
        revealed = encoding.decode(encoding.ring.sum(encoding.encode(row) for row in reals))
        assert np.abs(revealed - reals.sum(0)).max() <= encoding.error_bound() < 2**14 / 2**bits * 7


def test_a_ring_says_how_many_bits_a_sum_needs():
    with pytest.raises(
        RingOverflowError, match=r"needs 12 bits and the ring has 10, 2 too few; take a ring of 12 bits"
    ):
        FixedPoint.for_sum(Ring(10), bound=1.0, clients=1024)
    assert FixedPoint.for_sum(Ring(12), bound=1.0, clients=1024).resolution == 1.0


@pytest.mark.parametrize("bits", [5, 20, 45])
def test_additive_shares_of_a_narrow_ring(bits):
    ring = Ring(bits)
    vectors = [some_elements(101, bits, seed) for seed in range(4)]
    splits = [split(elements, 3, ring=ring) for elements in vectors]
    sent = [[AdditiveShare.decode(s.encode(), ring=ring, shape=(101,)) for s in shares] for shares in splits]
    assert len(sent[0][0].encode()) == 32 + 8 + ring.packed_bytes(101)
    revealed = reconstruct([add(shares[party] for shares in sent) for party in range(3)])
    np.testing.assert_array_equal(revealed, ring.sum(vectors))


def test_elements_of_another_ring_are_not_packed():
    with pytest.raises(ConfigurationError, match="the ring of 20 bits takes"):
        Ring(20).pack(np.zeros(3, np.uint16))
