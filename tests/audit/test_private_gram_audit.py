"""Somebody in or out of both sums of `private-gram`: what its own asks and the real guards let through is mu, no more.

The person has a history of their own; their uploads are computed by the method's clients, clipped, summed and noised by
the guards of a run. Whoever knows everybody else's uploads subtracts them, and projects what is left of both sums on
the known vector: the matched filter, which no test of the two worlds beats. Its separation is mu = 1 / z.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks.empirical import epsilon_from_mu, gdp_epsilon
from privfed.audit.attack_runs import matched_filter
from privfed.audit.attack_runs.attack_run import attack_taps
from privfed.audit.epsilon.canaries import CanaryDirections, CanaryError, audit_canaries, run_canaries
from privfed.audit.epsilon.mechanism import audit_mechanism
from privfed.audit.grid import as_run
from privfed.data import Histories
from privfed.engines.simulation import Simulation
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Cohort, Message, Streams
from privfed.federation.grid import Grid
from privfed.guards import ClientGuard, ServerGuard
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import Symmetric
from privfed.updates import symmetric as packing

pytestmark = pytest.mark.usefixtures("unchecked")
"""Checking every signature of so many draws would take most of the time."""

SIDE, CANARY, DRAWS = 24, 7, 5000
MU, DELTA = 1.25, 1e-3
CENTRAL = f"central-gaussian:clip_norm=1,noise_multiplier={1 / MU},delta={DELTA}"
SHARES = f"distributed-gaussian:clip_norm=1,noise_multiplier={1 / MU},n_min_honest=3,delta={DELTA}"
CLAIMED = epsilon_from_mu(MU, DELTA)
STEPS = ("popularity", "gram")


def experiment(split, words, **settings):
    settings = {"head_share": 0, "histories": "long", "min_items": 0, "select": False} | settings
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": "private-gram", "head": SIDE, **settings},
        privacy=PrivacyPlan.parse(words), protocol=Protocol(k=(5,), state="received"), rounds=1, seed=4,
        taps=TapConfig(places=("sum",), users=40, inclusion=0.3),
    )  # fmt: skip
    return Experiment(config, split)


class Asks:
    """Both asks of a run on some users, clipped by its guard.

    Attributes:
        schemas: of the asks.
        sums: exact sums with everybody, and without the canary.
        vector: what the canary adds to each, weighted.
    """

    def __init__(self, split, words, guard=ClientGuard, users=None, **settings):
        e = experiment(split, words, **settings)
        self.plan, self.population, self.schemas = e.config.privacy, e.n_users, e.server.schemas
        popular = np.argsort(-split.train.popularity(), kind="stable")[:SIDE].copy()
        relation = Message(e.server.public().shared | {"head": torch.from_numpy(popular)})
        self.guard, self.users = guard(self.plan, e.streams), torch.arange(e.n_users) if users is None else users
        self.updates, self.sums, self.vector = [], [], []
        for index, (step, schema) in enumerate(zip(STEPS, self.schemas, strict=True)):
            call = Call(0, 0, step, index, self.users, e.streams, schema)
            sent = getattr(e.clients, step)(call, relation)
            self.guard.clip_(sent)
            (block,) = schema.values()
            whole, mine = torch.zeros(2, block.size, dtype=torch.float64)
            sent.add_to({step: whole.view(block.shape)})
            alone = getattr(e.clients, step)(replace(call, clients=torch.tensor([CANARY])), relation)
            self.guard.clip_(alone)
            alone.add_to({step: mine.view(block.shape)})
            self.updates.append(sent)
            self.sums.append((whole, whole - mine))
            self.vector.append(mine * block.weight)

    def released(self, guard, round, present):
        """Both sums as a trusted server opens them, less what others sent, weighted."""
        for index, (step, schema) in enumerate(zip(STEPS, self.schemas, strict=True)):
            (block,), (whole, others) = schema.values(), self.sums[index]
            revealed = {step: (whole if present else others).clone().view(block.shape)}
            cohort = Cohort(round, round, "all", float(self.population))
            guard.add_noise_(revealed, cohort, step, index, schema, members=self.population, within=0)
            yield (revealed[step].flatten() - others) * block.weight

    def scores(self, draws=DRAWS, seed=0):
        """The filter's output with the canary, and without."""
        guard, found = ServerGuard(self.plan, Ledger(self.plan, self.population), Streams.from_seed(seed)), []
        for present in (True, False):
            rounds = range(draws) if present else range(draws, 2 * draws)
            found.append([self._filtered(self.released(guard, round, present)) for round in rounds])
        return np.array(found[0]), np.array(found[1])

    def _filtered(self, released):
        return sum(float(vector @ seen) for vector, seen in zip(self.vector, released, strict=True))


