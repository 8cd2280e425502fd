"""`interaction_dpsgd`: what is charged, what it adds up to, and that nobody mistakes its unit."""

import json
import math

import numpy as np
import pytest
from opacus.accountants import PRVAccountant, RDPAccountant

from privfed.audit.report import formatting
from privfed.cli.compatibility import EXAMPLES, fit
from privfed.contracts import Block
from privfed.methods import methods
from privfed.privacy import Ledger, LedgerError, PlanError, PrivacyPlan, SchemaSummary, forecast, plan_for_target
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Exact, SampledGaussian
from privfed.privacy.guarantee import Guarantee, guarantee_for
from privfed.privacy.mechanisms.interaction_dpsgd import InteractionDPSGD
from privfed.privacy.mechanisms.sizing import NoiseTarget
from privfed.privacy.plan import event_for

WORDS = "interaction-dpsgd:clip_norm=0.5,noise_multiplier=1.2,local_rate=0.1,local_steps=5,expected_records=80"
PLAN = PrivacyPlan.parse(WORDS)
SCHEMA = SchemaSummary(("items",), (), 100)


def ledger_of(rounds, plan=PLAN, members=None, population=10, path=None):
    ledger = Ledger(plan, population, path)
    for t in range(rounds):
        who = np.arange(population) if members is None else members(t)
        ledger.record(cohort_id=t, round=t, step="train", index=0, schema=SCHEMA, participants=who)
    return ledger


def opacus(accountant, z, rate, steps, delta, **options):
    made = accountant()
    made.history = [(z, rate, steps)]
    return float(made.get_epsilon(delta, **options))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_run_is_steps_times_rounds_sampled_gaussians(rate):
    rounds, steps, z = 30, 5, 1.2
    words_ = f"interaction-dpsgd:clip_norm=7,noise_multiplier={z},local_rate={rate},local_steps={steps}"
    guarantee = ledger_of(rounds, PrivacyPlan.parse(words_)).guarantee()
    prv = opacus(PRVAccountant, z, rate, rounds * steps, 1e-5, eps_error=0.01)
    assert guarantee.epsilon <= prv <= guarantee.epsilon + 0.02
    assert guarantee.epsilon <= opacus(RDPAccountant, z, rate, rounds * steps, 1e-5) <= 1.25 * guarantee.epsilon
    assert guarantee.accountant == "PLD"
    assert guarantee.cross_check.keys() == {"RDP", "PRV" if rate < 1 else "closed form"}


def test_each_upload_counts_for_who_made_it_and_hidden_users_amplify_nothing():
    """Interactions are sampled in secret; users are not: Poisson cohorts are charged by who was there."""
    plan = PrivacyPlan.parse(WORDS + ",sampling.kind=poisson,sampling.rate=0.5")
    assert not plan.amplifies
    some = ledger_of(8, plan, lambda t: np.array([0, 1]) if t % 2 else np.array([0]))
    composition = some.composition()
    assert composition.releases == (Releases(event_for(PLAN, SCHEMA, 10), 8),)
    assert some.guarantee().epsilon == pytest.approx(ledger_of(8).guarantee().epsilon)
    assert some.guarantee().epsilon > ledger_of(4).guarantee().epsilon > 0


def test_the_event_holds_what_the_device_does():
    mechanism = event_for(PLAN, SCHEMA, 10)
    assert mechanism == SampledGaussian(noise_multiplier=1.2, rate=0.1, steps=5)
    steps = PLAN.mechanism.noisy_steps
    assert (steps.clip_norm, steps.noise_multiplier, steps.rate, steps.steps) == (0.5, 1.2, 0.1, 5)
    assert steps.divisor == pytest.approx(8)
    assert isinstance(event_for(PLAN, SchemaSummary(("items",), ("counts",), 5), 10), Exact)


def test_the_ledger_is_read_back_and_refuses_another_noise(tmp_path):
    path = tmp_path / "ledger.jsonl"
    wanted = ledger_of(3, path=path).guarantee()
    assert Ledger.resume(PLAN, 10, path).guarantee() == wanted
    path.write_text(path.read_text().replace('"steps":5', '"steps":4', 1))
    with pytest.raises(LedgerError, match="line 2 was edited"):
        Ledger.resume(PLAN, 10, path)


def test_the_claim_names_its_unit_everywhere():
    claim = ledger_of(20).guarantee()
    assert (claim.unit, claim.neighbours, claim.trust) == ("interaction", "add_or_remove_one", "local")
    assert Guarantee.model_validate_json(claim.model_dump_json()) == claim
    first = claim.statements[0]
    assert first.startswith("The unit is ONE INTERACTION, NOT A USER: k interactions of one user together cost up to k")
    assert f"For a user of 80 that is up to {80 * claim.epsilon:,.4g}" in first
    told = " ".join(claim.statements)
    assert "Adding one interaction to that user's training history, or taking one out," in told
    assert "one user out entirely" not in told
    assert "a user's whole contribution" not in told
    assert "Who takes part, and when, is visible" in told
    assumed = " ".join(claim.assumptions)
    assert "In every local step (5 per upload) the device includes each interaction with a probability of" in assumed
    assert "in secret and independently" in assumed
    assert "adds Gaussian noise of 1.2 C to every coordinate" in assumed
    assert "Which interactions are included never leaves the device" in assumed
    assert "a step divides by 8, whatever" in assumed
    assert formatting.named(formatting.UNITS, claim.unit) == "one interaction of one person"
    assert formatting.compared(claim.neighbours, claim.unit) == "one interaction of one person present or absent"
    assert formatting.compared("add_or_remove_one", "user") == "one person present or absent"


