"""The user graph, its k-anonymity rule, and who keeps which personal target."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privfed.methods.gpfedrec import GPFedRecConfig, graph
from privfed.methods.gpfedrec.graph import cosines, neighbourhoods, scores, sketched_cosines, thinned
from privfed.methods.gpfedrec.means import neighbour_means

SMALL = {"dim": 4, "hidden": (4,), "batch_size": 32}
quick = settings(max_examples=50, deadline=None)


def tables(seed, n, size=6):
    """Users in a few clusters, so that neighbourhoods have all sizes."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, size))
    return (centres[rng.integers(3, size=n)] + rng.uniform(0, 1.5) * rng.normal(size=(n, size))).astype(np.float32)


def cosines_of(tables):
    """Of whole tables: what is uploaded is all there is."""
    return cosines(tables, torch.zeros(tables.shape[1]))


@quick
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([0.0, 1.0, 30.0]))
def test_cosines(seed, n, length):
    """Of tables told apart by what is added to a base that may be much longer."""
    updates, base = tables(seed, n), (length * np.random.default_rng(seed).normal(size=6)).astype(np.float32)
    found = cosines(torch.from_numpy(updates), torch.from_numpy(base)).numpy()
    whole = updates.astype(np.float64) + base
    error = rounding_of(torch.from_numpy(updates), torch.from_numpy(base))
    for i in range(n):
        for j in range(n):
            wanted = whole[i] @ whole[j] / np.linalg.norm(whole[i]) / np.linalg.norm(whole[j])
            assert found[i, j] == pytest.approx(wanted, abs=float(error[i, j]))


def test_a_table_of_zeros_resembles_nobody():
    found = cosines_of(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    np.testing.assert_allclose(found.numpy(), [[0, 0], [0, 1]], atol=1e-6)


def test_a_table_that_an_upload_brings_to_zeros_resembles_nobody():
    base = torch.randn(500, generator=torch.Generator().manual_seed(0))
    found = cosines(torch.stack([-base, base, 0 * base]), base)
    np.testing.assert_allclose(found.numpy(), [[0, 0, 0], [0, 1, 1], [0, 1, 1]], atol=2e-3)


def draws(seed):
    return np.random.default_rng(seed)


def uploads_of(seed, n, size):
    """Sparse rows of unequal length beside a base, as local training makes them."""
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(n, size)) * (rng.random((n, size)) < 0.3) * rng.uniform(0.1, 1, (n, 1))
    return torch.from_numpy(updates.astype(np.float32)), torch.from_numpy(rng.normal(size=size).astype(np.float32))


def rounding_of(updates, base):
    """How far cosines can be from exact ones in float32, by what `cosines` states.

    A sum of d products in any order errs by at most (d + 1) 2^-24 of the sum of their sizes. With
    k_i = (|u_i| + |base|) / |q_i|, which is large where an upload nearly cancels the base, the numerator
    u_i u_j + u_i base + u_j base + base base therefore errs by (d + 8) 2^-24 k_i k_j |q_i| |q_j| (8 for adding the
    terms, the norms and the divisions), and the squared norms by as much of k_i^2 |q_i|^2 and k_j^2 |q_j|^2, half of
    which goes to the quotient: twice k_i k_j or the mean of the squares together.
    """
    updates, base = updates.double(), base.double()
    whole = (updates + base).norm(dim=1).clamp(min=1e-12)
    k = (updates.norm(dim=1) + base.norm()) / whole
    return (updates.shape[1] + 8) * 2.0**-24 * (k.outer(k) + (k.square().unsqueeze(1) + k.square()) / 2)


@quick
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 40), st.integers(0, 3))
@example(seed=55634, n=17, size=1, more=0)
def test_a_sketch_as_wide_as_a_table_loses_nothing(seed, n, size, more):
    """But the rounding of both: the example has an upload that leaves 1 / 460 of its base (k^2 = 200,000)."""
    updates, base = uploads_of(seed, n, size)
    updates += 0.01
    found = sketched_cosines(updates, base, size + more, draws(seed))
    assert ((found - cosines(updates, base)).abs() <= 2 * rounding_of(updates, base)).all()


