"""Rings, overflow bound, integers and fixed point, against exact arithmetic on Python integers and fractions."""

import itertools
import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from secure_agg.encoding import (
    FixedPoint,
    IntegerEncoding,
    Ring,
    Rounding,
    check_overflow_bound,
    required_bits,
)
from secure_agg.encoding.fixed_point import CHUNK
from secure_agg.errors import ConfigurationError, RingOverflowError

KEY = bytes(range(32))
RINGS = [Ring(bits) for bits in (12, 16, 20, 32, 45, 64)]
INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]
rings = st.sampled_from(RINGS)
roundings = st.sampled_from(Rounding)
quick = settings(max_examples=50, deadline=None)


def exactly(values):
    """An array of fractions, one for each float."""
    return [Fraction(float(value)) for value in np.ravel(values)]


def steps_of(encoding, elements):
    """The centred residues of the elements as Python integers, by modular arithmetic alone."""
    half, modulus = encoding.ring.half_modulus, encoding.ring.modulus
    return [(int(element) + half) % modulus - half for element in np.ravel(elements)]


# Rings


@pytest.mark.parametrize(
    ("bits", "machine"), [(2, 8), (8, 8), (9, 16), (16, 16), (20, 32), (32, 32), (33, 64), (64, 64)]
)
def test_a_ring_knows_its_elements(bits, machine):
    ring = Ring(bits)
    assert (ring.modulus, ring.half_modulus, ring.fills_dtype) == (2**bits, 2 ** (bits - 1), bits == machine)
    assert ring.dtype == np.dtype(f"uint{machine}").newbyteorder("<")
    assert ring.zeros((2, 3)).shape == (2, 3)
    assert ring.zeros(4).dtype == ring.dtype
    assert not ring.zeros(4).any()


@pytest.mark.parametrize("bits", [-8, 0, 1, 65, 128, 32.0, "32", np.int64(32), True])
def test_a_ring_of_other_bits_is_refused(bits):
    with pytest.raises(ConfigurationError, match="an int from 2 to 64"):
        Ring(bits)


def test_a_ring_is_a_value():
    assert Ring(32) == Ring(32)
    assert len({Ring(16), Ring(16), Ring(64)}) == 2
    with pytest.raises(FrozenInstanceError):
        Ring(32).bits = 64


@pytest.mark.parametrize(
    ("elements", "given"),
    [
        (np.zeros(3, "i4"), "an array of int32"),
        (np.zeros(3, "<u8"), "an array of uint64"),
        (np.zeros(3, ">u4"), "an array of >u4"),
        (np.zeros(3), "an array of float64"),
        ([1, 2], "a list"),
        (np.uint32(1), "a uint32"),
    ],
)
def test_elements_of_another_ring_are_refused(elements, given):
    with pytest.raises(ConfigurationError, match=f"got {given}; the ring of 32 bits takes a numpy array of uint32"):
        Ring(32).check(elements)
    for refused in (
        Ring(32).centred,
        lambda elements: Ring(32).sum([elements]),
        IntegerEncoding(Ring(32), 1, 1).decode,
    ):
        with pytest.raises(ConfigurationError, match="the ring of 32 bits"):
            refused(elements)


@quick
@given(data=st.data(), ring=rings, shape=hnp.array_shapes(max_dims=3, max_side=4, min_dims=0))
def test_a_sum_is_the_sum_modulo_the_ring(data, ring, shape):
    vectors = data.draw(st.lists(hnp.arrays(ring.dtype, shape), min_size=1, max_size=5))
    before = [vector.copy() for vector in vectors]
    total = ring.sum(vector for vector in vectors)
    expected = [sum(int(x) for x in column) % ring.modulus for column in zip(*map(np.ravel, vectors), strict=True)]
    assert [int(x) for x in np.ravel(total)] == expected
    assert (total.shape, total.dtype) == (shape, ring.dtype)
    assert all(np.array_equal(kept, vector) for kept, vector in zip(before, vectors, strict=True))
    assert not any(np.shares_memory(total, vector) for vector in vectors)