@pytest.mark.parametrize("other", EXAMPLES.values())
def test_every_other_mechanism_is_about_users(other):
    claim = guarantee_for(PrivacyPlan(mechanism=other), Composition(), 200)
    assert claim.unit == ("interaction" if isinstance(other, InteractionDPSGD) else "user")
    assert (other.noisy_steps is None) == (claim.unit == "user")


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_plan_for_a_total_keeps_it(rate):
    plan = PrivacyPlan.parse(f"interaction-dpsgd:clip_norm=1,noise_multiplier=9,local_rate={rate},local_steps=4")
    sized = plan_for_target(plan, 8.0, rounds=25, population=10)
    total = ledger_of(25, sized).guarantee().epsilon
    assert 7.9 < total <= 8.0
    assert sized.mechanism.model_dump() | {"noise_multiplier": 9.0} == plan.mechanism.model_dump()


def test_a_forecast_is_dense_and_counts_every_upload():
    up = {"items": Block((50, 4)), "W0": Block((8, 2))}
    predicted = forecast(PLAN, rounds=20, population=10, up=up, down=up, touched_rows={"items": 3.0})
    assert predicted.up_bytes_per_client_round == 4 * 216
    assert predicted.uploads_bound == 20
    assert predicted.guarantee.epsilon == pytest.approx(ledger_of(20).guarantee().epsilon)
    assert predicted.guarantee.unit == "interaction"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "mechanism.interaction_dpsgd.clip_norm is missing|clip_norm is missing"),
        ({"clip_norm": 1.0}, "noise_multiplier is missing"),
        ({"clip_norm": 0.0, "noise_multiplier": 1.0}, "clip_norm"),
        ({"clip_norm": 1.0, "noise_multiplier": 0.0}, "noise_multiplier"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "local_rate": 0.0}, "local_rate"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "local_rate": 1.5}, "local_rate"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "local_steps": 0}, "local_steps"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "local_steps": 10_001}, "local_steps"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "expected_records": 0}, "expected_records"),
        ({"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 3}, "steps is not a known key"),
    ],
)
def test_bad_plans_are_refused_in_one_sentence(fields, sentence):
    with pytest.raises(PlanError, match=sentence):
        PrivacyPlan.named("interaction-dpsgd", **fields)


def test_a_plan_has_a_name_a_slug_and_a_way_back():
    assert PrivacyPlan.from_dict(json.loads(json.dumps(PLAN.to_dict()))) == PLAN
    assert PLAN.name == "per interaction, DP-SGD (z = 1.2, C = 0.5, 5 steps at rate 0.1)"
    assert PLAN.slug.startswith("interaction-dpsgd-clip-norm-0.5-noise-multiplier-1.2-local-rate-0.1-local-steps-5")


def test_the_table_of_methods_says_who_can():
    found = {name: fit(method, EXAMPLES["interaction-dpsgd"]) for name, method in methods().items()}
    assert {name for name, one in found.items() if one.reason is None} == {"fedncf", "pfedrec"}
    assert all("bounded gradient per interaction" in one.reason for one in found.values() if one.reason)
    assert all(one.unbounded is None for one in found.values())


def test_no_random_inclusion_no_claim_of_amplification():
    plan = PrivacyPlan.parse("interaction-dpsgd:clip_norm=1,noise_multiplier=1")
    assert (plan.mechanism.local_rate, plan.mechanism.local_steps) == (1, 1)
    assumed = " ".join(ledger_of(2, plan).guarantee().assumptions)
    assert "In every local step (1 per upload) the device takes all interactions, clips" in assumed
    assert "coin" not in assumed


def test_nothing_released_costs_nothing():
    claim = ledger_of(0).guarantee()
    assert (claim.epsilon, claim.unit) == (0.0, "interaction")
    assert math.isinf(guarantee_for(PLAN, Composition(reasons=("of a test",)), 10).epsilon)


@pytest.mark.parametrize(("uploads", "steps"), [(1, 9), (5, 1), (3, 4)])
def test_noise_is_sized_for_every_step_of_every_upload(uploads, steps):
    mechanism = InteractionDPSGD(clip_norm=1.0, noise_multiplier=9.0, local_steps=steps)
    target = NoiseTarget(2.0, 1e-5, uploads, float(uploads), uploads, 1.0, None, uniform=True, known_size=False)
    sized = mechanism.size_noise(target)
    [multiplier] = sized.fields.values()
    # Steps that include everything are one Gaussian release, whose epsilon is known exactly.
    assert sized.exact
    assert 1.99 < gaussian_epsilon(math.sqrt(uploads * steps) / multiplier, 1e-5) <= 2.0
