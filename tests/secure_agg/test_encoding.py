"""Rings, head-room, integers and fixed point, against exact arithmetic on Python integers and fractions."""

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
    CHUNK,
    FixedPoint,
    IntegerCode,
    Ring,
    Rounding,
    needed_bits,
    require_headroom,
)
from secure_agg.errors import ConfigurationError, HeadroomError

KEY = bytes(range(32))
RINGS = [Ring(bits) for bits in (12, 16, 20, 32, 45, 64)]
INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]
rings = st.sampled_from(RINGS)
roundings = st.sampled_from(Rounding)
quick = settings(max_examples=50, deadline=None)


def exactly(values):
    """An array of fractions, one for each float."""
    return [Fraction(float(value)) for value in np.ravel(values)]


def steps_of(code, words):
    """The centred residues of the words as Python integers, by modular arithmetic alone."""
    half, modulus = code.ring.half, code.ring.modulus
    return [(int(word) + half) % modulus - half for word in np.ravel(words)]


# Rings


@pytest.mark.parametrize(
    ("bits", "machine"), [(2, 8), (8, 8), (9, 16), (16, 16), (20, 32), (32, 32), (33, 64), (64, 64)]
)
def test_a_ring_knows_its_words(bits, machine):
    ring = Ring(bits)
    assert (ring.modulus, ring.half, ring.whole) == (2**bits, 2 ** (bits - 1), bits == machine)
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
    ("words", "given"),
    [
        (np.zeros(3, "i4"), "an array of int32"),
        (np.zeros(3, "<u8"), "an array of uint64"),
        (np.zeros(3, ">u4"), "an array of >u4"),
        (np.zeros(3), "an array of float64"),
        ([1, 2], "a list"),
        (np.uint32(1), "a uint32"),
    ],
)
def test_words_of_another_ring_are_refused(words, given):
    with pytest.raises(ConfigurationError, match=f"got {given}; the ring of 32 bits takes a numpy array of uint32"):
        Ring(32).accept(words)
    for refused in (Ring(32).centred, lambda words: Ring(32).sum([words]), IntegerCode(Ring(32), 1, 1).decode):
        with pytest.raises(ConfigurationError, match="the ring of 32 bits"):
            refused(words)


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
    if all(-ring.half <= int(x) < ring.half for x in integers):
        words = ring.lift(integers)
        assert words.dtype == ring.dtype
        assert [int(x) for x in words] == [int(x) % ring.modulus for x in integers]
        assert ring.centred(words).tolist() == integers.tolist()
        assert ring.centred(words).dtype == np.int64
    else:
        with pytest.raises(HeadroomError):
            ring.lift(integers)


@pytest.mark.parametrize("ring", RINGS)
def test_lift_at_the_ends_of_the_ring(ring):
    ends = [-ring.half, ring.half - 1, -1, 0]
    assert ring.centred(ring.lift(np.array(ends, np.int64))).tolist() == ends
    over = np.array([ring.half], np.uint64)
    with pytest.raises(
        HeadroomError, match=f"values from {ring.half} to {ring.half} .* {-ring.half} to {ring.half - 1}"
    ):
        ring.lift(over)
    assert ring.lift(over - np.uint64(1)).tolist() == [ring.half - 1]
    with pytest.raises(HeadroomError):
        ring.lift(np.array([0, 2**64 - 1], np.uint64))


@pytest.mark.parametrize("ring", RINGS[:2])
def test_lift_below_the_ring_is_refused(ring):
    with pytest.raises(HeadroomError):
        ring.lift(np.array([-ring.half - 1]))


@pytest.mark.parametrize("given", [np.zeros(2), np.zeros(2, bool), np.zeros(2, complex), [1, 2], np.int64(1)])
def test_only_arrays_of_integers_are_lifted(given):
    with pytest.raises(ConfigurationError, match="give a numpy array of signed or unsigned integers"):
        Ring(32).lift(given)


