"""Donors: open histories and private sums are pooled, donors are never asked, and donors unlike the rest count less."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from privfed.data import Histories
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Cohort, Streams
from privfed.methods.private_gram.model.choosing import ThinnedCopies
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.methods.private_gram.model.pooling import ContributionSpread, NoisySum, OpenMean, judged
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

HEAD, USERS = 24, 37
CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=2,delta=0.001"


@pytest.fixture(scope="module")
def opened(small_split):
    """8 of the 45 users open their history."""
    return small_split.without(np.arange(3, 43, 5))


def experiment(parts, plan=CENTRAL, method="private-gram", seed=4, **settings):
    if method == "private-gram":
        settings = {"head": HEAD, "head_share": 0, "histories": "long", "min_items": 0, "select": False} | settings
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": method, **settings}, privacy=PrivacyPlan.parse(plan),
        protocol=Protocol(k=(5,), state="received"), rounds=1, seed=seed, taps=TapConfig(places=("sum",)),
        fidelity="analytic",
    )  # fmt: skip
    return Experiment(config, parts, Streams.from_seed(seed))


def ran(parts, *args, **settings):
    e = experiment(parts, *args, **settings)
    result = e.run()
    sums = {name: value for o in result.transcript.joined("sum") for name, value in o.tensors.items()}
    return e, result, sums


def naive_mean(histories, server, diagonal):
    """The mean of the outer products of donors' centred unit histories, one donor at a time."""
    head, shares, scale = (server.state()[name].double().numpy() for name in ("head", "shares", "scale"))
    total = np.zeros((HEAD, HEAD))
    for donor in range(histories.n_users):
        own = np.isin(head, histories.items_of(donor)).astype(float)
        y = scale * (own - np.minimum(own.sum() * shares, 1))
        outer, length = np.outer(y, y), float(y @ y)
        if not length:
            continue
        if diagonal:
            total += outer / length
        else:
            np.fill_diagonal(outer, 0)
            total += outer * min(1 / np.linalg.norm(outer), 1.5 / length)
    return total / histories.n_users


@pytest.mark.parametrize("histories", ["long", "short"])
def test_the_pooled_estimate_is_the_naive_weighted_mean(opened, histories, monkeypatch):
    seen = []
    monkeypatch.setattr(NoisySum, "pooled", spied(NoisySum.pooled, seen))
    e, _, _ = ran(opened, histories=histories, check_donors=False)
    (released, mean, found) = seen[-1]
    diagonal = histories == "long"
    wanted = naive_mean(opened.donors.histories, e.server, diagonal)
    np.testing.assert_allclose(mean.mean, wanted, atol=1e-6)
    size = HEAD * (HEAD + 1) // 2 if diagonal else HEAD * (HEAD - 1) // 2
    noise, caution = released.variance * size / USERS**2, found["caution"]
    private = caution / 8 / (caution / 8 + caution / USERS + noise)
    np.testing.assert_allclose(
        found["result"].sum.total / USERS, private * released.total / USERS + (1 - private) * wanted, atol=1e-6
    )
    spread = private**2 * released.variance + (1 - private) ** 2 * USERS**2 / 8 / size
    assert found["result"].sum.variance == pytest.approx(spread)
    assert e.server.decisions["weight of donors in pairs"] == pytest.approx(1 - private)


def spied(pooled, seen):
    def watched(self, donated, caution, **how):
        result = pooled(self, donated, caution, **how)
        seen.append((self, donated, {"caution": caution, "result": result}))
        return result

    return watched


def test_without_noise_the_pooled_mean_is_that_of_everybody(opened):
    total = np.arange(6.0)
    exact = NoisySum(total, 3.0, 0.0, 6)
    donors = OpenMean(np.ones(6), 2, ContributionSpread(1.0, 0.5))
    np.testing.assert_allclose(exact.pooled(donors, 4.0, check=False).sum.total / 3, (total + 2) / 5)


def test_a_weight_that_is_set_is_taken(opened):
    e, _, _ = ran(opened, donor_weight=1.0)
    assert e.server.decisions["weight of donors in pairs"] == e.server.decisions["weight of donors in popularity"] == 1
    counts = opened.donors.histories
    mean = np.zeros(70)
    for donor in range(counts.n_users):
        mean[counts.items_of(donor)] += 1 / math.sqrt(len(counts.items_of(donor)))
    order = e.server.state()["order"].numpy()
    assert (np.diff(mean[np.argsort(-order)]) <= 1e-6).all()


def test_donors_are_never_asked(opened):
    e, result, _ = ran(opened)
    assert e.n_users == USERS
    asked = []
    e = experiment(opened)
    for step in ("gram", "popularity"):
        inner = getattr(e.clients, step)

        def watched(call, message, inner=inner):
            asked.extend(call.clients.tolist())
            return inner(call, message)

        setattr(e.clients, step, watched)
    e.run()
    assert sorted(asked) == sorted([*range(USERS), *range(USERS)])
    rows = e.clients.rows.select(torch.arange(USERS)).counts.numpy()
    np.testing.assert_array_equal(rows, opened.train.counts)
    assert any("8 people opened their history" in sentence for sentence in result.guarantee.statements)


