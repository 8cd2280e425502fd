"""What the rows that clients send give away, on real runs over generated views and purchases."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from attacks.supports import debiased_count, support_auc
from privfed.audit.attack_runs.padding_rates import padding_rates
from privfed.audit.attack_runs.rows_seen import rows_seen, target_items
from privfed.audit.attack_runs.supports import attack_supports
from privfed.audit.grid import as_run
from privfed.audit.page.render import render
from privfed.audit.report.aggregates import aggregate
from privfed.audit.report.records import AttackRow, GuaranteeRow, ProtocolUsed, Run
from privfed.data import Split, SplitSpec, load, split
from privfed.engines.costs import Costs
from privfed.experiment import Experiment
from privfed.methods.dfmr.reconstruction import STARTS, rebuild_codes
from privfed.privacy import PrivacyPlan
from privfed.privacy.padding.fake_items import FakeItems
from privfed.privacy.padding.randomised_response import RandomisedResponse
from privfed.setup.config import ExperimentConfig
from privfed.setup.padded_histories import sample_padding

FUNNEL = SplitSpec(kind="leave_one_out", target="buy")
UNIFORM = {"kind": "fake_items", "rho": 0.5, "drawn": "uniform"}
POPULAR = {"kind": "fake_items", "rho": 0.5, "drawn": "popularity"}
RANDOMISED = {"kind": "randomised_response", "epsilon": 2.0, "keep": 0.5}
Ran = tuple[Experiment, Run]


@cache
def parts(name: str) -> Split:
    return split(load(name), FUNNEL if "funnel" in name else SplitSpec())


def behind(plan: PrivacyPlan, method: str = "dfmr", data: str = "synthetic-funnel-small", seed: int = 0) -> Ran:
    config = ExperimentConfig(
        data=data, split=parts(data).spec, method={"name": method}, privacy=plan, rounds=2, seed=seed
    )
    experiment = Experiment(config, parts(data))
    return experiment, as_run(experiment, experiment.run(), f"{method}-{plan.slug}-{seed}")


def shared(
    padding: dict[str, object], method: str = "dfmr", data: str = "synthetic-funnel-small", seed: int = 0
) -> Ran:
    clip = {} if method == "dfmr" else {"clip_norm": 1.0}
    return behind(PrivacyPlan.named("shared-sum", padding=padding, **clip), method, data, seed)


@pytest.fixture(scope="module")
def uniform() -> Ran:
    return shared(UNIFORM)


@pytest.fixture(scope="module")
def popular() -> Ran:
    return shared(POPULAR)


@pytest.fixture(scope="module")
def randomised() -> Ran:
    return shared(RANDOMISED)


def on_rows(run: Run, game: str) -> dict[str, AttackRow]:
    return {row.attack: row for row in run.attacks if (row.tap, row.game) == ("support", game)}


def test_fake_items_hide_nothing_but_among_themselves(uniform: Ran) -> None:
    experiment, run = uniform
    leak = run.support
    assert leak is not None
    assert leak.posterior is not None
    assert leak.posterior.value == pytest.approx(leak.posterior_expected, abs=0.01)
    assert leak.posterior_over_rows == pytest.approx(leak.posterior_over_rows_expected, abs=0.01)
    assert leak.count_exact is not None
    assert leak.count_exact.value == 1.0
    assert leak.claim.epsilon == run.guarantee.support.epsilon == float("inf")
    assert leak.seen_by == "aggregators"
    assert leak.up_bytes_per_client_round == run.comm.up_bytes_per_client_round
    among, rest = on_rows(run, "examined vs padding"), on_rows(run, "examined vs rest")
    assert among.keys() == rest.keys() == {"popularity", "in support", "estimated examined share", "affinity"}
    assert among["in support"].auc.value == 0.5
    users = experiment.audited().numpy()
    sizes = [rows.mask(users).sum(1) for rows in (experiment.parts.train, target_items(experiment))]
    phi = 0.5 * sum(sizes) / (experiment.parts.train.n_items - sum(sizes))
    assert rest["in support"].auc.value == pytest.approx(np.mean(1 - phi / 2), abs=0.005)
    assert {row.adversary for name, row in among.items() if name != "popularity"} == {"aggregator"}
    assert {row.unit for row in rest.values() if row.attack != "popularity"} == {"examination"}


def test_fake_items_like_purchases_blind_the_popularity_guess(uniform: Ran, popular: Ran) -> None:
    guessed = [on_rows(run, "examined vs padding")["popularity"] for _, run in (uniform, popular)]
    assert guessed[0].auc.value > guessed[1].auc.value + 0.05


def test_randomised_response_is_what_its_formulas_say(randomised: Ran) -> None:
    _, run = randomised
    padding, leak = RandomisedResponse(epsilon=2.0, keep=0.5), run.support
    assert leak is not None
    assert leak.posterior is not None
    assert leak.claim.epsilon == pytest.approx(2.0, abs=1e-6)
    assert on_rows(run, "examined vs rest")["in support"].auc.value == pytest.approx(
        support_auc(padding.keep, padding.others), abs=0.02
    )
    assert leak.posterior.value == pytest.approx(leak.posterior_expected, abs=0.03)
    assert leak.count_exact is not None
    assert leak.count_error is not None
    assert leak.count_exact.value < 0.3
    assert leak.count_error.value > 2


@pytest.mark.parametrize(
    "plan",
    [
        PrivacyPlan.named("shared-sum"),
        PrivacyPlan.named("secure-sum", clip_norm=1.0, bits=64),
        PrivacyPlan.named("none", release="total"),
    ],
)
def test_where_nobody_sees_rows_nothing_is_attacked(plan: PrivacyPlan) -> None:
    _, run = behind(plan)
    assert {row.tap for row in run.attacks} == {"scores"}
    leak = run.support
    assert leak is not None
    assert leak.seen_by is None
    assert leak.claim.epsilon == 0
    assert leak.posterior is leak.count_exact is leak.padding_rows is None
    assert leak.rebuilt is not None


def test_unprotected_the_server_sees_every_examination() -> None:
    _, run = behind(PrivacyPlan.named("none"))
    rest = on_rows(run, "examined vs rest")
    assert rest["in support"].auc.value == 1.0
    assert {row.adversary for row in rest.values()} == {"server"}
    assert on_rows(run, "examined vs padding") == {}
    assert run.support is not None
    assert run.support.posterior is not None
    assert run.support.posterior.value == run.support.count_exact.value == 1.0


def test_purchases_are_no_targets(uniform: Ran) -> None:
    _, run = uniform
    assert {row.game for row in run.attacks} == {"examined vs rest", "examined vs padding"}


def test_a_method_that_looks_at_no_examinations_gives_none_away() -> None:
    _, run = behind(PrivacyPlan.named("shared-sum", padding=UNIFORM), "dcf")
    assert run.attacks == []
    leak = run.support
    assert leak is not None
    assert leak.posterior is None
    assert leak.private_rows == 0
    assert leak.padding_rows is not None
    assert leak.padding_rows > 0


def test_training_items_where_they_are_private() -> None:
    _, run = shared({**UNIFORM, "rho": 1.0}, "fedmf", "synthetic-small")
    leak = run.support
    assert leak is not None
    assert leak.private == "training items"
    assert leak.public_rows == 0
    assert leak.codes == []
    assert leak.posterior is not None
    assert leak.posterior.value == pytest.approx(leak.posterior_expected, abs=0.01)
    assert on_rows(run, "trained vs padding").keys() == {"popularity", "in support", "estimated examined share"}
    assert on_rows(run, "trained vs never seen")["in support"].auc.value > 0.8


def test_own_rows_of_a_method_that_samples_negatives() -> None:
    experiment, run = shared({"kind": "no_padding"}, "fedmf", "synthetic-small")
    before = experiment.clients.state()
    leak = run.support
    assert leak is not None
    assert leak.posterior is not None
    assert 0.1 < leak.posterior.value < 0.5
    assert leak.posterior_expected is leak.count_exact is None
    seen = rows_seen(experiment, 2)
    assert seen is not None
    users = experiment.audited().numpy()
    assert not (experiment.parts.train.mask(users) & ~seen.sent.mask(users)).any()
    assert all(value.equal(experiment.clients.state()[name]) for name, value in before.items())


def test_methods_whose_rows_are_seen_with_their_values_have_no_record() -> None:
    _, run = behind(PrivacyPlan.named("none"), "fedmf", "synthetic-small")
    assert run.support is None
    assert {row.tap for row in run.attacks} == {"wire", "scores"}


def test_codes_are_rebuilt_from_what_is_public(uniform: Ran) -> None:
    experiment, run = uniform
    before = experiment.clients.state()["codes"].clone()
    users = experiment.audited().numpy()
    public, train = experiment.server.public(), experiment.parts.train
    guesses = [rebuild_codes(experiment.server.config, public, train, users, start) for start in STARTS]
    truth = before.numpy()[users]
    assert [(guess == truth).mean() for guess in guesses] == [
        pytest.approx(code.bits.value) for code in run.support.codes
    ]
    assert run.support.rebuilt.start == "purchased items"
    assert run.support.rebuilt.gain.lo > 0.05
    assert experiment.clients.state()["codes"].equal(before)


def test_attacking_twice_says_the_same(uniform: Ran) -> None:
    experiment, run = uniform
    again, leak = attack_supports(experiment, 2, Costs())
    assert [row for row in run.attacks if row.tap == "support"] == again
    assert leak is not None
    assert leak.posterior == run.support.posterior


@pytest.mark.parametrize("drawn", ["uniform", "popularity"])
def test_rates_of_padding_are_those_of_its_draws(uniform: Ran, drawn: str) -> None:
    experiment, _ = uniform
    train, private = experiment.parts.train, target_items(experiment)
    everybody = np.arange(train.n_users)
    free = ~(train.mask(everybody) | private.mask(everybody))
    drawn_as_cover = np.zeros(train.n_items)
    for seed in range(30):
        padding = FakeItems(rho=0.5, drawn=drawn, seed=seed)
        covered = sample_padding(padding, private, train)
        drawn_as_cover += covered.fake_items.popularity()
    rates = padding_rates(padding, train.union(covered.kept.union(covered.fake_items)), train)
    found = drawn_as_cover / 30 / free.sum(0)
    assert np.abs(rates - found).mean() < 0.03
    assert np.corrcoef(rates, found)[0, 1] > (0.9 if drawn == "popularity" else -1)


def test_estimated_counts_are_near_the_true_ones(uniform: Ran) -> None:
    experiment, _ = uniform
    seen = rows_seen(experiment, 2)
    assert seen is not None
    train, private = experiment.parts.train, target_items(experiment)
    supporters = seen.sent.popularity() - train.popularity()
    rates = padding_rates(seen.padding, seen.sent, train)
    counts = debiased_count(supporters, train.n_users - train.popularity(), q=1.0, p=rates)
    assert np.abs(counts - private.popularity()).mean() < 6
    assert np.corrcoef(counts, private.popularity())[0, 1] > 0.9


def test_cells_average_what_seeds_gave_away(uniform: Ran) -> None:
    runs = [uniform[1], shared(UNIFORM, seed=1)[1]]
    (cell,) = aggregate(runs)
    assert cell.support is not None
    bits = [run.support.codes[0].bits.value for run in runs]
    assert cell.support.codes[0].bits.value == pytest.approx(np.mean(bits))
    assert cell.support.posterior.lo == pytest.approx(np.mean([run.support.posterior.lo for run in runs]))
    assert cell.support.padding_rows == pytest.approx(np.mean([run.support.padding_rows for run in runs]))
    assert cell.support.claim == runs[0].support.claim
    assert cell.support.posterior_expected is not None


def test_what_one_seed_lacks_is_left_out(uniform: Ran) -> None:
    run = uniform[1]
    lacking = run.model_copy(update={"support": run.support.model_copy(update={"posterior": None})})
    (cell,) = aggregate([run, lacking])
    assert cell.support is not None
    assert cell.support.posterior is None
    assert cell.support.count_exact == run.support.count_exact


def test_the_report_page_and_words(make: Callable, uniform: Ran, randomised: Ran) -> None:
    popularity = behind(PrivacyPlan.named("none"), "popularity")[1]
    every_row = behind(PrivacyPlan.named("shared-sum"))[1]
    runs = [popularity, behind(PrivacyPlan.named("none"))[1], uniform[1], randomised[1], every_row]
    assert [Run.model_validate_json(run.model_dump_json()) for run in runs] == runs
    report = make.report(runs, protocol=ProtocolUsed(settings={}, sentence="Whole catalogue."))
    assert report.contradictions == []
    said = {s.setting: s for s in report.statements if s.topic == "support"}
    assert said.keys() == {run.setting.slug for run in runs[1:]}
    assert "Epsilon of the rows alone is ∞" in said[uniform[1].setting.slug].text
    assert "is read off correctly for 100% of people" in said[uniform[1].setting.slug].detail
    assert "Nobody sees which rows" in said[every_row.setting.slug].text
    attacked = {s.setting: s.text for s in report.statements if s.topic == "attack"}
    assert "which rows a person's device sends, an aggregator tells" in attacked[uniform[1].setting.slug]
    assert "examined" in attacked[uniform[1].setting.slug]
    assert "No attack applies to what is seen" in attacked[every_row.setting.slug]
    page = render(report)
    assert page.count('aria-label="Table of rows sent"') == 1
    assert "uniform fake items" in page
    assert "NDCG" in page


def test_an_unprotected_run_whose_rows_say_nothing_is_a_broken_attack(make: Callable) -> None:
    run = behind(PrivacyPlan.named("none"))[1]
    weak = [
        row.model_copy(update={"auc": row.auc.model_copy(update={"value": 0.5})}) if row.attack == "in support" else row
        for row in run.attacks
    ]
    report = make.report([behind(PrivacyPlan.named("none"), "popularity")[1], run.model_copy(update={"attacks": weak})])
    assert [offence.rule for offence in report.contradictions] == ["positive_control"]


def test_a_guarantee_row_keeps_the_claim_of_the_rows(uniform: Ran, make: Callable) -> None:
    assert "always among them" in uniform[1].guarantee.support.sentence
    former = make.guarantee("local_laplace").model_dump(exclude={"support"})
    assert GuaranteeRow.model_validate(former).support is None