def test_centred_reads_any_layout():
    words = Ring(32).lift(np.arange(-12, 12).reshape(4, 6))
    assert Ring(32).centred(words[::2, ::-3]).tolist() == np.arange(-12, 12).reshape(4, 6)[::2, ::-3].tolist()
    assert Ring(32).centred(words[0, 0, ...]).shape == ()
    assert np.shares_memory(Ring(64).centred(wide := Ring(64).zeros(3)), wide)


# Head-room


@quick
@given(
    clients=st.integers(1, 10**6),
    bound=st.one_of(st.integers(1, 2**70), st.floats(1e-12, 1e12)),
    scale=st.one_of(st.integers(1, 2**20), st.floats(1e-6, 1e6)),
    tail=st.integers(0, 2**66),
)
def test_needed_bits_are_the_fewest(clients, bound, scale, tail):
    bits = needed_bits(clients=clients, bound=bound, scale=scale, tail=tail)
    largest = clients * math.ceil(Fraction(bound) * Fraction(scale)) + tail
    assert 2 ** (bits - 2) <= largest < 2 ** (bits - 1)


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("clients", [1, 7, 1000])
def test_headroom_exactly_fits_or_is_one_too_many(ring, clients):
    steps, tail = divmod(ring.half - 1, clients)
    require_headroom(ring, clients=clients, bound=steps, tail=tail)
    with pytest.raises(HeadroomError, match=f"needs {ring.bits + 1} bits and the ring has {ring.bits}, 1 too few"):
        require_headroom(ring, clients=clients, bound=steps, tail=tail + 1)
    with pytest.raises(HeadroomError):
        require_headroom(ring, clients=clients, bound=math.nextafter(steps, math.inf) if steps < 2**53 else steps + 1,
                         tail=tail)  # fmt: skip


def test_headroom_takes_floats_as_the_fractions_they_are():
    assert 0.1 * 10 == 1.0
    assert needed_bits(clients=1, bound=0.1, scale=10) == 3  # the float 0.1 is above 1/10, so it takes 2 steps
    assert needed_bits(clients=1, bound=0.5, scale=2) == 2
    assert needed_bits(clients=np.int64(2**62), bound=np.int64(2**62), tail=np.uint64(0)) == 126
    assert needed_bits(clients=1, bound=np.float32(1.5)) == 3


