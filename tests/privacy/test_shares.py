"""Asks that use a share of the clip norm: clipped to it, under the same noise, and charged for no more."""

import math

import numpy as np
import pytest
import torch

from privfed.contracts import Block, UpdateError, share_of
from privfed.federation import Streams
from privfed.guards import ClientGuard
from privfed.guards.ring_code import RingCode
from privfed.privacy import Ledger, LedgerError, PrivacyPlan, forecast, plan_for_target
from privfed.privacy.events import Gaussian, SchemaSummary
from privfed.privacy.plan import event_for
from privfed.updates import ClientUpdates, Dense

N = 20
CENTRAL = "central-gaussian:clip_norm=2,noise_multiplier=3,delta=0.001"
DISTRIBUTED = "distributed-gaussian:clip_norm=2,noise_multiplier=3,n_min_honest=18,delta=0.001"
LOCAL = "local-gaussian:clip_norm=2,noise_multiplier=3,delta=0.001"
QUARTER = {"v": Block((6,), share=0.25)}
REST = {"v": Block((4,), share=0.25), "w": Block((2,), share=0.5), "n": Block((1,), kind="integer", bound=1)}


def plan(words):
    return PrivacyPlan.parse(words)


def event(words, share):
    return event_for(plan(words), SchemaSummary(("v",), (), 6, share), N)


def test_shares_of_real_blocks_add_up_and_a_whole_query_is_the_default():
    assert share_of(QUARTER) == 0.25
    assert share_of(REST) == 0.75
    assert share_of({"a": Block((1,)), "b": Block((2,))}) == 1
    assert share_of({}) == share_of({"n": REST["n"]}) == 1


@pytest.mark.parametrize("share", [0.0, -1.0, 1.1, math.nan])
def test_a_share_is_a_part_of_one(share):
    with pytest.raises(UpdateError, match="above 0 and at most 1"):
        Block((1,), share=share)


@pytest.mark.parametrize(
    ("words", "bound"), [(CENTRAL, 1.0), (LOCAL, 1.0), ("local-laplace:clip_norm=2,epsilon0=1", 1.0)]
)
def test_an_upload_is_clipped_to_the_root_of_its_share(words, bound):
    order = 1 if "laplace" in words else 2
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32))
    values[0] = 0.01
    sent = ClientUpdates(torch.arange(N), QUARTER, [Dense("v", torch.arange(N), values.clone())])
    ClientGuard(plan(words), Streams.from_seed(0)).clip_(sent)
    assert sent.norms(order).max() <= bound
    assert sent.norms(order)[1:].min() == pytest.approx(bound, abs=1e-5)
    assert sent.parts[0].values[0].equal(values[0])


def test_bounds_of_blocks_shrink_with_the_query():
    words = "central-gaussian:clip_norm=2,noise_multiplier=3,clipping=per_block"
    schema = {"a": Block((3,), share=0.125), "b": Block((3,), share=0.125)}
    parts = [Dense(name, torch.arange(2), torch.ones(2, 3)) for name in schema]
    sent = ClientUpdates(torch.arange(2), schema, parts)
    ClientGuard(plan(words), Streams.from_seed(0)).clip_(sent)
    assert sent.norm_powers(2).sqrt().numpy() == pytest.approx(np.full((2, 2), math.sqrt(0.5)), abs=1e-5)


def test_the_mechanism_is_the_same_noise_over_less():
    assert event(CENTRAL, 0.25) == Gaussian(noise_multiplier=6.0)
    assert event(LOCAL, 0.25) == Gaussian(noise_multiplier=3.0)
    laplace = event("local-laplace:clip_norm=2,epsilon0=1", 0.25)
    assert laplace.pure_epsilon == pytest.approx(0.5)
    whole, quarter = event(DISTRIBUTED, 1.0), event(DISTRIBUTED, 0.25)
    assert quarter.noise_multiplier == pytest.approx(2 * whole.noise_multiplier, rel=1e-3)


