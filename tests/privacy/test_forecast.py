"""What a run will cost, before it runs."""

import math
from collections import Counter

import numpy as np
import pytest

from privfed.contracts import Block
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Gaussian, SchemaSummary
from privfed.privacy.forecast import FinalQuery, forecast, planned
from privfed.privacy.ledger import Ledger
from privfed.privacy.plan import PrivacyPlan

UP = {"items": Block((1682, 32)), "bias": Block((1,))}
DOWN = {"items": Block((1682, 32))}
TABLE = 1682 * 32 * 4


def foresee(words, **changes):
    options = {"rounds": 100, "population": 943, "up": UP, "down": DOWN, "touched_rows": {"items": 70.5}}
    return forecast(PrivacyPlan.parse(words), **{**options, **changes})


def test_full_participation_forecasts_what_the_ledger_will_say():
    words = "local-laplace:epsilon0=1,clip_norm=5"
    seen = foresee(words, rounds=20, population=6)
    ledger = Ledger(PrivacyPlan.parse(words), 6)
    for round in range(20):
        ledger.record(
            cohort_id=round,
            round=round,
            step="train",
            index=0,
            schema=SchemaSummary(("items", "bias")),
            participants=np.arange(6),
        )
    assert seen.guarantee == ledger.guarantee()
    assert seen.epsilon_likely == seen.guarantee.epsilon
    assert (seen.uploads_bound, seen.uploads_likely) == (20, 20)


def test_fixed_cohorts_have_a_proven_and_a_likely_epsilon():
    seen = foresee("local-laplace:epsilon0=1,clip_norm=5,sampling.kind=fixed,sampling.size=94")
    assert seen.uploads_bound == 100
    assert 20 <= seen.uploads_likely <= 30
    assert seen.epsilon_likely < seen.guarantee.epsilon
    assert seen.participants_per_round == 94


def test_noise_everywhere_makes_uploads_dense():
    rows = 70.5 * (32 * 4 + 4) + 4
    for words in ("none", "clip:clip_norm=1", "published-noise:coordinates=touched"):
        assert foresee(words).up_bytes_per_client_round == rows
    for words in ("published-noise", "local-laplace:epsilon0=1,clip_norm=1"):
        assert foresee(words).up_bytes_per_client_round == TABLE + 4
    assert foresee("none", touched_rows=None).up_bytes_per_client_round == TABLE + 4
    assert foresee("none", touched_rows={"items": 1e9}).up_bytes_per_client_round == 1682 * 132 + 4


def test_totals():
    seen = foresee("none:sampling.kind=poisson,sampling.rate=0.1", queries_per_round=3, seconds_per_round=0.5)
    assert seen.down_bytes_per_client_round == 3 * TABLE
    assert seen.down_bytes == pytest.approx(3 * TABLE * 94.3 * 100)
    assert seen.up_bytes == pytest.approx(seen.up_bytes_per_client_round * 94.3 * 100)
    assert seen.seconds == 50
    assert foresee("none").seconds is None
    assert seen.uploads_bound == 300


def test_unprotected_plans_and_exact_blocks_are_infinite():
    assert foresee("published-noise").guarantee.epsilon == math.inf
    exact = foresee("local-laplace:epsilon0=1,clip_norm=1", up={**UP, "bits": Block((32,), kind="integer", bound=1)})
    assert exact.guarantee.epsilon == exact.epsilon_likely == math.inf
    assert "bits" in exact.guarantee.reason_if_inf
    assert exact.up_bytes_per_client_round == TABLE + 4 + 32 * 8
    assert '"epsilon_likely":"inf"' in exact.model_dump_json()


def test_a_schema_without_blocks_costs_nothing():
    nothing = foresee("local-laplace:epsilon0=1,clip_norm=1", up={}, down={}, touched_rows=None)
    assert (nothing.guarantee.epsilon, nothing.up_bytes) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"rounds": 0}, "rounds = 0"),
        ({"population": 0}, "population = 0"),
        ({"touched_rows": {"itms": 3.0}}, "touched_rows names 'itms'"),
        ({"touched_rows": {"bias": 3.0}}, "touched_rows names 'bias'"),
    ],
)
def test_bad_numbers_are_one_sentence(changes, part):
    with pytest.raises(PlanError, match=part):
        foresee("none", **changes)