def test_a_sum_wraps():
    assert Ring(16).sum([np.array([65535], "<u2"), np.array([2], "<u2")]).tolist() == [1]


def test_vectors_that_cannot_be_added_are_refused():
    ring = Ring(32)
    with pytest.raises(ConfigurationError, match="no vector was given"):
        ring.sum([])
    with pytest.raises(ConfigurationError, match=r"shapes \(3,\) and \(1,\)"):
        ring.sum([ring.zeros(3), ring.zeros(1)])
    with pytest.raises(ConfigurationError, match="an array of uint64"):
        ring.sum([ring.zeros(3), Ring(64).zeros(3)])


@quick
@given(data=st.data(), ring=rings, dtype=st.sampled_from(INTEGERS))
def test_lift_and_centred_are_inverse_or_refuse(data, ring, dtype):
    integers = data.draw(hnp.arrays(dtype, st.integers(0, 6)))
    if all(-ring.half_modulus <= int(x) < ring.half_modulus for x in integers):
        elements = ring.from_integers(integers)
        assert elements.dtype == ring.dtype
        assert [int(x) for x in elements] == [int(x) % ring.modulus for x in integers]
        assert ring.centred(elements).tolist() == integers.tolist()
        assert ring.centred(elements).dtype == np.int64
    else:
        with pytest.raises(RingOverflowError):
            ring.from_integers(integers)


@pytest.mark.parametrize("ring", RINGS)
def test_lift_at_the_ends_of_the_ring(ring):
    ends = [-ring.half_modulus, ring.half_modulus - 1, -1, 0]
    assert ring.centred(ring.from_integers(np.array(ends, np.int64))).tolist() == ends
    half = ring.half_modulus
    over = np.array([half], np.uint64)
    with pytest.raises(
        RingOverflowError,
        match=f"values from {half} to {half} .* {-half} to {half - 1}",
    ):
        ring.from_integers(over)
    assert ring.from_integers(over - np.uint64(1)).tolist() == [ring.half_modulus - 1]
    with pytest.raises(RingOverflowError):
        ring.from_integers(np.array([0, 2**64 - 1], np.uint64))


@pytest.mark.parametrize("ring", RINGS[:2])
def test_lift_below_the_ring_is_refused(ring):
    with pytest.raises(RingOverflowError):
        ring.from_integers(np.array([-ring.half_modulus - 1]))


@pytest.mark.parametrize("given", [np.zeros(2), np.zeros(2, bool), np.zeros(2, complex), [1, 2], np.int64(1)])
def test_only_arrays_of_integers_are_lifted(given):
    with pytest.raises(ConfigurationError, match="give a numpy array of signed or unsigned integers"):
        Ring(32).from_integers(given)


def test_centred_reads_any_layout():
    elements = Ring(32).from_integers(np.arange(-12, 12).reshape(4, 6))
    assert Ring(32).centred(elements[::2, ::-3]).tolist() == np.arange(-12, 12).reshape(4, 6)[::2, ::-3].tolist()
    assert Ring(32).centred(elements[0, 0, ...]).shape == ()
    assert np.shares_memory(Ring(64).centred(wide := Ring(64).zeros(3)), wide)


# Head-room


