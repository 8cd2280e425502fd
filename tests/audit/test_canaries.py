"""Canary clients: directions of exact length, the same people with and without them, and what is read of them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attacks.empirical import one_shot_epsilon, one_shot_lower_bound
from attacks.empirical.one_shot import log_null_tail
from privfed.audit.epsilon import canaries
from privfed.audit.epsilon.canaries import (
    CanaryClients,
    CanaryDirections,
    CanaryError,
    OtherUploads,
    audit_canaries,
    refuse_untestable,
    run_canaries,
)
from privfed.contracts import Block
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.federation import Call, Message, Streams
from privfed.guards import ClientGuard
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.mechanisms.central_gaussian import CentralGaussian
from privfed.setup.config import ExperimentConfig
from privfed.updates import ClientUpdates, Dense

WEIGHTED = {
    "items": Block((30, 4)),
    "tier": Block((6, 2), weight=2.5),
    "counts": Block((30,), "integer", bound=1),
    "bias": Block((3,), weight=0.5),
}
FEDMF = {"name": "fedmf", "dim": 16}
CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=1"


def config(plan, method=None, rounds=3, **fields):
    return ExperimentConfig(method=method or FEDMF, privacy=PrivacyPlan.parse(plan), rounds=rounds, **fields)


class Silent:
    """Clients of a step that sends a one from everybody, and of another that sends nothing."""

    steps = frozenset({"count", "train"})

    def train(self, call, message):
        every = torch.arange(len(call.clients))
        ones = [
            Dense(
                n, every, torch.ones((len(every), *b.shape), dtype=torch.float32 if b.kind == "real" else torch.int64)
            )
            for n, b in call.schema.items()
        ]
        return ClientUpdates(call.clients, call.schema, ones)

    def count(self, call, message):
        return ClientUpdates(call.clients, call.schema, [])


def called(step, users, schema=WEIGHTED, clip_norm=None):
    return Call(0, 0, step, 0, torch.tensor(users), Streams.from_seed(0), schema, clip_norm)


def with_canaries(plan="secure-sum:clip_norm=2", n_users=3, schema=WEIGHTED):
    return CanaryClients(Silent(), n_users, PrivacyPlan.parse(plan), "train", CanaryDirections(schema, seed=0))


# Directions


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), numbers=st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True))
def test_directions_have_length_one_and_depend_on_seed_and_number_alone(seed, numbers):
    directions = CanaryDirections(WEIGHTED, seed)
    drawn = directions.draw(numbers)
    assert drawn.shape == (len(numbers), 120 + 12 + 3)
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(len(numbers)))
    assert torch.equal(drawn[-1:], directions.draw(numbers[-1:]))
    assert not torch.equal(drawn, CanaryDirections(WEIGHTED, seed + 1).draw(numbers))


def test_values_and_weighted_coordinates_go_into_each_other():
    directions = CanaryDirections(WEIGHTED, 0)
    drawn = directions.draw([4])
    values = {name: value[0] for name, value in directions.split(drawn).items()}
    torch.testing.assert_close(directions.join(values), drawn[0].double())
    assert {name: tuple(v.shape) for name, v in values.items()} == {"items": (30, 4), "tier": (6, 2), "bias": (3,)}
    torch.testing.assert_close(values["tier"].flatten() * 2.5, drawn[0, 120:132])


def test_directions_are_uniform_on_the_sphere():
    """Cosines with any fixed vector follow the exact null, whichever blocks the vector lies in."""
    directions = CanaryDirections(WEIGHTED, 3)
    fixed = torch.zeros(2, directions.dimensions, dtype=torch.float64)
    fixed[0, 125:], fixed[1] = 7.0, torch.linspace(-1, 1, directions.dimensions)
    for cosines in directions.cosines(range(4000), fixed):
        tails = np.exp(log_null_tail(cosines, directions.dimensions))
        assert stats.kstest(tails, "uniform").pvalue > 0.01


# Clients


@pytest.mark.parametrize("weights", [WEIGHTED, {"items": Block((500, 8))}])
@pytest.mark.parametrize("norm", [1e-3, 0.7, 300.0])
def test_the_clip_makes_a_canary_exactly_as_long_as_the_clip_norm(weights, norm):
    plan = f"central-gaussian:clip_norm={norm},noise_multiplier=1"
    clients = with_canaries(plan, schema=weights)
    updates = clients.train(called("train", [3, 5, 8], weights), Message({}))
    ClientGuard(PrivacyPlan.parse(plan), Streams.from_seed(0)).clip_(updates)
    torch.testing.assert_close(updates.norms(2), torch.full((3,), norm, dtype=torch.float64), rtol=1e-6, atol=0)
    sent = updates.materialise(torch.arange(3))
    for place, number in enumerate((0, 2, 5)):
        flat = clients.directions.join({name: value[place] for name, value in sent.items()})
        torch.testing.assert_close((flat / norm).float(), clients.directions.draw([number])[0], rtol=1e-4, atol=1e-6)


def test_an_announced_clip_norm_is_reached_too():
    clients = with_canaries("central-gaussian:clip_norm=1,noise_multiplier=1,adaptive.quantile=0.5")
    updates = clients.train(called("train", [3], clip_norm=5000.0), Message({}))
    ClientGuard(clients.plan, Streams.from_seed(0)).clip_(updates, 5000.0)
    assert float(updates.norms(2)[0]) == pytest.approx(5000, rel=1e-6)


def test_without_a_clip_a_canary_has_length_one():
    updates = with_canaries("none:release=total").train(called("train", [3, 4]), Message({}))
    torch.testing.assert_close(updates.norms(2), torch.ones(2, dtype=torch.float64))


def test_people_in_a_mixed_chunk_send_what_they_send_alone_and_canaries_hold_no_counts():
    clients = with_canaries()
    mixed = clients.train(called("train", [0, 2, 3, 9]), Message({}))
    alone = Silent().train(called("train", [0, 2]), Message({}))
    got, expected = mixed.materialise(torch.arange(2)), alone.materialise(torch.arange(2))
    assert all(torch.equal(got[name], expected[name]) for name in WEIGHTED)
    assert not mixed.materialise(torch.tensor([2, 3]))["counts"].any()


def test_in_another_step_canaries_send_nothing():
    updates = with_canaries().count(called("count", [1, 3, 4]), Message({}))
    assert updates.norms(2).tolist() == [0, 0, 0]


def test_steps_and_marks_of_the_method_show_through():
    clients = with_canaries()
    clients.real.noisy = ("train",)
    assert clients.noisy == ("train",)
    with pytest.raises(AttributeError, match="nowhere"):
        clients.nowhere  # noqa: B018 (looking is the test)


@pytest.mark.parametrize(
    ("method", "plan"),
    [
        (FEDMF, CENTRAL),
        ({"name": "fedvae", "latent": 4}, CENTRAL + ",sampling.kind=poisson,sampling.rate=0.5"),
        ({"name": "hetefedrec"}, "secure-sum:clip_norm=1"),
    ],
)
def test_nobody_else_changes(small_split, method, plan):
    """The same people take part and send the very same bits, whether there are canaries or not."""

    def uploads(k):
        experiment = Experiment(config(plan, method), small_split)
        clients, population = experiment.clients, experiment.n_users + k
        if k:
            directions = CanaryDirections(experiment.server.schema, 0)
            clients = CanaryClients(clients, experiment.n_users, experiment.config.privacy, "train", directions)
        simulation = Simulation(
            clients, experiment.config.privacy, population, experiment.streams,
            Ledger(experiment.config.privacy, population), chunk=16,
        )  # fmt: skip
        seen = {}

        def keep(clients, call, message, updates):
            for place, user in enumerate(call.clients.tolist()):
                if user < experiment.n_users and call.step == "train":
                    seen[user] = updates.materialise(torch.tensor([place]))

        simulation.observers.append(keep)
        simulation.run(experiment.server, 0)
        return seen

    without, beside = uploads(0), uploads(21)
    assert without.keys() == beside.keys()
    assert len(without) > 10
    for user, blocks in without.items():
        assert all(torch.equal(values, beside[user][name]) for name, values in blocks.items())


# Runs


@pytest.mark.parametrize("plan", ["secure-sum:clip_norm=1,bits=64", "none:release=total"])
def test_without_noise_the_directions_come_out_as_they_went_in(small_split, plan):
    """With everybody else known, what is left of the sums is the sum of the directions, and nothing but rounding."""
    run = run_canaries(config(plan), small_split, 12)
    directions = CanaryDirections({"items": Block((70, 16))}, 0)
    everybody = directions.draw(range(12)).double().sum(0)
    expected = directions.cosines(range(24), everybody[None])[0]
    known = run.reads[1]
    np.testing.assert_allclose(np.r_[known.inserted, known.placebo], expected, atol=2e-4)
    assert run.guarantee.epsilon == math.inf
    assert run.noise is None
    rows = audit_canaries(config(plan), small_split, 12)
    assert rows[2].kind == "estimate"
    assert rows[2].value > 30
    assert all(row.accounted == math.inf and row.consistent for row in rows)


def test_one_direction_alone_has_cosine_one(small_split, monkeypatch):
    monkeypatch.setattr(canaries, "MIN_CANARIES", 1)
    known = run_canaries(config("secure-sum:clip_norm=1,bits=64"), small_split, 1).reads[1]
    assert known.inserted[0] == pytest.approx(1, abs=1e-6)
    assert abs(known.placebo[0]) < 0.2


@pytest.mark.parametrize(
    "plan",
    [
        CENTRAL,
        CENTRAL + ",sampling.kind=poisson,sampling.rate=0.3",
        CENTRAL + ",adaptive.quantile=0.5",
        "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=30",
        "shared-sum:clip_norm=1",
    ],
)
def test_every_plan_with_sums_is_measured_and_placebos_show_nothing(small_split, plan):
    k = 40
    run = run_canaries(config(plan), small_split, k)
    rows = audit_canaries(config(plan), small_split, k)
    assert [(row.kind, row.tap) for row in rows] == [
        (kind, tap) for tap in ("sum", "sum", "model") for kind in ("estimate", "lower bound")
    ]
    assert len({row.audited for row in rows}) == 3
    for row in rows:
        assert (row.unit, row.trials, row.delta) == ("user", k, 1e-5)
        assert row.accounted == pytest.approx(run.guarantee.epsilon)
        assert row.neighbours == ("zero_out_one" if plan.startswith("distributed") else "add_or_remove_one")
        assert row.consistent
    for read in run.reads:
        assert one_shot_lower_bound(read.placebo, dimensions=run.dimensions, delta=1e-5).epsilon == 0
        nothing = one_shot_epsilon(read.placebo, dimensions=run.dimensions, delta=1e-5)
        assert nothing.epsilon < 1.5 * nothing.placebo
    lo, hi = rows[2].lo, rows[2].hi
    assert lo <= rows[2].value <= hi
    assert rows[2].placebo > 0


def test_the_same_seed_gives_the_same_rows_and_chunks_do_not_matter(small_split):
    once = audit_canaries(config(CENTRAL, rounds=1), small_split, 20)
    assert once == audit_canaries(config(CENTRAL, rounds=1), small_split, 20)
    in_chunks = audit_canaries(config(CENTRAL, rounds=1, chunk=16), small_split, 20)
    assert [row.value for row in in_chunks] == pytest.approx([row.value for row in once], rel=1e-4)
    assert once != audit_canaries(config(CENTRAL, rounds=1), small_split, 20, seed=1)


def test_a_method_with_parameters_of_its_own_has_no_row_for_the_model(small_split):
    rows = audit_canaries(config(CENTRAL, {"name": "hetefedrec"}, rounds=1), small_split, 10)
    assert {row.tap for row in rows} == {"sum"}


@pytest.mark.parametrize(("share", "consistent"), [(1.0, True), (0.05, False)])
def test_a_server_that_adds_a_twentieth_of_the_noise_is_caught(small_split, monkeypatch, share, consistent):
    honest = CentralGaussian.server_noise_multiplier.fget
    monkeypatch.setattr(CentralGaussian, "server_noise_multiplier", property(lambda self: share * honest(self)))
    plan = "central-gaussian:clip_norm=1,noise_multiplier=4"
    rows = audit_canaries(config(plan, {"name": "fedmf", "dim": 64}, rounds=2), small_split, 60)
    bounds = [row for row in rows if row.kind == "lower bound"]
    assert all(row.consistent for row in bounds) == consistent
    assert all(row.consistent for row in rows if row.kind == "estimate")


def test_a_round_that_nobody_joins_is_read_as_what_it_is(small_split):
    plan = CENTRAL + ",sampling.kind=poisson,sampling.rate=0.001"
    assert len(audit_canaries(config(plan, rounds=2), small_split, 10)) == 6


def test_known_uploads_are_those_after_the_clip(small_split):
    plan = PrivacyPlan.parse("secure-sum:clip_norm=2")
    others = OtherUploads(ClientGuard(plan, Streams.from_seed(0)), 3, "train")
    clients = with_canaries()
    updates = clients.train(called("train", [0, 1, 3, 4]), Message({}))
    before = updates.materialise(torch.arange(4))
    others(clients, called("train", [0, 1, 3, 4]), Message({}), updates)
    sums = others.sums[0]
    joint = clients.directions.join(sums)
    assert float(joint.norm()) == pytest.approx(4, rel=1e-6)
    after = updates.materialise(torch.arange(4))
    assert all(torch.equal(before[name], after[name]) for name in before)
    others(clients, called("count", [0]), Message({}), updates)
    assert list(others.sums) == [0]


def test_progress_and_memory(small_split, monkeypatch):
    rounds, sizes = [], []
    perform = CanaryClients._perform

    def watched(self, step, call, message):
        sizes.append(len(call.clients))
        return perform(self, step, call, message)

    monkeypatch.setattr(CanaryClients, "_perform", watched)
    small = config(CENTRAL, rounds=2, memory_limit_gib=1e-4)
    audit_canaries(small, small_split, 40, progress=rounds.append)
    assert rounds == [0, 1]
    assert max(sizes) == 16


# Refusals


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("local-laplace:clip_norm=1,epsilon0=1", "audit of the mechanism"),
        ("none", "releases every upload by itself"),
        (CENTRAL + ",clipping=per_block", "clipping = 'flat'"),
        ("shared-sum:padding.kind=randomised_response,padding.epsilon=1", "full_support"),
    ],
)
def test_plans_that_canaries_cannot_test_are_refused_in_one_sentence(plan, says):
    with pytest.raises(CanaryError, match=says) as caught:
        refuse_untestable(PrivacyPlan.parse(plan))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "plan", "k", "says"),
    [
        ("fedmf", CENTRAL, 3, "at least 10"),
        ("popularity", "none:release=total", 20, "trains no real numbers"),
        ("fedmf", "secure-sum:clip_norm=1,sampling.kind=poisson,sampling.rate=0.001", 20, "had enough clients"),
    ],
)
def test_runs_that_canaries_cannot_test_are_refused(small_split, method, plan, k, says):
    with pytest.raises(CanaryError, match=says):
        audit_canaries(config(plan, {"name": method}, rounds=1), small_split, k)