def test_the_refusal_says_what_to_do():
    with pytest.raises(
        HeadroomError, match=r"943 clients within 4.0 at 65536 .* 29 bits .* 13 too few; take a ring of 29"
    ):
        require_headroom(Ring(16), clients=943, bound=4.0, scale=65536)
    with pytest.raises(HeadroomError, match=r"needs 32 bits .* 16 too few; take a ring of 32 bits, a coarser"):
        require_headroom(Ring(16), clients=1, bound=2**30)
    with pytest.raises(HeadroomError, match=r"2 too few; take a coarser scale, a smaller clip or fewer clients$"):
        require_headroom(Ring(64), clients=2, bound=2**63)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"clients": 0}, "clients is 0; give a whole number of at least 1"),
        ({"clients": 1.0}, "clients is 1.0"),
        ({"tail": -1}, "tail is -1; give a whole number of at least 0"),
        ({"tail": 0.5}, "tail is 0.5"),
        ({"bound": 0}, "bound is 0; give a positive finite number"),
        ({"bound": -1.0}, "bound is -1.0"),
        ({"bound": math.nan}, "bound is nan"),
        ({"bound": math.inf}, "bound is inf"),
        ({"scale": 0.0}, "scale is 0.0"),
        ({"scale": -math.inf}, "scale is -inf"),
    ],
)
def test_headroom_of_nonsense_is_refused(wrong, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        needed_bits(**{"clients": 1, "bound": 1, **wrong})


# Integers


@quick
@given(data=st.data(), ring=rings, clients=st.integers(1, 6), dtype=st.sampled_from([np.int64, np.uint64, np.int16]))
def test_sums_of_integers_are_exact(data, ring, clients, dtype):
    bound = min((ring.half - 1) // clients, int(np.iinfo(dtype).max))
    code = IntegerCode(ring, bound, clients)
    values = st.integers(0 if dtype == np.uint64 else -bound, bound)
    vectors = [data.draw(hnp.arrays(dtype, (2, 3), elements=values)) for _ in range(clients)]
    total = code.decode(ring.sum(code.encode(vector) for vector in vectors))
    assert total.tolist() == sum(vector.astype(object) for vector in vectors).tolist()
    assert total.dtype == np.int64


@pytest.mark.parametrize("ring", RINGS)
def test_integers_at_the_bound(ring):
    code = IntegerCode(ring, (ring.half - 1) // 3, 3)
    for sign in (1, -1):
        full = np.array([sign * code.bound])
        assert code.decode(ring.sum([code.encode(full)] * 3)).tolist() == [sign * code.bound * 3]
    with pytest.raises(HeadroomError):
        IntegerCode(ring, code.bound + 1, 3)
    for over in (np.array([0, code.bound + 1]), np.array([-code.bound - 1, 0])):
        with pytest.raises(ConfigurationError, match=f"magnitude {code.bound + 1} .* up to {code.bound};"):
            code.encode(over)


def test_the_least_int64_is_over_every_bound():
    code = IntegerCode(Ring(64), 2**63 - 1, 1)
    with pytest.raises(ConfigurationError, match=f"magnitude {2**63}"):
        code.encode(np.array([-(2**63)]))
    with pytest.raises(ConfigurationError, match=f"magnitude {2**64 - 1}"):
        code.encode(np.array([2**64 - 1], np.uint64))


@pytest.mark.parametrize("values", [np.array([1.0]), np.array([True]), [1]])
def test_integers_are_integers(values):
    with pytest.raises(ConfigurationError, match="signed or unsigned integers"):
        IntegerCode(Ring(32), 10, 10).encode(values)


@pytest.mark.parametrize("wrong", [{"bound": 0}, {"bound": 1.0}, {"clients": 0}, {"clients": 2.5}])
def test_an_integer_code_of_nonsense_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="give a whole number of at least 1"):
        IntegerCode(**{"ring": Ring(32), "bound": 5, "clients": 5, **wrong})


def test_numpy_integers_at_set_up_become_python_integers():
    code = IntegerCode(Ring(64), np.int64(2**40), np.int32(2**20))
    assert (type(code.bound), type(code.clients)) == (int, int)
    point = FixedPoint(Ring(64), np.float32(0.5), np.int16(3), np.int64(8), Rounding.NEAREST, np.uint8(1))
    assert [type(x) for x in (point.bound, point.clients, point.scale, point.tail)] == [float, int, float, int]


# Fixed point


@st.composite
def sums(draw):
    """A code with room for a few clients, and their values, often at the bound."""
    ring, rounding = draw(rings), draw(roundings)
    bound = draw(st.floats(1e-6, 1e6))
    clients = draw(st.integers(1, 5))
    code = FixedPoint.for_sum(ring, bound=bound, clients=clients, tail=draw(st.integers(0, 100)), rounding=rounding)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    edge = float(np.float32(bound)) if dtype == np.float32 else bound
    edge = edge if edge <= bound else float(np.nextafter(np.float32(edge), np.float32(0)))
    element = st.floats(-edge, edge, width=32 if dtype == np.float32 else 64) | st.sampled_from([edge, -edge, 0.0])
    return code, [draw(hnp.arrays(dtype, (2, 3), elements=element)) for _ in range(clients)]


@quick
@given(sums())
def test_a_sum_decodes_within_its_error_bound(made):
    code, vectors = made
    total = code.decode(code.ring.sum(code.encode(vector) for vector in vectors), clients=len(vectors))
    truth = [sum(column) for column in zip(*map(exactly, vectors), strict=True)]
    assert (total.shape, total.dtype) == ((2, 3), np.float64)
    assert max(abs(got - true) for got, true in zip(exactly(total), truth, strict=True)) <= code.error_bound()


@quick
@given(sums())
def test_every_value_becomes_one_of_its_two_steps(made):
    code, vectors = made
    for vector in vectors:
        for step, value in zip(steps_of(code, code.encode(vector)), exactly(vector), strict=True):
            exact = value * Fraction(code.scale)
            assert step in (math.floor(exact), math.ceil(exact))
            if code.rounding is Rounding.NEAREST:
                assert step == round(exact)  # half to even, as numpy does


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bound", [1.0, 0.1, 3.7, 1e-5])
@pytest.mark.parametrize("tail", [0, 5])
def test_all_clients_at_the_bound_do_not_wrap(ring, rounding, bound, tail):
    clients = 11
    code = FixedPoint.for_sum(ring, bound=bound, clients=clients, tail=tail, rounding=rounding)
    for sign in (1, -1):
        noise = ring.lift(np.full(50, sign * tail))
        words = ring.sum([noise, *(code.encode(np.full(50, sign * bound)) for _ in range(clients))])
        noiseless = code.decode(words) - sign * tail * code.resolution
        assert np.abs(noiseless - sign * clients * bound).max() <= code.error_bound() * (1 + 1e-9)
        assert max(map(abs, steps_of(code, words))) < ring.half


@quick
@given(ring=rings, bound=st.floats(1e-30, 1e30), clients=st.integers(1, 20_000), tail=st.integers(0, 20_000))
def test_for_sum_takes_the_finest_power_of_two(ring, bound, clients, tail):
    def fits(scale):
        return clients * math.ceil(Fraction(bound) * scale) + tail < ring.half

    scales = [Fraction(2) ** exponent for exponent in range(-110, 180)]
    admitted = [scale for scale in scales if Fraction(bound) * scale >= 1 and fits(scale)]
    if admitted:
        code = FixedPoint.for_sum(ring, bound=bound, clients=clients, tail=tail)
        assert Fraction(code.scale) == max(admitted)
        assert Fraction(code.resolution) * Fraction(code.scale) == 1
        with pytest.raises(HeadroomError):
            replace(code, scale=2 * code.scale)
    else:
        with pytest.raises(HeadroomError, match="too few"):
            FixedPoint.for_sum(ring, bound=bound, clients=clients, tail=tail)


@pytest.mark.parametrize("ring", RINGS)
def test_for_sum_at_its_limit(ring):
    most = ring.half - 1
    assert FixedPoint.for_sum(ring, bound=1.0, clients=most).scale == 1.0
    assert FixedPoint.for_sum(ring, bound=1.0, clients=1, tail=most - 1).scale == 1.0
    with pytest.raises(HeadroomError, match="1 too few"):
        FixedPoint.for_sum(ring, bound=1.0, clients=most + 1)
    with pytest.raises(HeadroomError, match="1 too few"):
        FixedPoint.for_sum(ring, bound=1.0, clients=1, tail=most)


@pytest.mark.parametrize("bound", [2.0**-900, 2.0**900, 1e-200, 1e200])
@pytest.mark.parametrize("rounding", Rounding)
def test_bounds_far_from_one(bound, rounding):
    code = FixedPoint.for_sum(Ring(64), bound=bound, clients=1, rounding=rounding)
    values = np.array([bound, -bound, bound / 3, 0.0, 5e-324])
    assert np.abs(code.decode(code.encode(values)) - values).max() <= code.error_bound()


def test_sixty_four_bits_stay_exact_beyond_float64():
    code = FixedPoint.for_sum(Ring(64), bound=1.0, clients=1)
    assert code.scale == 2.0**62
    values = np.array([1.0, -1.0, math.nextafter(1.0, 0.0), 1 / 3, -0.1, 2.0**-62, 3 * 2.0**-63, -1e-30])
    for rounding in Rounding:
        steps = steps_of(code, replace(code, rounding=rounding).encode(values))
        assert steps[:6] == [int(value * 2**62) for value in exactly(values)[:6]]
    assert steps_of(code, code.encode(values))[6:] == [2, 0]
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
    code = FixedPoint(Ring(64), 1.0, 1, 2.0**53, Rounding.NEAREST, tail=2)
    words = code.ring.sum([code.encode(np.array([1.0])), code.ring.lift(np.array([1]))])
    assert code.decode(words).tolist() == [1.0]  # 2^53 + 1 has no float64
    assert code.error_bound() == 1.5 * 2.0**-53


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rounding", Rounding)
def test_layouts_and_shapes(dtype, rounding):
    code = FixedPoint.for_sum(Ring(32), bound=1.0, clients=10, rounding=rounding)
    table = np.linspace(-1, 1, 24, dtype=dtype).reshape(4, 6)
    for values in (table, table[::2, ::-2], table.T, table[:, :0], np.array(0.25, dtype)):
        words = code.encode(values, KEY)
        assert words.shape == values.shape
        assert isinstance(code.decode(words), np.ndarray)
        assert np.array_equal(words, code.encode(values.astype(np.float64, order="C"), KEY))
    assert code.decode(code.encode(table)).shape == (4, 6)


def test_many_chunks_are_one_vector():
    code = FixedPoint.for_sum(Ring(32), bound=1.0, clients=10)
    values = np.random.default_rng(0).uniform(-1, 1, 2 * CHUNK + 77).astype(np.float32)
    expected = np.rint(values.astype(np.float64) * code.scale).astype(np.int64)
    assert np.array_equal(code.ring.centred(code.encode(values)), expected)


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, "over", "under"])
@pytest.mark.parametrize("place", [0, 3, CHUNK + 5])
def test_values_that_are_not_within_the_bound_are_refused(rounding, dtype, wrong, place):
    code = FixedPoint.for_sum(Ring(32), bound=0.5, clients=10, rounding=rounding)
    beyond = np.nextafter(dtype(0.5), dtype(1))
    values = np.zeros(CHUNK + 9, dtype)
    values[place] = {"over": beyond, "under": -beyond}.get(wrong, wrong)
    with pytest.raises(ConfigurationError, match=r"finite values of magnitude up to 0\.5, so clip"):
        code.encode(values)