def test_a_sketch_errs_by_its_standard_error_and_not_on_one_side():
    updates, base = uploads_of(5, 40, 2000)
    exact, off = cosines(updates, base), ~torch.eye(40, dtype=torch.bool)
    own, whole = updates.norm(dim=1), (updates + base).norm(dim=1)
    error = (own / whole).outer(own / whole) / 200**0.5
    z = torch.stack([((sketched_cosines(updates, base, 200, draws(s)) - exact) / error)[off] for s in range(100)])
    assert z.square().mean().sqrt() == pytest.approx(1, abs=0.1)
    assert z.mean(0).abs().max() < 0.6
    assert z.abs().max() < 8


def test_a_sketch_leaves_nearly_all_edges_where_they_are():
    updates, base = uploads_of(6, 120, 3000)
    exact = neighbourhoods(cosines(updates, base), "similarity", 1.0, 5)
    found = neighbourhoods(sketched_cosines(updates, base, 750, draws(0)), "similarity", 1.0, 5)
    assert (found ^ exact).float().mean() < 0.03
    assert found.equal(neighbourhoods(sketched_cosines(updates, base, 750, draws(0)), "similarity", 1.0, 5))


@quick
@given(st.integers(0, 10**6), st.integers(1, 600), st.integers(1, 40), st.sampled_from([7, 64, 8192]))
def test_bfloat16_errs_by_less_than_its_bound(seed, n, size, columns):
    updates, base = uploads_of(seed, n, size)
    updates += 0.01
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "_COLUMNS", columns)
        found = cosines(updates, base, "bfloat16")
    own, whole = updates.norm(dim=1), (updates + base).norm(dim=1)
    bound = ((1 + 2.0**-8) ** 3 - 1) * (own / whole).outer(own / whole)
    cancelled = (own.square() + base.norm().square()) / whole.square()
    rounding = 2e-5 + 1e-6 * torch.maximum(cancelled, cancelled.unsqueeze(1))
    assert ((found - cosines(updates, base)).abs() <= bound + rounding).all()


def test_bfloat16_leaves_nearly_all_edges_where_they_are():
    updates, base = uploads_of(6, 600, 3000)
    exact = neighbourhoods(cosines(updates, base), "similarity", 1.0, 5)
    found = neighbourhoods(cosines(updates, base, "bfloat16"), "similarity", 1.0, 5)
    assert (found ^ exact).float().mean() < 0.001


def test_a_sketch_in_bfloat16_is_refused():
    with pytest.raises(ValueError, match="sketch = 64 and precision = bfloat16 are two ways"):
        GPFedRecConfig(sketch=64, precision="bfloat16")


metrics, gammas, floors = st.sampled_from(["similarity", "distance"]), st.floats(0, 3), st.integers(0, 12)


@quick
@given(st.integers(0, 10**6), st.integers(1, 30), metrics, gammas, floors)
def test_neighbours_are_above_the_threshold_or_else_the_best_others(seed, n, metric, gamma, floor):
    cosine = cosines_of(torch.from_numpy(tables(seed, n)))
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
    cosine = cosines_of(torch.from_numpy(tables(seed, floor + 1 + more)))
    near = neighbourhoods(cosine, metric, gamma, floor)
    for left in (
        near,
        *(thinned(near, max(floor, 1), rank) for rank in (scores(cosine, metric), torch.rand(near.shape))),
    ):
        others = left.numpy().copy()
        np.fill_diagonal(others, val=False)
        assert others.sum(1).min() >= floor


def test_a_user_is_its_own_neighbour_by_similarity_and_never_by_distance():
    cosine = cosines_of(torch.from_numpy(tables(0, 25)))
    assert neighbourhoods(cosine.clone(), "similarity", 1.0, 1).diagonal().all()
    near = neighbourhoods(cosine.clone(), "distance", 0.5, 1)
    assert not near.diagonal().any()


def some_graph(seed, n, density):
    near = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < density
    near[~near.any(1)] = True
    return near