def test_the_count_of_an_adaptive_clip_costs_the_same_whatever_the_share():
    words = CENTRAL + ",adaptive.count_noise=4"
    assert event(words, 1.0) == Gaussian(noise_multiplier=3.0)
    mechanism = plan(words).mechanism
    count, whole = (2 * mechanism.adaptive.count_noise) ** -2, mechanism.server_noise_multiplier**-2
    assert event(words, 0.25).noise_multiplier == pytest.approx((0.25 * whole + count) ** -0.5)


def test_ring_words_carry_the_same_noise_on_a_shorter_vector():
    codes = [RingCode(plan(DISTRIBUTED).mechanism, {"v": Block((6,), share=share)}, N) for share in (1.0, 0.25)]
    assert codes[1].analytic_deviation(18) == pytest.approx(codes[0].analytic_deviation(18), rel=1e-3)
    assert codes[0].analytic_deviation(18) == pytest.approx(3 * 2, rel=1e-3)
    exact = RingCode(plan("secure-sum:clip_norm=2").mechanism, QUARTER, N)
    words = exact.encode({"v": torch.ones(1, 6)}, 0, bytes(32))
    assert np.linalg.norm(exact.decode(words)["v"].numpy()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("words", [CENTRAL, DISTRIBUTED, LOCAL, CENTRAL + ",sampling.kind=poisson,sampling.rate=0.3"])
def test_a_ledger_records_the_share_and_a_forecast_says_so(words, tmp_path):
    queries = [QUARTER, {"v": REST["v"], "w": REST["w"]}]
    ledger = Ledger(plan(words), N, tmp_path / "ledger.jsonl")
    members = None if ledger.plan.amplifies else np.arange(N)
    for index, ask in enumerate(queries):
        ledger.record(
            cohort_id=0, round=0, step="s", index=index, schema=SchemaSummary.from_schema(ask), participants=members
        )
    foreseen = forecast(plan(words), rounds=1, population=N, up=queries, down=0.0)
    assert foreseen.guarantee == ledger.guarantee()
    again = Ledger.resume(plan(words), N, tmp_path / "ledger.jsonl")
    assert again.guarantee() == ledger.guarantee()
    alone = forecast(plan(words), rounds=1, population=N, up=[{"v": Block((6,))}], down=0.0)
    if "distributed" not in words:
        assert ledger.guarantee().epsilon == pytest.approx(alone.guarantee.epsilon, rel=1e-3)


def test_a_ledger_whose_share_was_edited_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(plan(CENTRAL), N, path)
    ledger.record(
        cohort_id=0, round=0, step="s", index=0, schema=SchemaSummary.from_schema(QUARTER), participants=np.arange(N)
    )  # fmt: skip
    path.write_text(path.read_text().replace('"share":0.25', '"share":1.0'))
    with pytest.raises(LedgerError, match="was edited"):
        Ledger.resume(plan(CENTRAL), N, path)


@pytest.mark.parametrize("words", [CENTRAL, DISTRIBUTED, LOCAL, CENTRAL + ",sampling.kind=poisson,sampling.rate=0.3"])
def test_a_plan_is_sized_for_a_program_of_shares(words):
    program = [QUARTER, {"v": Block((6,), share=0.5)}]
    sized = plan_for_target(plan(words), 2.0, 3, N, program=program)
    found = forecast(sized, rounds=3, population=N, up=program, down=0.0).guarantee.epsilon
    assert 1.99 < found <= 2.0


def test_noise_that_a_server_may_allow_for():
    assert plan(CENTRAL).noisy_sums(N).deviation == 6
    assert plan(LOCAL).noisy_sums(N).deviation == pytest.approx(6 * math.sqrt(N))
    assert plan(DISTRIBUTED).noisy_sums(N).deviation == pytest.approx(6 * math.sqrt(N / 18))
    # Fewer clients than are honest at the least are never opened, so that sums have no less noise than theirs.
    assert plan(DISTRIBUTED).mechanism.sum_deviation(9) == 6
    laplace = plan("local-laplace:clip_norm=2,epsilon0=1").noisy_sums(N)
    assert laplace.deviation == pytest.approx(4 * math.sqrt(2 * N))
    nothing = plan("none:sampling.kind=poisson,sampling.rate=0.3").noisy_sums(N)
    assert (nothing.clients, nothing.clip_norm, nothing.deviation) == (6, None, 0)