@quick
@given(
    clients=st.integers(1, 10**6),
    bound=st.one_of(st.integers(1, 2**70), st.floats(1e-12, 1e12)),
    scale=st.one_of(st.integers(1, 2**20), st.floats(1e-6, 1e6)),
    noise_bound=st.integers(0, 2**66),
)
def test_required_bits_are_minimal(clients, bound, scale, noise_bound):
    bits = required_bits(clients=clients, bound=bound, scale=scale, noise_bound=noise_bound)
    largest = clients * math.ceil(Fraction(bound) * Fraction(scale)) + noise_bound
    assert 2 ** (bits - 2) <= largest < 2 ** (bits - 1)


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("clients", [1, 7, 1000])
def test_overflow_bound_exactly_fits_or_is_one_too_many(ring, clients):
    steps, noise_bound = divmod(ring.half_modulus - 1, clients)
    check_overflow_bound(ring, clients=clients, bound=steps, noise_bound=noise_bound)
    with pytest.raises(RingOverflowError, match=f"needs {ring.bits + 1} bits and the ring has {ring.bits}, 1 too few"):
        check_overflow_bound(ring, clients=clients, bound=steps, noise_bound=noise_bound + 1)
    above = math.nextafter(steps, math.inf) if steps < 2**53 else steps + 1
    with pytest.raises(RingOverflowError):
        check_overflow_bound(ring, clients=clients, bound=above, noise_bound=noise_bound)


def test_overflow_bound_takes_floats_as_the_fractions_they_are():
    assert 0.1 * 10 == 1.0
    assert required_bits(clients=1, bound=0.1, scale=10) == 3  # the float 0.1 is above 1/10, so it takes 2 steps
    assert required_bits(clients=1, bound=0.5, scale=2) == 2
    assert required_bits(clients=np.int64(2**62), bound=np.int64(2**62), noise_bound=np.uint64(0)) == 126
    assert required_bits(clients=1, bound=np.float32(1.5)) == 3