@quick
@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(0, 1), st.integers(1, 40))
def test_thinning_keeps_the_best_ranked_of_the_neighbours_and_oneself(seed, n, density, most):
    near, rank = some_graph(seed, n, density), torch.rand(n, n, generator=torch.Generator().manual_seed(seed + 1))
    found = thinned(near.clone(), most, rank)
    for i in range(n):
        others = sorted((j for j in range(n) if j != i and near[i, j]), key=lambda j: -rank[i, j])[:most]
        wanted = {*others, i} if near[i, i] else {*others}
        assert set(found[i].nonzero()[:, 0].tolist()) == wanted


def test_a_random_draw_keeps_every_neighbour_equally_often():
    near, seen = some_graph(3, 12, 0.7), torch.zeros(12, 12)
    near[4] = True
    for seed in range(2000):
        seen += thinned(near, 3, torch.rand(12, 12, generator=torch.Generator().manual_seed(seed)))
    others = torch.arange(12) != 4
    torch.testing.assert_close(seen[4, others] / 2000, torch.full((11,), 3 / 11), rtol=0, atol=0.05)
    assert seen[4, 4] == 2000


def test_fewer_neighbours_than_the_rule_demands_are_refused():
    with pytest.raises(ValueError, match="max_neighbours is 3, below min_neighbours 5"):
        GPFedRecConfig(max_neighbours=3)
    assert GPFedRecConfig(max_neighbours=3, min_neighbours=3).max_neighbours == 3