FIRST, SECOND = {"counts": Block((3,), share=0.2)}, {"items": Block((4, 2), share=0.5)}
LAST = FinalQuery({"metrics": Block((2,), share=0.1)}, count=3)
SHAPE = {"population": 8, "rounds": 4, "queries_per_round": 2, "extra_queries": 3, "final": [LAST]}


def squared_distances(composition):
    """Rate -> (1 / noise)^2 of every release by itself, with how often it comes."""
    found = {}
    for release in composition.releases:
        assert isinstance(release.event, Gaussian)
        of_rate = found.setdefault(release.rate, Counter())
        of_rate[round(release.event.noise_multiplier**-2, 9)] += release.count
    return found


def test_a_planned_cohort_is_one_release_of_all_its_queries():
    plan = PrivacyPlan.parse("central-gaussian:clip_norm=1,noise_multiplier=2,sampling.kind=poisson,sampling.rate=0.4")
    seen = planned(plan, [FIRST, SECOND], **SHAPE)
    # A share s of the squared clip norm under noise z is a squared distance of s / z^2; those of a cohort add up.
    usual = 2 * (0.2 + 0.5) / 4
    assert squared_distances(seen) == {
        0.4: {round(usual, 9): 3, round(usual + 3 * 0.2 / 4, 9): 1, round(0.3 / 4, 9): 1}
    }
    assert (seen.uploads, seen.rounds, seen.reasons) == (4 * 2 * 2 + 3 + 3, 4 + 1, ())


@pytest.mark.parametrize("trust", ["central", "local"])
def test_every_planned_query_counts_where_nothing_amplifies(trust):
    plan = PrivacyPlan.parse(f"{trust}-gaussian:clip_norm=1,noise_multiplier=2")
    moved = {"central": 1, "local": 2}[trust] ** 2
    seen = planned(plan, [FIRST, SECOND], **SHAPE)
    counted = {0.2 * moved / 4: 4 * 2 + 3, 0.5 * moved / 4: 4 * 2, 0.1 * moved / 4: 3}
    assert squared_distances(seen) == {None: {round(square, 9): count for square, count in counted.items()}}
    assert (seen.uploads, seen.rounds, seen.reasons) == (4 * 2 * 2 + 3 + 3, 4 + 1, ())


def test_a_plan_whose_cohorts_hide_nobody_amplifies_nothing():
    visible = (
        "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=4,sampling.kind=poisson,sampling.rate=0.4"
    )
    for words in (visible, "local-gaussian:clip_norm=1,noise_multiplier=2,sampling.kind=poisson,sampling.rate=0.4"):
        seen = planned(PrivacyPlan.parse(words), [SECOND], population=8, rounds=5)
        assert [(release.rate, release.count) for release in seen.releases] == [(None, 5)]


def test_an_exact_block_anywhere_in_a_plan_makes_it_infinite():
    counts = {"counts": Block((3,), "integer", bound=1)}
    plan = PrivacyPlan.parse("central-gaussian:clip_norm=1,noise_multiplier=2")
    for queries, final in (([SECOND, counts], ()), ([SECOND], [FinalQuery(counts)])):
        seen = planned(plan, queries, 8, 4, final=final)
        assert [reason for reason in seen.reasons if "counts left exactly" in reason]


def test_a_smaller_weight_is_planned_with_more_noise():
    plan = PrivacyPlan.parse("central-gaussian:clip_norm=1,noise_multiplier=2")
    [whole], [half], nothing = (planned(plan, [SECOND], 8, 4, weight=w, final=[]).releases for w in (1.0, 0.5, 0.0))
    assert nothing == ()
    assert 1.99 < half.event.noise_multiplier / whole.event.noise_multiplier <= 2.0
    [*_, measured] = planned(plan, [SECOND], 8, 4, weight=0.5, final=[LAST]).releases
    assert measured.event.noise_multiplier > 2 * 2.0 / math.sqrt(0.1) * 0.99
