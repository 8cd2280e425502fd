import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.errors import ConfigurationError
from secure_agg.noise import DistributedNoise, pmf

KEY = bytes(range(32))
LAWS = ("skellam", "discrete_gaussian")


@given(st.sampled_from(LAWS), st.floats(1e-3, 1e9), st.integers(1, 10_000))
@settings(max_examples=50, deadline=None)
def test_the_shares_of_min_honest_clients_make_up_the_total_exactly(law, total, honest):
    assert DistributedNoise(law, total, honest).client_variance * honest == Fraction(total)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("exact", [False, True])
def test_the_sum_of_min_honest_shares_has_the_wanted_variance(law, exact):
    noise = DistributedNoise(law, 400.0, 20)
    shares = noise.sample((20, 300 if exact else 20_000), KEY, exact=exact)
    assert shares.dtype == np.int64
    total = shares.sum(0)
    slack = 6 * 400 * math.sqrt(2 / total.size)
    assert abs(total.var() - 400) < slack
    assert abs(total.mean()) < 6 * 20 / math.sqrt(total.size)
    assert abs(np.corrcoef(shares[0], shares[1])[0, 1]) < 6 / math.sqrt(total.size)


@pytest.mark.parametrize("law", LAWS)
def test_survivors_beyond_min_honest_add_to_the_variance(law):
    noise = DistributedNoise(law, 400.0, 20)
    assert noise.variance_ratio(20) == 1.0
    assert noise.variance_ratio(30) == 1.5
    total = noise.sample((30, 20_000), KEY).sum(0)
    assert total.var() == pytest.approx(400 * noise.variance_ratio(30), rel=0.06)
    with pytest.raises(ConfigurationError, match="do not open this sum"):
        noise.variance_ratio(19)


def test_keys_repeat_and_shapes_are_kept():
    noise = DistributedNoise("skellam", 90.0, 9)
    assert (noise.sample((3, 4, 5), KEY) == noise.sample(60, KEY).reshape(3, 4, 5)).all()
    assert (noise.sample(60, KEY, exact=True) == noise.sample(60, KEY, exact=True)).all()
    assert (noise.sample(60) != noise.sample(60)).any()
    assert noise.sample(()).shape == ()
    values = np.arange(60).reshape(3, 20)
    noise.add_to(values, KEY)
    assert (values - noise.sample(60, KEY).reshape(3, 20) == np.arange(60).reshape(3, 20)).all()
    with pytest.raises(ConfigurationError, match="contiguous"):
        noise.add_to(values[:, ::2], KEY)


def test_the_exact_sampler_has_no_upper_limit():
    noise = DistributedNoise("discrete_gaussian", 2.0**60, 1)
    assert np.abs(noise.sample(20, KEY, exact=True)).max() > 2**20
    with pytest.raises(ConfigurationError, match="coarsen the grid"):
        noise.sample(20, KEY)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("share", "clients"), [(0.3, 1), (0.3, 5), (6.0, 3)])
def test_the_tail_bounds_the_law_of_the_sum(law, share, clients):
    """From the convolved pmf: the probability beyond the tail, times the coordinates, stays within the failure."""
    half = pmf(law, share, 150)
    single = np.concatenate([half[:0:-1], half])
    total = np.ones(1)
    for _ in range(clients):
        total = np.convolve(total, single)
    middle = len(total) // 2
    noise = DistributedNoise(law, share * 7, 7)
    for coordinates in (1, 1000):
        for failure in (1e-2, 1e-8):
            tail = noise.tail_bound(clients, coordinates, failure)
            assert 2 * coordinates * total[middle + tail + 1 :].sum() <= failure
            assert 2 * coordinates * total[middle + int(0.7 * tail) :].sum() > failure


def test_the_tail_holds_in_draws():
    noise = DistributedNoise("skellam", 900.0, 10)
    total = np.abs(noise.sample((12, 50_000), KEY).sum(0)).max()
    assert 0.6 * noise.tail_bound(12, 50_000, 0.1) < total <= noise.tail_bound(12, 50_000, 0.1)
    assert noise.tail_bound(12, 50_000) > noise.tail_bound(12, 50_000, 0.1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("gauss", 1.0, 1), "law"),
        (("skellam", 0.0, 1), "total_variance"),
        (("skellam", math.inf, 1), "total_variance"),
        (("skellam", math.nan, 1), "total_variance"),
        (("skellam", 1.0, 0), "min_honest"),
        (("skellam", 1.0, 2.5), "min_honest"),
    ],
)
def test_what_cannot_work_is_refused(arguments, named):
    with pytest.raises(ConfigurationError, match=named):
        DistributedNoise(*arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((0, 1), "clients"), ((1, 0), "coordinates"), ((1, 1, 0.0), "failure"), ((1, 1, 1.0), "failure")],
)
def test_tails_refuse_what_they_cannot_bound(arguments, named):
    with pytest.raises(ConfigurationError, match=named):
        DistributedNoise("skellam", 1.0, 1).tail_bound(*arguments)