def test_a_float32_clip_beyond_the_bound_is_refused():
    code = FixedPoint.for_sum(Ring(32), bound=0.1, clients=10)
    clipped = np.clip(np.ones(3, np.float32), -0.1, 0.1)
    with pytest.raises(ConfigurationError, match=r"magnitude up to 0\.1"):
        code.encode(clipped)
    FixedPoint.for_sum(Ring(32), bound=float(np.float32(0.1)), clients=10).encode(clipped)


@pytest.mark.parametrize(
    "values",
    [np.zeros(3, int), np.zeros(3, np.float16), np.zeros(3, ">f4"), np.zeros(3, complex), [0.0], np.float64(0)],
)
def test_fixed_point_takes_float_arrays_only(values):
    with pytest.raises(ConfigurationError, match="give a numpy array of float32 or float64, or use IntegerCode"):
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
        ({"tail": -1}, "tail is -1"),
        ({"rounding": "nearest"}, "rounding is 'nearest'; give Rounding.NEAREST or Rounding.STOCHASTIC"),
    ],
)
def test_a_fixed_point_of_nonsense_is_refused(wrong, sentence):
    good = {"ring": Ring(32), "bound": 2.0, "clients": 5, "scale": 8.0, "rounding": Rounding.NEAREST, "tail": 0}
    FixedPoint(**good)
    with pytest.raises(ConfigurationError, match=sentence):
        FixedPoint(**{**good, **wrong})