def separation(inside, outside):
    """Estimate of mu with its standard error."""
    spread = math.sqrt((inside.var() + outside.var()) / 2)
    found, n = (inside.mean() - outside.mean()) / spread, len(inside)
    return found, math.sqrt(2 / n + found**2 / (4 * n))


@pytest.mark.parametrize(("histories", "share"), [("long", 0.1), ("short", 0.5)])
def test_a_canary_in_both_sums_is_told_apart_by_mu(small_split, histories, share):
    queries = Asks(small_split, CENTRAL, histories=histories, popularity_share=share)
    length = math.sqrt(sum(float(vector @ vector) for vector in queries.vector))
    assert length == pytest.approx(1, abs=1e-6)
    inside, outside = queries.scores()
    found, error = separation(inside, outside)
    assert error < 0.03
    assert abs(found - MU) < 3 * error
    bound = gdp_epsilon(inside, outside, delta=DELTA, threshold=0.5)
    assert 0.85 * CLAIMED < bound.epsilon <= CLAIMED


def test_one_query_alone_shows_only_its_share(small_split):
    queries = Asks(small_split, CENTRAL, popularity_share=0.2)
    queries.vector[1].zero_()
    inside, outside = queries.scores(1000)
    found, error = separation(inside, outside)
    assert abs(found - MU * math.sqrt(0.2)) < 3 * error


def test_half_the_noise_is_caught(small_split, monkeypatch):
    full = ServerGuard._add_steps_

    def half(self, sums, t, ask, schema, grid_of):
        full(self, sums, t, ask, schema, lambda weight: Grid(grid_of(weight).step, grid_of(weight).ratio / 2))

    monkeypatch.setattr(ServerGuard, "_add_steps_", half)
    found, error = separation(*Asks(small_split, CENTRAL).scores(1000))
    assert found > MU + 8 * error
    assert audit_private_gram(small_split, CENTRAL).consistent is False


class NoClip(ClientGuard):
    """Forgets to clip."""

    def clip_(self, updates, clip_norm=None):
        return len(updates)


def test_a_longer_upload_is_brought_back_by_the_clip_and_caught_without_it(small_split, monkeypatch):
    """A client whose outer products are three times too long: harmless behind the guard, not without it."""
    honest = packing.squared_norms
    monkeypatch.setattr(
        "privfed.methods.private_gram.queries.squared_norms", lambda vectors, **how: honest(vectors, **how) / 9
    )
    clipped, error = separation(*Asks(small_split, CENTRAL).scores(1000))
    assert abs(clipped - MU) < 3.5 * error
    bare, error = separation(*Asks(small_split, CENTRAL, guard=NoClip).scores(1000))
    assert bare > MU + 8 * error


def test_an_upper_triangle_that_counts_twice_what_is_off_the_diagonal_is_caught(small_split, monkeypatch):
    """2 in place of sqrt(2): the clip, which works on the vectors, cannot see it; the filter can."""
    packed = Symmetric.add_to

    def doubled(self, total):
        mine = torch.zeros_like(total)
        packed(self, mine)
        rows, columns = np.triu_indices(SIDE)
        total.add_(mine * torch.from_numpy(np.where(rows == columns, 1.0, math.sqrt(2))))

    monkeypatch.setattr(Symmetric, "add_to", doubled)
    found, error = separation(*Asks(small_split, CENTRAL).scores(1000))
    assert found > MU + 5 * error


