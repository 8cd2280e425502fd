"""The user graph, its k-anonymity rule, and who keeps which personal target."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.gpfedrec.graph import cosines, neighbour_means, neighbourhoods

SMALL = {"dim": 4, "hidden": (4,), "batch_size": 32}
quick = settings(max_examples=50, deadline=None)


def tables(seed, n, size=6):
    """Users in a few clusters, so that neighbourhoods have all sizes."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, size))
    return (centres[rng.integers(3, size=n)] + rng.uniform(0, 1.5) * rng.normal(size=(n, size))).astype(np.float32)


@quick
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_cosines(seed, n):
    flat = tables(seed, n).astype(np.float64)
    found = cosines(torch.from_numpy(flat.astype(np.float32))).numpy()
    for i in range(n):
        for j in range(n):
            wanted = flat[i] @ flat[j] / np.linalg.norm(flat[i]) / np.linalg.norm(flat[j])
            assert found[i, j] == pytest.approx(wanted, abs=1e-5)


def test_a_table_of_zeros_resembles_nobody():
    found = cosines(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    np.testing.assert_allclose(found.numpy(), [[0, 0], [0, 1]], atol=1e-6)


metrics, gammas, floors = st.sampled_from(["similarity", "distance"]), st.floats(0, 3), st.integers(0, 12)


@quick
@given(st.integers(0, 10**6), st.integers(1, 30), metrics, gammas, floors)
def test_neighbours_are_above_the_threshold_or_else_the_best_others(seed, n, metric, gamma, floor):
    cosine = cosines(torch.from_numpy(tables(seed, n)))
    found = neighbourhoods(cosine.clone(), metric, gamma, floor).numpy()
    score = cosine.double().numpy().copy()
    if metric == "distance":
        score = 1 - score
        np.fill_diagonal(score, 0)
    threshold = gamma * score.mean()
    if np.abs(score - threshold).min() < 1e-6:
        return
    for i in range(n):
        near = score[i] > threshold
        others = sorted(set(range(n)) - {i}, key=lambda j: -score[i, j])
        if near.sum() - near[i] < floor:
            near[others[:floor]] = True
        if not near.any():
            near[i] = True
        np.testing.assert_array_equal(found[i], near)


@quick
@given(st.integers(0, 10**6), metrics, gammas, floors, st.integers(0, 20))
def test_no_target_averages_fewer_than_the_least_number_of_others(seed, metric, gamma, floor, more):
    cosine = cosines(torch.from_numpy(tables(seed, floor + 1 + more)))
    near = neighbourhoods(cosine, metric, gamma, floor).numpy()
    np.fill_diagonal(near, val=False)
    assert near.sum(1).min() >= floor


def test_a_user_is_its_own_neighbour_by_similarity_and_never_by_distance():
    cosine = cosines(torch.from_numpy(tables(0, 25)))
    assert neighbourhoods(cosine.clone(), "similarity", 1.0, 1).diagonal().all()
    near = neighbourhoods(cosine.clone(), "distance", 0.5, 1)
    assert not near.diagonal().any()


@quick
@given(st.integers(0, 10**6), st.integers(1, 90), st.sampled_from(["hubs", "random", "all", "blocks"]))
def test_neighbour_means_equal_a_loop(seed, n, kind):
    rng = np.random.default_rng(seed)
    near = {
        "all": np.ones((n, n), bool),
        "random": rng.random((n, n)) < rng.random(),
        "hubs": np.tile(rng.random(n) < 0.3, (n, 1)) ^ (rng.random((n, n)) < 0.03),
        "blocks": (np.arange(n)[:, None] // 7) == (np.arange(n) // 7),
    }[kind]
    near[~near.any(1)] = True
    values = torch.from_numpy(tables(seed, n, size=11))
    before, out = values.clone(), torch.full_like(values, torch.nan)
    found = neighbour_means(torch.from_numpy(near), values, out)
    assert found.data_ptr() == out.data_ptr()
    assert values.equal(before)
    for i in range(n):
        wanted = values.double().numpy()[near[i]].mean(0)
        np.testing.assert_allclose(found[i].numpy(), wanted, atol=2e-6)


def test_absent_clients_keep_their_target_and_newcomers_have_the_initial_table(world):
    w = world("gpfedrec", plan="none:sampling.kind=epoch,sampling.size=15", **SMALL)
    initial = w.server.public().shared["items"].clone()
    done = set()
    for t in range(5):
        before = w.server.public().personal["targets"].clone()
        w.train(t + 1, first=t)
        after = w.server.public().personal["targets"]
        members = w.simulation.members(t).tolist()
        done |= set(members)
        for user in range(45):
            if user in members:
                assert not after[user].equal(before[user])
            else:
                assert after[user].equal(before[user])
            if user not in done:
                assert after[user].equal(initial)
    assert done == set(range(45))


def test_the_plain_mean_gives_everybody_the_global_table(world):
    w = world("gpfedrec", graph=None, plan="none:sampling.kind=fixed,sampling.size=9", **SMALL).train(2)
    public = w.server.public()
    assert public.personal["targets"].equal(public.shared["items"].expand(45, -1, -1))


def means_of(tables, near):
    return torch.stack([tables[row].mean(0) for row in near])


def released(w, t):
    """Every table as the server received it in round t."""
    (seen,) = [o for o in w.simulation.transcript.joined("wire") if o.round == t]
    return seen.tensors["items"]


@pytest.mark.parametrize("refresh_every", [1, 2, 3])
def test_the_light_variant_keeps_its_graph_between_refreshes(world, refresh_every):
    from privfed.engines import Transcript

    tapped = Transcript(torch.arange(45), frozenset({"wire"}))
    w = world("gpfedrec", transcript=tapped, refresh_every=refresh_every, **SMALL)
    for t in range(5):
        base = w.server.public().shared["items"].clone()
        w.train(t + 1, first=t)
        tables = (released(w, t) + base).flatten(1)
        if t % refresh_every == 0:
            near = neighbourhoods(cosines(tables), "similarity", 1.0, 5)
        targets = w.server.public().personal["targets"].flatten(1)
        torch.testing.assert_close(targets, means_of(tables, near), rtol=0, atol=1e-5)


def test_the_light_variant_rebuilds_its_graph_for_another_cohort(world):
    """A graph over other users would attach neighbours to the wrong people."""
    from privfed.engines import Transcript

    tapped = Transcript(torch.arange(45), frozenset({"wire"}))
    plan = "none:sampling.kind=fixed,sampling.size=12"
    w = world("gpfedrec", plan=plan, transcript=tapped, refresh_every=100, **SMALL)
    for t in range(3):
        base = w.server.public().shared["items"].clone()
        w.train(t + 1, first=t)
        tables = (released(w, t) + base).flatten(1)
        near = neighbourhoods(cosines(tables), "similarity", 1.0, 5)
        targets = w.server.public().personal["targets"].flatten(1)[w.simulation.members(t)]
        torch.testing.assert_close(targets, means_of(tables, near), rtol=0, atol=1e-5)


@pytest.mark.parametrize("graph", ["similarity", "distance"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_cohort_too_small_for_the_rule_gives_nobody_a_target(world, size, graph):
    """With min_neighbours 5 a cohort of 2 would hand each of them the other's table."""
    w = world("gpfedrec", graph=graph, plan=f"none:sampling.kind=fixed,sampling.size={size}", **SMALL)
    before = w.server.public().personal["targets"].clone()
    w.train(1)
    assert w.server.public().personal["targets"].equal(before)


def test_a_round_without_members_changes_nothing(world):
    w = world("gpfedrec", plan="none:sampling.kind=poisson,sampling.rate=0.000001", **SMALL)
    before = {name: value.clone() for name, value in w.server.state().items()}
    w.train(2)
    assert all(w.server.state()[name].equal(before[name]) for name in before)
