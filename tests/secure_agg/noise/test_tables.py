import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from secure_agg.errors import ConfigurationError
from secure_agg.noise import InverseTable, pmf
from secure_agg.noise import tables as module
from secure_agg.noise.laws import half_weights

KEY = bytes(range(32))
LAWS = ("skellam", "discrete_gaussian")


def refuse_more(count):
    raise AssertionError(f"{count} more words were asked for")


def cumulative(table):
    """The thresholds as whole numbers of 128 bits."""
    return [(int(high) << 64) + int(low) for high, low in zip(table._high, table._low, strict=True)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [0.2, 1.0, 900.0, 1e6])
def test_draws_pass_a_chi_square_test_against_the_law(law, variance):
    table, count = InverseTable(law, variance), 200_000
    values = table.draw(count, KEY)
    half = pmf(law, variance, table.reach)
    edges = np.unique(np.round(np.linspace(-4, 4, 33) * math.sqrt(variance)))
    full = np.cumsum(np.concatenate([half[:0:-1], half]))
    at_most = np.array(
        [full[int(edge) + table.reach] if abs(edge) <= table.reach else float(edge > 0) for edge in edges]
    )
    expected = count * np.diff(np.concatenate([[0.0], at_most, [1.0]]))
    counted = np.diff(np.concatenate([[0], np.searchsorted(np.sort(values), edges, side="right"), [count]]))
    keep = expected > 4
    assert stats.chisquare(counted[keep], expected[keep] * counted[keep].sum() / expected[keep].sum()).pvalue > 1e-3
    assert values.var() == pytest.approx(2 * (half * np.arange(len(half)) ** 2).sum(), rel=0.05)


@pytest.mark.parametrize("law", LAWS)
def test_the_stated_distance_holds_for_the_table_as_built(law):
    """Cell probabilities from the thresholds against weights of a far wider table, in exact arithmetic."""
    table = InverseTable(law, 9.0)
    wide = half_weights(law, Fraction(9), 3 * table.reach)
    total = 2 * sum(wide) - wide[0]
    edges = [0, *cumulative(table), 2**128]
    cells = [Fraction(above - below, 2**128) for below, above in pairwise(edges)]
    law_cells = [Fraction(wide[abs(k)], total) for k in range(-table.reach, table.reach + 1)]
    outside = 1 - sum(law_cells)
    apart = (sum(abs(a - b) for a, b in zip(cells, law_cells, strict=True)) + outside) / 2
    assert 0 < apart <= table.distance <= module.DISTANCE


@pytest.mark.parametrize("law", LAWS)
def test_the_largest_table_stays_under_the_promised_distance(law):
    largest = InverseTable(law, float(module.LARGEST_DEVIATION**2))
    assert largest.reach < 2**18
    assert largest.distance < module.DISTANCE


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("variance", [0.5, 40.0, 250_000.0])
def test_every_word_lands_in_the_cell_that_exact_comparison_gives(law, variance):
    table = InverseTable(law, variance)
    edges = cumulative(table)
    words = np.random.default_rng(1).integers(0, 2**64, 2000, dtype=np.uint64)
    expected = [np.searchsorted(np.array(edges, object), int(word) << 64, side="right") for word in words]
    assert table.invert(words, refuse_more).tolist() == [place - table.reach for place in expected]


def test_a_word_that_equals_a_threshold_is_settled_by_the_lower_half():
    table = InverseTable("skellam", 3.0)
    cell = table.reach + 1
    high, low = int(table._high[cell]), int(table._low[cell])
    words = np.array([high, 2**63, high, high], np.uint64)
    asked = []

    def lower(count):
        asked.append(count)
        return np.array([low - 1, low, low + 1], np.uint64)

    assert table.invert(words, lower).tolist() == [1, 0, 2, 2]
    assert asked == [3]


def test_several_thresholds_under_one_word_are_all_looked_at():
    """Deep in the lower tail the upper halves are 0, so the lower half alone decides."""
    table = InverseTable("skellam", 3.0)
    zeros = int((table._high == 0).sum())
    assert zeros > 3
    for cell in range(zeros):
        words = np.zeros(1, np.uint64)
        at = table._low[cell]
        same = int(np.searchsorted(table._low[:zeros], at, side="right"))
        assert table.invert(words, lambda _, at=at: np.array([at]))[0] + table.reach == same


def test_the_extreme_words_give_the_ends_of_what_128_bits_resolve():
    table = InverseTable("discrete_gaussian", 3.0)
    most = np.array([2**64 - 1], np.uint64)
    least = table.invert(np.zeros(1, np.uint64), lambda n: np.zeros(n, np.uint64))[0]
    weights = half_weights("discrete_gaussian", Fraction(3), 80)
    below = [Fraction(sum(weights[k:]), 2 * sum(weights) - weights[0]) for k in range(80)]
    assert below[-least] * 2**128 >= 1 > below[-least + 1] * 2**128
    assert table.invert(most, lambda n: np.full(n, 2**64 - 1, np.uint64))[0] == table.reach


def test_more_words_continue_the_stream_of_the_key(monkeypatch):
    """With words cut to a few leading bits ties are common, and the second half must not repeat the first."""
    true_words = module.random_words
    seen = []

    def coarse(count, dtype, key):
        words = true_words(count, dtype, key)
        seen.append(count)
        return words

    monkeypatch.setattr(module, "random_words", coarse)
    table = InverseTable("skellam", 3.0)
    first = true_words(50, np.uint64, KEY)
    table._high[table.reach] = first[10]
    table._guide[:] = -1
    table._low[table.reach] = true_words(51, np.uint64, KEY)[50]
    assert table.draw(50, KEY)[10] == 1
    assert seen == [50, 51]


def test_a_key_repeats_and_the_operating_system_does_not():
    table = InverseTable("skellam", 100.0)
    assert (table.draw(1000, KEY) == table.draw(1000, KEY)).all()
    assert (table.draw(1000) != table.draw(1000)).any()
    assert table.draw(0).shape == (0,)


def test_chunks_do_not_show():
    table = InverseTable("skellam", 100.0)
    long = table.draw(3 * module._CHUNK + 5, KEY)
    assert (long[:100] == table.draw(100, KEY)).all()
    assert (long[: 2 * module._CHUNK] == table.draw(2 * module._CHUNK, KEY)).all()


@pytest.mark.parametrize("law", LAWS)
def test_neighbouring_draws_are_independent(law):
    values = InverseTable(law, 30.0**2).draw(100_000, KEY).astype(float)
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.015
    assert abs(np.corrcoef(np.abs(values[1:]), np.abs(values[:-1]))[0, 1]) < 0.015


def test_a_table_that_is_too_large_says_to_coarsen_the_grid():
    with pytest.raises(ConfigurationError, match="coarsen the grid"):
        InverseTable("skellam", float(module.LARGEST_DEVIATION + 1) ** 2)


@pytest.mark.parametrize(("law", "variance"), [("poisson", 1.0), ("skellam", -1.0), ("skellam", math.inf)])
def test_what_is_no_law_is_refused(law, variance):
    with pytest.raises(ConfigurationError):
        InverseTable(law, variance)