def test_the_refusal_says_what_to_do():
    with pytest.raises(
        RingOverflowError, match=r"943 clients within 4.0 at 65536 .* 29 bits .* 13 too few; take a ring of 29"
    ):
        check_overflow_bound(Ring(16), clients=943, bound=4.0, scale=65536)
    with pytest.raises(RingOverflowError, match=r"needs 32 bits .* 16 too few; take a ring of 32 bits, a coarser"):
        check_overflow_bound(Ring(16), clients=1, bound=2**30)
    with pytest.raises(RingOverflowError, match=r"2 too few; take a coarser scale, a smaller clip or fewer clients$"):
        check_overflow_bound(Ring(64), clients=2, bound=2**63)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"clients": 0}, "clients is 0; give a whole number of at least 1"),
        ({"clients": 1.0}, "clients is 1.0"),
        ({"noise_bound": -1}, "noise_bound is -1; give a whole number of at least 0"),
        ({"noise_bound": 0.5}, "noise_bound is 0.5"),
        ({"bound": 0}, "bound is 0; give a positive finite number"),
        ({"bound": -1.0}, "bound is -1.0"),
        ({"bound": math.nan}, "bound is nan"),
        ({"bound": math.inf}, "bound is inf"),
        ({"scale": 0.0}, "scale is 0.0"),
        ({"scale": -math.inf}, "scale is -inf"),
    ],
)
def test_overflow_bound_of_nonsense_is_refused(wrong, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        required_bits(**{"clients": 1, "bound": 1, **wrong})


# Integers


@quick
@given(data=st.data(), ring=rings, clients=st.integers(1, 6), dtype=st.sampled_from([np.int64, np.uint64, np.int16]))
def test_sums_of_integers_are_exact(data, ring, clients, dtype):
    bound = min((ring.half_modulus - 1) // clients, int(np.iinfo(dtype).max))
    encoding = IntegerEncoding(ring, bound, clients)
    values = st.integers(0 if dtype == np.uint64 else -bound, bound)
    vectors = [data.draw(hnp.arrays(dtype, (2, 3), elements=values)) for _ in range(clients)]
    total = encoding.decode(ring.sum(encoding.encode(vector) for vector in vectors))
    assert total.tolist() == sum(vector.astype(object) for vector in vectors).tolist()
    assert total.dtype == np.int64


@pytest.mark.parametrize("ring", RINGS)
def test_integers_at_the_bound(ring):
    encoding = IntegerEncoding(ring, (ring.half_modulus - 1) // 3, 3)
    for sign in (1, -1):
        full = np.array([sign * encoding.bound])
        assert encoding.decode(ring.sum([encoding.encode(full)] * 3)).tolist() == [sign * encoding.bound * 3]
    with pytest.raises(RingOverflowError):
        IntegerEncoding(ring, encoding.bound + 1, 3)
    for over in (np.array([0, encoding.bound + 1]), np.array([-encoding.bound - 1, 0])):
        with pytest.raises(ConfigurationError, match=f"magnitude {encoding.bound + 1} .* up to {encoding.bound};"):
            encoding.encode(over)


def test_the_smallest_int64_is_over_every_bound():
    encoding = IntegerEncoding(Ring(64), 2**63 - 1, 1)
    with pytest.raises(ConfigurationError, match=f"magnitude {2**63}"):
        encoding.encode(np.array([-(2**63)]))
    with pytest.raises(ConfigurationError, match=f"magnitude {2**64 - 1}"):
        encoding.encode(np.array([2**64 - 1], np.uint64))


@pytest.mark.parametrize("values", [np.array([1.0]), np.array([True]), [1]])
def test_integers_are_integers(values):
    with pytest.raises(ConfigurationError, match="signed or unsigned integers"):
        IntegerEncoding(Ring(32), 10, 10).encode(values)


@pytest.mark.parametrize("wrong", [{"bound": 0}, {"bound": 1.0}, {"clients": 0}, {"clients": 2.5}])
def test_an_integer_encoding_of_nonsense_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="give a whole number of at least 1"):
        IntegerEncoding(**{"ring": Ring(32), "bound": 5, "clients": 5, **wrong})


def test_numpy_integers_at_set_up_become_python_integers():
    encoding = IntegerEncoding(Ring(64), np.int64(2**40), np.int32(2**20))
    assert (type(encoding.bound), type(encoding.clients)) == (int, int)
    point = FixedPoint(Ring(64), np.float32(0.5), np.int16(3), np.int64(8), Rounding.NEAREST, np.uint8(1))
    assert [type(x) for x in (point.bound, point.clients, point.scale, point.noise_bound)] == [float, int, float, int]


# Fixed point


@st.composite
def sums(draw):
    """A encoding with room for a few clients, and their values, often at the bound."""
    ring, rounding = draw(rings), draw(roundings)
    bound = draw(st.floats(1e-6, 1e6))
    clients = draw(st.integers(1, 5))
    encoding = FixedPoint.for_sum(
        ring, bound=bound, clients=clients, noise_bound=draw(st.integers(0, 100)), rounding=rounding
    )
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    edge = float(np.float32(bound)) if dtype == np.float32 else bound
    edge = edge if edge <= bound else float(np.nextafter(np.float32(edge), np.float32(0)))
    element = st.floats(-edge, edge, width=32 if dtype == np.float32 else 64) | st.sampled_from([edge, -edge, 0.0])
    return encoding, [draw(hnp.arrays(dtype, (2, 3), elements=element)) for _ in range(clients)]


@quick
@given(sums())
def test_a_sum_decodes_within_its_error_bound(made):
    encoding, vectors = made
    total = encoding.decode(encoding.ring.sum(encoding.encode(vector) for vector in vectors), clients=len(vectors))
    truth = [sum(column) for column in zip(*map(exactly, vectors), strict=True)]
    assert (total.shape, total.dtype) == ((2, 3), np.float64)
    assert max(abs(got - true) for got, true in zip(exactly(total), truth, strict=True)) <= encoding.error_bound()


@quick
@given(sums())
def test_every_value_becomes_one_of_its_two_steps(made):
    encoding, vectors = made
    for vector in vectors:
        for step, value in zip(steps_of(encoding, encoding.encode(vector)), exactly(vector), strict=True):
            exact = value * Fraction(encoding.scale)
            assert step in (math.floor(exact), math.ceil(exact))
            if encoding.rounding is Rounding.NEAREST:
                assert step == round(exact)  # half to even, as numpy does


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bound", [1.0, 0.1, 3.7, 1e-5])
@pytest.mark.parametrize("noise_bound", [0, 5])
def test_all_clients_at_the_bound_do_not_wrap(ring, rounding, bound, noise_bound):
    clients = 11
    encoding = FixedPoint.for_sum(ring, bound=bound, clients=clients, noise_bound=noise_bound, rounding=rounding)
    for sign in (1, -1):
        noise = ring.from_integers(np.full(50, sign * noise_bound))
        elements = ring.sum([noise, *(encoding.encode(np.full(50, sign * bound)) for _ in range(clients))])
        noiseless = encoding.decode(elements) - sign * noise_bound * encoding.resolution
        assert np.abs(noiseless - sign * clients * bound).max() <= encoding.error_bound() * (1 + 1e-9)
        assert max(map(abs, steps_of(encoding, elements))) < ring.half_modulus


@quick
@given(ring=rings, bound=st.floats(1e-30, 1e30), clients=st.integers(1, 20_000), noise_bound=st.integers(0, 20_000))
def test_for_sum_takes_the_finest_power_of_two(ring, bound, clients, noise_bound):
    def fits(scale):
        return clients * math.ceil(Fraction(bound) * scale) + noise_bound < ring.half_modulus

    scales = [Fraction(2) ** exponent for exponent in range(-110, 180)]
    admitted = [scale for scale in scales if Fraction(bound) * scale >= 1 and fits(scale)]
    if admitted:
        encoding = FixedPoint.for_sum(ring, bound=bound, clients=clients, noise_bound=noise_bound)
        assert Fraction(encoding.scale) == max(admitted)
        assert Fraction(encoding.resolution) * Fraction(encoding.scale) == 1
        with pytest.raises(RingOverflowError):
            replace(encoding, scale=2 * encoding.scale)
    else:
        with pytest.raises(RingOverflowError, match="too few"):
            FixedPoint.for_sum(ring, bound=bound, clients=clients, noise_bound=noise_bound)


@pytest.mark.parametrize("ring", RINGS)
def test_for_sum_at_its_limit(ring):
    most = ring.half_modulus - 1
    assert FixedPoint.for_sum(ring, bound=1.0, clients=most).scale == 1.0
    assert FixedPoint.for_sum(ring, bound=1.0, clients=1, noise_bound=most - 1).scale == 1.0
    with pytest.raises(RingOverflowError, match="1 too few"):
        FixedPoint.for_sum(ring, bound=1.0, clients=most + 1)
    with pytest.raises(RingOverflowError, match="1 too few"):
        FixedPoint.for_sum(ring, bound=1.0, clients=1, noise_bound=most)


@pytest.mark.parametrize("bound", [2.0**-900, 2.0**900, 1e-200, 1e200])
@pytest.mark.parametrize("rounding", Rounding)
def test_bounds_far_from_one(bound, rounding):
    encoding = FixedPoint.for_sum(Ring(64), bound=bound, clients=1, rounding=rounding)
    values = np.array([bound, -bound, bound / 3, 0.0, 5e-324])
    assert np.abs(encoding.decode(encoding.encode(values)) - values).max() <= encoding.error_bound()


def test_sixty_four_bits_stay_exact_beyond_float64():
    encoding = FixedPoint.for_sum(Ring(64), bound=1.0, clients=1)
    assert encoding.scale == 2.0**62
    values = np.array([1.0, -1.0, math.nextafter(1.0, 0.0), 1 / 3, -0.1, 2.0**-62, 3 * 2.0**-63, -1e-30])
    for rounding in Rounding:
        steps = steps_of(encoding, replace(encoding, rounding=rounding).encode(values))
        assert steps[:6] == [int(value * 2**62) for value in exactly(values)[:6]]
    assert steps_of(encoding, encoding.encode(values))[6:] == [2, 0]
    exact = FixedPoint(Ring(64), 1.0, 3, 2.0**60, Rounding.NEAREST)
    total = Ring(64).sum(exact.encode(np.array([value])) for value in (1.0, 1.0, 2.0**-60))
    assert steps_of(exact, total) == [2**61 + 1]
    assert exact.decode(total).tolist() == [2.0]


def test_the_error_bound_in_numbers():
    ring = Ring(64)
    assert FixedPoint(ring, 1.0, 10, 2.0**20, Rounding.NEAREST).error_bound() == 5 * 2.0**-20
    assert FixedPoint(ring, 1.0, 10, 2.0**20, Rounding.STOCHASTIC).error_bound() == 10 * 2.0**-20
    # Sums of up to 53 bits are float64 numbers; those of 54 bits lie two steps apart.
    assert FixedPoint(ring, 1.0, 1, 2.0**52, Rounding.NEAREST, 2**52 - 1).error_bound() == 0.5 * 2.0**-52
    assert FixedPoint(ring, 1.0, 1, 2.0**52, Rounding.NEAREST, 2**52).error_bound() == 1.5 * 2.0**-52
    assert FixedPoint(ring, 1.0, 4, 2.0**60, Rounding.NEAREST).error_bound() == (2 + 2**9) * 2.0**-60


def test_the_error_of_becoming_a_float_is_reached():
    encoding = FixedPoint(Ring(64), 1.0, 1, 2.0**53, Rounding.NEAREST, noise_bound=2)
    elements = encoding.ring.sum([encoding.encode(np.array([1.0])), encoding.ring.from_integers(np.array([1]))])
    assert encoding.decode(elements).tolist() == [1.0]  # 2^53 + 1 has no float64
    assert encoding.error_bound() == 1.5 * 2.0**-53


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rounding", Rounding)
def test_layouts_and_shapes(dtype, rounding):
    encoding = FixedPoint.for_sum(Ring(32), bound=1.0, clients=10, rounding=rounding)
    table = np.linspace(-1, 1, 24, dtype=dtype).reshape(4, 6)
    for values in (table, table[::2, ::-2], table.T, table[:, :0], np.array(0.25, dtype)):
        elements = encoding.encode(values, KEY)
        assert elements.shape == values.shape
        assert isinstance(encoding.decode(elements), np.ndarray)
        assert np.array_equal(elements, encoding.encode(values.astype(np.float64, order="C"), KEY))
    assert encoding.decode(encoding.encode(table)).shape == (4, 6)


def test_many_chunks_are_one_vector():
    encoding = FixedPoint.for_sum(Ring(32), bound=1.0, clients=10)
    values = np.random.default_rng(0).uniform(-1, 1, 2 * CHUNK + 77).astype(np.float32)
    expected = np.rint(values.astype(np.float64) * encoding.scale).astype(np.int64)
    assert np.array_equal(encoding.ring.centred(encoding.encode(values)), expected)


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, "over", "under"])
@pytest.mark.parametrize("position", [0, 3, CHUNK + 5])
def test_values_that_are_not_within_the_bound_are_refused(rounding, dtype, wrong, position):
    encoding = FixedPoint.for_sum(Ring(32), bound=0.5, clients=10, rounding=rounding)
    beyond = np.nextafter(dtype(0.5), dtype(1))
    values = np.zeros(CHUNK + 9, dtype)
    values[position] = {"over": beyond, "under": -beyond}.get(wrong, wrong)
    with pytest.raises(ConfigurationError, match=r"finite values of magnitude up to 0\.5, so clip"):
        encoding.encode(values)


