"""Random graphs and graphs of histories, in the place of GPFedRec's own."""

import numpy as np
import pytest
import torch

from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.given_graphs import HISTORIES, RANDOM, densest, likeness, random_graph
from privfed.methods.gpfedrec.means import neighbour_means

SMALL = {"dim": 4, "hidden": (4,), "batch_size": 32}
N = 60


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_random_graphs_join_both_ways_and_everybody_with_themselves(kind):
    near = random_graph(kind, N, 0.3, rng())
    assert near.equal(near.T)
    assert near.diagonal().all()
    assert near.equal(random_graph(kind, N, 0.3, rng()))
    assert not near.equal(random_graph(kind, N, 0.3, rng(1)))


@pytest.mark.parametrize("kind", ["erdos-renyi", "regular", "watts-strogatz"])
@pytest.mark.parametrize("density", [0.1, 0.5, 0.9])
def test_random_graphs_are_as_dense_as_asked(kind, density):
    joined = float(random_graph(kind, 200, density, rng()).fill_diagonal_(False).sum()) / (200 * 199)
    assert joined == pytest.approx(density, abs=0.05)


def test_kinds_of_random_graphs_differ_in_their_degrees():
    degrees = {kind: random_graph(kind, 200, 0.1, rng()).sum(1) for kind in RANDOM}
    assert len(degrees["regular"].unique()) == 1
    assert len(degrees["watts-strogatz"].unique()) > 1
    assert degrees["barabasi-albert"].max() > 1.5 * degrees["erdos-renyi"].max()


def naive_likeness(kind, a, b):
    if kind == "euclidean":
        return -np.linalg.norm(a - b)
    if kind == "jaccard":
        return (a * b).sum() / max(1, ((a + b) > 0).sum())
    if kind == "pearson":
        return np.corrcoef(a, b)[0, 1]
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_likeness_equals_its_definition(kind):
    histories = (rng().random((8, 30)) < 0.3).astype(np.float64)
    histories[:, 0] = 1
    found = likeness(kind, torch.from_numpy(histories))
    wanted = [[naive_likeness(kind, a, b) for b in histories] for a in histories]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-7)


def test_the_densest_pairs_are_the_most_alike():
    score = torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.5], [0.1, 0.5, 1.0]])
    assert densest(score, 1 / 3).tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert densest(score, 0.01).equal(torch.eye(3, dtype=torch.bool))
    assert densest(score, 1.0).all()


def test_a_graph_of_histories_averages_those_who_are_alike(world):
    """Pulled fully, everybody's target is the mean table of the neighbours that their histories choose."""
    w = world("gpfedrec", graph="jaccard", density=0.2, min_neighbours=0, **SMALL)
    seen = {}
    w.simulation.observers.append(
        lambda clients, call, message, updates: seen.setdefault(call.step, []).append(updates.stacked(_block(call)))
    )
    base = w.server.items
    w.train(1)
    mine = w.data.positives.mask(np.arange(w.data.n_users))
    assert torch.cat(seen["history"])[:, :, 0].numpy().astype(bool).tolist() == mine.tolist()
    near = densest(likeness("jaccard", torch.from_numpy(mine).float()), 0.2)
    tables = torch.cat(seen["train"])
    targets = torch.empty_like(tables)
    neighbour_means(near, tables.flatten(1), base.flatten(), targets.flatten(1), torch.arange(len(tables)))
    torch.testing.assert_close(w.server.targets, targets)
    w.train(2, first=1)
    assert len(seen["history"]) == len(seen["train"]) / 2  # histories are shown once


def _block(call):
    (name,) = call.schema
    return name


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_a_random_graph_stays_and_keeps_enough_neighbours(world, kind):
    w = world("gpfedrec", graph=kind, density=0.01, min_neighbours=7, **SMALL)
    w.train(1)
    near = w.server.near.clone()
    assert (near.sum(1) - 1).min() >= 7
    w.train(2, first=1)
    assert near.equal(w.server.near)


def test_a_history_is_shown_for_its_graph_only(world):
    assert world("gpfedrec", **SMALL).clients.steps == {"train"}
    w = world("gpfedrec", graph="cosine", **SMALL)
    assert w.clients.steps == {"train", "history"}


def test_graphs_that_do_not_fit_are_refused(world):
    with pytest.raises(ValueError, match="lower density"):
        GPFedRecConfig(graph="regular", max_neighbours=10)
    w = world("gpfedrec", graph="cosine", plan="none:sampling.kind=epoch,sampling.size=17", **SMALL)
    with pytest.raises(ValueError, match="everybody take part"):
        w.train(4)
