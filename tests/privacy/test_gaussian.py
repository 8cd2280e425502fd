"""User-level Gaussian privacy: clip, noise, sums and claims of the three trust models fit one another."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from privfed.contracts import Block
from privfed.engines.simulation import Simulation
from privfed.federation import Call, Cohort, Message, PrivateState, StatefulClients, Streams
from privfed.guards import ClientGuard
from privfed.privacy import Ledger, PlanError, PrivacyPlan, forecast, plan_for_target
from privfed.privacy.events import Gaussian, SchemaSummary, Shares
from privfed.privacy.plan import event_for
from privfed.updates import ClientUpdates, Dense, LowRank

SCHEMA = {"a": Block((40, 5)), "b": Block((30,), weight=2.0)}
COORDINATES = 230
POPULATION = 60


class Uploaders(StatefulClients):
    """Every client uploads the same vector in every round, of a norm that grows with its number."""

    steps = frozenset({"train"})

    def __init__(self, population=POPULATION, scale=0.1):
        generator = torch.Generator().manual_seed(1)
        size = torch.linspace(0.5, 20.0, population)
        self.a = torch.randn(population, 40, 5, generator=generator) * scale * size[:, None, None]
        self.b = torch.randn(population, 30, generator=generator) * scale * size[:, None]
        self.private = PrivateState({"steps": torch.zeros(population)})

    def train(self, call, message):
        self.private.stage(call.clients, {"steps": self.private.rows(call.clients)["steps"] + 1})
        everyone = torch.arange(len(call.clients))
        parts = [Dense("a", everyone, self.a[call.clients].clone()), Dense("b", everyone, self.b[call.clients].clone())]
        return ClientUpdates(call.clients, call.schema, parts[: len(call.schema)])


class Collector:
    """Keeps every release."""

    def __init__(self, schema=SCHEMA, queries=1):
        self.schema, self.queries, self.releases = schema, queries, []

    def public(self):
        return Message({})

    def round(self, federation, t):
        cohort = federation.sample_cohort(t)
        for _ in range(self.queries):
            self.releases.append(federation.aggregate("train", cohort, self.public(), self.schema))


def federation(
    words, *, population=POPULATION, seed=0, fidelity="exact", schema=SCHEMA, queries=1, scale=0.1, **options
):
    plan = PrivacyPlan.parse(words)
    ledger, clients = Ledger(plan, population), Uploaders(population, scale)
    streams = Streams.from_seed(seed)
    simulation = Simulation(clients, plan, population, streams, ledger, fidelity=fidelity, **options)
    server = Collector(schema, queries)
    return SimpleNamespace(simulation=simulation, server=server, ledger=ledger, clients=clients, plan=plan)


def sums(words, rounds=1, **options):
    """Weighted sums `[rounds, coordinates]` as released."""
    f = federation(words, **options)
    for t in range(rounds):
        f.simulation.run(f.server, t)
    return np.stack([weighted(r.sums) for r in f.server.releases])


def weighted(blocks):
    return torch.cat([blocks[name].double().flatten() * block.weight for name, block in SCHEMA.items()]).numpy()


def clipped_sum(clip=1.0):
    return sums(f"secure-sum:clip_norm={clip},bits=64")[0]


CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=2"
LOCAL = "local-gaussian:clip_norm=1,noise_multiplier=2"
DISTRIBUTED = "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=40"


@pytest.mark.parametrize(
    ("words", "deviation"),
    [
        (CENTRAL, 2.0),
        (LOCAL, 2.0 * math.sqrt(POPULATION)),
        (DISTRIBUTED, 2.0 * math.sqrt(POPULATION / 40)),
        (DISTRIBUTED + ",law=discrete_gaussian", 2.0 * math.sqrt(POPULATION / 40)),
        (DISTRIBUTED + ",bits=16", 2.0 * math.sqrt(POPULATION / 40)),
    ],
)
@pytest.mark.parametrize("fidelity", ["exact", "analytic"])
def test_noise_on_the_sum_has_the_promised_law_at_every_fidelity(words, deviation, fidelity):
    noise = (sums(words, rounds=20, fidelity=fidelity) - clipped_sum()).ravel() / deviation
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    # Rounding to the coarse grid of 16 bits adds a percent of its own under `exact`.
    assert noise.std() == pytest.approx(1, abs=4 / math.sqrt(2 * len(noise)) + 0.01)
    # Independent from round to round and from coordinate to coordinate.
    rounds = noise.reshape(20, -1)
    assert abs(np.corrcoef(rounds[0], rounds[1])[0, 1]) < 4 / math.sqrt(COORDINATES)
    assert abs(np.corrcoef(rounds[:, 0], rounds[:, 1])[0, 1]) < 0.8


@pytest.mark.parametrize("words", [DISTRIBUTED, DISTRIBUTED + ",bits=16", "secure-sum:clip_norm=1"])
def test_the_masking_protocol_gives_the_very_bits_of_the_open_sum(words):
    few = words.replace("n_min_honest=40", "n_min_honest=8")
    exact, protocol = (sums(few, rounds=2, fidelity=fidelity, population=12) for fidelity in ("exact", "protocol"))
    assert np.array_equal(exact, protocol)


@pytest.mark.parametrize("words", [CENTRAL, LOCAL, DISTRIBUTED, "secure-sum:clip_norm=1"])
def test_sums_do_not_depend_on_the_chunk(words):
    one, other = (sums(words, rounds=2, chunk=chunk) for chunk in (7, 64))
    if words in (DISTRIBUTED, "secure-sum:clip_norm=1"):
        assert np.array_equal(one, other)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_secure_sum_is_the_sum_of_the_clipped_uploads():
    clients = Uploaders()
    flat = torch.cat([clients.a.flatten(1), 2 * clients.b], 1).double()
    norms = flat.norm(dim=1)
    assert (norms > 1).any()
    assert (norms < 1).any()
    expected = (flat / norms.clamp(min=1).unsqueeze(1)).sum(0)
    np.testing.assert_allclose(clipped_sum(), expected, atol=1e-5)
    np.testing.assert_allclose(sums("secure-sum:clip_norm=1,bits=32")[0], expected, atol=1e-4)


def test_one_plan_records_what_its_trust_model_costs():
    summary = SchemaSummary.from_schema(SCHEMA)
    assert event_for(PrivacyPlan.parse(LOCAL), summary, POPULATION) == Gaussian(noise_multiplier=1.0)
    assert event_for(PrivacyPlan.parse(CENTRAL), summary, POPULATION) == Gaussian(noise_multiplier=2.0)
    shares = event_for(PrivacyPlan.parse(DISTRIBUTED), summary, POPULATION)
    assert isinstance(shares, Shares)
    assert (shares.min_honest, shares.coordinates) == (40, COORDINATES)
    assert shares.noise_multiplier == pytest.approx(2.0, rel=1e-4)
    assert shares.noise_multiplier < 2.0


def test_each_trust_model_reports_its_own_epsilon_and_neighbours():
    found = {}
    for words in (CENTRAL, LOCAL, DISTRIBUTED):
        f = federation(words)
        for t in range(4):
            f.simulation.run(f.server, t)
        g = f.ledger.guarantee()
        found[g.trust] = g
    # Four Gaussians of multiplier z are one of z / 2 (exactly): 1, 0.5 and 1 at delta 1e-5.
    assert found["central"].epsilon == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=2e-3)
    assert found["local"].epsilon == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=2e-3)
    assert found["central"].epsilon < found["distributed"].epsilon < 1.15 * found["central"].epsilon
    kinds = {trust: g.neighbours for trust, g in found.items()}
    assert kinds == {"central": "add_or_remove_one", "local": "replace_one", "distributed": "zero_out_one"}
    assert found["distributed"].cross_check["PLD of continuous noise"] < found["distributed"].epsilon
    assert "closed form" in found["central"].cross_check


def gaussian_epsilon(sigma, delta):
    """The exact trade-off of one Gaussian mechanism (Balle and Wang 2018), by bisection."""
    low, high = 0.0, 100.0
    for _ in range(200):
        e = (low + high) / 2
        d = stats.norm.cdf(0.5 / sigma - e * sigma) - math.exp(e) * stats.norm.cdf(-0.5 / sigma - e * sigma)
        low, high = (e, high) if d > delta else (low, e)
    return high


@pytest.mark.parametrize(
    ("population", "rate", "multiplier"),
    [(943, 0.1, 0.81), (943, 0.3, 1.66), (943, 1.0, 5.00), (6040, 0.1, 0.88), (6040, 0.3, 1.84), (6040, 1.0, 5.53)],
)
def test_the_research_table_of_noise_multipliers_for_epsilon_eight(population, rate, multiplier):
    def epsilon(z):
        plan = PrivacyPlan.named(
            "central-gaussian", clip_norm=1, noise_multiplier=z, delta=population**-1.1,
            sampling={"kind": "poisson", "rate": rate},
        )  # fmt: skip
        return forecast(plan, rounds=100, population=population, up=SCHEMA, down=SCHEMA).guarantee.epsilon

    # The table was bisected to one per cent, from above.
    assert epsilon(multiplier + 0.005) < 8 < epsilon(0.988 * multiplier - 0.005)


def test_secret_poisson_cohorts_amplify_and_leave_no_trace_of_who_took_part():
    words = CENTRAL + ",sampling.kind=poisson,sampling.rate=0.25"
    f = federation(words, queries=2)
    for t in range(5):
        f.simulation.run(f.server, t)
    assert all(entry.participants is None for entry in f.ledger.entries)
    # Two asks of one draw are one Gaussian of z / sqrt 2 inside that draw's sampling.
    planned = forecast(f.plan, rounds=5, population=POPULATION, up=SCHEMA, down=SCHEMA, queries_per_round=2)
    assert f.ledger.guarantee().epsilon == planned.guarantee.epsilon
    assert planned.guarantee.epsilon < federation_epsilon(CENTRAL, rounds=5, queries=2)
    assert all(r.denominator == 0.25 * POPULATION for r in f.server.releases)


def federation_epsilon(words, rounds, queries):
    f = federation(words, queries=queries)
    for t in range(rounds):
        f.simulation.run(f.server, t)
    return f.ledger.guarantee().epsilon


@pytest.mark.parametrize("words", [LOCAL, DISTRIBUTED.replace("40", "5")])
def test_visible_participants_gain_nothing_from_sampling(words):
    f = federation(words + ",sampling.kind=poisson,sampling.rate=0.5")
    for t in range(6):
        f.simulation.run(f.server, t)
    worst = f.ledger.participations.max()
    full = federation(words)
    for t in range(worst):
        full.simulation.run(full.server, t)
    assert f.ledger.guarantee().epsilon == full.ledger.guarantee().epsilon


def test_a_round_with_too_few_honest_clients_is_neither_recorded_nor_opened():
    f = federation(DISTRIBUTED + ",sampling.kind=poisson,sampling.rate=0.6")
    revealed = []
    for t in range(12):
        f.simulation.run(f.server, t)
        revealed.append(len(f.simulation.members(t)) >= 40)
    assert 0 < sum(revealed) < 12
    assert f.simulation.costs.aborted_rounds == 12 - sum(revealed)
    assert len(f.server.releases) == len(f.ledger.entries) == sum(revealed)
    steps = f.clients.private.current["steps"]
    taken = sum(torch.bincount(f.simulation.members(t), minlength=POPULATION) for t in range(12) if revealed[t])
    assert torch.equal(steps, taken.float())


def test_clipping_per_block_keeps_every_block_and_the_joint_norm():
    u = Uploaders()
    call = Call(0, 0, "train", 0, torch.arange(POPULATION), Streams.from_seed(0), SCHEMA)
    for words, bounds in (
        ("clipping=per_block", (math.sqrt(0.5), math.sqrt(0.5))),
        ("clipping=per_block,block_norms.a=0.6,block_norms.b=0.8", (0.6, 0.8)),
    ):
        updates = u.train(call, Message({}))
        guard = ClientGuard(PrivacyPlan.parse(f"{CENTRAL},{words}"), Streams.from_seed(0))
        within = guard.clip_(updates)
        blocks = updates.norm_powers(2).sqrt().numpy()
        before = u.train(call, Message({})).norm_powers(2).sqrt().numpy()
        assert (blocks <= np.array(bounds)).all()
        assert (updates.norms(2) <= 1).all()
        np.testing.assert_allclose(blocks, np.minimum(before, bounds), rtol=1e-5)
        assert within == (before <= bounds).all(1).sum()


def test_adaptive_clipping_follows_the_quantile_and_pays_for_its_count():
    words = CENTRAL + ",adaptive.quantile=0.7,adaptive.rate=0.4,adaptive.count_noise=3"
    f = federation(words)
    mechanism = f.plan.mechanism
    assert mechanism.server_noise_multiplier**-2 + 6.0**-2 == pytest.approx(2.0**-2)
    for t in range(60):
        f.simulation.run(f.server, t)
    norms = torch.cat([f.clients.a.flatten(1), 2 * f.clients.b], 1).norm(dim=1)
    reached = f.simulation.server_guard.clip_norms["train"]
    assert (norms <= reached).float().mean() == pytest.approx(0.7, abs=0.12)
    plain = federation(CENTRAL)
    for t in range(60):
        plain.simulation.run(plain.server, t)
    assert f.ledger.guarantee().epsilon == plain.ledger.guarantee().epsilon
    # The noise of a round is sized by the clip norm that was announced for it.
    last = f.server.releases[-1].sums
    clip = federation(f"secure-sum:clip_norm={reached},bits=64")
    clip.simulation.run(clip.server, 0)
    noise = weighted(last) - weighted(clip.server.releases[0].sums)
    assert noise.std() == pytest.approx(mechanism.server_noise_multiplier * reached, rel=0.3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("central-gaussian:noise_multiplier=1", "clip_norm"),
        ("local-gaussian:noise_multiplier=1", "clip_norm"),
        ("distributed-gaussian:noise_multiplier=1,n_min_honest=3", "clip_norm"),
        ("distributed-gaussian:noise_multiplier=1,clip_norm=1", "n_min_honest"),
        (CENTRAL + ",sampling.kind=fixed,sampling.size=10", "cannot be accounted as Poisson"),
        (CENTRAL + ",sampling.kind=epoch,sampling.size=10", "leaving one user out changes who"),
        (CENTRAL + ",adaptive.rate=5", "rate"),
        ("local-gaussian:clip_norm=1e39,noise_multiplier=1", "clip_norm"),
        (CENTRAL + ",block_norms.a=1", "clipping = 'flat'"),
        (CENTRAL + ",clipping=per_block,block_norms.a=1,block_norms.b=1", "joint norm"),
        (CENTRAL + ",adaptive.count_noise=1", "count_noise"),
        (LOCAL + ",adaptive.count_noise=9", "adaptive"),
    ],
)
def test_plans_that_guarantee_nothing_they_say_are_refused(words, said):
    with pytest.raises(PlanError, match=said):
        PrivacyPlan.parse(words)


def test_more_honest_clients_than_there_are_is_refused_before_the_first_round():
    with pytest.raises(PlanError, match="none would ever be released"):
        federation(DISTRIBUTED, population=30)


def test_weights_by_data_size_are_refused_where_something_is_guaranteed():
    schema = {"a": Block((40, 5)), "n": Block((1,), divides=True)}
    for words in (CENTRAL, LOCAL, DISTRIBUTED):
        f = federation(words, schema=schema)
        with pytest.raises(PlanError, match="weights clients by their data"):
            f.simulation.run(f.server, 0)
        assert not f.ledger.entries


def test_exact_counts_of_clients_are_refused_where_something_is_guaranteed():
    schema = {"a": Block((40, 5)), "n": Block((40,), kind="integer", bound=1, counts=True)}
    for words in (CENTRAL, LOCAL, DISTRIBUTED, "local-laplace:epsilon0=1,clip_norm=1"):
        f = federation(words, schema=schema)
        with pytest.raises(PlanError, match=r"'n' counts clients exactly.*fixed denominators.*min_tier = 1"):
            f.simulation.run(f.server, 0)
        assert not f.ledger.entries
    for words in ("none", "none:release=total", "secure-sum:clip_norm=1", "secure-sum:clip_norm=1,blocks=held"):
        f = federation(words)
        f.simulation.server_guard.record(Cohort(0, 0, "all", 60.0), "train", 0, schema, torch.arange(60))
        assert len(f.ledger.entries) == 1


def test_a_secure_sum_alone_guarantees_nothing_and_says_what_it_hides():
    f = federation("secure-sum:clip_norm=1")
    f.simulation.run(f.server, 0)
    g = f.ledger.guarantee()
    assert math.isinf(g.epsilon)
    assert "reveals their exact sum" in g.reason_if_inf
    assert g.trust == "distributed"
    assert f.server.releases[0].denominator == POPULATION


@pytest.mark.parametrize("words", [CENTRAL, LOCAL, DISTRIBUTED, "secure-sum:clip_norm=1"])
def test_plans_survive_the_way_through_json(words):
    plan = PrivacyPlan.parse(words)
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan
    entry = Ledger(plan, POPULATION).record(
        cohort_id=0,
        round=0,
        step="train",
        index=0,
        schema=SchemaSummary.from_schema(SCHEMA),
        participants=np.arange(50),
    )
    assert type(entry).model_validate_json(entry.model_dump_json()) == entry


def test_what_the_guarantee_says_names_whom_to_trust():
    texts = {}
    for words in (CENTRAL, LOCAL, DISTRIBUTED):
        f = federation(words)
        f.simulation.run(f.server, 0)
        texts[f.plan.mechanism.trust] = " ".join(f.ledger.guarantee().statements)
    assert "Against the server itself epsilon is infinite" in texts["central"]
    assert "nobody else has to be trusted" in texts["local"]
    assert "It is trusted to follow the protocol" in texts["distributed"]
    assert all("seeded noise" in text for text in texts.values())


@pytest.mark.parametrize(
    "words",
    [
        LOCAL + ",sampling.kind=poisson,sampling.rate=0.4",
        CENTRAL,
        CENTRAL + ",sampling.kind=poisson,sampling.rate=0.4",
        DISTRIBUTED,
        DISTRIBUTED + ",law=discrete_gaussian",
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_plan_sized_for_a_total_stays_just_below_it(words, epsilon):
    plan = plan_for_target(
        PrivacyPlan.parse(words), epsilon, 20, POPULATION, 2, extra_queries=1, coordinates=COORDINATES
    )

    def total(p):
        shape = {"rounds": 20, "population": POPULATION, "up": SCHEMA, "down": SCHEMA}
        return forecast(p, **shape, queries_per_round=2, extra_queries=1).guarantee.epsilon

    assert total(plan) <= epsilon
    weaker = plan.to_dict()
    weaker["mechanism"]["noise_multiplier"] *= 0.998
    assert total(PrivacyPlan.from_dict(weaker)) > epsilon


@pytest.mark.parametrize("words", [CENTRAL, CENTRAL + ",sampling.kind=poisson,sampling.rate=0.3", DISTRIBUTED, LOCAL])
def test_the_forecast_of_a_run_with_one_more_query_in_the_first_round_is_what_the_ledger_claims(words):
    class OneMore(Collector):
        def round(self, federation, t):
            cohort = federation.sample_cohort(t)
            for _ in range(1 + (t == 0)):
                federation.aggregate("train", cohort, self.public(), self.schema)

    f = federation(words)
    for t in range(4):
        f.simulation.run(OneMore(), t)
    planned = forecast(f.plan, rounds=4, population=POPULATION, up=SCHEMA, down=SCHEMA, extra_queries=1).guarantee
    claimed = f.ledger.guarantee()
    if f.plan.sampling.kind == "all" or f.plan.amplifies:
        assert planned.epsilon == claimed.epsilon
    assert planned.epsilon >= claimed.epsilon


def test_colluding_clients_are_counted_out_before_a_round_is_opened():
    words = "distributed-gaussian:clip_norm=1,noise_multiplier=2,n_min_honest=50,colluding=10"
    assert len(federation_rounds(words, 60)) == 1
    assert len(federation_rounds(words.replace("colluding=10", "colluding=5"), 60)) == 1
    with pytest.raises(PlanError, match="none would ever be released"):
        federation(words.replace("colluding=10", "colluding=11"), population=60)


def federation_rounds(words, population):
    f = federation(words, population=population)
    f.simulation.run(f.server, 0)
    return f.server.releases


@pytest.mark.parametrize("fidelity", ["analytic", "exact", "protocol"])
def test_a_secure_sum_of_one_or_two_clients_is_never_opened(fidelity):
    f = federation("secure-sum:clip_norm=1,sampling.kind=poisson,sampling.rate=0.2", population=12, fidelity=fidelity)
    sizes = [len(f.simulation.members(t)) for t in range(12)]
    assert min(sizes) < 3 <= max(sizes)
    for t in range(12):
        f.simulation.run(f.server, t)
    assert len(f.server.releases) == len(f.ledger.entries) == sum(size >= 3 for size in sizes)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6])
@pytest.mark.parametrize("tilt", [0.0, 1e-7])
@pytest.mark.parametrize("words", [CENTRAL, LOCAL, DISTRIBUTED, "secure-sum:clip_norm=1"])
def test_factors_that_cancel_cannot_slip_past_the_clip(words, scale, tilt):
    """Two steps of opposite sign: exact arithmetic says zero, float32 products leave their rounding behind."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(POPULATION, 1, side, generator=generator) * scale for side in (40, 5))
    left, right = torch.cat([a, -a], 1), torch.cat([b, b * (1 + tilt)], 1)
    guard = ClientGuard(PrivacyPlan.parse(words), Streams.from_seed(0))
    everyone = torch.arange(POPULATION)
    updates = ClientUpdates(everyone, SCHEMA, [LowRank("a", everyone, left, right)])
    guard.clip_(updates)
    sent = updates.materialise(everyone)["a"].double().flatten(1).norm(dim=1)
    assert float(sent.max()) <= 1.0
    for client in range(0, POPULATION, 20):
        alone = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in SCHEMA.items()}
        single = ClientUpdates(
            torch.arange(1),
            SCHEMA,
            [LowRank("a", torch.arange(1), left[client : client + 1], right[client : client + 1])],
        )
        guard.clip_(single)
        single.add_to(alone)
        assert float(alone["a"].norm()) <= 1.0