@pytest.mark.parametrize("bound", [math.nextafter(2.0**900, math.inf), math.nextafter(2.0**-900, 0)])
def test_bounds_end_where_the_docstring_says(bound):
    with pytest.raises(ConfigurationError, match=r"give a number between 2\^-900 and 2\^900"):
        FixedPoint.for_sum(Ring(64), bound=bound, clients=1)


def test_no_noise_is_reserved_for_unless_asked():
    assert FixedPoint(Ring(16), 1.0, 2**15 - 1, 1.0, Rounding.NEAREST).tail == 0
    assert FixedPoint.for_sum(Ring(16), bound=1.0, clients=2**15 - 1).tail == 0


@pytest.mark.parametrize("wrong", [{"bound": -1.0}, {"clients": 0}, {"clients": 1.5}, {"tail": -1}, {"rounding": None}])
def test_for_sum_of_nonsense_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} is"):
        FixedPoint.for_sum(Ring(32), **{"bound": 1.0, "clients": 5, **wrong})


def test_decode_refuses_more_clients_than_it_has_room_for():
    code = FixedPoint.for_sum(Ring(32), bound=1.0, clients=10)
    words = code.encode(np.array([0.5]))
    assert code.decode(words, clients=10).tolist() == code.decode(words).tolist() == [0.5]
    with pytest.raises(HeadroomError, match="11 clients were added and the code has room for 10"):
        code.decode(words, clients=11)
    with pytest.raises(ConfigurationError, match="clients is 0"):
        code.decode(words, clients=0)
    with pytest.raises(ConfigurationError, match="the ring of 32 bits"):
        code.decode(words.astype("<u8"))


