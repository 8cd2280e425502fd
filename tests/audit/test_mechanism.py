"""The audit of the guards: honest ones stay just below their claim, broken ones are caught, plans without one have no
row.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.audit import mechanism
from privfed.audit.accounted import of_a_run, of_one_draw
from privfed.audit.mechanism import audit_mechanism
from privfed.audit.report import GuaranteeRow
from privfed.privacy import ClientGuard, PrivacyPlan, RandomisedResponse, RingCode, ServerGuard
from privfed.updates import Block

pytestmark = pytest.mark.usefixtures("unchecked")
"""Checking every signature of so many draws would take most of the time."""

USERS = 50
ITEMS = {"items": Block((70, 8))}
MODEL = {**ITEMS, "head": Block((8,), weight=2.0), "touched": Block((70,), "integer", bound=1)}
REAL = {name: block for name, block in MODEL.items() if block.kind == "real"}

LAPLACE = "local-laplace:clip_norm=0.7,epsilon0=1"
GAUSSIAN = "local-gaussian:clip_norm=0.7,noise_multiplier=2"
PER_BLOCK = GAUSSIAN + ",clipping=per_block"
CENTRAL = "central-gaussian:clip_norm=0.7,noise_multiplier=1"
SHARES = "distributed-gaussian:clip_norm=0.7,noise_multiplier=1,n_min_honest=20"
COVER = "shared-sum:cover.kind=randomised_response,cover.epsilon=1"


def row(words, schema=REAL, draws=2000, **options):
    (found,) = audit_mechanism(PrivacyPlan.parse(words), schema, USERS, draws=draws, **options)
    return found


@pytest.mark.parametrize(
    ("words", "least", "tap", "unit"),
    [
        (LAPLACE, 0.75, "wire", "upload"),
        (GAUSSIAN, 0.75, "wire", "upload"),
        (PER_BLOCK, 0.75, "wire", "upload"),
        (CENTRAL, 0.75, "sum", "upload"),
        (CENTRAL + ",adaptive.quantile=0.5", 0.75, "sum", "upload"),
        (CENTRAL + ",sampling.kind=poisson,sampling.rate=0.1", 0.75, "sum", "upload"),
        (SHARES, 0.7, "sum", "upload"),
        (SHARES + ",law=discrete_gaussian,bits=64", 0.7, "sum", "upload"),
        (COVER, 0.8, "support", "interaction"),
    ],
)
def test_honest_guards_stand_just_below_their_claim(words, least, tap, unit):
    """The claim of shares is by RDP, a tenth above what noise of that variance costs; the others' are tight
    with more draws."""
    found = row(words)
    assert least * found.accounted <= found.value <= found.accounted
    assert (found.kind, found.tap, found.unit, found.consistent) == ("lower bound", tap, unit, True)
    assert found.trials >= 4000
    assert found.confidence == 0.95


def test_one_laplace_upload_at_epsilon_one():
    """The figure of the research literature: 5 % below, and never above."""
    found = row(LAPLACE, ITEMS, draws=None)
    assert found.accounted == pytest.approx(1, abs=1e-4)
    assert 0.92 <= found.value <= 1


def test_what_is_accounted_is_one_upload_and_neither_a_run_nor_amplified():
    sampled = row(CENTRAL + ",sampling.kind=poisson,sampling.rate=0.1", draws=500)
    assert sampled.accounted == row(CENTRAL, draws=500).accounted == pytest.approx(4.377, abs=0.01)
    assert sampled.neighbours == "add_or_remove_one"
    assert row(SHARES, draws=500).neighbours == "zero_out_one"
    assert row(LAPLACE, draws=500).neighbours == "replace_one"


def test_fakes_promise_nothing_and_give_much_away():
    """A true row is always sent, so a row that is missing settles the matter."""
    found = row("shared-sum:cover.kind=fake_items,cover.rho=1,cover.drawn=uniform")
    assert found.accounted == math.inf
    assert found.value > 5
    assert found.consistent


@pytest.mark.parametrize(
    "words",
    [
        "none",
        "clip:clip_norm=1",
        "published-noise",
        "secure-sum:clip_norm=1",
        "shared-sum",
        "shared-sum:cover.kind=own_rows",
        "local-laplace:clip_norm=1,epsilon0=1,clip_order=2",
        "local-laplace:clip_norm=1,epsilon0=1,coordinates=touched",
        "interaction-dpsgd:clip_norm=1,noise_multiplier=1",
    ],
)
def test_a_plan_that_claims_nothing_of_an_upload_has_nothing_to_test(words):
    assert audit_mechanism(PrivacyPlan.parse(words), REAL, USERS) == []


def test_exact_blocks_void_the_claim_and_the_test():
    assert audit_mechanism(PrivacyPlan.parse(CENTRAL), MODEL, USERS) == []


def test_the_size_of_blocks_does_not_matter_and_the_seed_decides():
    large = {name: Block((500, 3), weight=block.weight) for name, block in REAL.items()}
    assert row(CENTRAL) == row(CENTRAL, large)
    assert row(CENTRAL) != row(CENTRAL, seed=5)


class HalfNoise(ClientGuard):
    """Sends the middle between what it should send and the bare update."""

    def wire(self, updates, call, positions, out=None):
        bare = updates.materialise(positions)
        noisy = super().wire(updates, call, positions, out)
        return {name: (values + bare[name]) / 2 for name, values in noisy.items()}


class NoClip(ClientGuard):
    """Forgets to clip; inputs a little beyond the clip show it."""

    def clip_(self, updates, clip_norm=None):
        updates.scale_(torch.full((len(updates),), 3 / mechanism.FAR))
        return 0


class ClipEachBlock(ClientGuard):
    """Brings every block to the whole clip norm by itself."""

    def clip_(self, updates, clip_norm=None):
        clip = self.plan.protection.clip
        norms = updates.norm_powers(clip.order) ** (1 / clip.order)
        updates.scale_((clip.norm / norms.clamp(min=1e-30)).clamp(max=1))
        return 0


class ForgetsWeights(ClientGuard):
    """Adds the noise of the first block to a block that counts double."""

    def wire(self, updates, call, positions, out=None):
        bare = updates.materialise(positions)
        noisy = super().wire(updates, call, positions, out)
        return {n: bare[n] + (values - bare[n]) / call.schema[n].weight for n, values in noisy.items()}


@pytest.mark.parametrize("words", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("broken", [HalfNoise, NoClip, ClipEachBlock])
def test_a_broken_device_is_caught(monkeypatch, words, broken):
    monkeypatch.setattr(mechanism, "ClientGuard", broken)
    found = row(words)
    assert found.value > 1.2 * found.accounted
    assert not found.consistent


def test_noise_that_forgets_a_weight_is_caught(monkeypatch):
    monkeypatch.setattr(mechanism, "ClientGuard", ForgetsWeights)
    assert not row(LAPLACE).consistent


@pytest.mark.parametrize("words", [CENTRAL, CENTRAL + ",adaptive.quantile=0.5"])
def test_a_server_that_adds_half_the_noise_is_caught(monkeypatch, words):
    full = ServerGuard.add_gaussian_
    monkeypatch.setattr(
        ServerGuard,
        "add_gaussian_",
        lambda self, sums, round, ask, schema, deviation: full(self, sums, round, ask, schema, deviation / 2),
    )
    assert not row(words).consistent


def test_a_central_server_that_trusts_unclipped_uploads_is_caught(monkeypatch):
    monkeypatch.setattr(mechanism, "ClientGuard", NoClip)
    assert not row(CENTRAL).consistent


def test_shares_of_half_the_noise_are_caught(monkeypatch):
    weak = PrivacyPlan.parse(SHARES.replace("noise_multiplier=1", "noise_multiplier=0.5"))
    monkeypatch.setattr(ServerGuard, "code", lambda self, schema: RingCode(weak.protection, schema, USERS))
    assert not row(SHARES).consistent


def test_a_cover_that_answers_too_truthfully_is_caught(monkeypatch):
    drawn = mechanism.draw_cover
    loud = RandomisedResponse(epsilon=1.5)
    monkeypatch.setattr(
        mechanism,
        "draw_cover",
        lambda cover, *histories: drawn(loud.model_copy(update={"seed": cover.seed}), *histories),
    )
    assert not row(COVER).consistent


def test_an_alarm_is_raised_only_when_fresh_draws_repeat_it(monkeypatch):
    """Measured once more, and the second measurement counts."""
    seeds = []
    real = mechanism._audit

    def alarmed(*arguments):
        seeds.append(arguments[-1])
        rows = real(*arguments)
        return [r.model_copy(update={"consistent": False}) for r in rows] if len(seeds) == 1 else rows

    monkeypatch.setattr(mechanism, "_audit", alarmed)
    assert row(CENTRAL).consistent
    assert seeds == [0, 1]


@settings(max_examples=20, deadline=None)
@given(
    multiplier=st.floats(0.3, 20),
    clip=st.floats(1e-3, 1e3),
    weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=4),
    seed=st.integers(0, 10_000),
)
def test_no_honest_server_is_accused(multiplier, clip, weights, seed):
    """Whatever scale, weights and seed: an honest plan stays consistent (a chance alarm would have to come twice)."""
    schema = {f"b{place}": Block((7,), weight=weight) for place, weight in enumerate(weights)}
    plan = f"central-gaussian:clip_norm={clip!r},noise_multiplier={multiplier!r}"
    assert row(plan, schema, draws=2000, seed=seed).consistent


def claim(**changes):
    fields = {
        "epsilon": 2.0, "reason_if_inf": None, "delta": 1e-5, "unit": "user", "neighbours": "add_or_remove_one",
        "trust": "central", "per": "run", "rounds_counted": 3, "accountant": "PLD", "accountant_version": "1",
        "cross_check": {}, "basic_epsilon": None, "assumptions": [], "statements": [],
    }  # fmt: skip
    return GuaranteeRow.model_validate(fields | changes)


@pytest.mark.parametrize("neighbours", ["add_or_remove_one", "zero_out_one", "replace_one"])
def test_a_claim_about_users_covers_a_user_as_it_is(neighbours):
    assert of_a_run(claim(neighbours=neighbours), "user") == (2.0, 1e-5)


def test_a_claim_about_interactions_says_nothing_of_a_user():
    assert of_a_run(claim(unit="interaction"), "user")[0] == math.inf
    assert of_a_run(claim(unit="interaction"), "interaction") == (2.0, 1e-5)


def test_replacing_a_history_by_another_takes_two_steps():
    epsilon, delta = of_a_run(claim(), "interaction")
    assert epsilon == 4
    assert delta == pytest.approx(1e-5 * (1 + math.exp(2)))


def test_an_upload_of_nothing_costs_nothing():
    assert of_one_draw(PrivacyPlan.parse(CENTRAL), [{}], USERS) == 0
    assert of_one_draw(PrivacyPlan.parse("none"), [REAL], USERS) == math.inf
