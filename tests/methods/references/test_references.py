"""PureSVD, iALS and EASE: equal to naive ones, lists that leave once and only where a plan shows them, learning."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privfed.data import Histories, SplitSpec, SyntheticSpec, generate, split
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Streams
from privfed.methods import ClientData, PublicInfo, method
from privfed.methods.references.ease import NoTagsError
from privfed.methods.references.ease.model import item_weights
from privfed.methods.references.puresvd.model import item_factors
from privfed.methods.shared import ials
from privfed.methods.shared.ials import IALSObjective
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

SMALL = {
    "puresvd": {"dim": 5},
    "ials": {"dim": 5, "unobserved": 0.1, "regularisation": 0.003},
    "ease": {"regularisation": 4.0},
}
MODEL = {"puresvd": {"items"}, "ials": {"items"}, "ease": {"weights", "head"}}
ALL = pytest.mark.parametrize("name", SMALL)


def matrix(histories):
    return histories.mask(np.arange(histories.n_users)).astype(float)


def drawn(n_users, n_items, density, seed):
    """Lists of random items; some users have none, and some items nobody."""
    taken = np.random.default_rng(seed).random((n_users, n_items)) < density
    taken[::7], taken[:, ::5] = False, False
    return Histories.from_pairs(*taken.nonzero(), n_users, n_items)


LISTS = st.builds(
    drawn, st.integers(1, 30), st.integers(2, 25), st.sampled_from([0.02, 0.2, 0.7, 1.0]), st.integers(0, 1000)
)


def experiment(parts, name, plan="none", rounds=4, places=("raw", "wire"), **more):
    config = ExperimentConfig(
        data="synthetic-tests",
        method={"name": name, **(SMALL[name] | more)},
        privacy=PrivacyPlan.parse(plan),
        protocol=Protocol(k=(5,)),
        rounds=rounds,
        evaluate_every=rounds,
        checkpoint_every=2,
        taps=TapConfig(places=places, users=40, rounds=(0,)),
    )
    return Experiment(config, parts)


def trained(name, histories, plan="none", rounds=1, item_info=None, **more):
    """Both halves after training on any lists."""
    data, registered, streams = ClientData(histories, histories), method(name), Streams.from_seed(0)
    config, plan = registered.config(**SMALL[name] | more), PrivacyPlan.parse(plan)
    server = registered.training.server(config, PublicInfo(data.n_users, data.n_items, item_info=item_info), streams)
    clients = registered.training.clients(config, data, streams)
    simulation = Simulation(clients, plan, data.n_users, streams, Ledger(plan, data.n_users))
    for t in range(rounds):
        simulation.run(server, t)
    return server, clients


def scores(server, clients, n_users):
    return clients.score(torch.arange(n_users), server.public(), None, None).double().numpy()


def same_bits(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) and found[name].dtype == wanted[name].dtype for name in found)


# EASE


@settings(max_examples=50, deadline=None)
@given(LISTS, st.floats(0.1, 100))
def test_ease_solves_every_column_of_its_constrained_regression(histories, strength):
    """Oracle: item j regressed on all other items, one ridge regression after the other."""
    x = matrix(histories)
    wanted = np.zeros((histories.n_items, histories.n_items))
    for j in range(histories.n_items):
        others = np.delete(np.arange(histories.n_items), j)
        own = x[:, others]
        wanted[others, j] = np.linalg.solve(own.T @ own + strength * np.eye(len(others)), own.T @ x[:, j])
    found = item_weights(histories, np.arange(histories.n_items), strength).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-8)


@settings(max_examples=50, deadline=None)
@given(LISTS, st.floats(0.1, 100))
def test_ease_has_no_diagonal_and_no_gradient_elsewhere(histories, strength):
    x, found = matrix(histories), item_weights(histories, np.arange(histories.n_items), strength).numpy()
    assert not found.diagonal().any()
    gradient = x.T @ (x @ found - x) + strength * found
    np.fill_diagonal(gradient, 0)
    np.testing.assert_allclose(gradient, 0, atol=1e-8 * max(1, strength))


def test_ease_scores_are_the_own_row_times_the_weights(small_split):
    server, clients = trained("ease", small_split.train)
    x = matrix(small_split.train)
    wanted = x @ item_weights(small_split.train, np.arange(70), 4.0).numpy()
    np.testing.assert_allclose(scores(server, clients, 45), wanted, atol=1e-5)


def test_ease_learns_a_head_and_ranks_the_rest_behind_it_by_popularity(small_split):
    lists = small_split.train
    server, clients = trained("ease", lists, max_items=20)
    counts = lists.popularity()
    head = sorted(sorted(range(70), key=lambda i: (-counts[i], i))[:20])
    assert server.public().shared["head"].tolist() == head
    x = matrix(lists)[:, head]
    found = scores(server, clients, 45)
    inside = x @ item_weights(lists, np.array(head), 4.0).numpy()
    with_some = x.any(1)
    np.testing.assert_allclose(found[np.ix_(with_some, head)], inside[with_some], atol=1e-5)
    rest = np.setdiff1d(np.arange(70), head)
    assert (found[:, rest].max(1) < found[:, head].min(1)).all()
    steps = np.diff(found[:, rest[np.argsort(counts[rest], kind="stable")]], axis=1)
    assert (steps >= 0).all()
    wider, same = (trained("ease", lists, max_items=most)[0].public().shared for most in (None, 10_000))
    same_bits(wider, same)


ABOUT = pd.DataFrame(
    {
        "title": [f"Film {i} ({1990 + i % 7})" for i in range(70)],
        "genres": ["Drama|Comedy" if i % 2 else "Drama" if i % 5 else "Crime" for i in range(70)],
    }
)


def test_ease_reads_genres_and_years_as_further_rows(small_split):
    """Oracle: the same closed form on lists below which the tags stand as users; weight 1, as lists have no other."""
    lists = small_split.train
    film = np.arange(70)
    comedy, crime = film % 2 == 1, film % 10 == 0
    rows = [comedy, crime, ~crime, *(film % 7 == late for late in range(7))]
    stacked = np.concatenate([matrix(lists) > 0, rows])
    wanted = item_weights(Histories.from_pairs(*stacked.nonzero(), len(stacked), 70), film, 4.0)
    found = trained("ease", lists, item_info=ABOUT, tag_weight=1.0)[0].public().shared["weights"]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)
    plain = trained("ease", lists)[0].public().shared
    same_bits(trained("ease", lists, item_info=ABOUT)[0].public().shared, plain)
    assert not found.equal(plain["weights"])


def test_ease_takes_the_tags_of_its_head_and_their_weight(small_split):
    head = np.array([3, 8, 21])
    described = np.random.default_rng(0).random((4, 70))
    x = np.concatenate([matrix(small_split.train), described])[:, head]
    inverse = np.linalg.inv(x.T @ x + 2 * np.eye(3))
    wanted = np.eye(3) - inverse / inverse.diagonal()
    found = item_weights(small_split.train, head, 2.0, described).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("about", [None, pd.DataFrame({"title": ["untitled"] * 70, "genres": [None] * 70})])
def test_ease_says_where_there_are_no_tags_to_weigh(small_split, about):
    with pytest.raises(NoTagsError, match="name no genre or year of any item: set tag_weight to 0") as caught:
        trained("ease", small_split.train, item_info=about, tag_weight=1.0)
    assert "\n" not in str(caught.value)


# PureSVD


@settings(max_examples=50, deadline=None)
@given(LISTS, st.integers(1, 12))
def test_puresvd_projects_as_well_as_the_dense_decomposition(histories, dim):
    """Singular vectors are only unique up to signs, and up to rotations where values are equal; projections are not."""
    x = matrix(histories)
    found = item_factors(histories, dim)
    if not len(histories):
        assert not found.any()
        return
    _, strengths, right = np.linalg.svd(x)
    rank = min(dim, *x.shape)
    assert found.shape == (histories.n_items, dim)
    np.testing.assert_allclose(found[:, :rank].T @ found[:, :rank], np.eye(rank), atol=1e-8)
    assert not found[:, rank:].any()
    np.testing.assert_allclose(np.linalg.norm(x @ found[:, :rank], axis=0), strengths[:rank], atol=1e-6)
    if rank == len(strengths) or strengths[rank - 1] - strengths[rank] > 1e-3:
        np.testing.assert_allclose(x @ found @ found.T, x @ right[:rank].T @ right[:rank], atol=1e-6)


def test_puresvd_is_the_same_every_time_whatever_it_starts_from(small_split):
    found = [item_factors(small_split.train, 5, seed) for seed in (0, 0, 1)]
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
    np.testing.assert_allclose(*(q @ q.T for q in found[::2]), atol=1e-8)


def test_puresvd_scores_are_the_own_row_projected(small_split):
    server, clients = trained("puresvd", small_split.train)
    x = matrix(small_split.train)
    _, _, right = np.linalg.svd(x)
    np.testing.assert_allclose(scores(server, clients, 45), x @ right[:5].T @ right[:5], atol=1e-5)


# iALS


def objective(users, items, x, a, strength, e):
    """As the paper writes it, term by term."""
    fit = users @ items.T
    value = (x * (1 - fit) ** 2).sum() + a * (fit**2).sum()
    value += strength * ((x.sum(1) + a * len(items)) ** e * (users**2).sum(1)).sum()
    return value + strength * ((x.sum(0) + a * len(users)) ** e * (items**2).sum(1)).sum()


def naive(x, others, a, strength, e):
    """One row after the other."""
    out = np.zeros((len(x), others.shape[1]))
    for row, taken in enumerate(x):
        own = others[taken > 0]
        weight = strength * (taken.sum() + a * len(others)) ** e
        out[row] = np.linalg.solve(own.T @ own + a * others.T @ others + weight * np.eye(others.shape[1]), own.sum(0))
    return out


@settings(max_examples=50, deadline=None)
@given(LISTS, st.integers(1, 6), st.floats(0.01, 2), st.floats(0.01, 2), st.sampled_from([0.0, 0.5, 1.0]))
def test_ials_half_steps_equal_a_loop_over_users(histories, dim, a, strength, e):
    items = np.random.default_rng(0).standard_normal((histories.n_items, dim))
    wanted = naive(matrix(histories), items, a, strength, e)
    objective = IALSObjective(a, strength, e)
    np.testing.assert_allclose(objective.solve(torch.from_numpy(items), histories), wanted, atol=1e-11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ials, "_solve", lambda *_: False)
        np.testing.assert_allclose(objective.solve(torch.from_numpy(items), histories), wanted, atol=1e-11)


@pytest.mark.parametrize("at_once", [1, 40, 1 << 15])
def test_ials_batches_change_nothing(monkeypatch, at_once):
    monkeypatch.setattr(ials, "_ENTRIES_AT_ONCE", at_once)
    monkeypatch.setattr(ials, "_solve", lambda *_: False)
    lengths = np.array([0, 40, 1, 1, 2, 17, 0, 3, 40, 8])
    rng = np.random.default_rng(0)
    items = np.concatenate([np.sort(rng.choice(40, length, replace=False)) for length in lengths])
    histories = Histories(np.concatenate([[0], lengths.cumsum()]), items, 40)
    others = rng.standard_normal((40, 3))
    found = IALSObjective(0.2, 0.1, 1.0).solve(torch.from_numpy(others), histories).numpy()
    np.testing.assert_allclose(found, naive(matrix(histories), others, 0.2, 0.1, 1.0), rtol=1e-8)


def test_ials_rows_are_solved_where_rounding_leaves_nothing_of_the_regularisation():
    others = np.zeros((4, 3))
    others[:, :2] = np.random.default_rng(0).normal(size=(4, 2))
    histories = Histories(np.array([0, 2, 2, 3]), np.array([0, 3, 1]), 4)
    for strength in (1e-30, 0.0):
        found = IALSObjective(0.5, strength, 1.0).solve(torch.from_numpy(others), histories).numpy()
        wanted = naive(matrix(histories), others[:, :2], 0.5, 0.0, 1.0)
        np.testing.assert_allclose(found[:, :2], wanted, atol=1e-9)


def test_ials_rounds_are_naive_passes_and_never_raise_the_objective(small_split):
    x, constants = matrix(small_split.train), (0.1, 0.003, 1.0)
    server, clients = trained("ials", small_split.train, rounds=0)
    items = server.public().shared["items"].double().numpy()
    assert items.std() == pytest.approx(0.1 / 5**0.5, rel=0.15)
    before = np.inf
    for _ in range(3):
        users = naive(x, items, *constants)
        middle = objective(users, items, x, *constants)
        items = naive(x.T, users, *constants)
        after = objective(users, items, x, *constants)
        assert after <= middle <= before
        before = after
    server, clients = trained("ials", small_split.train, rounds=3)
    np.testing.assert_allclose(server.public().shared["items"].numpy(), items, rtol=1e-3, atol=1e-4)
    wanted = naive(x, items, *constants) @ items.T
    np.testing.assert_allclose(scores(server, clients, 45), wanted, atol=1e-3)


# Lists leave once, whole, and under no other plan


@ALL
def test_every_list_leaves_in_round_0_and_nothing_later(world, name):
    everybody = Transcript(torch.arange(45), frozenset({"wire"}))
    w = world(name, transcript=everybody, **SMALL[name]).train(3)
    assert [o.round for o in w.simulation.transcript.joined("wire")] == [0]
    assert w.simulation.costs.client_rounds == 45
    assert w.simulation.cohorts == 1
    truth = torch.from_numpy(matrix(w.data.positives)).float()
    assert w.simulation.transcript.joined("wire")[0].tensors["history"][:, :, 0].equal(truth)
    assert set(w.server.public().shared) == {"popularity"} | MODEL[name]
    assert not w.server.public().personal


@ALL
@pytest.mark.parametrize("plan", ["none:release=total", "central-gaussian:clip_norm=1,noise_multiplier=1"])
def test_plans_that_hide_uploads_refuse_it(small_split, name, plan):
    with pytest.raises(PlanError, match="whole interaction list, and would see only a sum"):
        experiment(small_split, name, plan)


@ALL
def test_nothing_is_guaranteed(small_split, name):
    guarantee = experiment(small_split, name, rounds=1).run().guarantee
    assert guarantee.epsilon == np.inf


@ALL
def test_clipped_rows_lose_no_entry(world, name):
    clipped, whole = (world(name, plan=plan, **SMALL[name]).train(2) for plan in ("clip:clip_norm=0.5", "none"))
    same_bits(clipped.server.state(), whole.server.state())


@ALL
def test_noisy_rows_are_paid_for_once_and_learned_from(small_split, name):
    done = experiment(small_split, name, "local-laplace:epsilon0=4,clip_norm=3")
    result = done.run()
    assert result.guarantee.epsilon == pytest.approx(4.0, rel=1e-4)
    exact = experiment(small_split, name)
    exact.run()
    assert all(value.isfinite().all() for value in done.server.state().values())
    assert not done.server.public().shared["popularity"].equal(exact.server.public().shared["popularity"])


@ALL
@pytest.mark.parametrize("chunk", [1, 7])
def test_grouping_clients_changes_no_bit(world, name, chunk):
    runs = [world(name, chunk=c, **SMALL[name]).train(2) for c in (None, chunk)]
    same_bits(runs[1].server.state(), runs[0].server.state())


@ALL
def test_a_killed_run_continues_to_the_same_bits(small_split, tmp_path, name):
    class KilledError(Exception):
        pass

    def kill(t, evaluated):
        if t == 2:
            raise KilledError

    wanted = experiment(small_split, name).run()
    with pytest.raises(KilledError):
        experiment(small_split, name).run(tmp_path, progress=kill)
    found = experiment(small_split, name).run(tmp_path, resume=True)
    same_bits(found.server.state(), wanted.server.state())
    assert found.history == wanted.history
    assert found.guarantee == wanted.guarantee


def test_only_ials_goes_on_after_the_first_round(world):
    for name, config in SMALL.items():
        w = world(name, **config).train(1)
        first = w.server.state()
        w.train(2, first=1)
        changed = any(not value.equal(first[key]) for key, value in w.server.state().items())
        assert changed == (name == "ials")
        assert any(key.startswith("lists") for key in first) == (name == "ials")


# Users without history


@ALL
def test_users_without_history_get_what_is_popular(name):
    taken = np.zeros((9, 12), dtype=bool)
    taken[1:6, :4], taken[2:4, 5], taken[7, 8] = True, True, True
    histories = Histories.from_pairs(*taken.nonzero(), 9, 12)
    server, clients = trained(name, histories, rounds=2)
    found = scores(server, clients, 9)
    assert np.isfinite(found).all()
    for user in (0, 6, 8):
        np.testing.assert_allclose(found[user], histories.popularity() / 5, rtol=1e-6)
    assert (found[1] != found[0]).any()


def test_ease_gives_users_without_an_item_of_the_head_what_is_popular():
    histories = Histories.from_pairs(np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 3]), 3, 5)
    found = scores(*trained("ease", histories, max_items=2), 3)
    assert found[2, :2].tolist() == [1, 1]
    assert found[2].argmax() in (0, 1)
    assert found[2, 3] > found[2, 4]


@ALL
def test_an_empty_cohort_teaches_nothing(world, name):
    w = world(name, plan="none:sampling.kind=poisson,sampling.rate=0.0001", **SMALL[name])
    assert not len(w.simulation.members(0))
    start = w.server.state()
    same_bits(w.train(2).server.state(), start)
    assert w.clients.score(torch.arange(45), w.server.public(), None, None).isfinite().all()


@ALL
def test_only_the_cohort_of_round_0_is_learned_from(world, name):
    w = world(name, plan="none:sampling.kind=poisson,sampling.rate=0.4", **SMALL[name]).train(2)
    members = w.simulation.members(0)
    assert 0 < len(members) < 45
    counts = w.data.positives.subset(members.numpy()).popularity()
    np.testing.assert_allclose(w.server.public().shared["popularity"].numpy(), counts / counts.max(), rtol=1e-6)


@ALL
def test_scores_of_candidates_are_those_columns_of_the_whole_catalogue(world, name):
    w = world(name, **SMALL[name]).train(1)
    users, candidates = torch.tensor([7, 3, 44]), torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])
    whole = w.clients.score(users, w.server.public(), None, None)
    assert whole.shape == (3, 70)
    assert w.clients.score(users, w.server.public(), None, candidates).equal(whole.gather(1, candidates))
    alone = torch.cat([w.clients.score(u.view(1), w.server.public(), None, None) for u in users])
    torch.testing.assert_close(whole, alone, rtol=1e-5, atol=1e-6)


@ALL
def test_revealed_rows_are_in_the_order_of_the_call(world, name):
    w = world(name, **SMALL[name])
    call = Call(0, 0, "reveal", 0, torch.tensor([5, 2]), w.streams, w.server.schema)
    sent = w.clients.reveal(call, w.server.public()).stacked("history")[:, :, 0]
    assert sent.equal(torch.from_numpy(w.data.positives.mask(np.array([5, 2]))).float())


# What they are good for


@pytest.fixture(scope="module")
def tastes():
    spec = SyntheticSpec(
        name="synthetic-tests", n_users=300, n_items=150, mean_per_user=25, min_per_user=8, sharpness=3.0
    )
    return split(generate(spec), SplitSpec())


@pytest.mark.parametrize(
    ("name", "more", "rounds"),
    [
        ("puresvd", {"dim": 8}, 1),
        ("ials", {"dim": 16, "regularisation": 0.1}, 10),
        ("ease", {"regularisation": 50.0}, 1),
    ],
)
def test_it_learns_what_popularity_cannot_know(tastes, name, more, rounds):
    found = experiment(tastes, name, rounds=rounds, places=(), **more).run().test
    config = ExperimentConfig(
        method={"name": "popularity"}, rounds=1, protocol=Protocol(k=(5,)), taps=TapConfig(places=())
    )
    popularity = Experiment(config, tastes).run().test
    assert found.metric("hr", 5).value > 1.5 * popularity.metric("hr", 5).value


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("puresvd", {"dim": 0}),
        ("ials", {"dim": 0}),
        ("ials", {"unobserved": 0}),
        ("ials", {"regularisation": 0}),
        ("ials", {"exponent": -1}),
        ("ials", {"initial_scale": 0}),
        ("ease", {"regularisation": 0}),
        ("ease", {"most_items": 0}),
        ("ease", {"lambda": 3}),
    ],
)
def test_bad_settings_are_refused(name, setting):
    with pytest.raises(ValidationError, match=next(iter(setting))):
        method(name).config(**setting)