# Stochastic rounding


def whole_steps(fractions, key):
    """The fractions encoded at one step per unit."""
    code = FixedPoint(Ring(32), 4.0, 1, 1.0, Rounding.STOCHASTIC)
    return code.ring.centred(code.encode(fractions, key))


@pytest.mark.parametrize("value", [0.5, 0.25, -0.3, 1 / 3, 2.9, -3.999, 2.0**-10, -(2.0**-12), 1 - 2.0**-11])
def test_stochastic_rounding_is_right_on_average(value):
    count = 1 << 18
    steps = whole_steps(np.full(count, value), KEY)
    fraction = value - math.floor(value)
    assert set(np.unique(steps)) <= {math.floor(value), math.ceil(value)}
    deviations = abs(steps.mean() - value) / math.sqrt(fraction * (1 - fraction) / count)
    assert deviations < 5


def test_stochastic_rounding_goes_up_exactly_when_the_word_is_below_the_fraction(monkeypatch):
    """Words at the threshold and beside it: the probability of going up is the fraction to within 2^-32."""
    fraction = 0.75
    threshold = int(fraction * 2**32)
    words = np.array([0, threshold - 1, threshold, 2**32 - 1], "<u4")
    real = whole_steps.__globals__["FixedPoint"].encode.__globals__["random_words"]
    monkeypatch.setattr(
        "secure_agg.encoding.random_words",
        lambda count, dtype, key: words if dtype is np.uint32 else real(count, dtype, key),
    )
    assert whole_steps(np.full(4, fraction), KEY).tolist() == [1, 1, 0, 0]
    assert whole_steps(np.full(4, -fraction), KEY).tolist() == [0, -1, -1, -1]
    assert whole_steps(np.full(4, 2.0**-33), KEY).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 3.0, -4.0, 4.0, -0.0])
def test_whole_values_are_never_moved(value):
    assert set(whole_steps(np.full(100_000, value), None)) == {value}


@pytest.mark.parametrize("value", [5e-324, -5e-324, 1e-300, -1e-300, -(2.0**-54), 1 - 2.0**-53, 4 - 2.0**-51])
def test_values_beside_a_whole_one_stay_beside_it(value):
    assert set(whole_steps(np.full(10_000, value), KEY)) <= {math.floor(value), math.ceil(value)}


def test_stochastic_rounding_stays_below_the_bound_rounded_up():
    bound = 3.7
    code = FixedPoint(Ring(16), bound, (2**15 - 1) // 4, 1.0, Rounding.STOCHASTIC)
    steps = code.ring.centred(code.encode(np.tile([bound, -bound], 50_000), KEY))
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