def test_a_float32_clip_beyond_the_bound_is_refused():
    encoding = FixedPoint.for_sum(Ring(32), bound=0.1, clients=10)
    clipped = np.clip(np.ones(3, np.float32), -0.1, 0.1)
    with pytest.raises(ConfigurationError, match=r"magnitude up to 0\.1"):
        encoding.encode(clipped)
    FixedPoint.for_sum(Ring(32), bound=float(np.float32(0.1)), clients=10).encode(clipped)


@pytest.mark.parametrize(
    "values",
    [np.zeros(3, int), np.zeros(3, np.float16), np.zeros(3, ">f4"), np.zeros(3, complex), [0.0], np.float64(0)],
)
def test_fixed_point_takes_float_arrays_only(values):
    with pytest.raises(ConfigurationError, match="give a numpy array of float32 or float64, or use IntegerEncoding"):
        FixedPoint.for_sum(Ring(32), bound=1.0, clients=1).encode(values)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"scale": 3.0}, "scale is 3.0; give a power of two, .* of at least 0.5"),
        ({"scale": 1000}, "scale is 1000"),
        ({"scale": math.nan}, "scale is nan"),
        ({"scale": math.inf}, "scale is inf"),
        ({"scale": 10**400}, "scale is 1000"),
        ({"scale": 2**2000}, "1973 too few"),
        ({"scale": 0}, "scale is 0"),
        ({"scale": -2.0}, "scale is -2.0"),
        ({"scale": 0.25}, "scale is 0.25; .* of at least 0.5, at which a step is no wider than the bound 2.0"),
        ({"bound": 0.0}, "bound is 0.0; give a positive finite number"),
        ({"bound": math.nan}, "bound is nan"),
        ({"bound": math.inf}, "bound is inf"),
        ({"bound": 10**400}, "bound is 1000"),
        ({"bound": 1e-300}, "bound is 1e-300; give a number between 2\\^-900 and 2\\^900"),
        ({"clients": 0}, "clients is 0"),
        ({"noise_bound": -1}, "noise_bound is -1"),
        ({"rounding": "nearest"}, "rounding is 'nearest'; give Rounding.NEAREST or Rounding.STOCHASTIC"),
    ],
)
def test_a_fixed_point_of_nonsense_is_refused(wrong, sentence):
    good = {"ring": Ring(32), "bound": 2.0, "clients": 5, "scale": 8.0, "rounding": Rounding.NEAREST, "noise_bound": 0}
    FixedPoint(**good)
    with pytest.raises(ConfigurationError, match=sentence):
        FixedPoint(**{**good, **wrong})


