from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from secure_agg.noise import pmf
from secure_agg.noise.exact import sample_discrete_gaussian, sample_poisson, sample_skellam
from secure_agg.noise.random_source import RandomSource

KEY = bytes(range(32))


def fits(values, probabilities, first):
    """The p-value of Pearson's test over cells of at least 8 expected values; the rest is one cell."""
    expected = len(values) * probabilities
    cells = np.where(expected >= 8)[0]
    counted = np.array([(values == first + cell).sum() for cell in cells])
    inside = expected[cells]
    counted = np.append(counted, len(values) - counted.sum())
    inside = np.append(inside, len(values) - inside.sum())
    keep = inside > 1e-3
    return stats.chisquare(counted[keep], inside[keep] * counted[keep].sum() / inside[keep].sum()).pvalue


def both_sides(half):
    return np.concatenate([half[:0:-1], half])


@pytest.mark.parametrize("mean", [Fraction(1, 1000), Fraction(9, 10), Fraction(1), Fraction(17, 5), Fraction(400)])
def test_exact_poisson_is_poisson(mean):
    source = RandomSource(KEY)
    values = np.array([sample_poisson(mean, source) for _ in range(4000)])
    assert fits(values, stats.poisson.pmf(np.arange(600), float(mean)), 0) > 1e-3


@pytest.mark.parametrize(
    ("draw", "law"), [(sample_skellam, "skellam"), (sample_discrete_gaussian, "discrete_gaussian")]
)
@pytest.mark.parametrize("variance", [Fraction(1, 8), Fraction(1), Fraction(0.7), Fraction(31, 3), Fraction(900)])
def test_exact_samples_follow_the_law_and_not_its_neighbour(draw, law, variance):
    source = RandomSource(KEY)
    values = np.array([draw(variance, source) for _ in range(12_000)])
    assert fits(values, both_sides(pmf(law, variance, 300)), -300) > 1e-3
    assert fits(values, both_sides(pmf(law, variance * Fraction(4, 3), 300)), -300) < 1e-3


def test_exact_samples_from_the_operating_system_have_the_variance():
    source = RandomSource()
    for draw in (sample_skellam, sample_discrete_gaussian):
        values = np.array([draw(Fraction(25), source) for _ in range(3000)])
        assert 20 < values.var() < 30
        assert abs(values.mean()) < 1


def test_a_key_repeats_the_draws_and_another_key_does_not():
    def drawn(key):
        source = RandomSource(key)
        return [sample_skellam(Fraction(900), source) for _ in range(200)]

    assert drawn(KEY) == drawn(KEY)
    assert drawn(KEY) != drawn(bytes(32))


def test_bernoulli_variables_have_their_probability():
    source, trials = RandomSource(KEY), 20000
    for numerator, denominator in ((1, 3), (0, 1), (5, 5), (7, 1000)):
        successes = sum(source.bernoulli(numerator, denominator) for _ in range(trials))
        assert stats.binomtest(successes, trials, numerator / denominator).pvalue > 1e-4
    for numerator, denominator in ((0, 1), (1, 3), (1, 1), (5, 2), (4, 1)):
        successes = sum(source.bernoulli_exp(numerator, denominator) for _ in range(trials))
        assert stats.binomtest(successes, trials, np.exp(-numerator / denominator)).pvalue > 1e-4


def test_integers_are_uniform_and_within_their_bound():
    source = RandomSource(KEY)
    drawn = np.array([source.uniform_below(7) for _ in range(14000)])
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-4
    assert source.uniform_below(1) == 0
    assert source.random_bits(0) == 0
    assert source.random_bits(100_000).bit_length() > 99_950