def test_shares_of_noise_hide_a_canary_as_well(small_split):
    """Three people, who are all the honest ones, round and noise their own words; the canary's is zero in one world."""
    users = torch.tensor([3, CANARY, 20])
    queries, draws = Asks(small_split, SHARES, users=users), 400
    streams, found = Streams.from_seed(1), np.zeros((2, draws))
    server = ServerGuard(queries.plan, Ledger(queries.plan, queries.population), streams)
    for index, (step, schema) in enumerate(zip(STEPS, queries.schemas, strict=True)):
        (block,), code = schema.values(), server.code(schema)
        dense = queries.updates[index].materialise(torch.arange(3))
        without = {step: dense[step].clone()}
        without[step][1] = 0
        others = without[step].double().sum(0).flatten()
        for world, uploads in enumerate((dense, without)):
            for draw in range(draws):
                call = Call(draw, draw, step, 2 * index + world, users, streams, schema)
                words = queries.guard.ring_elements(code, uploads, call, torch.arange(3))
                revealed = code.decode(code.ring.sum(words))[step].flatten()
                found[world, draw] += float(queries.vector[index] @ ((revealed - others) * block.weight))
    measured, error = separation(*found)
    assert abs(measured - MU) < 3 * error


# ---- as `privfed audit` runs it


def audit_private_gram(split, words, **settings):
    e = experiment(split, words, **settings)
    program = [ask.schema for ask in e.registered.training.program(e.server)]
    row, *_ = audit_mechanism(e.config.privacy, e.server.schema, e.n_users, program=program, draws=4000)
    return row


@pytest.mark.parametrize("head_share", [0, 0.3])
@pytest.mark.parametrize("words", [CENTRAL, SHARES.replace("honest=3", "honest=9")])
def test_the_mechanism_audit_is_about_both_queries_together(small_split, words, head_share):
    row = audit_private_gram(small_split, words, head_share=head_share)
    assert row.audited.endswith("in each of 2 queries")
    assert row.accounted == pytest.approx(CLAIMED, rel=1e-3 if words == CENTRAL else 0.2)
    assert 0.7 * CLAIMED < row.value <= row.accounted
    assert row.consistent


def test_a_guard_that_gives_every_query_the_whole_clip_norm_is_caught(small_split, monkeypatch):
    """Each ask by itself would look right: only together are they too long."""
    monkeypatch.setattr("privfed.guards.client_guard.share_of", lambda schema: 1.0)
    assert not audit_private_gram(small_split, CENTRAL, popularity_share=0.5).consistent


@pytest.mark.parametrize(
    "words", ["none:release=total", "secure-sum:clip_norm=1", CENTRAL, SHARES.replace("honest=3", "honest=9")]
)
@pytest.mark.parametrize("head_share", [0, 0.3])
def test_an_audited_run_has_no_row_above_its_ceiling(small_split, words, head_share):
    e = experiment(small_split, words, head_share=head_share)
    run = as_run(e, e.run(), "one")
    assert run.attacks
    assert not any(row.ceiling.beaten for row in run.attacks if row.ceiling is not None)
    (row,) = [row for row in run.attacks if row.attack == "matched filter"]
    assert (row.tap, row.membership) == ("sum", "randomised")
    assert (row.ceiling is not None) == ("gaussian" in words)
    assert "gaussian" in words or row.auc.value > 0.9
    assert all(row.consistent for row in run.empirical)
    protected = "gaussian" in words
    assert any("2 queries" in row.audited for row in run.empirical) == protected
    assert math.isfinite(run.guarantee.epsilon) == protected


@pytest.mark.parametrize("method", ["dpals", "private-autoencoder"])
def test_where_servers_keep_no_earlier_message_nothing_is_filtered(small_split, method):
    table = {"name": method, "head": SIDE, "dim": 4}
    e = Experiment(experiment(small_split, CENTRAL).config.model_copy(update={"method": table}), small_split)
    result = e.run(parts=("test",))
    found = attack_taps(e, result.transcript.joined, 1, result.guarantee)
    assert not [row for row in found.rows if row.attack == "matched filter"]


@pytest.mark.parametrize("head_share", [0, 0.3])
def test_what_everybody_sent_explains_sums_without_noise(small_split, head_share):
    e = experiment(small_split, "none:release=total", head_share=head_share)
    sums = {name: v for seen in e.run().transcript.observations for name, v in seen.tensors.items()}
    matched = matched_filter._Filter(e, e.registered.training.program(e.server))
    sent = e.inclusion.applied_to(small_split).train
    for index in range(2):
        assert matched._left(index, sent, sums).abs().max() < 1e-3


# ---- canaries of a whole run