@pytest.mark.parametrize("bound", [math.nextafter(2.0**900, math.inf), math.nextafter(2.0**-900, 0)])
def test_bounds_end_where_the_docstring_says(bound):
    with pytest.raises(ConfigurationError, match=r"give a number between 2\^-900 and 2\^900"):
        FixedPoint.for_sum(Ring(64), bound=bound, clients=1)


def test_no_noise_is_reserved_for_unless_requested():
    assert FixedPoint(Ring(16), 1.0, 2**15 - 1, 1.0, Rounding.NEAREST).noise_bound == 0
    assert FixedPoint.for_sum(Ring(16), bound=1.0, clients=2**15 - 1).noise_bound == 0


@pytest.mark.parametrize(
    "wrong", [{"bound": -1.0}, {"clients": 0}, {"clients": 1.5}, {"noise_bound": -1}, {"rounding": None}]
)
def test_for_sum_of_nonsense_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} is"):
        FixedPoint.for_sum(Ring(32), **{"bound": 1.0, "clients": 5, **wrong})


def test_decode_refuses_more_clients_than_it_was_built_for():
    encoding = FixedPoint.for_sum(Ring(32), bound=1.0, clients=10)
    elements = encoding.encode(np.array([0.5]))
    assert encoding.decode(elements, clients=10).tolist() == encoding.decode(elements).tolist() == [0.5]
    with pytest.raises(RingOverflowError, match="11 clients were added and the encoding is built for 10"):
        encoding.decode(elements, clients=11)
    with pytest.raises(ConfigurationError, match="clients is 0"):
        encoding.decode(elements, clients=0)
    with pytest.raises(ConfigurationError, match="the ring of 32 bits"):
        encoding.decode(elements.astype("<u8"))


