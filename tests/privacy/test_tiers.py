"""Personal budgets: weights meet their epsilons, clips come first, means are right, and an audit sees a broken tier."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from privfed.audit.checks.neighbours import rerun_on_neighbours
from privfed.contracts import Block
from privfed.data import Split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.federation.grid import NoisedSum
from privfed.guards import ClientGuard
from privfed.guards.tier_weights import tiers_of, weights_of
from privfed.privacy import Ledger, PlanError, PrivacyPlan, SchemaSummary, forecast
from privfed.privacy.accounting import account
from privfed.privacy.gaussian_budget import solve_gaussian
from privfed.privacy.plan import event_for
from privfed.privacy.tier_weights import with_tiers
from privfed.privacy.tiers import BudgetTiers
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.sizing import size
from privfed.updates import ClientUpdates, Dense

TWO = {"careful": (1, 0.8), "generous": (8, 0.2)}
SCHEMA = {"a": Block((6, 5)), "b": Block((9,), weight=2.0)}
N = 40
CENTRAL = {"kind": "central_gaussian", "clip_norm": 2.0, "noise_multiplier": 1.5}
DISTRIBUTED = {"kind": "distributed_gaussian", "clip_norm": 2.0, "noise_multiplier": 1.5, "n_min_honest": 30}
WEIGHTED = {
    "none": {"epsilon": 0, "share": 0.25, "weight": 0.0},
    "careful": {"epsilon": 1, "share": 0.5, "weight": 0.25},
    "generous": {"epsilon": 8, "share": 0.25, "weight": 1.0},
}


def plan(mechanism: dict[str, Any], tiers: Any = WEIGHTED, **fields: Any) -> PrivacyPlan:
    return PrivacyPlan.from_dict({"mechanism": mechanism, "tiers": tiers, **fields})


def updates(scale: float = 30.0, users: int = N) -> ClientUpdates:
    generator = torch.Generator().manual_seed(1)
    everyone = torch.arange(users)
    lengths = torch.linspace(0.01, 1, users) * scale
    parts = [
        Dense(name, everyone, torch.randn(users, *b.shape, generator=generator) * lengths.view(-1, *[1] * len(b.shape)))
        for name, b in SCHEMA.items()
    ]
    return ClientUpdates(everyone, SCHEMA, parts)


@pytest.mark.parametrize(
    "given",
    [
        "careful=1:0.8, generous=8:0.2",
        TWO,
        {"generous": {"epsilon": 8, "share": 0.2}, "careful": {"epsilon": 1, "share": 0.8}},
    ],
)
def test_words_pairs_and_tables_say_the_same(given: Any) -> None:
    tiers = BudgetTiers.model_validate(given)
    assert tiers.names == ("careful", "generous")
    assert BudgetTiers.model_validate(tiers.model_dump()) == tiers
    asked = PrivacyPlan.from_dict({"mechanism": {"kind": "central_gaussian"}, "tiers": given})
    assert asked.target is not None
    assert asked.target.epsilon == 8
    assert PrivacyPlan.from_dict(asked.to_dict()) == asked


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mechanism": {"kind": "local_laplace", "epsilon": 8}, "tiers": TWO}, "adds no Gaussian noise to a sum"),
        ({"mechanism": {"kind": "secure_sum", "clip_norm": 1}, "tiers": WEIGHTED}, "adds no Gaussian noise to a sum"),
        ({"mechanism": CENTRAL, "tiers": TWO}, "noise_multiplier = 1.5 was given beside them"),
        ({"epsilon": 3, "tiers": TWO}, "epsilon = 3 was given beside them"),
        ({"mechanism": {"kind": "central_gaussian", "clip_norm": "auto"}, "tiers": TWO}, "follows a count"),
        ({"tiers": {"a": (1, 0.5), "b": (2, 0.4)}}, "add up to 0.9"),
        ({"tiers": {"a": (0, 1)}}, "nobody would contribute"),
        ({"tiers": {"a": (1, 0.5), "B": (2, 0.5)}}, "needs another name"),
        ({"tiers": {"a": (-1, 1)}}, "tiers.a.epsilon = -1"),
        ({"tiers": "a=1"}, "name=epsilon:share"),
        ({"tiers": "a=1:0.5,b=2:0.5,a=3:0.5"}, "'a' is named twice"),
        ({"tiers": " "}, "name no tier: give words such as"),
        ({"tiers": "hidden=true"}, "name no tier: give words such as"),
        ({"mechanism": CENTRAL, "tiers": {"a": {"epsilon": 1, "share": 1, "weight": 0.5}}}, "none of them is 1"),
    ],
)
def test_refusals_are_one_sentence(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said) as refused:
        PrivacyPlan.from_dict(fields)
    assert "\n" not in str(refused.value)


def test_a_plan_without_tiers_says_nothing_of_them() -> None:
    bare = PrivacyPlan.from_dict({"mechanism": CENTRAL})
    assert "tiers" not in bare.to_dict()
    assert bare.counted(N) == N


@pytest.mark.parametrize("mechanism", [CENTRAL, DISTRIBUTED])
def test_every_tier_gets_the_epsilon_it_chose_by_its_own_accountant(mechanism: dict[str, Any]) -> None:
    noise = solve_gaussian(8, 2, 1.0, 1e-5).budget.noise_multiplier * 1.1
    bare = PrivacyPlan.from_dict({"mechanism": mechanism | {"noise_multiplier": noise}})
    top = forecast(bare, rounds=2, population=N, up=SCHEMA, down=0).guarantee.epsilon
    tiers = BudgetTiers.model_validate(
        {"off": (0, 0.1), "careful": (1, 0.5), "middle": (3, 0.2), "generous": (top, 0.2)}
    )
    sized = with_tiers(bare, tiers, 2, N, [SCHEMA])
    claims = {c.name: c for c in forecast(sized, rounds=2, population=N, up=SCHEMA, down=0).guarantee.tiers}
    assert claims["off"].epsilon == claims["off"].weight == 0
    assert claims["generous"].epsilon == top
    for name, epsilon in (("careful", 1), ("middle", 3)):
        assert 0.99 * epsilon < claims[name].epsilon <= epsilon
    assert 0 < claims["careful"].weight < claims["middle"].weight < 1
    ledger = Ledger(sized, N)
    for t in range(2):
        ledger.record(
            cohort_id=t, round=t, step="s", index=0, schema=SchemaSummary.from_schema(SCHEMA), participants=np.arange(N)
        )
    assert [c.epsilon for c in ledger.guarantee().tiers] == [c.epsilon for c in claims.values()]
    assert ledger.guarantee().of_tier("careful") == claims["careful"].epsilon


def test_weights_of_one_release_are_ratios_of_mu() -> None:
    bare = PrivacyPlan.from_dict({"mechanism": CENTRAL | {"noise_multiplier": 0.7}})
    top = account(forecast_event(bare), 1e-5).epsilon
    sized = with_tiers(bare, BudgetTiers.model_validate({"careful": (1, 0.5), "generous": (top, 0.5)}), 1, N, [SCHEMA])
    alone = solve_gaussian(1, 1, 1.0, 1e-5).budget.noise_multiplier
    assert sized.tiers is not None
    assert sized.tiers.weight("careful") == pytest.approx(0.7 / alone, rel=3e-3)


def forecast_event(bare: PrivacyPlan) -> Any:
    ledger = Ledger(bare, N)
    ledger.record(
        cohort_id=0, round=0, step="s", index=0, schema=SchemaSummary.from_schema(SCHEMA), participants=np.arange(N)
    )
    return ledger.event()


@pytest.mark.parametrize(("n", "size", "z"), [(2, 1, 0.1), (100, 30, 1.0), (10**6, 10**7, 3.0), (50, 10**9, 300.0)])
@pytest.mark.parametrize("weight", [1e-3, 0.2, 0.999, 1.0])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_short_upload_pays_for_the_rounding_of_the_whole_sum(
    n: int, size: int, z: float, weight: float, share: float
) -> None:
    summed = NoisedSum(clip_norm=2 * math.sqrt(share), deviation=2 * z, coordinates=size, summands=n)
    moves = weight * summed.clip_norm + (summed.widening - 1) * summed.clip_norm
    true = summed.deviation * summed.widening / moves
    mechanism = PrivacyPlan.from_dict({"mechanism": CENTRAL | {"noise_multiplier": z}}).mechanism
    claimed: Any = mechanism.weighted_event(SchemaSummary(("a",), (), size, share), n, weight)
    assert claimed.noise_multiplier <= true * (1 + 1e-9)
    assert claimed.noise_multiplier > (0.7 if z < 10 else 0.4) * true


def test_rounding_of_shares_keeps_to_the_norm_of_the_tier() -> None:
    weighted = plan(DISTRIBUTED)
    whole: Any = event_for(weighted, SchemaSummary.from_schema(SCHEMA), N)
    short: Any = event_for(weighted, SchemaSummary.from_schema(SCHEMA), N, 0.25)
    assert short.total_variance == whole.total_variance
    assert 0.25 * whole.l2 <= short.l2 < 0.26 * whole.l2
    assert event_for(weighted, SchemaSummary.from_schema(SCHEMA), N, 0.0).kind == "empty"


def test_the_clip_comes_first_and_the_weight_after_it() -> None:
    streams, sent = Streams.from_seed(3), updates()
    before = sent.norms(2).clone()
    guard = ClientGuard(plan(CENTRAL), streams)
    guard.clip_(sent)
    weights = guard.weights(sent.clients)
    assert set(weights.tolist()) == {0.0, 0.25, 1.0}
    wanted = torch.minimum(before, torch.tensor(2.0, dtype=torch.float64)) * weights
    torch.testing.assert_close(sent.norms(2), wanted.to(sent.norms(2).dtype), rtol=1e-5, atol=0)
    assert (sent.norms(2) <= 2 * weights).all()


def test_who_is_in_which_tier_follows_from_the_seed_alone() -> None:
    tiers, users = BudgetTiers.model_validate(WEIGHTED), torch.arange(4000)
    at = tiers_of(tiers, Streams.from_seed(1, "one plan"), users)
    assert (at == tiers_of(tiers, Streams.from_seed(1, "another"), users)).all()
    some = torch.tensor([5, 3999, 17])
    assert (at[some] == tiers_of(tiers, Streams.from_seed(1), some)).all()
    np.testing.assert_allclose(np.bincount(at) / len(at), [0.25, 0.5, 0.25], atol=0.03)


def test_people_who_are_named_nowhere_are_careful() -> None:
    table = {"careful": {"epsilon": 1, "share": 0.5, "weight": 0.5, "members": "7"}}
    table |= {"generous": {"epsilon": 8, "share": 0.5, "weight": 1, "members": "2-3,7"}}
    tiers = BudgetTiers.model_validate(table)
    assert weights_of(tiers, Streams.from_seed(0), torch.arange(9)).tolist() == [0.5, 0.5, 1, 1, *[0.5] * 5]


class Uploaders(StatefulClients):
    """Everybody uploads the same short vector."""

    steps = frozenset({"train"})

    def __init__(self) -> None:
        self.private = PrivateState({})

    def train(self, call: Call, message: Message) -> ClientUpdates:
        everyone = torch.arange(len(call.clients))
        parts = [Dense(name, everyone, torch.full((len(everyone), *b.shape), 0.1)) for name, b in SCHEMA.items()]
        return ClientUpdates(call.clients, call.schema, parts)


@pytest.mark.parametrize("mechanism", [CENTRAL, DISTRIBUTED])
@pytest.mark.parametrize("fidelity", ["exact", "analytic"])
def test_means_divide_by_the_announced_weights(mechanism: dict[str, Any], fidelity: Any) -> None:
    quiet = plan(mechanism | {"noise_multiplier": 1e-4})
    streams = Streams.from_seed(0)
    simulation = Simulation(Uploaders(), quiet, N, streams, Ledger(quiet, N), fidelity=fidelity)
    total = simulation.aggregate("train", simulation.sample_cohort(0), Message({}), SCHEMA)
    assert total.denominator == N * (0.5 * 0.25 + 0.25)
    true = float(weights_of(quiet.tiers, streams, torch.arange(N)).sum())
    assert true != total.denominator
    expected = torch.full((6, 5), 0.1 * true / total.denominator)
    torch.testing.assert_close(total.mean("a"), expected, rtol=0, atol=2e-3)


def config(words: str, method: str = "fedmf", tiers: Any = TWO, **fields: Any) -> ExperimentConfig:
    name, _, rest = words.partition(":")
    settings = dict(part.split("=") for part in rest.split(",") if part)
    return ExperimentConfig(
        data="synthetic-tests",
        method={"name": method},
        privacy=PrivacyPlan.named(name, tiers=tiers, **{key: float(v) for key, v in settings.items()}),
        taps=TapConfig(places=()),
        rounds=2,
        **fields,
    )


def test_a_run_says_what_each_tier_gets(small_split: Split) -> None:
    experiment = Experiment(config("central-gaussian", "private-gram"), small_split)
    tiers = experiment.config.privacy.tiers
    assert tiers is not None
    sums: Any = experiment.public_info.sums
    assert sums.clients == pytest.approx(45 * tiers.mean_weight)
    guarantee = experiment.run(parts=()).guarantee
    assert [c.name for c in guarantee.tiers] == ["careful", "generous"]
    assert 0.99 < guarantee.tiers[0].epsilon <= 1
    assert guarantee.tiers[1].epsilon == guarantee.epsilon <= 8
    assert any("Choices are hidden" in sentence for sentence in guarantee.statements)
    assert type(guarantee).model_validate(guarantee.model_dump()) == guarantee


def test_public_choices_are_counted(small_split: Split) -> None:
    public = size(config("central-gaussian", tiers={**TWO, "hidden": False}), small_split).config.privacy
    assert public.tiers is not None
    at = tiers_of(public.tiers, Streams.from_seed(0), torch.arange(45))
    assert public.counted(45) == pytest.approx(public.tiers.weights[at].sum())
    table = {"careful": {"epsilon": 1, "share": 0.5}, "generous": {"epsilon": 8, "share": 0.5, "members": "44-45"}}
    with pytest.raises(PlanError, match=r"tiers\.generous\.members names user 45 of 45"):
        size(config("central-gaussian", tiers=table), small_split)


@pytest.fixture(scope="module")
def assembled(few_users: Split) -> ExperimentConfig:
    sized = config("central-gaussian:clip_norm=1")
    return Experiment(sized, few_users).config


def _of_both_tiers(config: ExperimentConfig, users: int) -> list[int]:
    assert config.privacy.tiers is not None
    at = tiers_of(config.privacy.tiers, Streams.from_seed(config.seed), torch.arange(users))
    return [int(np.flatnonzero(at == tier)[0]) for tier in (0, 1)]


def test_neighbours_of_every_tier_move_no_more_than_its_weight(few_users: Split, assembled: ExperimentConfig) -> None:
    found = rerun_on_neighbours(assembled, few_users, _of_both_tiers(assembled, 18), 1)
    moved = [one for one in found if one.what == "a released sum"]
    assert all(one.holds for one in found)
    assert moved[0].bound < 0.3 * moved[1].bound
    assert moved[0].value > 0.9 * moved[0].bound


def _unweighted(former: Any) -> Any:
    def clip_(self: ClientGuard, sent: ClientUpdates, clip_norm: float | None = None) -> int:
        tiers, self.plan = self.plan, self.plan.model_copy(update={"tiers": None})
        try:
            return int(former(self, sent, clip_norm))
        finally:
            self.plan = tiers

    return clip_


def _weighted_before(former: Any) -> Any:
    def clip_(self: ClientGuard, sent: ClientUpdates, clip_norm: float | None = None) -> int:
        sent.scale_(self.weights(sent.clients))
        return int(_unweighted(former)(self, sent, clip_norm))

    return clip_


@pytest.mark.parametrize("fault", [_unweighted, _weighted_before])
def test_the_replay_finds_a_tier_that_counts_too_much(
    fault: Any, few_users: Split, assembled: ExperimentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientGuard, "clip_", fault(ClientGuard.clip_))
    found = rerun_on_neighbours(assembled, few_users, _of_both_tiers(assembled, 18), 1)
    failed = [one for one in found if not one.holds]
    assert any(one.what == "a released sum" for one in failed)