def test_private_histories_reach_the_server_through_the_sums_alone(opened):
    """Two populations of other private histories, and the same sums: the same server."""
    states = []
    for parts in (opened, replace(opened, train=swapped(opened.train))):
        e = experiment(parts)
        sums = {"popularity": torch.linspace(40, 1, 70), "gram": torch.linspace(3, -1, HEAD * (HEAD + 1) // 2)}
        e.server.round(Fixed(sums), 0)
        states.append(e.server.state())
    other = experiment(replace(opened, donors=replace(opened.donors, histories=swapped(opened.donors.histories))))
    other.server.round(Fixed(sums), 0)
    for name, value in states[0].items():
        assert value.equal(states[1][name]), name
    assert not states[0]["weights"].equal(other.server.state()["weights"])


class Fixed:
    """A federation that answers with given sums whatever its users have."""

    def __init__(self, sums):
        self.sums = sums

    def sample_cohort(self, t):
        return Cohort(t, 0, "all", float(USERS))

    def aggregate(self, step, cohort, message, schema):
        return SimpleNamespace(
            sums={name: self.sums[name].reshape(block.shape).clone() for name, block in schema.items()}
        )


def swapped(histories):
    """Every item replaced by the one at the other end of the catalogue."""
    return Histories(histories.indptr, histories.n_items - 1 - histories.items, histories.n_items)


def population(rng, groups, users, side=20, within=4):
    """Unit vectors of users, each of whom likes the items of one of `groups` groups of items."""
    kind = rng.integers(groups, size=users)
    own = rng.normal(size=(users, side)) * 0.3
    own[np.arange(users), kind * within] += 1
    return own / np.linalg.norm(own, axis=1, keepdims=True)


def of_people(vectors):
    return OpenMean.from_outer_products(vectors, np.ones(len(vectors)), diagonal=True)


def noisy(vectors, deviation, rng):
    side = vectors.shape[1]
    noise = np.triu(rng.normal(size=(side, side)) * deviation / math.sqrt(2), 1)
    total = vectors.T @ vectors + noise + noise.T + np.diag(rng.normal(size=side) * deviation)
    return NoisySum(total, len(vectors), deviation**2, side * (side + 1) // 2)


@pytest.mark.parametrize("deviation", [0.5, 5.0])
def test_donors_like_everybody_keep_their_weight_and_others_lose_it(deviation):
    rng = np.random.default_rng(3)
    for _ in range(10):
        released = noisy(population(rng, 5, 3000), deviation, rng)
        fair, biased = of_people(population(rng, 5, 150)), of_people(population(rng, 2, 150))
        checked, unchecked = (
            [released.pooled(donors, 4.0, check=check).weight for donors in (fair, biased)] for check in (True, False)
        )
        assert checked[0] == unchecked[0]
        assert checked[1] < 0.5 * unchecked[1]
        assert released.pooled(biased, 4.0, check=True).seen > 3


def test_a_copy_of_everybody_else_judges_what_donors_are_good_for():
    rng = np.random.default_rng(4)
    # Histories here like two items of a group, and those of strangers like pairs that nobody else does.
    pairs = np.kron(np.eye(10), [1.0, 1.0]) / math.sqrt(2)
    everybody, fair = pairs[rng.integers(10, size=3000)], pairs[rng.integers(10, size=300)]
    strangers = np.roll(fair, 1, axis=1)
    evidence = NoisyGram(noisy(everybody, 60.0, rng).total, np.ones(20), 3000.0, 60.0)
    copies = ThinnedCopies.from_evidence(evidence, noisy(np.zeros((1, 20)), 60.0, rng).total)
    settings = EstimatorSettings(content=False)
    chosen = [judged(copies, of_people(v), settings, 8.0, (0.9, 0.0)) for v in (fair, strangers)]
    assert chosen == [0.9, 0.0]


def test_the_difference_of_fair_donors_is_about_zero_with_about_unit_deviation():
    rng = np.random.default_rng(8)
    seen = []
    for _ in range(200):
        released = noisy(population(rng, 5, 1000), 4.0, rng)
        seen.append(released.difference(of_people(population(rng, 5, 100)))[1])
    assert abs(np.mean(seen)) < 0.25
    assert 0.7 < np.std(seen) < 1.3


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_spread_is_that_of_the_outer_products(diagonal):
    rng = np.random.default_rng(1)
    vectors, factors = rng.normal(size=(9, 4)), rng.random(9)
    found = OpenMean.from_outer_products(vectors, factors, diagonal=diagonal)
    every = np.array([f * np.outer(v, v) for v, f in zip(vectors, factors, strict=True)])
    if not diagonal:
        every *= 1 - np.eye(4)
    np.testing.assert_allclose(found.mean, every.mean(0))
    assert found.spread.variance == pytest.approx(every.reshape(9, -1).var(0, ddof=1).sum())


def test_popularity_counts_donors_and_other_methods_refuse_them(opened, small_split):
    e, _, _ = ran(opened, "none:release=total", "popularity")
    wanted = opened.train.popularity() + opened.donors.histories.popularity()
    np.testing.assert_array_equal(e.server.counts[:, 0].numpy(), wanted)
    with pytest.raises(PlanError, match=r"8 donors.*fedmf learns nothing.*split.donors"):
        experiment(opened, "none", "fedmf")


def test_a_server_with_donors_resumes(opened):
    e, _, _ = ran(opened)
    again = experiment(opened)
    again.server.load(e.server.state())
    assert again.server.decisions.keys() == e.server.decisions.keys()
    for name, value in e.server.state().items():
        assert again.server.state()[name].equal(value)
