"""The guards against what the plan claims: the clip holds, the noise has its law everywhere, epsilon is what it is.

The last part plays the game of the definition: two worlds, many draws, and a count of how well they are told apart.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.contracts import Block
from privfed.engines.simulation import Simulation
from privfed.federation import Call, Cohort, Message, PrivateState, StatefulClients, Streams
from privfed.guards import ClientGuard, RingCode, ServerGuard
from privfed.privacy import Ledger, PrivacyError, PrivacyPlan
from privfed.updates import ClientUpdates, Dense, Rows

REAL = {"items": Block((10, 3)), "head": Block((4,), weight=2.0)}
MIXED = {**REAL, "counts": Block((5,), kind="integer", bound=100)}


def guard(plan, seed=0):
    return ClientGuard(PrivacyPlan.parse(plan), Streams.from_seed(seed))


def call(clients, schema=REAL, round=0, query_id=0):
    return Call(round, round, "train", query_id, torch.as_tensor(clients), Streams.from_seed(99), schema)


def updates(clients, schema=REAL, scale=1.0, seed=0, rows_per_client=4):
    """Random rows for most clients, a dense head for every second one, nothing for some."""
    rng = np.random.default_rng(seed)
    n = len(clients)
    pairs = [(c, i) for c in range(n) for i in sorted(rng.permutation(10)[: rng.integers(rows_per_client + 1)])]
    owner, ids = (torch.tensor([pair[k] for pair in pairs], dtype=torch.int64) for k in (0, 1))
    values = torch.from_numpy(scale * rng.standard_cauchy((len(pairs), 3))).float()
    dense = torch.arange(0, n, 2)
    parts = [
        Rows("items", owner, ids, values),
        Dense("head", dense, torch.from_numpy(scale * rng.normal(size=(len(dense), 4))).float()),
    ]
    if "counts" in schema:
        parts.append(Dense("counts", torch.arange(n), torch.from_numpy(rng.integers(-100, 101, (n, 5)))))
    return ClientUpdates(torch.as_tensor(clients), schema, parts)


def everybody(u):
    return torch.arange(len(u))


def norm(blocks, client, order):
    """From the float32 values that leave, in float64, weights applied."""
    flat = np.concatenate([REAL[b].weight * blocks[b][client].double().numpy().ravel() for b in REAL])
    return np.linalg.norm(flat, order)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2]),
    st.floats(1e-3, 1e3),
    st.sampled_from([1e-9, 1e-2, 1.0, 50.0, 1e6, 1e18]),
)
def test_no_upload_is_longer_than_the_clip_and_short_ones_are_untouched(seed, order, bound, scale):
    g, u = guard(f"clip:clip_norm={bound},order={order}"), updates(range(20), scale=scale, seed=seed)
    before = {name: value.clone() for name, value in u.materialise(everybody(u)).items()}
    g.clip_(u)
    after = u.materialise(everybody(u))
    clipped = 0
    for client in range(20):
        was, now = norm(before, client, order), norm(after, client, order)
        assert now <= bound
        if was <= bound:
            assert all(after[b][client].equal(before[b][client]) for b in REAL)
            continue
        clipped += 1
        assert now > bound * (1 - 1e-6)
        for b in REAL:
            np.testing.assert_allclose(after[b][client], before[b][client].double() * bound / was, rtol=2e-6)
    assert (g.counts.uploads, g.counts.clipped) == (20, clipped)
    assert g.counts.fraction == clipped / 20


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("size", [3e38])
def test_the_clip_holds_for_the_largest_values_float32_can_carry(order, size):
    """A diverging client's last finite update: the clip has to shrink it by more than float32's whole range."""
    values = size * torch.rand(1, 1000, generator=torch.Generator().manual_seed(0))
    u = ClientUpdates(torch.arange(1), {"v": Block((1000,))}, [Dense("v", torch.arange(1), values)])
    guard(f"clip:clip_norm=0.001,order={order}").clip_(u)
    assert np.linalg.norm(u.materialise(torch.arange(1))["v"][0].double().numpy(), order) <= 0.001


def test_the_bound_is_joint_over_blocks_and_not_per_block():
    u = ClientUpdates(
        torch.arange(1), REAL, [
            Rows("items", torch.tensor([0]), torch.tensor([2]), torch.tensor([[3.0, 0, 0]])),
            Dense("head", torch.tensor([0]), torch.tensor([[2.0, 0, 0, 0]])),
        ],
    )  # fmt: skip
    guard("clip:clip_norm=3.5,order=1").clip_(u)
    after = u.materialise(torch.arange(1))
    # 3 + weight 2 x 2 = 7, twice the bound: both blocks are halved.
    np.testing.assert_allclose(after["items"][0, 2], [1.5, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(after["head"][0], [1, 0, 0, 0], rtol=1e-6)


def test_a_zero_update_stays_zero_and_counts_as_unclipped():
    u = ClientUpdates(torch.arange(2), REAL, [Dense("head", torch.arange(2), torch.zeros(2, 4))])
    g = guard("clip:clip_norm=1")
    g.clip_(u)
    assert u.materialise(torch.arange(2))["head"].abs().sum() == 0
    assert g.counts.fraction == 0


def test_without_a_clip_nothing_is_counted_or_changed():
    for plan in ("none", "published-noise"):
        g, u = guard(plan), updates(range(9), scale=1e6)
        before = u.materialise(everybody(u))
        g.clip_(u)
        assert all(u.materialise(everybody(u))[b].equal(before[b]) for b in REAL)
        assert g.counts.fraction is None


@pytest.mark.parametrize("plan", ["none", "clip:clip_norm=1000000"])
def test_without_noise_the_wire_carries_the_update(plan):
    g, u = guard(plan), updates(range(9))
    assert not g.rewrites
    positions = torch.tensor([4, 0, 7])
    sent, raw = g.protect(u, call(range(9)), positions), u.materialise(positions)
    assert all(sent[b].equal(raw[b]) for b in REAL)


def noise(plan, clients, schema=REAL, round=0, query_id=0, seed=0, u=None):
    """What the wire adds to (clipped) updates; none given, to nothing at all."""
    g = guard(plan, seed)
    u = u or ClientUpdates(torch.as_tensor(clients), schema, [])
    raw, sent = u.materialise(everybody(u)), g.protect(u, call(clients, schema, round, query_id), everybody(u))
    return {name: (sent[name] - raw[name]).double().numpy() for name in schema}


EPSILON0, BOUND = 0.5, 3.0
LAPLACE = f"local-laplace:epsilon0={EPSILON0},clip_norm={BOUND}"
SCALE = 2 * BOUND / EPSILON0
LAWS = {
    LAPLACE: stats.laplace(scale=SCALE),
    "published-noise:scale=0.3": stats.laplace(scale=0.3),
    "published-noise:scale=0.3,law=gaussian": stats.norm(scale=0.3),
}


@pytest.mark.parametrize("plan", LAWS)
def test_every_coordinate_of_every_block_carries_noise_of_the_plans_law(plan):
    """Also where a client touched nothing; a block of weight 2 gets half the noise, as weight x value is protected."""
    z = noise(plan, range(4000))
    for name, block in REAL.items():
        flat = block.weight * z[name].reshape(4000, -1)
        assert (flat != 0).all()
        for coordinate in flat.T:
            assert stats.kstest(coordinate, LAWS[plan].cdf).pvalue > 1e-4
        assert flat.var() == pytest.approx(LAWS[plan].var(), rel=0.1)


def test_the_scale_is_twice_the_clip_over_epsilon():
    """b = C / epsilon0 would double the real epsilon; mean |noise| is b."""
    z = np.abs(noise(LAPLACE, range(4000))["items"])
    assert z.mean() == pytest.approx(2 * BOUND / EPSILON0, rel=5 / np.sqrt(z.size))


@pytest.mark.parametrize("plan", LAWS)
def test_touched_rows_have_the_noise_of_untouched_ones(plan):
    u = updates(range(3000), scale=0.01)
    touched = u.touched(everybody(u))["items"].numpy()
    z = noise(plan, range(3000), u=u)["items"]
    assert stats.kstest(z[touched], LAWS[plan].cdf).pvalue > 1e-4
    assert stats.kstest(z[~touched], LAWS[plan].cdf).pvalue > 1e-4
    assert stats.ks_2samp(z[touched], z[~touched]).pvalue > 1e-4


def test_noise_is_independent_between_users_rounds_queries_blocks_and_coordinates():
    """Columns are coordinates of 11 addresses; every pair of columns is uncorrelated, in size too."""
    wide = {"a": Block((60,)), "b": Block((30, 2))}
    columns = []
    for round, query_id in ((0, 0), (1, 0), (256, 0), (0, 1), (0, 255)):
        z = noise(LAPLACE, range(400), wide, round, query_id)
        columns += [z["a"].ravel(), z["b"].ravel()]
    columns.append(np.roll(columns[0], 60))  # the neighbouring user
    columns.append(np.roll(columns[0], 1))  # the neighbouring coordinate
    for transform in (np.asarray, np.abs, np.sign):
        r = np.corrcoef([transform(c) for c in columns])
        np.fill_diagonal(r, 0)
        assert np.abs(r).max() < 5.5 / np.sqrt(400 * 60)
    joined = np.concatenate(columns[:10])
    # Of so many draws some 2 % meet by chance on a grid of 2^20 steps a scale; one address used twice would make 10 %.
    assert len(np.unique(joined)) > 0.97 * len(joined)


def test_two_queries_never_share_noise_however_many_blocks_they_have():
    """Where the difference of two releases cancels the noise, no noise was added."""
    many = {f"b{i}": Block((8,)) for i in range(300)}
    first, second = (noise(LAPLACE, [0], many, query_id=query_id) for query_id in (0, 1))
    seen = {z.tobytes() for z in first.values()}
    assert not any(z.tobytes() in seen for z in second.values())


@pytest.fixture
def addresses(monkeypatch):
    """Where words were drawn: purpose, round, query and user."""
    asked, words = [], Streams.words

    def watched(streams, purpose, round, query_id, users, count):
        asked.extend((purpose, round, query_id, user) for user in users if count)
        return words(streams, purpose, round, query_id, users, count)

    monkeypatch.setattr(Streams, "words", watched)
    return asked


@pytest.mark.parametrize("plan", [f"{LAPLACE},upload_bits=8", "local-gaussian:noise_multiplier=2,clip_norm=1"])
def test_no_word_of_a_device_serves_twice(plan, addresses):
    g, u = guard(plan), updates(range(3))
    for round, query_id in ((0, 0), (0, 1), (1, 0), (1, 1)):
        g.protect(u, call(range(3), round=round, query_id=query_id), everybody(u))
    assert {address[3] for address in addresses} == {0, 1, 2}
    assert len(set(addresses)) == len(addresses)


def test_no_key_of_a_share_of_noise_serves_twice(addresses):
    plan = PrivacyPlan.parse("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=3")
    g, u = ClientGuard(plan, Streams.from_seed(0)), ClientUpdates(torch.arange(4), REAL, [])
    code, raw = RingCode(plan.mechanism, REAL, 4), u.materialise(everybody(u))
    for round, query_id in ((0, 0), (0, 1), (1, 0), (1, 1)):
        g.ring_elements(code, raw, call(range(4), round=round, query_id=query_id), everybody(u))
    assert len(set(addresses)) == len(addresses) == 4 * 4


def test_no_word_of_the_server_serves_twice(addresses):
    """The count that an adaptive clip norm follows has noise of its own as well."""
    plan = PrivacyPlan.parse("central-gaussian:clip_norm=1,noise_multiplier=2,adaptive.quantile=0.4")
    server = ServerGuard(plan, Ledger(plan, 9), Streams.from_seed(0))
    for round, query_id in ((0, 0), (0, 1), (1, 0), (1, 1)):
        sums = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in REAL.items()}
        server.add_noise_(sums, Cohort(round, round, "all", 9.0), "train", query_id, REAL, members=9, within=4)
    assert len(set(addresses)) == len(addresses) == 4 * (len(REAL) + 1)


def test_a_users_noise_does_not_depend_on_who_is_beside_it():
    whole = noise(LAPLACE, range(40))
    for clients in ([7], [39, 3, 20], list(range(7, 20))):
        part = noise(LAPLACE, clients)
        for name in REAL:
            np.testing.assert_array_equal(part[name], whole[name][clients])


def test_other_keys_draw_other_noise():
    assert not np.array_equal(noise(LAPLACE, [0], seed=1)["items"], noise(LAPLACE, [0], seed=2)["items"])


def test_buffers_that_are_given_are_written_over():
    g, u = guard(LAPLACE), updates(range(9))
    positions = torch.tensor([2, 8])
    wanted = g.protect(u, call(range(9)), positions)
    out = {name: torch.full_like(value, 1e9) for name, value in wanted.items()}
    found = g.protect(u, call(range(9)), positions, out)
    assert all(found[b].equal(wanted[b]) and found[b].data_ptr() == out[b].data_ptr() for b in REAL)


TOUCHED = [f"{LAPLACE},coordinates=touched", "published-noise:scale=0.3,coordinates=touched"]


@pytest.mark.parametrize("plan", TOUCHED)
def test_touched_only_noise_leaves_untouched_coordinates_exactly_zero(plan):
    """That is why it has no finite epsilon: the support of an upload shows."""
    g, u = guard(plan), updates(range(500), scale=0.001)
    touched = u.touched(everybody(u))
    sent = g.protect(u, call(range(500)), everybody(u))
    for name in REAL:
        assert (sent[name][~touched[name]] == 0).all()
        assert (sent[name][touched[name]] != 0).all()
    assert 0 < touched["items"].float().mean() < 1
    law = LAWS[plan.replace(",coordinates=touched", "")]
    flat = (sent["items"] - u.materialise(everybody(u))["items"])[touched["items"]].double().numpy()
    assert stats.kstest(flat, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("plan", [LAPLACE, *TOUCHED, "clip:clip_norm=0.001"])
@pytest.mark.usefixtures("unchecked")
def test_integer_blocks_leave_exactly_as_they_are(plan):
    g, u = guard(plan), updates(range(30), MIXED, scale=100)
    before = u.materialise(everybody(u))["counts"]
    g.clip_(u)
    sent = g.protect(u, call(range(30), MIXED), everybody(u))
    assert sent["counts"].dtype == torch.int64
    assert sent["counts"].equal(before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("plan", ["none", LAPLACE, "published-noise"])
@pytest.mark.parametrize("part", ["rows", "dense"])
def test_a_diverged_update_is_refused_in_one_sentence(bad, plan, part):
    """NaN passes every clip and stays NaN under any noise: it would be recognised for sure."""
    u = updates(range(6), seed=1)
    values = u.parts[0 if part == "rows" else 1].values
    values[1, 1], values[0, 0] = bad, -bad
    with pytest.raises(PrivacyError, match="round 4 holds NaN or infinity; lower the learning rates") as caught:
        guard(plan).refuse_broken(u, call(range(6), round=3))
    assert "\n" not in str(caught.value)
    guard(plan).refuse_broken(updates(range(6)), call(range(6)))


@pytest.mark.parametrize("seen", ["total", "individual"])
def test_the_realised_noise_of_a_release_adds_up_to_what_the_plan_says(seen):
    """Variance of a sum over n clients: n x 2 b^2 per coordinate, measured through a whole federation."""

    class Silent(StatefulClients):
        steps = frozenset({"train"})

        private = PrivateState({})

        def train(self, call, message):
            return ClientUpdates(call.clients, call.schema, [])

    plan, n, schema = PrivacyPlan.parse(LAPLACE), 50, {"v": Block((2000,))}
    streams = Streams.from_seed(5)
    simulation = Simulation(Silent(), plan, n, streams, Ledger(plan, n), chunk=16)
    sums = []
    for t in range(4):
        query = simulation.aggregate if seen == "total" else simulation.collect
        release = query("train", simulation.sample_cohort(t), Message({}), schema)
        sums.append(release.sums["v"] if seen == "total" else release.uploads["v"].double().sum(0))
    values = torch.stack(sums).double().numpy()
    assert values.var() == pytest.approx(n * 2 * SCALE**2, rel=5 * np.sqrt(2 / values.size))
    assert values.mean() == pytest.approx(0, abs=5 * SCALE * np.sqrt(2 * n / values.size))


def test_bytes_on_the_wire():
    u = updates(range(20))
    rows = len(u.parts[0].ids)
    sparse, dense = rows * (3 * 4 + 4) + 10 * 4 * 4, 20 * (30 + 4) * 4
    assert guard("none").upload_bytes(u) == sparse
    assert guard(TOUCHED[1]).upload_bytes(u) == sparse
    assert guard(LAPLACE).upload_bytes(u) == dense


def test_the_server_guard_records_what_the_schema_declares():
    plan = PrivacyPlan.parse(LAPLACE)
    ledger = Ledger(plan, 9)
    server = ServerGuard(plan, ledger, Streams.from_seed(0))
    members = torch.tensor([1, 4, 8])
    server.record(Cohort(0, 0, "all", 9.0), "train", 0, REAL, members)
    server.record(Cohort(1, 1, "all", 9.0), "train", 0, MIXED, members)
    bounded, exact = ledger.entries
    assert (bounded.step, bounded.round, bounded.members().tolist()) == ("train", 0, [1, 4, 8])
    assert bounded.event.kind == "laplace"
    assert bounded.event.pure_epsilon == pytest.approx(EPSILON0)
    assert exact.event.kind == "exact"
    assert exact.event.blocks == ("counts",)


ADAPTIVE = "central-gaussian:noise_multiplier=2,adaptive.quantile=0.4,clip_norm="


def adaptive_server(clip_norm):
    plan = PrivacyPlan.parse(f"{ADAPTIVE}{clip_norm}")
    return ServerGuard(plan, Ledger(plan, 10), Streams.from_seed(0))


def add_noise(server):
    sums = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in REAL.items()}
    server.add_noise_(sums, Cohort(0, 0, "all", 10.0), "train", 0, REAL, members=6, within=6)
    return sums


def test_noise_is_sized_for_the_clip_norm_that_was_announced():
    followed, given = adaptive_server(1), adaptive_server(4)
    followed.clip_norms["train"] = 4.0
    wanted = add_noise(given)
    assert all(values.equal(wanted[name]) for name, values in add_noise(followed).items())
    assert followed.clip_norms == given.clip_norms


def test_a_clip_norm_follows_a_share_of_those_expected_and_not_of_those_who_came(monkeypatch):
    """How many came is hidden where sampling amplifies."""
    monkeypatch.setattr(Streams, "normal_steps", lambda *address: torch.zeros(1, address[5], dtype=torch.float64))
    server = adaptive_server(1)
    add_noise(server)
    assert server.clip_norms["train"] == pytest.approx(np.exp(-0.2 * (3 / 10 + 0.5 - 0.4)))


DRAWS, CONFIDENCE = 20_000, 1e-4


def worlds(plan, one, other):
    """`DRAWS` protected uploads of the vector block in either world, through the whole guard."""
    schema = {"v": Block((6,))}
    sent = []
    for world, value in enumerate((one, other)):
        g = guard(plan, seed=world)
        raw = torch.tensor(value).repeat(DRAWS, 1)
        clients = torch.arange(DRAWS)
        u = ClientUpdates(clients, schema, [Dense("v", clients, raw)])
        g.clip_(u)
        sent.append(g.protect(u, call(clients, schema), clients)["v"].double().numpy())
    return sent


def leakage(one, other):
    """Lower confidence bound of the largest log-likelihood ratio of an event {score > threshold}, both ways.

    Clopper and Pearson (1934) intervals; the thresholds are fixed before the draws are seen.
    """
    found = []
    for scores in ((one, other), (-other, -one)):
        for threshold in np.linspace(-3, 3, 13):
            hits = [int((s > threshold).sum()) for s in scores]
            low = stats.beta.ppf(CONFIDENCE, hits[0], DRAWS - hits[0] + 1) if hits[0] else 0.0
            high = stats.beta.ppf(1 - CONFIDENCE, hits[1] + 1, DRAWS - hits[1]) if hits[1] < DRAWS else 1.0
            found.append(np.log(low / high) if low > 0 else -np.inf)
    return max(found)


def score(sent, one, other, scale):
    """Log-likelihood ratio of an upload under Laplace noise: the best test there is."""
    return (np.abs(sent - other) - np.abs(sent - one)).sum(1) / scale


OPPOSITE = [1, 0, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0]
GAMES = {
    "a row and its opposite, 1": (1.0, OPPOSITE, 0.8),
    "a row and its opposite, 2": (2.0, OPPOSITE, 0.8),
    "one row or another": (1.0, ([1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]), 0.8),
    "spread over everything": (2.0, ([0.5, 0.5, 0, 0, 0, 0], [0, 0, -0.25, 0.25, -0.25, 0.25]), 0.5),
}
"""epsilon0, the two worlds in units of the clip, and the share of epsilon0 that this many draws must show."""


@pytest.mark.parametrize("game", GAMES)
def test_two_inputs_are_told_apart_as_well_as_epsilon_says_and_no_better(game):
    """Updates seven times the clip in either world; the distance after the clip is the whole 2 C."""
    bound, (epsilon0, pair, shown) = 2.5, GAMES[game]
    one, other = (7 * bound * np.array(world) for world in pair)
    sent = worlds(f"local-laplace:epsilon0={epsilon0},clip_norm={bound}", one.tolist(), other.tolist())
    scores = [score(s, one / 7, other / 7, 2 * bound / epsilon0) for s in sent]
    found = leakage(*scores)
    assert found <= epsilon0
    assert found >= shown * epsilon0


@pytest.mark.parametrize(
    ("plan", "at_least"),
    [
        ("published-noise:scale=5", 2.0),  # Laplace(5) without a clip: the distance is 35, not 5
        ("local-laplace:epsilon0=1,clip_norm=2.5,coordinates=touched", 2.0),
    ],
)
def test_the_same_game_beats_the_faulty_settings(plan, at_least):
    """The game has teeth: without a clip, or with noise on touched rows only, it exceeds epsilon0 = 1 by far."""
    sparse = {"v": Block((6, 1))}
    sent = []
    for world, row in enumerate((0, 4)):
        g, clients = guard(plan, seed=world), torch.arange(DRAWS)
        u = ClientUpdates(
            clients, sparse, [Rows("v", clients, torch.full((DRAWS,), row), torch.full((DRAWS, 1), 17.5))]
        )
        g.clip_(u)
        sent.append(g.protect(u, call(clients, sparse), clients)["v"][:, :, 0].double().numpy())
    if "touched" in plan:
        scores = [3.0 * ((s[:, 0] != 0).astype(float) - (s[:, 4] != 0)) for s in sent]
    else:
        scores = [score(s, np.eye(6)[0] * 17.5, np.eye(6)[4] * 17.5, 5.0) for s in sent]
    assert leakage(*scores) > at_least
