"""The audit of the engines: honest ones stay just below their claims, planted faults are caught, plans without a claim
have no row.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.audit.epsilon import mechanism
from privfed.audit.epsilon.claims import query_epsilon, run_claim
from privfed.audit.epsilon.mechanism import audit_mechanism
from privfed.audit.epsilon.probes import engines
from privfed.audit.epsilon.probes.engines import Engine, over_nodes, simulated
from privfed.audit.epsilon.probes.inputs import candidates
from privfed.audit.epsilon.probes.pairs import PairSearch
from privfed.audit.epsilon.probes.routing import Route
from privfed.audit.report.records import GuaranteeRow
from privfed.contracts import Block
from privfed.engines.aggregation import PlainSum
from privfed.engines.nodes.answering import Answering
from privfed.federation import Streams
from privfed.federation.grid import Grid
from privfed.guards import ClientGuard, RingCode, ServerGuard
from privfed.privacy import PrivacyPlan
from privfed.privacy.padding.randomised_response import RandomisedResponse
from privfed.updates import ClientUpdates, Dense

pytestmark = pytest.mark.usefixtures("unchecked")
"""Checking every signature of so many draws would take most of the time."""

USERS = 50
ITEMS = {"items": Block((70, 8))}
MODEL = {**ITEMS, "head": Block((8,), weight=2.0), "touched": Block((70,), "integer", bound=1)}
REAL = {name: block for name, block in MODEL.items() if block.kind == "real"}

LAPLACE = "local-laplace:clip_norm=0.7,epsilon0=1"
LARGE = "local-laplace:clip_norm=0.7,epsilon0=8"
GAUSSIAN = "local-gaussian:clip_norm=0.7,noise_multiplier=2"
PER_BLOCK = GAUSSIAN + ",clipping=per_block"
CENTRAL = "central-gaussian:clip_norm=0.7,noise_multiplier=1"
SHARES = "distributed-gaussian:clip_norm=0.7,noise_multiplier=1,n_min_honest=20"
PADDING = "shared-sum:padding.kind=randomised_response,padding.epsilon=1"


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def in_one_process(monkeypatch):
    """Without the paths over nodes, which have tests of their own."""
    for name in ("_ALONE", "_SUMMED"):
        kept = tuple(path for path in getattr(mechanism, name) if path.engine is simulated)
        monkeypatch.setattr(mechanism, name, kept)


def rows(words, schema=REAL, draws=1000, **options):
    return {r.audited: r for r in audit_mechanism(PrivacyPlan.parse(words), schema, USERS, draws=draws, **options)}


def denied(words, **options):
    return {audited for audited, row in rows(words, **options).items() if not row.consistent}


@pytest.mark.parametrize(
    ("words", "name", "least"),
    [
        (LAPLACE, "one upload", 0.55),
        (GAUSSIAN, "one upload", 0.6),
        (PER_BLOCK, "one upload", 0.6),
        (CENTRAL, "one upload in a sum", 0.6),
        (CENTRAL + ",adaptive.quantile=0.5", "one upload in a sum", 0.6),
        (CENTRAL + ",sampling.kind=poisson,sampling.rate=0.1", "one upload in a sum", 0.6),
        (SHARES + ",law=discrete_gaussian,bits=64", "one upload in a sum", 0.5),
    ],
)
def test_honest_engines_stand_just_below_their_claim(words, name, least):
    """The claim of shares is by RDP, a tenth above what noise of that variance costs; the others' are tight
    with more draws."""
    found = rows(words)
    assert all(row.consistent for row in found.values())
    assert all(row.value <= row.accounted for row in found.values())
    over = f"{name} over nodes"
    for one in (name, over):
        assert found[one].value >= (least if one == name else 0.8 * least) * found[one].accounted
        assert found[f"{one}, in each of 4 queries"].accounted > found[one].accounted
        assert (found[one].kind, found[one].unit, found[one].confidence) == ("lower bound", "upload", 0.95)
        assert found[one].largest_deniable > found[one].value
        assert found[f"secrets in {one}"].largest_deniable > 40
    assert found[name].tap == ("wire" if "local" in words else "sum")


@pytest.mark.parametrize("words", [LARGE, PER_BLOCK, CENTRAL, SHARES + ",law=discrete_gaussian,bits=64"])
def test_an_audit_follows_from_its_seed_over_nodes_too(words):
    assert rows(words, draws=100) == rows(words, draws=100)


def test_seeds_follow_from_an_engines_label_and_not_from_the_names_of_code():
    seeds = []

    def released(probe, uploads):
        seeds.append(probe.seed)
        return simulated.release(probe, uploads)

    def renamed(probe, uploads):
        return released(probe, uploads)

    present, forms = torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.int64)
    for engine in (Engine("one", released), Engine("one", renamed), Engine("other", released)):
        route = Route(engine, True, PrivacyPlan.parse(GAUSSIAN), [ITEMS], "exact", 0)
        schemas = route.schemas(4, 2)
        route.released(schemas, [{"items": torch.ones(3, 8)} for _ in schemas], forms, present, (0,), (0, 1))
    assert seeds[0] == seeds[1] != seeds[2]


def test_one_laplace_upload_at_epsilon_one(in_one_process):
    """The figure of the research literature: a little below, and never above."""
    found = rows(LAPLACE, ITEMS, draws=10_000)["one upload"]
    assert found.accounted == pytest.approx(1, abs=1e-4)
    assert 0.88 <= found.value <= 1


def test_what_is_accounted_is_one_upload_and_neither_a_run_nor_amplified(in_one_process):
    sampled = rows(CENTRAL + ",sampling.kind=poisson,sampling.rate=0.1", draws=200)["one upload in a sum"]
    plain = rows(CENTRAL, draws=200)["one upload in a sum"]
    assert sampled.accounted == plain.accounted == pytest.approx(4.377, abs=0.01)
    assert sampled.neighbours == "add_or_remove_one"
    assert rows(LAPLACE, draws=200)["one upload"].neighbours == "replace_one"


def test_fake_items_promise_nothing_and_give_much_away():
    """A true row is always sent, so a row that is missing settles the matter."""
    (found,) = rows("shared-sum:padding.kind=fake_items,padding.rho=1,padding.drawn=uniform").values()
    assert found.accounted == math.inf
    assert found.value > 5
    assert found.consistent


def test_a_padding_stands_below_its_claim():
    (found,) = rows(PADDING, draws=2000).values()
    assert 0.8 * found.accounted <= found.value <= found.accounted
    assert (found.tap, found.unit) == ("support", "interaction")


@pytest.mark.parametrize(
    "words",
    [
        "none",
        "clip:clip_norm=1",
        "published-noise",
        "secure-sum:clip_norm=1",
        "shared-sum",
        "shared-sum:padding.kind=no_padding",
        "local-laplace:clip_norm=1,epsilon0=1,clip_order=2",
        "local-laplace:clip_norm=1,epsilon0=1,coordinates=touched",
        "interaction-dpsgd:clip_norm=1,noise_multiplier=1",
    ],
)
def test_a_plan_that_claims_nothing_of_an_upload_has_nothing_to_test(words):
    assert audit_mechanism(PrivacyPlan.parse(words), REAL, USERS) == []


def test_exact_blocks_void_the_claim_and_the_test():
    assert audit_mechanism(PrivacyPlan.parse(CENTRAL), MODEL, USERS) == []


def test_the_size_of_blocks_does_not_matter_and_the_seed_decides(in_one_process):
    large = {name: Block((500, *block.shape[1:]), weight=block.weight) for name, block in REAL.items()}
    assert rows(CENTRAL, draws=200) == rows(CENTRAL, large, draws=200)
    assert rows(CENTRAL, draws=200) != rows(CENTRAL, draws=200, seed=5)


@pytest.mark.parametrize("words", [LAPLACE, GAUSSIAN, PER_BLOCK, CENTRAL])
def test_all_inputs_are_within_the_clip_and_at_it(words):
    plan = PrivacyPlan.parse(words)
    clip = plan.mechanism.clip
    tried = candidates(plan, [{name: replace(block, shape=(4, 2)) for name, block in REAL.items()}])
    assert {one.form for one in tried} == {0, 1, 2}
    assert {one.size for one in tried} == {1000, 1.1, 1.0}
    for one in tried:
        length = torch.cat(list(one.patterns[0].values())).norm(clip.order)
        assert float(length) == pytest.approx(1) or (clip.per_block is not None and length < 1)


@pytest.mark.parametrize("engine", [simulated, over_nodes])
@pytest.mark.parametrize(("words", "each"), [(GAUSSIAN, True), (CENTRAL, False)])
def test_engines_release_what_is_prescribed_in_every_representation(engine, words, each):
    """With hardly any noise: the inputs themselves, clipped, with their signs."""
    words = words.split("noise_multiplier")[0] + "noise_multiplier=0.00001"
    route = Route(engine, each, PrivacyPlan.parse(words), [REAL], "exact", 0)
    schemas = route.schemas(4, 2)
    present = torch.tensor([True, True, False, True])
    axis = torch.zeros(4, 8, dtype=torch.float64)
    axis[torch.arange(4), torch.arange(4)] = present.double()
    inputs = [{"items": 50 * axis, "head": 0 * axis} for _ in schemas]
    forms = torch.tensor([0, 1, 1, 2])
    first, second = route.released(schemas, inputs, forms, present, (0,), (0, 1))
    for found, turn in ((first, 1), (second, -1)):
        torch.testing.assert_close(found["items"][0], turn * axis, atol=1e-3, rtol=0)
        torch.testing.assert_close(found["items"][1], -turn * axis, atol=1e-3, rtol=0)
        assert float(found["head"].abs().max()) < 1e-3


# ---- planted faults

WIRE = ClientGuard.protect
ADD_NOISE = ServerGuard.add_noise_
ADD_STEPS = ServerGuard._add_steps_


def unprotected(self, updates, call, positions, out=None, steps=None):
    return updates.materialise(positions, out)


def only_where(quiet):
    def protect(self, updates, call, positions, out=None, steps=None):
        return (unprotected if quiet(call) else WIRE)(self, updates, call, positions, out)

    return protect


def as_if(change):
    return lambda self, updates, call, *more, **how: WIRE(self, updates, change(call), *more, **how)


def without_noise_in_the_last_block(self, updates, call, positions, out=None, steps=None):
    exact, noisy = updates.materialise(positions), WIRE(self, updates, call, positions, out)
    last = list(noisy)[-1]
    noisy[last].copy_(exact[last])
    return noisy


def half_the_noise(self, updates, call, positions, out=None, steps=None):
    exact, noisy = updates.materialise(positions), WIRE(self, updates, call, positions, out)
    for name, values in noisy.items():
        values.add_(exact[name]).div_(2)
    return noisy


def forgets_weights(self, updates, call, positions, out=None, steps=None):
    exact, noisy = updates.materialise(positions), WIRE(self, updates, call, positions, out)
    for name, values in noisy.items():
        values.sub_(exact[name]).div_(call.schema[name].weight).add_(exact[name])
    return noisy


@pytest.mark.parametrize(
    "protect",
    [
        unprotected,
        only_where(lambda call: call.query_id > 0),
        only_where(lambda call: call.round >= 10),
        only_where(lambda call: call.round % 2 == 1),
        without_noise_in_the_last_block,
        as_if(lambda call: replace(call, round=0)),
        as_if(lambda call: replace(call, query_id=0)),
        as_if(lambda call: replace(call, clients=call.clients * 0)),
    ],
    ids=[
        "none",
        "first query",
        "early rounds",
        "even rounds",
        "one block",
        "same rounds",
        "same queries",
        "same clients",
    ],
)
@pytest.mark.parametrize("words", [LARGE, GAUSSIAN])
def test_missing_and_repeated_noise_is_caught_at_any_claim(monkeypatch, in_one_process, words, protect):
    monkeypatch.setattr(ClientGuard, "protect", protect)
    assert "secrets in one upload" in denied(words, draws=200)


@pytest.mark.parametrize("words", [pytest.param(LAPLACE, marks=pytest.mark.exhaustive), GAUSSIAN])
@pytest.mark.parametrize("protect", [half_the_noise, forgets_weights])
def test_too_little_noise_is_caught(monkeypatch, in_one_process, words, protect):
    monkeypatch.setattr(ClientGuard, "protect", protect)
    assert "one upload" in denied(words, draws=3000)


def clipped_by_itself(self, updates, clip_norm=None, *, rows):
    """Every row, or every block, to the whole clip norm."""
    clip, everybody, parts = self.plan.mechanism.clip, torch.arange(len(updates)), []
    for name, values in updates.materialise(everybody).items():
        weighted = values * updates.schema[name].weight
        by_row = rows and values.dim() > 2
        norms = weighted.norm(clip.order, -1, keepdim=True) if by_row else weighted.flatten(1).norm(clip.order, 1)
        norms = norms if by_row else norms.view(-1, *[1] * (values.dim() - 1))
        parts.append(Dense(name, everybody, values * (clip.norm / norms.clamp(min=1e-30)).clamp(max=1)))
    updates.parts = tuple(parts)
    return 0


CLIPS = {
    "per row": lambda self, updates, clip_norm=None: clipped_by_itself(self, updates, rows=True),
    "per block": lambda self, updates, clip_norm=None: clipped_by_itself(self, updates, rows=False),
    "none": lambda self, updates, clip_norm=None: 0,
    "a little late": lambda self, updates, clip_norm=None: updates.scale_(torch.full((len(updates),), 3e-3)) and 0,
}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(LAPLACE, marks=pytest.mark.exhaustive),
        pytest.param(GAUSSIAN, marks=pytest.mark.exhaustive),
        CENTRAL,
    ],
)
@pytest.mark.parametrize("clip", CLIPS)
def test_wrong_clips_are_caught(monkeypatch, in_one_process, words, clip):
    """Two blocks at the L1 clip each double epsilon 1, which takes the default number of draws to be seen."""
    monkeypatch.setattr(ClientGuard, "clip_", CLIPS[clip])
    assert denied(words, draws=5000 if words == LAPLACE else 3000)


def test_a_clip_that_ignores_weights_is_caught(monkeypatch, in_one_process):
    honest = ClientUpdates.norm_powers

    def unweighted(self, order):
        weights = torch.tensor([block.weight**order for block in self.schema.values()], dtype=torch.float64)
        return honest(self, order) / weights

    monkeypatch.setattr(ClientUpdates, "norm_powers", unweighted)
    assert denied(CENTRAL)


@pytest.mark.parametrize("words", [LARGE, GAUSSIAN])
def test_noise_that_is_clipped_with_the_upload_is_caught(monkeypatch, in_one_process, words):
    clip_ = ClientGuard.clip_

    def clipped_after(self, updates, call, positions, out=None, steps=None):
        noisy = WIRE(self, updates, call, positions)
        whole = ClientUpdates(
            call.clients[positions], call.schema, [Dense(n, torch.arange(len(v)), v) for n, v in noisy.items()]
        )
        clip_(self, whole)
        return whole.materialise(torch.arange(len(positions)), out)

    monkeypatch.setattr(ClientGuard, "clip_", lambda self, updates, clip_norm=None: 0)
    monkeypatch.setattr(ClientGuard, "protect", clipped_after)
    assert denied(words, draws=200)


def noise_left_out(self, *exchange, **counts):
    return None


def noise_in_the_first_query(self, sums, cohort, step, ask, *more, **counts):
    return ADD_NOISE(self, sums, cohort, step, ask, *more, **counts) if ask == 0 else None


@pytest.mark.parametrize("add_noise_", [noise_left_out, noise_in_the_first_query])
def test_central_noise_that_is_left_out_is_caught_on_both_paths(monkeypatch, add_noise_):
    monkeypatch.setattr(ServerGuard, "add_noise_", add_noise_)
    assert denied(CENTRAL, draws=200) >= {"secrets in one upload in a sum", "secrets in one upload in a sum over nodes"}


@pytest.mark.parametrize("words", [CENTRAL, CENTRAL + ",adaptive.quantile=0.5"])
def test_a_server_that_adds_half_the_noise_is_caught(monkeypatch, in_one_process, words):
    def half(self, sums, t, ask, schema, grid_of):
        ADD_STEPS(self, sums, t, ask, schema, lambda weight: Grid(grid_of(weight).step, grid_of(weight).ratio / 2))

    monkeypatch.setattr(ServerGuard, "_add_steps_", half)
    assert "one upload in a sum" in denied(words)


def test_a_server_whose_noise_repeats_is_caught(monkeypatch, in_one_process):
    monkeypatch.setattr(ServerGuard, "_add_steps_", lambda self, sums, t, *more: ADD_STEPS(self, sums, 0, *more))
    assert "secrets in one upload in a sum" in denied(CENTRAL, draws=200)


def test_shares_of_half_the_noise_are_caught(monkeypatch, in_one_process):
    weak = PrivacyPlan.parse(SHARES.replace("noise_multiplier=1", "noise_multiplier=0.5"))
    monkeypatch.setattr(ServerGuard, "code", lambda self, schema: RingCode(weak.mechanism, schema, USERS))
    assert "one upload in a sum" in denied(SHARES)


def test_an_engine_that_sums_unprotected_uploads_of_a_local_plan_is_caught(monkeypatch):
    """Single uploads are protected, and a sum of them goes by another way."""

    def unprotected(self, updates, call, tile):
        if int(tile[0]) == 0:
            updates.add_to(self._sums)

    monkeypatch.setattr(PlainSum, "_add_protected", unprotected)
    in_a_sum = "secrets in one upload in a sum"
    assert denied(LARGE, draws=200) == {in_a_sum, f"{in_a_sum} over nodes"}


def test_a_node_that_sends_unprotected_uploads_is_caught(monkeypatch):
    class Unprotected(ClientGuard):
        protect = unprotected

    monkeypatch.setattr(
        Answering, "guard", lambda self: Unprotected(self._state.plan, self._private_side.assembly.streams)
    )
    over = {"secrets in one upload over nodes", "secrets in one upload in a sum over nodes"}
    assert denied(LARGE, draws=200) == over


def test_a_server_over_nodes_that_adds_no_noise_is_caught(monkeypatch):
    class Quiet(ServerGuard):
        add_noise_ = noise_left_out

    monkeypatch.setattr(engines, "ServerGuard", Quiet)
    assert all("over nodes" in audited for audited in denied(CENTRAL, draws=200))
    assert denied(CENTRAL, draws=200)


def test_a_weak_stream_is_caught(monkeypatch, in_one_process):
    normal = Streams.normal_steps
    monkeypatch.setattr(Streams, "normal_steps", lambda self, *address: (normal(self, *address) / 2).round())
    assert denied(GAUSSIAN)


def test_the_search_finds_the_rows_of_a_clip_per_row(monkeypatch, in_one_process):
    monkeypatch.setattr(ClientGuard, "clip_", CLIPS["per row"])
    route = Route(simulated, True, PrivacyPlan.parse(GAUSSIAN), [ITEMS], "exact", 0)
    one, _ = PairSearch(route, 500, 0.95).measured()
    assert "row" in one.worst or "block" in one.worst


def test_a_padding_that_answers_too_truthfully_is_caught(monkeypatch):
    drawn = mechanism.sample_padding
    loud = RandomisedResponse(epsilon=1.5)
    monkeypatch.setattr(
        mechanism,
        "sample_padding",
        lambda padding, *histories: drawn(loud.model_copy(update={"seed": padding.seed}), *histories),
    )
    assert denied(PADDING, draws=2000)


def test_an_alarm_is_raised_only_when_fresh_draws_repeat_it(monkeypatch, in_one_process):
    """Measured once more, and the second measurement counts."""
    seeds = []
    real = mechanism._measured

    def alarmed(*arguments):
        seeds.append(arguments[-1])
        found = real(*arguments)
        return [r.model_copy(update={"consistent": False}) for r in found] if len(seeds) == 1 else found

    monkeypatch.setattr(mechanism, "_measured", alarmed)
    assert not denied(CENTRAL, draws=200)
    assert seeds == [0, 1]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    multiplier=st.floats(0.3, 20),
    clip=st.floats(1e-3, 1e3),
    weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
)
def test_no_honest_server_is_accused(multiplier, clip, weights, seed):
    """Whatever scale, weights and seed: an honest plan stays consistent (a chance alarm would have to come twice)."""
    schema = {f"b{place}": Block((7,), weight=weight) for place, weight in enumerate(weights)}
    plan = f"central-gaussian:clip_norm={clip!r},noise_multiplier={multiplier!r}"
    assert not denied(plan, schema=schema, draws=400, seed=seed)


def claim(**changes):
    fields = {
        "epsilon": 2.0, "reason_if_inf": None, "delta": 1e-5, "unit": "user", "neighbours": "add_or_remove_one",
        "trust": "central", "per": "run", "rounds_counted": 3, "accountant": "PLD", "accountant_version": "1",
        "cross_check": {}, "basic_epsilon": None, "assumptions": [], "statements": [],
    }  # fmt: skip
    return GuaranteeRow.model_validate(fields | changes)


@pytest.mark.parametrize("neighbours", ["add_or_remove_one", "zero_out_one", "replace_one"])
def test_a_claim_about_users_covers_a_user_as_it_is(neighbours):
    assert run_claim(claim(neighbours=neighbours), "user") == (2.0, 1e-5)


def test_a_claim_about_interactions_says_nothing_of_a_user():
    assert run_claim(claim(unit="interaction"), "user")[0] == math.inf
    assert run_claim(claim(unit="interaction"), "interaction") == (2.0, 1e-5)


def test_replacing_a_history_by_another_takes_two_steps():
    epsilon, delta = run_claim(claim(), "interaction")
    assert epsilon == 4
    assert delta == pytest.approx(1e-5 * (1 + math.exp(2)))


def test_an_upload_of_nothing_costs_nothing():
    assert query_epsilon(PrivacyPlan.parse(CENTRAL), [{}], USERS) == 0
    assert query_epsilon(PrivacyPlan.parse("none"), [REAL], USERS) == math.inf


def test_every_tier_is_held_against_its_own_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers = ",tiers.careful.epsilon=1,tiers.careful.share=0.5,tiers.careful.weight=0.25"
    plan = PrivacyPlan.parse(CENTRAL + tiers + ",tiers.free.epsilon=8,tiers.free.share=0.5,tiers.free.weight=1")
    schema = {"head": Block((8,))}

    def bounds() -> dict[str, tuple[float, float, bool]]:
        rows = audit_mechanism(plan, schema, USERS, draws=600)
        return {row.audited: (row.value, row.accounted, row.consistent) for row in rows}

    honest = bounds()
    assert all(consistent for _, _, consistent in honest.values())
    assert {name.rpartition("tier ")[2] for name in honest} == {"careful", "free"}
    careful, free = (honest[f"one upload in a sum, tier {name}"] for name in ("careful", "free"))
    assert careful[1] < 0.3 * free[1]
    assert free[0] > 0.5 * free[1]
    monkeypatch.setattr(ClientGuard, "weights", lambda self, users: torch.ones(len(users), dtype=torch.float64))
    broken = bounds()
    assert not broken["one upload in a sum, tier careful"][2]
    assert not broken["one upload in a sum over nodes, tier careful"][2]
    assert broken["one upload in a sum, tier free"][2]