# Stochastic rounding


def whole_steps(fractions, key):
    """The fractions encoded at one step per unit."""
    encoding = FixedPoint(Ring(32), 4.0, 1, 1.0, Rounding.STOCHASTIC)
    return encoding.ring.centred(encoding.encode(fractions, key))


@pytest.mark.parametrize("value", [0.5, 0.25, -0.3, 1 / 3, 2.9, -3.999, 2.0**-10, -(2.0**-12), 1 - 2.0**-11])
def test_stochastic_rounding_is_right_on_average(value):
    count = 1 << 18
    steps = whole_steps(np.full(count, value), KEY)
    fraction = value - math.floor(value)
    assert set(np.unique(steps)) <= {math.floor(value), math.ceil(value)}
    deviations = abs(steps.mean() - value) / math.sqrt(fraction * (1 - fraction) / count)
    assert deviations < 5


def test_stochastic_rounding_goes_up_exactly_when_the_element_is_below_the_fraction(monkeypatch):
    """RingElements at the threshold and beside it: the probability of going up is the fraction to within 2^-32."""
    fraction = 0.75
    threshold = int(fraction * 2**32)
    elements = np.array([0, threshold - 1, threshold, 2**32 - 1], "<u4")
    real = whole_steps.__globals__["FixedPoint"].encode.__globals__["random_uints"]
    monkeypatch.setattr(
        "secure_agg.encoding.fixed_point.random_uints",
        lambda count, dtype, key: elements if dtype is np.uint32 else real(count, dtype, key),
    )
    assert whole_steps(np.full(4, fraction), KEY).tolist() == [1, 1, 0, 0]
    assert whole_steps(np.full(4, -fraction), KEY).tolist() == [0, -1, -1, -1]
    assert whole_steps(np.full(4, 2.0**-33), KEY).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 3.0, -4.0, 4.0, -0.0])
