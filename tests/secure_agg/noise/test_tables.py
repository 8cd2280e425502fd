import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from scipy import stats

from secure_agg.errors import ConfigurationError
from secure_agg.noise import InverseCdfTable, pmf
from secure_agg.noise import tables as module
from secure_agg.noise.laws import integer_weights
from secure_agg.noise.tables import cumulative
from secure_agg.noise.tail_bounds import tail_bound
from secure_agg.primitives.prg import CHUNK

KEY = bytes(range(32))
LAWS = ("skellam", "discrete_gaussian")
PIECE = CHUNK // 8


def refuse_more(position):
    raise AssertionError(f"more bits were asked for at {position}")


class GivenBits:
    """Bits that are all the number's: what a table asks for, it gets from the front of `bits`."""

    def __init__(self, bits, width):
        self.bits_left, self.width, self.requested = bits, width, []

    def random_bits(self, count):
        self.requested.append(count)
        self.width -= count
        given, self.bits_left = divmod(self.bits_left, 1 << self.width)
        return given


def true_cumulative(law, variance, precision=1024):
    """2^precision times the distribution function, from a far wider and finer table than those under test."""
    last = 4 * tail_bound(law, float(variance), -(128 + 40) * math.log(2))
    half = integer_weights(law, variance, last, 2 * precision)
    total = 2 * sum(half) - half[0]
    edges = accumulate([*half[:0:-1], *half], initial=0)
    return last, [(below << precision) // total for below in edges]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [0.2, 1.0, 900.0, 1e6])
def test_draws_pass_a_chi_square_test_against_the_law(law, variance):
    table, count = InverseCdfTable(law, variance), 200_000
    values = table.sample(count, KEY)
    reached = 1 - int(table._lowest) + 5
    half = pmf(law, variance, reached)
    edges = np.unique(np.round(np.linspace(-4, 4, 33) * math.sqrt(variance)))
    full = np.cumsum(np.concatenate([half[:0:-1], half]))
    at_most = np.array([full[int(edge) + reached] if abs(edge) <= reached else float(edge > 0) for edge in edges])
    expected = count * np.diff(np.concatenate([[0.0], at_most, [1.0]]))
    counted = np.diff(np.concatenate([[0], np.searchsorted(np.sort(values), edges, side="right"), [count]]))
    keep = expected > 4
    assert stats.chisquare(counted[keep], expected[keep] * counted[keep].sum() / expected[keep].sum()).pvalue > 1e-3
    assert values.var() == pytest.approx(2 * (half * np.arange(len(half)) ** 2).sum(), rel=0.05)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(9), Fraction(0.1) + 700])
@pytest.mark.parametrize("precision", [64, 128])
def test_the_thresholds_are_within_their_proven_units(law, variance, precision):
    thresholds = cumulative(law, variance, precision)
    middle = len(thresholds) // 2 - 1
    last, true = true_cumulative(law, variance)
    for k in range(-middle, middle + 2):
        exactly = Fraction(true[last + k], 2 ** (1024 - precision))
        assert -1 < exactly - thresholds[middle + k] < 2


@pytest.mark.parametrize("law", LAWS)
def test_the_error_bound_covers_the_largest_table_and_the_finest_precision(law):
    """The proof of `cumulative` asks for a reach below 2^30; 2^12 bits are never reached (a chance of 2^-2000)."""
    assert tail_bound(law, float(module.MAX_STANDARD_DEVIATION**2), -(4096 + 40) * math.log(2)) < 2**30


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [0.5, 40.0, 250_000.0])
def test_every_word_clear_of_thresholds_lands_in_the_right_cell(law, variance):
    table = InverseCdfTable(law, variance)
    last, true = true_cumulative(law, Fraction(variance), 256)
    words = np.random.default_rng(1).integers(0, 2**64, 1000, dtype=np.uint64)
    expected = [bisect_right(true, int(word) << 192) - 1 - last for word in words]
    assert table.invert(words, refuse_more).tolist() == expected


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(9), Fraction(2000)])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("level", [64, 128])
def test_words_at_a_threshold_are_decided_by_further_bits(law, variance, offset, level):
    """Numbers at the true thresholds, or units of 2^-level beside, land where comparing all 1024 bits says."""
    requested = {0: [64, 128, 256], 1: [64, 128], 2: [64]}[abs(offset)]
    table = InverseCdfTable(law, variance)
    last, true = true_cumulative(law, variance)
    near = [k for k in range(-9, 10) if 2**970 < true[last + k] < 2**1024 - 2**970]
    for k in near:
        for nudge in (-(2**600), 2**600):
            number = true[last + k] + (offset << 1024 - level) + nudge
            if not 0 <= number < 2**1024:
                continue
            rest = GivenBits(number % 2**960, 960)
            value = table.invert(np.array([number >> 960], np.uint64), lambda _, rest=rest: rest)[0]
            assert value == bisect_right(true, number) - 1 - last
            assert rest.requested == (requested if level == 128 or offset == 0 else requested[:-1])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("variance", "at_once"), [(0.2, 0.99), (3.0, 0.99), (90_000.0, 0.99), (2.0**28, 0.99)])
