"""Releases under one account: events, ledger and plans against a naive year of every pattern of taking part."""

import itertools
import math

import numpy as np
import pytest

from privfed.contracts import Block, RunningTotals, UpdateError, refreshes_of, schema_digest
from privfed.privacy import Ledger, PlanError, PrivacyPlan, SchemaSummary, plan_for_target
from privfed.privacy.accounting import account
from privfed.privacy.errors import EntryRefused
from privfed.privacy.events import Gaussian, SharedAccount, Shares
from privfed.privacy.forecast import planned
from privfed.privacy.plan import event_for
from privfed.privacy.refusals import refuse_unprotected_blocks
from secure_agg.noise import rounded_norm_bound
from secure_agg.noise.rounding import conditional_round, joint_rounded_norm_bound

N, DELTA = 200, 1e-4
CENTRAL = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.5, delta=DELTA)
SHARED = PrivacyPlan.named("distributed-gaussian", clip_norm=1.0, noise_multiplier=1.5, n_min_honest=150, delta=DELTA)


def year(refreshes, size=10, share=1.0):
    return {"block": Block((size,), share=share, refreshes=refreshes)}


def prefix_root(refreshes):
    column = RunningTotals(refreshes).column
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(refreshes)] for i in range(refreshes)])


# ---- the mechanism


@pytest.mark.parametrize("refreshes", [1, 2, 3, 4, 5])
def test_nobody_spends_more_than_a_norm_whenever_they_join_and_whatever_they_miss_or_become(refreshes):
    """Every week to join and every set of weeks to be there, with unit vectors that change at random."""
    sent, rng = RunningTotals(refreshes).sent, np.random.default_rng(0)
    most = 0.0
    for present in itertools.product((0, 1), repeat=refreshes):
        joined = present.index(1) if 1 in present else refreshes
        unit = rng.normal(size=(refreshes, 3))
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        ages = np.arange(refreshes) - joined
        uploads = [p * sent[a] * v if a >= 0 else 0 * v for p, a, v in zip(present, ages, unit, strict=True)]
        spent = float(np.square(uploads).sum())
        most = max(most, spent)
        # The naive oracle: the sensitivity of the T sums together is the norm of everything that was sent.
        assert spent <= 1 + 1e-12
    assert most == pytest.approx(1)


@pytest.mark.parametrize("refreshes", [1, 2, 6])
def test_totals_count_people_once_from_the_day_they_join(refreshes):
    totals, rng = RunningTotals(refreshes), np.random.default_rng(1)
    joins, vectors = rng.integers(refreshes, size=5), rng.normal(size=(5, 4))
    sums = np.zeros((refreshes, 4))
    for join, vector in zip(joins, vectors, strict=True):
        for t in range(join, refreshes):
            sums[t] += totals.sent[t - join] * vector
    for t in range(refreshes):
        np.testing.assert_allclose(totals.weights(t) @ sums[: t + 1], vectors[joins <= t].sum(0), atol=1e-12)


@pytest.mark.parametrize(("refreshes", "factor"), [(1, 1.0), (52, 2.32)])
def test_the_last_total_is_the_noisiest_and_far_from_independent_releases(refreshes, factor):
    totals, there = RunningTotals(refreshes), np.ones(refreshes, dtype=bool)
    root = prefix_root(refreshes)
    naive = [np.linalg.norm(root[t]) * math.sqrt(totals.factor) for t in range(refreshes)]
    np.testing.assert_allclose([totals.noise(t, there) for t in range(refreshes)], naive)
    assert max(naive) == pytest.approx(totals.factor)
    assert totals.factor == pytest.approx(factor, abs=0.01)
    assert totals.noise(refreshes - 1, ~there) == 0


def test_who_leaves_fades():
    totals = RunningTotals(12)
    left = [totals.weights(t)[:3] @ totals.sent[:3] for t in range(2, 12)]
    assert left[0] == pytest.approx(1)
    assert all(later < before for before, later in itertools.pairwise(left))
    column = totals.column
    assert left[-1] == pytest.approx(sum(column[j] * column[11 - j] for j in range(3)))


# ---- events


def test_a_year_of_central_noise_costs_one_release_and_its_rounding():
    one = event_for(CENTRAL, SchemaSummary.from_schema(year(1)), N)
    whole = event_for(CENTRAL, SchemaSummary.from_schema(year(52)), N)
    assert isinstance(whole, SharedAccount)
    assert isinstance(one, Gaussian)
    assert isinstance(whole.whole, Gaussian)
    assert 0.997 * one.noise_multiplier < whole.whole.noise_multiplier < one.noise_multiplier
    tier = event_for(CENTRAL, SchemaSummary.from_schema(year(52)), N, weight=0.5)
    assert tier.whole.noise_multiplier == pytest.approx(2 * whole.whole.noise_multiplier, rel=0.01)


