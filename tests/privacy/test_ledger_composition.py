"""How asks compose: the tests that three silent wrong epsilons of a prototype would have failed."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.accounting import account
from privfed.privacy.composition import ParticipationCounts, Releases, compose
from privfed.privacy.events import Empty, Exact, Gaussian, Laplace, Unbounded, fuse
from privfed.privacy.sampling import All, Epoch, Fixed, Poisson

EVERYBODY = np.arange(10)
SIGMA_2 = Gaussian(noise_multiplier=2.0)


def epsilon(queries, *, trust, sampling, delta=1e-5, population=10):
    return account(compose(queries, trust=trust, sampling=sampling, population=population).event(), delta).epsilon


def test_queries_of_one_cohort_compose_inside_its_sampling():
    """32 asks share each of 10 Poisson draws: 25.36, where sampling each ask by itself would say 4.33."""
    queries = [(draw, SIGMA_2, None) for draw in range(10) for _ in range(32)]
    right = epsilon(queries, trust="central", sampling=Poisson(rate=0.1))
    assert right == pytest.approx(25.36, abs=6e-3)
    apart = [(draw, SIGMA_2, None) for draw in range(320)]
    assert epsilon(apart, trust="central", sampling=Poisson(rate=0.1)) == pytest.approx(4.33, abs=6e-3)


def test_the_event_of_shared_cohorts():
    queries = [(draw, SIGMA_2, None) for draw in range(10) for _ in range(32)]
    found = compose(queries, trust="central", sampling=Poisson(rate=0.1), population=10)
    event = found.event()
    assert isinstance(event, dp.SelfComposedDpEvent)
    assert event.count == 10
    assert event.event.sampling_probability == 0.1
    assert event.event.event.noise_multiplier == pytest.approx(2 / math.sqrt(32))
    assert (found.uploads, found.rounds, found.unamplified_cohorts) == (320, 10, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8))
def test_fused_gaussians_add_their_precisions(sigmas):
    """Independent estimates of one value are as good as their inverse-variance mean."""
    fused = fuse([Gaussian(noise_multiplier=s) for s in sigmas]).noise_multiplier
    assert 1 / fused**2 == pytest.approx(sum(1 / s**2 for s in sigmas))
    assert fused <= min(sigmas) * (1 + 1e-12)


def test_a_mix_under_sampling_loses_the_amplification():
    laplace = Laplace(scale_over_sensitivity=1.0)
    mixed = [(0, SIGMA_2, None), (0, laplace, None), (1, SIGMA_2, None)]
    found = compose(mixed, trust="central", sampling=Poisson(rate=0.1), population=10)
    assert found.unamplified_cohorts == 1
    assert set(found.releases) == {Releases(SIGMA_2, 1, 0.1), Releases(SIGMA_2, 1), Releases(laplace, 1)}


def test_a_query_made_again_in_a_mixed_cohort_counts_again():
    laplace = Laplace(scale_over_sensitivity=1.0)
    mixed = [(0, SIGMA_2, None), (0, laplace, None), (0, laplace, None)]
    found = compose(mixed, trust="central", sampling=Poisson(rate=0.1), population=10)
    assert set(found.releases) == {Releases(SIGMA_2, 1), Releases(laplace, 2)}


def test_cohorts_that_amount_to_the_same_add_up_whatever_their_queries():
    sigma_1 = Gaussian(noise_multiplier=1.0)
    queries = [(0, sigma_1, None), *[(1, SIGMA_2, None)] * 4, (2, sigma_1, None)]
    found = compose(queries, trust="central", sampling=Poisson(rate=0.1), population=10)
    assert found.releases == (Releases(sigma_1, 3, 0.1),)


def test_laplace_alone_is_never_amplified():
    """Its distance is between two uploads that replace each other, which is not absence."""
    queries = [(draw, Laplace(scale_over_sensitivity=1.0), None) for draw in range(20)]
    sampled = epsilon(queries, trust="central", sampling=Poisson(rate=0.1))
    assert sampled == epsilon(queries, trust="central", sampling=All()) == pytest.approx(19.1, abs=0.06)


@pytest.mark.parametrize("trust", ["none", "local", "distributed"])
def test_visible_participation_never_amplifies(trust):
    queries = [(draw, SIGMA_2, EVERYBODY) for draw in range(10)]
    full = epsilon(queries, trust="central", sampling=All())
    assert epsilon(queries, trust=trust, sampling=Poisson(rate=0.1)) == full


@pytest.mark.parametrize("sampling", [All(), Fixed(size=5), Epoch(size=5)])
@pytest.mark.parametrize("trust", ["local", "central"])
def test_other_samplings_never_amplify(sampling, trust):
    queries = [(draw, SIGMA_2, EVERYBODY[:5]) for draw in range(7)]
    found = compose(queries, trust=trust, sampling=sampling, population=10)
    assert found.releases == (Releases(SIGMA_2, 7),)


def test_laplace_over_one_hundred_participations():
    queries = [(draw, Laplace(scale_over_sensitivity=1.0), EVERYBODY) for draw in range(100)]
    result = account(compose(queries, trust="local", sampling=All(), population=10).event(), 1e-5)
    assert result.basic_epsilon == pytest.approx(100)
    assert result.epsilon == pytest.approx(68.3, abs=0.06)


@pytest.mark.parametrize("trust", ["none", "local", "central"])
@pytest.mark.parametrize("sampling", [All(), Poisson(rate=0.1)])
@pytest.mark.parametrize("mechanism", [Exact(blocks=("bits",)), Unbounded(reason="it is not clipped")])
@pytest.mark.parametrize("members", [EVERYBODY, EVERYBODY[:0], None])
def test_one_unprotected_release_makes_the_run_infinite(trust, sampling, mechanism, members):
    queries = [(0, SIGMA_2, EVERYBODY), (0, mechanism, members), (1, SIGMA_2, EVERYBODY)]
    found = compose(queries, trust=trust, sampling=sampling, population=10)
    assert account(found.event(), 1e-5).epsilon == math.inf
    assert len(found.reasons) == 1


def test_only_empty_queries_are_free():
    assert compose([], trust="local", sampling=All(), population=10).event() == dp.NoOpDpEvent()
    queries = [(0, Empty(), EVERYBODY), (1, Empty(), None)]
    found = compose(queries, trust="local", sampling=All(), population=10)
    assert found.event() == dp.NoOpDpEvent()
    assert (found.uploads, found.rounds) == (0, 0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sets(st.integers(0, 9))), max_size=12),
    st.sampled_from(["local", "none"]),
)
def test_the_worst_user_is_counted(draws, trust):
    """Against a naive count: per draw, `asks` releases to each of its members."""
    mechanism = Laplace(scale_over_sensitivity=3.0)
    queries, uploads, rounds = [], [0] * 10, [0] * 10
    for draw, (count, members) in enumerate(draws):
        for _ in range(count):
            queries.append((draw, mechanism, np.array(sorted(members), dtype=np.int64)))
        for user in members:
            uploads[user] += count
            rounds[user] += 1
    found = compose(queries, trust=trust, sampling=Fixed(size=10), population=10)
    assert (found.uploads, found.rounds) == (max(uploads), max(rounds))
    assert found.releases == ((Releases(mechanism, max(uploads)),) if max(uploads) else ())


@settings(max_examples=30, deadline=None)
@given(st.permutations([(d, m) for d in range(4) for m in (2.0, 3.0, 3.0)]))
def test_order_does_not_matter(order):
    queries = [(draw, Gaussian(noise_multiplier=sigma), None) for draw, sigma in order]
    event = compose(queries, trust="central", sampling=Poisson(rate=0.2), population=10).event()
    assert event.count == 4
    assert event.event.event.noise_multiplier == pytest.approx((1 / 4 + 2 / 9) ** -0.5)


def test_no_user_is_understated_when_mechanisms_differ():
    strong, weak = Laplace(scale_over_sensitivity=1.0), Laplace(scale_over_sensitivity=2.0)
    tally = ParticipationCounts(3)
    for draw, (mechanism, members) in enumerate([(strong, [0]), (weak, [0, 1]), (weak, [1]), (weak, [2])]):
        tally.add(draw, mechanism, np.array(members))
    found = tally.composition("local", All())
    worst = account(found.event(), 1e-5).epsilon
    for own in ([1.0, 0.5], [0.5, 0.5], [0.5]):
        events = [dp.LaplaceDpEvent(1 / e) for e in own]
        assert worst >= account(dp.ComposedDpEvent(events), 1e-5).epsilon


def test_ten_thousand_rounds_add_up():
    members = np.arange(0, 1000, 2)
    queries = ((draw, Laplace(scale_over_sensitivity=100.0), members) for draw in range(10_000))
    result = account(compose(queries, trust="local", sampling=All(), population=1000).event(), 1e-5)
    assert result.epsilon == pytest.approx(4.368, abs=2e-3)