def test_block_bounds_are_frozen_hashable_and_may_name_blocks_with_dots():
    words = "distributed-gaussian:clip_norm=5,noise_multiplier=1,n_min_honest=3,clipping=per_block"
    plan = PrivacyPlan.parse(words + ",block_norms.encoder.0.weight=3,block_norms.b=4")
    assert dict(plan.mechanism.block_norms) == {"b": 4.0, "encoder.0.weight": 3.0}
    assert isinstance(hash(plan), int)
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan
    assert len(plan.slug) < 60
    f = federation(words)
    f.simulation.run(f.server, 0)
    assert len(f.server.releases) == 1


def test_bounds_of_other_blocks_are_refused_before_anything_is_recorded():
    f = federation(CENTRAL + ",clipping=per_block,block_norms.other=1")
    with pytest.raises(PlanError, match="bound for every block"):
        f.simulation.run(f.server, 0)
    assert not f.ledger.entries


def test_noise_next_to_nothing_is_accounted_by_a_bound_and_in_no_time():
    f = federation("central-gaussian:clip_norm=1,noise_multiplier=0.00001")
    for t in range(3):
        f.simulation.run(f.server, t)
    g = f.ledger.guarantee()
    assert 1e9 < g.epsilon < math.inf
    assert g.accountant == "RDP"


def test_a_forecast_says_how_many_rounds_will_be_aborted():
    words = DISTRIBUTED + ",sampling.kind=poisson,sampling.rate=0.6"
    f = federation(words)
    expected = forecast(f.plan, rounds=200, population=POPULATION, up=SCHEMA, down=SCHEMA).aborted_share
    lost = np.mean([len(f.simulation.members(t)) < 40 for t in range(200)])
    assert lost == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 200))
    assert forecast(PrivacyPlan.parse(CENTRAL), rounds=2, population=9, up=SCHEMA, down=SCHEMA).aborted_share == 0