def test_a_year_of_shares_covers_the_rounding_of_every_refresh():
    one = event_for(SHARED, SchemaSummary.from_schema(year(1)), N)
    whole = event_for(SHARED, SchemaSummary.from_schema(year(4)), N).whole
    assert isinstance(whole, Shares)
    assert (whole.coordinates, whole.total_variance) == (4 * one.coordinates, one.total_variance)
    assert whole.l2 > one.l2


@pytest.mark.parametrize("division", [(1, 0, 0), (0.5, 0.5, 0), (0.8, 0.15, 0.05), (1 / 3, 1 / 3, 1 / 3)])
@pytest.mark.parametrize("beta", [0.0, math.exp(-0.5)])
def test_no_division_of_the_norm_rounds_to_more_than_the_joint_bound(division, beta):
    radius, size, rng = 9.0, 30, np.random.default_rng(3)
    bound = joint_rounded_norm_bound(radius, size, len(division), beta)
    norms = [radius * math.sqrt(part) for part in division if part]
    assert math.sqrt(sum(rounded_norm_bound(norm, size, beta) ** 2 for norm in norms)) <= bound + 1e-9
    for _ in range(20):
        total = 0
        for norm in norms:
            vector = rng.normal(size=(1, size))
            rounded = conditional_round(vector / np.linalg.norm(vector) * norm, norm, beta, rng.bytes(32))
            total += int((rounded**2).sum())
        assert math.sqrt(total) <= bound


@pytest.mark.parametrize("plan", [CENTRAL, SHARED])
def test_the_ledger_counts_a_year_once_for_everybody_who_took_part(plan):
    ledger, schema = Ledger(plan, N), SchemaSummary.from_schema(year(3))
    epsilons = []
    for t in range(3):
        ledger.record(
            cohort_id=t, round=t, step="sum", index=0, schema=schema, participants=np.arange(150 + t, dtype=np.int64)
        )
        epsilons.append(ledger.guarantee().epsilon)
    whole = account(planned(plan, [year(3)], N, rounds=3).event(), DELTA).epsilon
    assert epsilons == [epsilons[0]] * 3
    assert epsilons[0] == pytest.approx(whole)
    assert len(ledger.composition().releases) == 1
    assert "one account" in str(ledger.composition().releases[0])
    with pytest.raises(EntryRefused, match="covers 3 releases"):
        ledger.record(cohort_id=3, round=3, step="sum", index=0, schema=schema, participants=np.arange(9))


def test_a_ledger_with_an_account_is_read_again(tmp_path):
    path, schema = tmp_path / "ledger.jsonl", SchemaSummary.from_schema(year(2, share=0.5))
    for plan in (SHARED,):
        ledger = Ledger(plan, N, path)
        ledger.record(cohort_id=0, round=0, step="sum", index=0, schema=schema, participants=np.arange(N))
        again = Ledger.resume(plan, N, path)
        assert again.guarantee().epsilon == ledger.guarantee().epsilon
        again.record(cohort_id=1, round=1, step="sum", index=0, schema=schema, participants=np.arange(N))
        assert Ledger.resume(plan, N, path).guarantee().epsilon == ledger.guarantee().epsilon


@pytest.mark.parametrize("plan", [CENTRAL, SHARED])
def test_noise_is_sized_for_one_release_whatever_the_refreshes(plan):
    noises = [
        plan_for_target(plan, 2.0, rounds, N, program=[year(rounds)]).mechanism.noise_over_clip for rounds in (1, 2, 26)
    ]
    assert noises == sorted(noises)
    assert noises[-1] < 1.1 * noises[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("local-laplace:epsilon0=1,clip_norm=1", "adds no Gaussian noise to a sum"),
        ("central-gaussian:clip_norm=1,noise_multiplier=1,sampling.kind=poisson,sampling.rate=0.1", "is secret"),
        ("central-gaussian:clip_norm=1,noise_multiplier=1,adaptive.quantile=0.5", "follows the data"),
        ("central-gaussian:clip_norm=1,noise_multiplier=1,clipping=per_block", "joint norm"),
        ("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=9,clipping=per_block", "joint norm"),
    ],
)
def test_plans_without_accounts_are_refused(words, told):
    with pytest.raises(PlanError, match=told):
        refuse_unprotected_blocks(PrivacyPlan.parse(words), year(3))
    refuse_unprotected_blocks(CENTRAL, year(3))


def test_blocks_of_a_query_share_one_account():
    with pytest.raises(UpdateError, match="same number"):
        refreshes_of({"a": Block((1,), refreshes=2), "b": Block((1,))})
    assert schema_digest(year(2)) != schema_digest(year(3)) != schema_digest(year(1))
    with pytest.raises(UpdateError, match="at least one"):
        Block((1,), refreshes=0)