@quick
@given(st.integers(0, 10**6), st.integers(1, 90), st.sampled_from(["hubs", "random", "all", "blocks", "few"]))
def test_neighbour_means_equal_a_loop(seed, n, kind):
    rng = np.random.default_rng(seed)
    near = {
        "all": np.ones((n, n), bool),
        "random": rng.random((n, n)) < rng.random(),
        "hubs": np.tile(rng.random(n) < 0.3, (n, 1)) ^ (rng.random((n, n)) < 0.03),
        "blocks": (np.arange(n)[:, None] // 7) == (np.arange(n) // 7),
        "few": rng.random((n, n)).argsort(1) < 3,
    }[kind]
    near[~near.any(1)] = True
    size = int(rng.choice([1, 11, 600, 1030]))
    values, base = torch.from_numpy(tables(seed, n, size)), torch.from_numpy(rng.normal(size=size).astype(np.float32))
    before, out = values.clone(), torch.full((n + 2, size), torch.nan)
    rows = torch.from_numpy(rng.permutation(n + 2)[:n].astype(np.int64))
    mean = neighbour_means(torch.from_numpy(near), values, base, out, rows)
    assert values.equal(before)
    assert out.isnan().all(1).sum() == 2
    wanted = np.stack([base.double().numpy() + values.double().numpy()[near[i]].mean(0) for i in range(n)])
    np.testing.assert_allclose(out[rows].numpy(), wanted, atol=2e-6)
    np.testing.assert_allclose(mean.numpy(), wanted.mean(0), atol=2e-6)


def test_a_huge_table_leaves_nothing_behind_in_the_means_of_others():
    """Sums go on from user to user; what one of them added and the next took away must not show."""
    n = 60
    near = torch.ones(n, n, dtype=torch.bool).tril_()
    near[: n // 2, : n // 2] = True
    near[40:, 0] = False
    values, out = torch.from_numpy(tables(1, n, 40)), torch.empty(n, 40)
    values[0] = 1e9
    neighbour_means(near, values, torch.zeros(40), out, torch.arange(n))
    for i in range(40, n):
        np.testing.assert_allclose(out[i].numpy(), values.double()[near[i]].mean(0).numpy(), atol=2e-6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("near", "updates", "base", "users", "last"),
    [(8, 5, 30, 6, 4), (5, 4, 30, 6, 4), (5, 5, 29, 6, 4), (5, 5, 31, 6, 4), (5, 5, 30, 4, 4), (5, 5, 30, 6, -1)],
)
def test_a_graph_and_tables_of_others_are_refused(near, updates, base, users, last):
    """A damaged checkpoint may hold any, and the compiled sums read memory unchecked."""
    rows = torch.tensor([0, 1, 2, 3, last])
    everybody = torch.ones(near, near, dtype=torch.bool)
    with pytest.raises(IndexError, match="continue from a checkpoint of this run"):
        neighbour_means(everybody, torch.ones(updates, 30), torch.zeros(base), torch.zeros(users, 30), rows)


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
    from privfed.engines.transcript import Transcript

    tapped = Transcript(torch.arange(45), frozenset({"wire"}))
    w = world("gpfedrec", transcript=tapped, refresh_every=refresh_every, **SMALL)
    for t in range(5):
        base = w.server.public().shared["items"].clone()
        w.train(t + 1, first=t)
        tables = (released(w, t) + base).flatten(1)
        if t % refresh_every == 0:
            near = neighbourhoods(cosines_of(tables), "similarity", 1.0, 5)
        targets = w.server.public().personal["targets"].flatten(1)
        torch.testing.assert_close(targets, means_of(tables, near), rtol=0, atol=1e-5)


def test_the_light_variant_rebuilds_its_graph_for_another_cohort(world):
    """A graph over other users would attach neighbours to the wrong people."""
    from privfed.engines.transcript import Transcript

    tapped = Transcript(torch.arange(45), frozenset({"wire"}))
    plan = "none:sampling.kind=fixed,sampling.size=12"
    w = world("gpfedrec", plan=plan, transcript=tapped, refresh_every=100, **SMALL)
    for t in range(3):
        base = w.server.public().shared["items"].clone()
        w.train(t + 1, first=t)
        tables = (released(w, t) + base).flatten(1)
        near = neighbourhoods(cosines_of(tables), "similarity", 1.0, 5)
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


VARIANTS = [
    {"sketch": 64},
    {"precision": "bfloat16"},
    {"max_neighbours": 7},
    {"max_neighbours": 6, "thinning": "nearest"},
    {"sketch": 64, "max_neighbours": 5, "graph": "distance"},
    {"sketch": 100, "refresh_every": 2},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_variant_keeps_the_rule_and_averages_its_neighbours(world, variant):
    from privfed.engines.transcript import Transcript

    tapped = Transcript(torch.arange(45), frozenset({"wire"}))
    w = world("gpfedrec", transcript=tapped, **SMALL, **variant)
    for t in range(3):
        base = w.server.public().shared["items"].clone()
        w.train(t + 1, first=t)
        near, tables = w.server.near, (released(w, t) + base).flatten(1)
        others = near.sum(1) - near.diagonal().long()
        assert others.min() >= 5
        assert others.max() <= variant.get("max_neighbours", 45)
        targets = w.server.public().personal["targets"].flatten(1)
        torch.testing.assert_close(targets, means_of(tables, near), rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_variant_goes_on_from_a_checkpoint_as_if_nothing_had_been(world, variant):
    one, other = (world("gpfedrec", **SMALL, **variant) for _ in range(2))
    one.train(1)
    other.server.load({key: value.clone() for key, value in one.server.state().items()})
    other.clients.load({key: value.clone() for key, value in one.clients.state().items()})
    other.simulation.cohorts = one.simulation.cohorts
    for w in (one, other):
        w.train(3, first=1)
    assert all(one.server.state()[name].equal(value) for name, value in other.server.state().items())


def test_random_draws_differ_from_round_to_round_and_from_seed_to_seed(world):
    graphs = []
    for seed, rounds in ((3, 1), (3, 2), (4, 1)):
        graphs.append(world("gpfedrec", seed=seed, max_neighbours=5, gamma=0.0, **SMALL).train(rounds).server.near)
    assert not graphs[0].equal(graphs[1])
    assert not graphs[0].equal(graphs[2])


def test_a_wide_sketch_trains_what_whole_tables_train(world):
    exact, sketched = world("gpfedrec", **SMALL).train(2), world("gpfedrec", sketch=1000, **SMALL).train(2)
    assert sketched.server.near.equal(exact.server.near)
    torch.testing.assert_close(sketched.server.targets, exact.server.targets, rtol=0, atol=1e-6)