def test_a_direction_lies_in_both_queries_as_their_shares_do(small_split):
    e = experiment(small_split, CENTRAL, popularity_share=0.2)
    both = {name: block for schema in e.server.schemas for name, block in schema.items()}
    directions = CanaryDirections(both, 0)
    assert directions.kept == {"popularity": 70, "gram": 280}
    drawn = directions.draw(range(5))
    values = directions.split(drawn)
    assert values["gram"].shape == (5, SIDE * (SIDE + 1) // 2)
    assert not values["gram"][:, 280:].any()
    torch.testing.assert_close(directions.join({name: value[2] for name, value in values.items()}), drawn[2].double())


@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_canaries_of_a_run_measure_what_its_ledger_claims(small_split, mu):
    words = f"central-gaussian:clip_norm=1,noise_multiplier={1 / mu},delta={DELTA}"
    run = run_canaries(experiment(small_split, words).config, small_split, 150)
    assert run.guarantee.epsilon == pytest.approx(epsilon_from_mu(mu, DELTA), rel=1e-3)
    assert run.noise == pytest.approx(1 / mu)
    known = next(read for read in run.reads if "known" in read.audited)
    # A canary is |C| = 1 in a sum of 150 others like it and of noise 1 / mu on each of d coordinates.
    length = math.sqrt(150 + run.dimensions / mu**2)
    assert known.inserted.mean() * length == pytest.approx(1, abs=4 * length / math.sqrt(150 * run.dimensions))
    assert abs(known.placebo.mean()) < 4 / math.sqrt(150 * run.dimensions)


@pytest.mark.parametrize("head_share", [0, 0.3])
def test_rows_of_canaries_stand_beside_the_claim_of_both_queries(small_split, head_share):
    rows = audit_canaries(experiment(small_split, CENTRAL, head_share=head_share).config, small_split, 40)
    assert [row.accounted for row in rows] == pytest.approx([CLAIMED] * len(rows), rel=1e-3)
    assert all(row.consistent for row in rows)


def test_canaries_are_not_read_from_queries_that_the_run_decided_otherwise(small_split):
    """Its second ask is decided by the first: without its diagonal, or popularity once more."""
    for settings, words in (({"histories": "auto"}, "had planned"), ({"min_items": 70}, "never queried")):
        with pytest.raises(CanaryError, match=words):
            run_canaries(experiment(small_split, CENTRAL, **settings).config, small_split, 20)


def test_popularity_alone_and_methods_without_shares_are_refused(small_split):
    other = ExperimentConfig(
        data="synthetic-tests", method={"name": "popularity"}, privacy=PrivacyPlan.parse(CENTRAL), rounds=1
    )
    with pytest.raises(CanaryError, match="trains no real numbers"):
        run_canaries(other, small_split, 20)


# ---- trained again without somebody


def standing_out(split, multiplier, *, without, seeds):
    """Shares that published models give a person's own items on the head, each model under its own noise."""
    words = f"central-gaussian:clip_norm=1,noise_multiplier={multiplier},delta={DELTA}"
    train = split.train
    others = train.owners != CANARY
    rest = Histories.from_pairs(train.owners[others], train.items[others], train.n_users, train.n_items)
    e = experiment(replace(split, train=rest, ratings=None) if without else split, words)
    own, found = torch.from_numpy(train.mask(np.array([CANARY]))[0]), []
    for seed in seeds:
        simulation = Simulation(
            e.clients, e.config.privacy, e.n_users, Streams.from_seed(seed), Ledger(e.config.privacy, e.n_users),
            chunk=e.registered.training.chunk, fidelity="analytic",
        )  # fmt: skip
        e.server.queried = torch.tensor(False)
        e.server.round(simulation, 0)
        published = e.server.public().shared
        found.append(float(published["shares"].flatten()[own[published["head"].flatten().long()]].sum()))
    return np.array(found)


def told_apart(split, multiplier, trainings=60):
    """Lower bound on epsilon from models with the person and without, asked for shares of the person's items."""
    trained = standing_out(split, multiplier, without=False, seeds=range(trainings))
    again = standing_out(split, multiplier, without=True, seeds=range(trainings, 2 * trainings))
    return gdp_epsilon(trained, again, delta=DELTA).epsilon


def test_a_model_trained_again_without_a_person_is_as_near_as_epsilon_says(small_split):
    assert told_apart(small_split, 1 / MU) <= CLAIMED


def test_a_model_with_next_to_no_noise_is_told_from_one_without_the_person(small_split):
    assert told_apart(small_split, 0.01) > CLAIMED