def test_a_guide_decides_most_words_alone_and_never_wrongly(law, variance, at_once):
    table = InverseCdfTable(law, variance)
    edges, guide = table._edges, table._guide
    assert guide.nbytes <= 2**17
    bits = len(guide).bit_length() - 1
    rng = np.random.default_rng(0)
    beside = np.concatenate([edges + np.uint64(d) for d in (1, 2, 3)] + [edges - np.uint64(d) for d in (0, 1, 2, 3)])
    starts = np.arange(len(guide), dtype=np.uint64) << np.uint64(64 - bits)
    for words, share in (
        (rng.integers(0, 2**64, 200_000, dtype=np.uint64), at_once),
        (np.concatenate([beside, starts, starts - np.uint64(1)]), 0.0),
        (edges[rng.integers(0, edges.size, 50_000)] + (1 << rng.integers(0, 50, 50_000, dtype=np.uint64)), 0.0),
    ):
        # By hand: four numbers a cell, a parabola, and a margin.
        p, q, r, margin = guide[words >> np.uint64(64 - bits)].T
        t = (words & np.uint64(2 ** (64 - bits) - 1)) / 2.0 ** (64 - bits)
        place = p + t * (q + t * r)
        decided = np.abs(place - np.round(place)) > margin
        assert decided.mean() >= share
        low, high = words[decided] - np.uint64(1), words[decided] + np.uint64(1)
        below = np.searchsorted(edges, low, side="left")
        # No threshold within a unit of a word that is decided, and the right number of them below it.
        assert np.array_equal(below, np.searchsorted(edges, high, side="right"))
        assert np.array_equal(below, np.floor(place[decided]).astype(int) + 1)


@pytest.mark.parametrize("law", LAWS)
def test_the_ends_of_the_words_open_tails_beyond_the_table(law):
    table = InverseCdfTable(law, 9.0)
    ends = np.array([0, 2**64 - 1], np.uint64)
    deep = table.invert(ends, lambda position: GivenBits(2**830 if position == 0 else 2**960 - 2**830, 960))
    last, true = true_cumulative(law, Fraction(9))
    assert deep[0] == bisect_right(true, 2**830) - 1 - last
    assert deep[1] == bisect_right(true, 2**1024 - 2**830) - 1 - last
    assert -deep[0] == deep[1] > 35


def test_draws_use_further_bits_of_their_own(monkeypatch):
    table = InverseCdfTable("skellam", 3.0)
    requested = []

    def words_zero(key, count, dtype):
        yield np.zeros(count - 1, dtype)
        yield np.zeros(1, dtype)

    def source(key):
        requested.append(key)
        return GivenBits(2 ** (740 + 60 * len(requested)), 960)

    monkeypatch.setattr(module, "keystream_pieces", words_zero)
    monkeypatch.setattr(module, "RandomSource", source)
    values = table.sample(3, KEY)
    assert len(set(requested)) == 3
    assert values[0] < values[2] <= -15


def test_a_key_repeats_and_the_operating_system_does_not():
    table = InverseCdfTable("skellam", 100.0)
    assert (table.sample(1000, KEY) == table.sample(1000, KEY)).all()
    assert (table.sample(1000) != table.sample(1000)).any()
    assert table.sample(0).shape == (0,)


def test_chunks_do_not_show():
    table = InverseCdfTable("skellam", 100.0)
    long = table.sample(3 * PIECE + 5, KEY)
    assert (long[:100] == table.sample(100, KEY)).all()
    assert (long[: 2 * PIECE] == table.sample(2 * PIECE, KEY)).all()


@pytest.mark.parametrize("law", LAWS)
def test_neighbouring_draws_are_independent(law):
    values = InverseCdfTable(law, 30.0**2).sample(100_000, KEY).astype(float)
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.015
    assert abs(np.corrcoef(np.abs(values[1:]), np.abs(values[:-1]))[0, 1]) < 0.015


def test_a_table_that_is_too_large_says_to_coarsen_the_grid():
    with pytest.raises(ConfigurationError, match="coarsen the grid"):
        InverseCdfTable("skellam", float(module.MAX_STANDARD_DEVIATION + 1) ** 2)


@pytest.mark.parametrize(("law", "variance"), [("poisson", 1.0), ("skellam", -1.0), ("skellam", math.inf)])
def test_what_is_no_law_is_refused(law, variance):
    with pytest.raises(ConfigurationError):
        InverseCdfTable(law, variance)
