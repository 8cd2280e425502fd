"""`dpals` is alternating least squares told naively, one user and one item at a time, and its noise is allowed for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.contracts import NoisySums
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Cohort, Streams
from privfed.methods import ClientData, PublicInfo
from privfed.methods.dpals import DPALSClients, DPALSConfig, DPALSServer
from privfed.methods.dpals.model import ItemStep, positive, shrunk
from privfed.privacy import PlanError, PrivacyPlan, configure
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import unpacked

HEAD, DIM = 30, 4
BASE = {"head": HEAD, "dim": DIM, "passes": 2}


def ran(split, plan="none:release=total", seed=4, **settings):
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": "dpals", **BASE, **settings}, privacy=PrivacyPlan.parse(plan),
        protocol=Protocol(k=(5,), state="received"), rounds=1, seed=seed, taps=TapConfig(places=("sum",)),
        fidelity="analytic",
    )  # fmt: skip
    e = Experiment(config, split)
    return e, e.run()


def sums_of(e):
    schema = e.server.schema
    call = Call(0, 0, "statistics", 1, torch.arange(e.n_users), Streams.from_seed(0), schema)
    totals = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in schema.items()}
    e.clients.statistics(call, e.server.public()).add_to(totals)
    return totals


class NaiveUser:
    """One device: its places on the head, its vector and its weights, by the definition."""

    def __init__(self, train, user, state, config):
        v, head = state["items"].double().numpy(), state["head"].tolist()
        own = set(train.items_of(user).tolist())
        self.places = [j for j, item in enumerate(head) if item in own]
        system = config.unobserved * sum(np.outer(row, row) for row in v)
        system = system + sum((np.outer(v[j], v[j]) for j in self.places), np.zeros((DIM, DIM)))
        ridge = config.user_regularisation * (len(self.places) + config.unobserved * len(v))
        wanted = sum((v[j] for j in self.places), np.zeros(DIM))
        self.vector = np.linalg.solve(system + ridge * np.eye(DIM), wanted)
        length = np.linalg.norm(self.vector)
        self.unit = self.vector / length if length else self.vector
        raw = {j: float(state["balance"][j]) for j in self.places}
        norm = np.sqrt(sum(value**2 for value in raw.values()))
        self.weights = {j: value / norm for j, value in raw.items()}


@pytest.mark.parametrize("settings", [{}, {"item_gram_share": 0.3}, {"balance": 0.0}])
def test_sums_of_a_pass_are_those_of_naive_users(small_split, settings):
    e, _ = ran(small_split, **settings)
    found = sums_of(e)
    gram, sums, squares = np.zeros((DIM, DIM)), np.zeros((HEAD, DIM)), np.zeros((HEAD, DIM, DIM))
    for user in range(45):
        naive = NaiveUser(small_split.train, user, e.server.state(), e.config.settings())
        gram += np.outer(naive.unit, naive.unit)
        for j, weight in naive.weights.items():
            sums[j] += weight * naive.unit
            squares[j] += weight * np.outer(naive.unit, naive.unit)
    np.testing.assert_allclose(unpacked(found["gram"], DIM).numpy(), gram, atol=2e-5)
    np.testing.assert_allclose(found["sums"].numpy(), sums, atol=2e-5)
    assert ("squares" in found) == ("item_gram_share" in settings)
    for j in range(HEAD) if "squares" in found else ():
        np.testing.assert_allclose(unpacked(found["squares"][j], DIM).numpy(), squares[j], atol=2e-5)


def test_scores_are_products_with_the_own_vector(small_split):
    e, _ = ran(small_split, "central-gaussian:clip_norm=1,noise_multiplier=0.1,delta=0.001")
    state = e.server.state()
    scores = e.clients.score(torch.arange(45), e.server.public(), None, None).double().numpy()
    for user in range(45):
        naive = NaiveUser(small_split.train, user, state, e.config.settings())
        if naive.places:
            wanted = state["items"].double().numpy() @ naive.vector
            np.testing.assert_allclose(scores[user, state["head"].numpy()], wanted, rtol=1e-4, atol=1e-5)


def test_factors_that_noise_drowned_leave_everybody_popularity(small_split):
    e, _ = ran(small_split)
    public = e.server.public()
    nothing = {**public.shared, "items": torch.zeros(HEAD, DIM)}
    scores = e.clients.score(torch.arange(45), replace(public, shared=nothing), None, None)
    assert scores.equal(e.server.state()["order"].expand(45, -1))


@pytest.mark.parametrize("each", [False, True])
def test_the_item_step_solves_every_item_alone(each):
    rng = np.random.default_rng(0)
    users = rng.normal(size=(50, DIM))
    weights = rng.random((50, 9)) * (rng.random((50, 9)) < 0.4)
    gram, sums, reach = users.T @ users, weights.T @ users, weights.sum(0)
    squares = np.einsum("uj,ua,ub->jab", weights, users, users)
    step = ItemStep(50, everybody=0.3, regularisation=0.01, sums_deviation=0.0, squares_deviation=0.7)
    given = torch.from_numpy(squares) if each else None
    found = step.factors(torch.from_numpy(gram), torch.from_numpy(sums), torch.from_numpy(reach), given).numpy()
    for j in range(9):
        own = squares[j] if each else reach[j] / 50 * gram
        ridge = 0.01 * 50 * 0.3 + (0.5 * 0.7 * np.sqrt(DIM) if each else 0)
        np.testing.assert_allclose(found[j], np.linalg.solve(own + 0.3 * gram + ridge * np.eye(DIM), sums[j]))


def test_the_nearest_positive_matrix_keeps_what_is_positive():
    rng = np.random.default_rng(1)
    noisy = rng.normal(size=(3, 5, 5))
    noisy = torch.from_numpy(noisy + noisy.swapaxes(1, 2))
    found = positive(noisy)
    assert torch.linalg.eigvalsh(found).min() > -1e-9
    torch.testing.assert_close(positive(found), found)
    values, vectors = np.linalg.eigh(noisy[1].numpy())
    wanted = sum(max(w, 0) * np.outer(q, q) for w, q in zip(values, vectors.T, strict=True))
    np.testing.assert_allclose(found[1].numpy(), wanted, atol=1e-9)


@pytest.mark.parametrize("shape", [(400, 8), (8, 400)])
def test_shrinking_drops_noise_and_brings_a_planted_matrix_nearer(shape):
    rng = np.random.default_rng(2)
    noise = torch.from_numpy(rng.normal(size=shape)) * 0.5
    assert shrunk(noise, 0.5).norm() < 0.25 * noise.norm()
    left, right = np.linalg.qr(rng.normal(size=(400, 2)))[0], np.linalg.qr(rng.normal(size=(8, 2)))[0]
    planted = torch.from_numpy(left * [40.0, 25.0] @ right.T).reshape(shape if shape[0] == 400 else (400, 8))
    planted = planted if shape[0] == 400 else planted.T
    found = shrunk(planted + noise, 0.5)
    assert (found - planted).norm() < 0.7 * noise.norm()
    assert shrunk(planted, 0.0) is planted
    # the shrinker of one value, by its formula: sqrt((y^2 - b - 1)^2 - 4 b) / y in units of the noise
    y = torch.linalg.svdvals(planted + noise)[0] / (0.5 * 20)
    ratio = 8 / 400
    wanted = ((y**2 - ratio - 1) ** 2 - 4 * ratio).sqrt() / y * (0.5 * 20)
    assert float(torch.linalg.svdvals(found)[0]) == pytest.approx(float(wanted))


def test_without_noise_and_with_equal_users_the_reach_follows_from_popularity_exactly():
    """Twelve users of five head items each: sums of weights and the number of interactions need no ask of their own."""
    rng = np.random.default_rng(3)
    items = np.concatenate([rng.choice(9, 5, replace=False) for _ in range(12)])
    config = DPALSConfig(head=9, dim=2, passes=1, balance=0.0)
    server = DPALSServer(config, PublicInfo(12, 10, sums=NoisySums(12)), Streams.from_seed(0))
    counts = np.bincount(items, minlength=10).astype(float)
    reach, step = server._start(torch.from_numpy(counts / np.sqrt(5)), Cohort(0, 0, "all", 12.0))
    np.testing.assert_allclose(reach.numpy(), np.sort(counts)[::-1][:9] / np.sqrt(5))
    assert step.everybody == pytest.approx(config.unobserved / np.sqrt(5))


def test_shares_that_leave_nothing_for_a_pass_are_refused():
    with pytest.raises(PlanError, match="leave nothing of a pass"):
        configure(DPALSConfig, {"gram_share": 0.4, "item_gram_share": 0.6})


def test_clients_keep_no_state(few_users):
    clients = DPALSClients(DPALSConfig(), ClientData.from_split(few_users, "train"), Streams.from_seed(0))
    assert clients.state() == {}
