"""eALS and VALS: lists that leave once and only where a plan shows them, the server's passes, and learning."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from privfed.data import Histories, SplitSpec, SyntheticSpec, generate, split
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.evaluation import Evaluator, Protocol
from privfed.federation import Call, FederationError, Streams
from privfed.methods import ClientData, PublicInfo
from privfed.methods.references.als import EALS, VALS
from privfed.methods.references.als.server import revealed
from privfed.methods.shared.als import Feedback
from privfed.privacy import Ledger, PrivacyPlan

SMALL = {"dim": 4}
BOTH = pytest.mark.parametrize("method", [EALS, VALS], ids=lambda method: method.name)


@dataclass
class World:
    server: object
    clients: object
    simulation: Simulation
    data: ClientData

    def train(self, rounds, first=0):
        for t in range(first, rounds):
            self.simulation.run(self.server, t)
        return self


@pytest.fixture(scope="module")
def shoppers(small_split):
    rng = np.random.default_rng(0)
    user, item = (rng.random((45, 70)) < 0.15).nonzero()
    seen = Histories.from_pairs(user, item, 45, 70)
    return ClientData(small_split.train, small_split.train, {"view": seen})


def build(method, data, plan="none", transcript=None, chunk=None, **settings):
    config, streams = method.config(**SMALL | settings), Streams.from_seed(3)
    server = method.training.server(config, PublicInfo(data.n_users, data.n_items), streams)
    clients, privacy = method.training.clients(config, data, streams), PrivacyPlan.parse(plan)
    ledger = Ledger(privacy, data.n_users)
    simulation = Simulation(clients, privacy, data.n_users, streams, ledger, transcript=transcript, chunk=chunk)
    return World(server, clients, simulation, data)


def marks(data, method):
    """The rows that should leave: 1 for a purchase, -1 for what was only examined."""
    bought = data.positives.mask(np.arange(data.n_users))
    seen = data.auxiliary["view"].mask(np.arange(data.n_users)) & ~bought
    return torch.from_numpy(bought.astype(np.float32) - (seen.astype(np.float32) if method is VALS else 0))


def same_lists(found, wanted):
    for name in ("purchased", "examined"):
        mine, theirs = getattr(found, name), getattr(wanted, name)
        assert mine.indptr.tolist() == theirs.indptr.tolist()
        assert mine.items.tolist() == theirs.items.tolist()
        assert mine.n_items == theirs.n_items


def same_bits(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) and found[name].dtype == wanted[name].dtype for name in found)


# Lists leave once, whole, and under no other plan


@BOTH
def test_every_list_leaves_in_round_0_and_nothing_later(shoppers, method):
    w = build(method, shoppers, transcript=Transcript(torch.arange(45), frozenset({"wire"}))).train(3)
    assert [o.round for o in w.simulation.transcript.joined("wire")] == [0]
    assert w.simulation.transcript.joined("wire")[0].tensors["history"][:, :, 0].equal(marks(shoppers, method))
    assert w.simulation.costs.client_rounds == 45
    assert w.simulation.cohorts == 1
    same_lists(w.server.feedback, w.clients.feedback)
    assert set(w.server.public().shared) == {"items", "missing", *(["pairs"] if method is VALS else [])}
    assert not w.server.public().personal


def test_only_vals_learns_what_was_examined(shoppers):
    assert len(build(VALS, shoppers).train(1).server.feedback.examined) > 0
    plain = ClientData(shoppers.positives, shoppers.excluded)
    alone, beside = build(EALS, plain).train(2), build(EALS, shoppers).train(2)
    assert not len(beside.server.feedback.examined)
    same_bits(beside.server.state(), alone.server.state())


@BOTH
@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_grouping_clients_changes_no_bit(shoppers, method, chunk):
    runs = [build(method, shoppers, chunk=c).train(2) for c in (None, chunk)]
    same_bits(runs[1].server.state(), runs[0].server.state())


@BOTH
def test_a_plan_that_hides_uploads_refuses_it(shoppers, method):
    with pytest.raises(FederationError, match="needs every single upload"):
        build(method, shoppers, "none:release=total").train(1)


@BOTH
def test_clipping_alone_loses_no_entry(shoppers, method):
    w = build(method, shoppers, "clip:clip_norm=0.5").train(1)
    same_lists(w.server.feedback, w.clients.feedback)


@BOTH
def test_noisy_rows_are_read_once_by_half_their_largest_entry(shoppers, method):
    transcript = Transcript(torch.arange(45), frozenset({"wire"}))
    w = build(method, shoppers, "local-laplace:epsilon0=4,clip_norm=3", transcript).train(3)
    rows = w.simulation.transcript.joined("wire")[0].tensors["history"][:, :, 0]
    bought = w.server.feedback.purchased.mask(np.arange(45))
    seen = w.server.feedback.examined.mask(np.arange(45))
    for row, mine, theirs in zip(rows, bought, seen, strict=True):
        half = row.abs().max() / 2
        assert mine.tolist() == (row > half).tolist()
        assert theirs.tolist() == ((row < -half).tolist() if method is VALS else [False] * 70)
    assert not (bought == w.clients.feedback.purchased.mask(np.arange(45))).all()
    assert w.server.items.isfinite().all()
    assert w.server.items.any()


def test_only_the_cohort_of_round_0_is_learned_from(shoppers):
    w = build(VALS, shoppers, "none:sampling.kind=poisson,sampling.rate=0.4").train(2)
    members = w.simulation.members(0)
    assert 0 < len(members) < 45
    same_lists(w.server.feedback, w.clients.feedback.subset(members.numpy()))


@BOTH
def test_an_empty_cohort_and_users_without_items_teach_nothing(shoppers, method):
    w = build(method, shoppers, "none:sampling.kind=poisson,sampling.rate=0.0001")
    assert not len(w.simulation.members(0))
    start = w.server.items.clone()
    assert w.train(2).server.items.equal(start)
    bought, none = (
        Histories(np.array([0, 0, 2, 2]), np.array([3, 1]), 5),
        Histories(np.zeros(4, np.int64), np.empty(0, np.int64), 5),
    )
    w = build(method, ClientData(bought, bought, {"view": none})).train(2)
    scores = w.clients.score(torch.arange(3), w.server.public(), None, None)
    assert scores.isfinite().all()
    assert not scores[[0, 2]].any()
    assert scores[1, [1, 3]].min() > 0.5
    call = Call(0, 0, "reveal", 0, torch.tensor([2, 1]), Streams.from_seed(0), w.server.schema)
    sent = w.clients.reveal(call, w.server.public()).stacked("history")[:, :, 0]
    assert sent.tolist() == [[0] * 5, [0, 1, 0, 1, 0]]


# The server's passes, and what a device does with them


@BOTH
def test_a_round_is_one_pass_over_users_and_items(shoppers, method):
    w, before = build(method, shoppers), build(method, shoppers).server.items.double().numpy()
    w.train(1)
    objective = w.server.config.objective(w.server.weights)
    feedback = method.config(**SMALL).feedback(shoppers)
    wanted = objective.items(objective.users(before, feedback), before, feedback)
    assert w.server.items.equal(torch.from_numpy(wanted).float())
    assert w.server.items.dtype == torch.float32
    counts = feedback.purchased.popularity()
    share = counts**0.3 / (counts**0.3).sum()
    other = build(method, shoppers, c0=7, exponent=0.3).train(1)
    np.testing.assert_allclose(other.server.weights["missing"].numpy(), 7 * share, rtol=1e-5)


def test_weights_of_pairs_follow_examinations(shoppers):
    w = build(VALS, shoppers, pairs_c0=2, pairs_exponent=0.5).train(1)
    root = w.clients.feedback.examined.popularity() ** 0.5
    np.testing.assert_allclose(w.server.weights["pairs"].numpy(), 2 * root / root.sum(), rtol=1e-5)


def test_where_nothing_was_examined_vals_is_eals(shoppers):
    nothing = Histories(np.zeros(46, np.int64), np.empty(0, np.int64), 70)
    quiet = ClientData(shoppers.positives, shoppers.excluded, {"view": nothing})
    vals, eals = (build(method, quiet, c0=5, exponent=0.5, reg=0.2).train(3) for method in (VALS, EALS))
    assert vals.server.items.equal(eals.server.items)


def test_settings_are_the_constants_of_the_objective(shoppers):
    settings = {"reg": 0.7, "gamma1": 0.1, "gamma2": 0.2, "examined_weight": 0.3, "examined_target": 0.4}
    w = build(VALS, shoppers, **settings)
    objective = w.server.config.objective(w.server.weights)
    assert (objective.regularisation, objective.margins) == (0.7, (0.1, 0.2))
    assert (objective.examined_weight, objective.examined_target) == (0.3, 0.4)


@BOTH
def test_scores_are_those_of_the_devices_own_factors(shoppers, method):
    w = build(method, shoppers).train(3)
    some, message = torch.tensor([7, 0, 31]), w.server.public()
    whole = w.clients.score(some, message, None, None)
    assert (tuple(whole.shape), whole.dtype) == ((3, 70), torch.float32)
    table = message.shared["items"].double().numpy()
    users = w.server.config.objective(w.server.weights).users(table, w.server.feedback)
    np.testing.assert_allclose(whole.numpy(), users[some.numpy()] @ table.T, rtol=1e-4, atol=1e-5)
    candidates = torch.tensor([[3, 69], [0, 1], [5, 5]])
    assert w.clients.score(some, message, None, candidates).equal(whole.gather(1, candidates))


@BOTH
def test_before_training_scores_are_finite(shoppers, method):
    w = build(method, shoppers)
    assert w.clients.score(torch.arange(45), w.server.public(), None, None).isfinite().all()


@BOTH
@pytest.mark.parametrize("plan", ["none", "local-laplace:epsilon0=2,clip_norm=3"])
def test_a_server_that_continues_from_its_state_ends_at_the_same_bits(shoppers, method, plan):
    wanted = build(method, shoppers, plan).train(4)
    stopped = build(method, shoppers, plan).train(2)
    state = {name: value.clone() for name, value in stopped.server.state().items()}
    again = build(method, shoppers, plan)
    again.server.load(state)
    same_bits(again.server.state(), state)
    same_lists(again.server.feedback, stopped.server.feedback)
    same_bits(again.train(4, first=2).server.state(), wanted.server.state())
    assert again.simulation.costs.client_rounds == 0
    assert not again.clients.state()


def test_rows_of_zeros_reveal_nothing():
    found = revealed(torch.tensor([[0.0, 0, 0], [0.2, -0.2, 0]]), examines=True)
    same_lists(found, Feedback(*(Histories(np.array([0, 0, 1]), np.array([i]), 3) for i in (0, 1))))


@pytest.mark.parametrize("settings", [{"reg": 0}, {"c0": -1}, {"dim": 0}, {"exponent": -0.5}, {"pairs_c0": -1}])
def test_settings_without_a_minimum_are_refused(settings):
    with pytest.raises(ValidationError):
        VALS.config(**settings)
    assert not {"pairs_c0", "examinations"} & set(EALS.config.model_fields)


# What it is good for


def test_it_learns_what_popularity_cannot_know():
    spec = SyntheticSpec(
        name="synthetic-tests", n_users=300, n_items=150, mean_per_user=25, min_per_user=8, sharpness=3.0
    )
    parts = split(generate(spec), SplitSpec())
    data = ClientData(parts.train, parts.train)
    w = build(EALS, data, dim=8).train(15)
    evaluator = Evaluator(parts, Protocol(k=(10,)))
    users = torch.from_numpy(evaluator.users)
    columns = evaluator.candidates(evaluator.users)
    candidates = None if columns is None else torch.from_numpy(columns)

    def hits(scores):
        evaluator.reset()
        evaluator.add(users.numpy(), scores.numpy())
        return evaluator.result().metric("hr", 10).value

    counts = torch.from_numpy(parts.train.popularity()).float()
    popularity = counts.expand(len(users), -1) if candidates is None else counts[candidates]
    found = w.clients.score(users, w.server.public(), None, candidates)
    assert hits(found) > 1.5 * hits(popularity)