def test_integral_values_are_never_moved(value):
    assert set(whole_steps(np.full(100_000, value), None)) == {value}


@pytest.mark.parametrize("value", [5e-324, -5e-324, 1e-300, -1e-300, -(2.0**-54), 1 - 2.0**-53, 4 - 2.0**-51])
def test_values_next_to_an_integer_stay_next_to_it(value):
    assert set(whole_steps(np.full(10_000, value), KEY)) <= {math.floor(value), math.ceil(value)}


def test_stochastic_rounding_stays_below_the_bound_rounded_up():
    bound = 3.7
    encoding = FixedPoint(Ring(16), bound, (2**15 - 1) // 4, 1.0, Rounding.STOCHASTIC)
    steps = encoding.ring.centred(encoding.encode(np.tile([bound, -bound], 50_000), KEY))
    assert (steps.min(), steps.max()) == (-4, 4)


def test_a_key_repeats_the_rounding_and_no_key_does_not():
    values = np.full(3 * CHUNK + 5, 0.5)
    assert np.array_equal(whole_steps(values, KEY), whole_steps(values, KEY))
    assert not np.array_equal(whole_steps(values, KEY), whole_steps(values, bytes(32)))
    assert not np.array_equal(whole_steps(values, None), whole_steps(values, None))


def test_no_two_chunks_round_alike():
    steps = whole_steps(np.full(4 * CHUNK, 0.5), KEY).reshape(4, CHUNK)
    for one, other in itertools.combinations(steps, 2):
        assert abs(np.mean(one == other) - 0.5) < 0.02


@pytest.mark.parametrize("values", [np.zeros(0), np.zeros(3)])
def test_a_key_of_another_length_is_refused(values):
    with pytest.raises(ConfigurationError, match="a key of 5 bytes"):
        whole_steps(values, b"short")
