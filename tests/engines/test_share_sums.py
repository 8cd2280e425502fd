"""Secret-shared sums: real shares come to what is added in the open, rows are as announced, small cohorts closed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.data import Histories
from privfed.engines.aggregation.share_dealer import ShareDealer
from privfed.engines.simulation import Simulation
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import SERVER, FederationError, Message, PrivateState, Purpose, StatefulClients, Streams
from privfed.privacy import Ledger, PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import ClientUpdates, CodeProducts, Dense, LowRank, RowPattern, Rows
from secure_agg.encoding import Ring
from secure_agg.errors import ConfigurationError, RingOverflowError
from secure_agg.sparse import ClientCiphers, KeyStreams, RowIndices, RowShare, agree_keys

USERS, ITEMS = 45, 30
WHOLE = {
    "table": Block((ITEMS, 2), "integer", bound=50),
    "pairs": Block((6,), "integer", bound=9),
    "scalar": Block((1,), "integer", bound=10**6),
}
REAL = {
    "items": Block((ITEMS, 3)),
    "head": Block((4,), weight=0.5),
    "layer": Block((5, 7)),
    "counts": Block((ITEMS, 1), "integer", bound=1),
}


def support_of(seed=0, share=0.2):
    mask = np.random.default_rng(seed).random((USERS, ITEMS)) < share
    mask[7] = False
    user, item = np.nonzero(mask)
    return Histories.from_pairs(user, item, USERS, ITEMS)


class Senders(StatefulClients):
    """Clients whose uploads depend on user, round and query alone; each sends a random choice of `rows`."""

    steps = frozenset({"train"})

    def __init__(self, schema, rows, share=1.0):
        self.schema, self.rows, self.share = schema, rows, share
        self.private = PrivateState({"rounds": torch.zeros(USERS)})
        self.sent = {}

    def train(self, call, message):
        n, parts = len(call.clients), []
        self.private.stage(call.clients, {"rounds": self.private.rows(call.clients)["rounds"] + 1})
        draws = [np.random.default_rng([user, call.round, call.query_id]) for user in call.clients.tolist()]
        chosen = [
            np.sort(self.rows.items_of(user)[draw.random(self.rows.counts[user]) < self.share])
            for user, draw in zip(call.clients.tolist(), draws, strict=True)
        ]
        owner = torch.from_numpy(np.repeat(np.arange(n), [len(c) for c in chosen]))
        ids = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *chosen]))
        everyone = torch.arange(n)
        for name, block in call.schema.items():
            if name == "pairs":
                codes = np.stack([draw.choice([-1, 1], 4) for draw in draws]).astype(np.int8)
                weights = torch.from_numpy(np.array([draw.integers(-9, 10) for draw in draws]))
                parts.append(CodeProducts(name, everyone, weights, torch.from_numpy(codes)))
            elif name == "layer":
                left, right = (
                    torch.from_numpy(np.stack([draw.normal(size=(2, k)) for draw in draws])).float() for k in (5, 7)
                )
                parts.append(LowRank(name, everyone, left, right))
            elif len(block.shape) == 2:
                made = [
                    self._values(draw, (len(c), block.shape[1]), block) for draw, c in zip(draws, chosen, strict=True)
                ]
                parts.append(Rows(name, owner, ids, torch.from_numpy(np.concatenate(made))))
            else:
                values = np.stack([self._values(draw, block.shape, block) for draw in draws])
                parts.append(Dense(name, everyone, torch.from_numpy(values)))
        return ClientUpdates(call.clients, call.schema, parts)

    def _values(self, draw, shape, block):
        if block.kind == "integer":
            return draw.integers(-block.bound, block.bound, shape, endpoint=True)
        return draw.normal(size=shape).astype(np.float32)


def simulation(plan, schema, *, support=None, rows=None, share=1.0, clients=None, **options):
    """A federation of `Senders`: of the rows that they announce, or of `rows`."""
    privacy = PrivacyPlan.parse(plan)
    if clients is None:
        clients = Senders(schema, support if rows is None else rows, share)
    ledger = Ledger(privacy, USERS)
    made = Simulation(clients, privacy, USERS, Streams.from_seed(5), ledger, support=support, **options)
    enrolled = 0 if made._shared is None else made._shared.enrolment_bytes
    made.costs.up_bytes = max(made.costs.up_bytes, float(enrolled))
    return made


def run(made, schema, rounds=2, queries=3):
    """Totals of every ask."""
    totals = []

    def one_round(federation, t):
        cohort = federation.sample_cohort(t)
        totals.extend(federation.aggregate("train", cohort, Message({}), schema) for _ in range(queries))

    server = SimpleNamespace(round=one_round, public=lambda: Message({}))
    for t in range(rounds):
        made.run(server, t)
    return totals


def equal(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.denominator == b.denominator
        assert a.sums.keys() == b.sums.keys()
        assert a.revealed.keys() == b.revealed.keys()
        assert all(a.sums[name].equal(b.sums[name]) for name in a.sums)
        assert all(a.revealed[name].equal(b.revealed[name]) for name in a.revealed)


COHORTS = {
    "all": "",
    "poisson": ",sampling.kind=poisson,sampling.rate=0.5",
    "fixed": ",sampling.kind=fixed,sampling.size=20",
    "epoch": ",sampling.kind=epoch,sampling.size=23",
}
OWN = "shared-sum:padding.kind=no_padding,min_cohort=2"
FAKES = "shared-sum:padding.kind=fake_items,padding.rho=1,padding.drawn=uniform,min_cohort=2"


# Exact, protocol and plain


@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("kind", ["every row", "own rows", "announced"])
def test_integers_are_exact_to_the_bit(kind, cohort):
    """Every cohort, two or three aggregators: the protocol's sums are the plain ones, zero where a row is closed."""
    aggregators = 3 if cohort in ("all", "epoch") else 2
    plan = {"every row": "shared-sum:padding.kind=full_support,min_cohort=2"}.get(
        kind, FAKES if kind == "announced" else OWN
    )
    plan += f",aggregators={aggregators}{COHORTS[cohort]}"
    support = support_of() if kind == "announced" else None
    share = 0.7
    plain = run(simulation("none" + COHORTS[cohort].replace(",", ":", 1), WHOLE, rows=support_of(), share=share), WHOLE)
    both = []
    for fidelity, chunk in (("exact", None), ("protocol", 16), ("protocol", 7)):
        made = simulation(plan, WHOLE, support=support, rows=support_of(), share=share, fidelity=fidelity, chunk=chunk)
        both.append(run(made, WHOLE))
    equal(both[0], both[1])
    equal(both[0], both[2])
    for shared, wanted in zip(both[0], plain, strict=True):
        assert shared.denominator == wanted.denominator
        assert shared.sums["pairs"].equal(wanted.sums["pairs"])
        assert shared.sums["scalar"].equal(wanted.sums["scalar"])
        revealed = shared.revealed.get("table", torch.ones(ITEMS, dtype=torch.bool))
        assert shared.sums["table"].equal(wanted.sums["table"] * revealed.unsqueeze(1))
        assert revealed.all() or kind != "every row"


@pytest.mark.parametrize("chunk", [1, 16, 45])
@pytest.mark.parametrize("kind", ["full_support", "no_padding"])
def test_real_blocks_are_within_the_fixed_point_error(kind, chunk):
    """Rows, a vector of another weight, outer products and counts: exact == protocol, both close to the clipped sum."""
    plan = f"shared-sum:clip_norm=2,padding.kind={kind},min_cohort=2"
    clipped = run(simulation("clip:clip_norm=2,order=2", REAL, rows=support_of(), chunk=16), REAL)
    exact = run(simulation(plan, REAL, rows=support_of(), chunk=16), REAL)
    protocol = run(simulation(plan, REAL, rows=support_of(), chunk=chunk, fidelity="protocol"), REAL)
    equal(exact, protocol)
    for shared, wanted in zip(exact, clipped, strict=True):
        for name in REAL:
            revealed = shared.revealed.get(name, torch.ones(len(shared.sums[name]), dtype=torch.bool))
            kept = revealed.view(-1, *[1] * (wanted.sums[name].dim() - 1))
            assert torch.allclose(shared.sums[name], wanted.sums[name] * kept, atol=1e-5)
        assert shared.sums["counts"].equal(wanted.sums["counts"] * shared.revealed["counts"].unsqueeze(1)
                                           if kind == "no_padding" else wanted.sums["counts"])  # fmt: skip


def test_a_narrow_ring_errs_by_its_steps():
    plan = "shared-sum:clip_norm=2,bits=32,padding.kind=no_padding,min_cohort=2"
    schema = {"items": REAL["items"]}
    wide = run(simulation("clip:clip_norm=2,order=2", schema, rows=support_of()), schema)
    narrow = run(simulation(plan, schema, rows=support_of()), schema)
    steps = 2 * 2 * USERS / 2**31
    for shared, wanted in zip(narrow, wide, strict=True):
        kept = shared.revealed["items"].unsqueeze(1)
        assert (shared.sums["items"] - wanted.sums["items"] * kept).abs().max() <= USERS * steps + 1e-5


@pytest.mark.parametrize("weight", [0.125, 8.0])
def test_a_weighted_block_has_the_bound_that_its_clip_leaves(weight):
    """The clip bounds weight x value, so a value may be as large as the clip norm over the weight."""
    schema = {"head": Block((4,), weight=weight)}
    clients = Senders(schema, support_of())
    clients._values = lambda draw, shape, _: np.array([100, 0, 0, 0], np.float32)
    for fidelity in ("exact", "protocol"):
        total = run(simulation("shared-sum:clip_norm=2", schema, clients=clients, fidelity=fidelity), schema, 1, 1)[0]
        assert total.sums["head"].tolist() == pytest.approx([USERS * 2 / weight, 0, 0, 0], rel=1e-5)


def test_a_round_of_whole_vectors_of_a_large_population_makes_no_table(monkeypatch):
    """A vector beside a table: under `protocol` only the vector is written out, never clients x table."""
    made = simulation(OWN, WHOLE, rows=support_of(), fidelity="protocol")
    seen = []
    whole = ClientUpdates.materialise
    monkeypatch.setattr(
        ClientUpdates, "materialise", lambda self, at, out=None: seen.append(out and set(out)) or whole(self, at, out)
    )
    run(made, WHOLE, rounds=1, queries=1)
    assert seen == [{"pairs", "scalar"}]


# Rows


def test_the_wire_holds_exactly_the_announced_rows_every_round(monkeypatch):
    """Whatever part of its rows a client trained on."""
    support, added = support_of(), []
    from secure_agg.sparse import RowSums

    add = RowSums.add
    monkeypatch.setattr(RowSums, "add", lambda self, named, words: added.append(named) or add(self, named, words))
    for share in (1.0, 0.3, 0.0):
        added.clear()
        made = simulation(FAKES, {"table": WHOLE["table"]}, support=support, share=share, fidelity="protocol", chunk=16)
        run(made, {"table": WHOLE["table"]})
        for named in added:
            assert named.ids.tolist() == [
                item for user in named.clients.tolist() for item in sorted(support.items_of(user).tolist())
            ]
        assert len(added) == 2 * 3 * 3 * 2


def test_a_row_that_was_not_announced_is_refused():
    mask = support_of().mask(np.arange(USERS))
    for user, item in ((0, int(np.flatnonzero(~mask[0])[-1])), (7, 0)):
        more = Histories.from_pairs(*(np.append(a, b) for a, b in zip(np.nonzero(mask), (user, item), strict=True)),
                                    USERS, ITEMS)  # fmt: skip
        made = simulation(FAKES, WHOLE, support=support_of(), rows=more)
        with pytest.raises(FederationError, match="sends a row that it did not announce"):
            run(made, WHOLE)


def test_nobody_announced_anything():
    nothing = Histories.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), USERS, ITEMS)
    for fidelity in ("exact", "protocol"):
        for total in run(simulation(FAKES, WHOLE, support=nothing, fidelity=fidelity), WHOLE):
            assert not total.sums["table"].any()
            assert not total.revealed["table"].any()
    with pytest.raises(FederationError, match="did not announce"):
        run(simulation(FAKES, WHOLE, support=nothing, rows=support_of()), WHOLE)


def test_tables_that_are_not_the_catalogue_are_refused_behind_a_padding():
    schema = {"table": Block((ITEMS + 1, 2), "integer", bound=50)}
    with pytest.raises(FederationError, match="send tables with one row per item"):
        run(simulation(FAKES, schema, support=support_of()), schema)


@pytest.mark.parametrize("first_whole", [True, False])
def test_a_table_sent_by_rows_here_and_whole_there_is_refused(first_whole):
    """Either way round: sums of the first chunk must not be lost."""
    rows, everyone = support_of(), torch.zeros(16, ITEMS, 2, dtype=torch.int64)

    class Mixed(Senders):
        def train(self, call, message):
            if (call.clients[0] == 0) == first_whole:
                n = len(call.clients)
                return ClientUpdates(call.clients, call.schema, [Dense("table", torch.arange(n), everyone[:n])])
            return super().train(call, message)

    schema = {"table": WHOLE["table"]}
    made = simulation(OWN, schema, clients=Mixed(schema, rows), chunk=16)
    with pytest.raises(FederationError, match="'table' is sent as rows by some clients and whole by others"):
        run(made, schema)


def test_rows_below_the_cohort_are_suppressed_and_zero():
    support = support_of(share=0.1)
    supporters = support.popularity()
    assert set(supporters.tolist()) & {2, 3, 4, 5}
    for k in (2, 4, 5):
        plan = FAKES.replace("min_cohort=2", f"min_cohort={k}")
        for fidelity in ("exact", "protocol"):
            for total in run(simulation(plan, WHOLE, support=support, fidelity=fidelity), WHOLE):
                assert total.revealed["table"].tolist() == (supporters >= k).tolist()
                assert not total.sums["table"][supporters < k].any()
                assert total.sums["table"][supporters >= k].any(1).float().mean() > 0.9


def test_rows_without_a_value_count_towards_the_cohort():
    """What the sentence of a padding admits: three clients send the row, and its sum is the one value among them."""
    user, item = np.arange(3), np.full(3, 11)
    announced = Histories.from_pairs(user, item, USERS, ITEMS)
    true = Histories.from_pairs(user[:1], item[:1], USERS, ITEMS)
    schema = {"table": WHOLE["table"]}
    plan = FAKES.replace("min_cohort=2", "min_cohort=3")
    total = run(simulation(plan, schema, support=announced, rows=true), schema, 1, 1)[0]
    alone = run(simulation("none", schema, rows=true), schema, 1, 1)[0]
    assert total.revealed["table"].nonzero().tolist() == [[11]]
    assert total.sums["table"].equal(alone.sums["table"])


# What is refused or lost, and charges nothing


def test_a_round_below_the_cohort_is_aborted_and_records_nothing():
    plan = "shared-sum:padding.kind=no_padding,min_cohort=30,sampling.kind=epoch,sampling.size=30"
    made = simulation(plan, WHOLE, rows=support_of(), fidelity="protocol")
    totals = run(made, WHOLE, rounds=2, queries=1)
    assert len(totals) == 1
    assert made.costs.aborted_rounds == 1
    assert len(made.server_guard.ledger.entries) == 1
    assert made.clients.state()["rounds"].sum() == 30


@pytest.mark.parametrize(
    ("plan", "schema", "error", "said"),
    [
        (
            "shared-sum:bits=32",
            {"v": Block((2,), "integer", bound=2**26)},
            RingOverflowError,
            "needs 33 bits and the ring has 32",
        ),
        (
            "shared-sum",
            {"v": Block((2,), "integer", bound=2**60)},
            RingOverflowError,
            "needs 67 bits and the ring has 64",
        ),
        ("shared-sum", {"v": Block((2,), "integer")}, PlanError, "declares no bound"),
        ("shared-sum", {"v": Block((2,))}, PlanError, "give the plan a clip_norm"),
    ],
)
def test_what_a_ring_cannot_hold_is_refused_in_a_sentence_before_anything_is_recorded(plan, schema, error, said):
    made = simulation(plan, schema, rows=support_of())
    with pytest.raises(error, match=said) as caught:
        run(made, schema)
    assert "\n" not in str(caught.value)
    assert made.server_guard.ledger.entries == ()
    assert not made.clients.state()["rounds"].any()


@pytest.mark.parametrize("fidelity", ["exact", "protocol"])
@pytest.mark.parametrize("block", ["table", "pairs", "scalar"])
def test_a_value_over_its_bound_is_refused(block, fidelity):
    schema = {block: WHOLE[block]}
    made = simulation(OWN, schema, rows=support_of(), fidelity=fidelity)
    smaller = {block: Block(WHOLE[block].shape, "integer", bound=1)}
    made.clients._values = lambda draw, shape, _: draw.integers(2, 5, shape)
    with pytest.raises(ConfigurationError, match="the encoding holds up to 1"):
        run(made, smaller)


# Bytes


def message_bytes(made, schema, support, clients_of_round, queries):
    """What the clients of every round would send, as real messages."""
    aggregators, ring = made.plan.mechanism.aggregators, made._shared.code(schema, USERS).ring
    total = 0
    if support is not None:
        names = [RowIndices(np.sort(support.items_of(user)).astype(np.uint32)).encode() for user in range(USERS)]
        total += aggregators * sum(map(len, names))
    tables = {name for name, block in schema.items() if len(block.shape) == 2 and support is not None}
    for draw, members in enumerate(clients_of_round):
        for user in members:
            words = sum(support.counts[user] * b.shape[1] if name in tables else b.size for name, b in schema.items())
            for ask in range(queries):
                words_of_0 = np.zeros(int(words), ring.dtype)
                shares = [RowShare(0, draw, ask, int(words), words_of_0)]
                shares += [RowShare(party, draw, ask, int(words)) for party in range(1, aggregators)]
                total += sum(len(share.encode()) for share in shares)
    return total


@pytest.mark.parametrize("aggregators", [2, 3])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("kind", ["every row", "announced"])
def test_bytes_are_those_of_real_messages(kind, bits, aggregators):
    support = support_of() if kind == "announced" else None
    plan = (FAKES if support else "shared-sum:padding.kind=full_support") + f",bits={bits},aggregators={aggregators}"
    plan += ",sampling.kind=poisson,sampling.rate=0.6"
    made = simulation(plan, WHOLE, support=support, rows=support_of(), chunk=16)
    run(made, WHOLE)
    members = [made.members(t).tolist() for t in range(2)]
    assert made.costs.up_bytes == message_bytes(made, WHOLE, support, members, queries=3)


def test_the_forecast_of_a_plan_is_what_is_sent():
    made = simulation("shared-sum:padding.kind=full_support", WHOLE, rows=support_of())
    run(made, WHOLE)
    assert made.costs.up_bytes == 6 * USERS * made.plan.mechanism.upload_bytes(WHOLE, {"table": 3.0})


def test_who_announces_nothing_names_its_rows_with_every_upload():
    made = simulation(OWN, {"table": WHOLE["table"]}, rows=support_of())
    run(made, {"table": WHOLE["table"]}, rounds=1, queries=2)
    rows = len(support_of())
    assert made.costs.up_bytes == 2 * (USERS * 2 * 12 + 2 * 4 * rows + USERS * 2 * 20 + 8 * 2 * rows)


# Patterns


def test_patterns_are_kept_no_longer_than_they_are_of_use():
    made = simulation(FAKES + COHORTS["poisson"], WHOLE, support=support_of(), chunk=4)
    run(made, WHOLE, rounds=12, queries=1)
    announced = made._shared.announced
    assert len(announced._patterns) + len(announced._earlier) <= 2 * -(-USERS // 4)
    made = simulation(FAKES, WHOLE, support=support_of())
    kept = set()
    for round in range(3):
        run_one = SimpleNamespace(
            round=lambda federation, t: federation.aggregate("train", federation.sample_cohort(t), Message({}), WHOLE),
            public=lambda: Message({}),
        )
        made.run(run_one, round)
        kept |= {id(pattern) for _, pattern in made._shared.announced._patterns.values()}
    assert len(kept) == 1


def test_rows_that_are_announced_already_are_not_copied():
    support = support_of()
    made = simulation(FAKES, WHOLE, support=support)
    announced, clients = made._shared.announced, torch.arange(USERS)
    keys = torch.from_numpy(np.sort(support.owners * ITEMS + support.items))
    values = torch.ones(len(keys), 2, dtype=torch.int64)
    part = RowPattern(USERS, ITEMS, keys // ITEMS, keys % ITEMS).with_values("table", values)
    assert announced.padded(part, 0, clients, ITEMS).values is values


def test_rows_sent_again_by_the_same_pattern_take_the_same_places_and_another_pattern_is_looked_at():
    support = support_of()
    announced, clients = simulation(FAKES, WHOLE, support=support)._shared.announced, torch.arange(USERS)
    keys = torch.from_numpy(np.sort(support.owners * ITEMS + support.items))
    some = RowPattern(USERS, ITEMS, keys[::2] // ITEMS, keys[::2] % ITEMS)
    for factor in (1, 3):
        values = factor * torch.arange(1, len(some.ids) + 1).unsqueeze(1)
        part = announced.padded(some.with_values("table", values), 0, clients, ITEMS)
        expected = torch.zeros(len(keys), 1, dtype=torch.int64)
        expected[::2] = values
        assert torch.equal(part.values, expected)
        assert torch.equal(part.owner * ITEMS + part.ids, keys)
    unsaid = torch.tensor(sorted(set(range(USERS * ITEMS)) - set(keys.tolist())))
    for stranger in (unsaid[:1], unsaid[-1:]):
        other = RowPattern(USERS, ITEMS, stranger // ITEMS, stranger % ITEMS)
        with pytest.raises(FederationError, match="did not announce"):
            announced.padded(other.with_values("table", torch.ones(1, 1, dtype=torch.int64)), 0, clients, ITEMS)


# Methods behind padding


METHODS = {
    "fedmf": {"name": "fedmf", "dim": 4, "negatives": 2},
    "fedncf": {"name": "fedncf", "dim": 4, "hidden": [4], "negatives": 2},
    "popularity": {"name": "popularity"},
}
PADDINGS = {
    "every row": "padding.kind=full_support",
    "own rows": "padding.kind=no_padding",
    "fake items": "padding.kind=fake_items,padding.rho=2,padding.drawn=uniform",
    "response": "padding.kind=randomised_response,padding.epsilon=2,padding.keep=0.7",
}


def experiment(split, name, padding, fidelity="exact", extra="", **changes):
    config = ExperimentConfig(
        data="synthetic-tests", method=METHODS[name],
        privacy=PrivacyPlan.parse(f"shared-sum:clip_norm=1,{padding}{extra}"),
        protocol=Protocol(k=(5,)), rounds=4, seed=4, evaluate_every=4, checkpoint_every=2, fidelity=fidelity,
        taps=TapConfig(places=(), users=6), chunk=16,
    )  # fmt: skip
    return Experiment(config.model_copy(update=changes), split)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", METHODS)
def test_methods_train_alike_on_shares_and_in_the_open(small_split, name, padding):
    found = [
        experiment(small_split, name, PADDINGS[padding], fidelity, chunk=chunk).run(parts=("test",))
        for fidelity, chunk in (("exact", 16), ("protocol", 64))
    ]
    for half in ("server", "clients"):
        one, two = (getattr(result, half).state() for result in found)
        assert all(one[key].equal(two[key]) for key in one)
    assert found[0].costs.up_bytes == found[1].costs.up_bytes > 0


def test_a_dense_method_sends_whole_tables(small_split):
    settings = {"name": "fedvae", "latent": 4, "hidden": [6]}
    found = [
        experiment(small_split, "fedmf", PADDINGS["every row"], fidelity, method=settings, rounds=2).run(
            parts=("test",)
        )
        for fidelity in ("exact", "protocol")
    ]
    plain = experiment(
        small_split, "fedmf", "", method=settings, rounds=2, privacy=PrivacyPlan.parse("clip:clip_norm=1,order=2")
    ).run(parts=("test",))
    one, two, three = (result.server.state() for result in (*found, plain))
    for name in one:
        assert one[name].equal(two[name])
        assert torch.allclose(one[name], three[name], atol=1e-5)


@pytest.mark.parametrize("padding", ["fake items", "response"])
def test_fedmf_learns_behind_padding_from_announced_rows_and_fake_negatives(small_split, padding):
    """Every round: what is raw lies inside the announced rows, and what is not kept there lies among the fakes."""
    made = experiment(
        small_split, "fedmf", PADDINGS[padding], taps=TapConfig(places=("raw",), users=45, rounds=(0, 1, 2, 3))
    )
    kept, fakes = made.clients.sampler.positives, made.support
    before = made.server.state()["items"].clone()
    result = made.run(parts=("test",))
    everybody = np.arange(made.n_users)
    own, announced = kept.mask(everybody), fakes.mask(everybody)
    truth = small_split.train.mask(everybody)
    assert not (own & ~truth).any()
    observed = result.transcript.joined("raw")
    assert len(observed) == 4
    for taken in observed:
        touched = (taken.tensors["items"] != 0).any(2).numpy()
        users = taken.users.numpy()
        assert not (touched & ~announced[users]).any()
        assert not (touched & ~own[users] & truth[users]).any()
        assert touched.sum() > 0.5 * announced[users].sum()
    assert not result.server.state()["items"].equal(before)


def test_suppressed_rows_stand_still_and_others_move_by_their_mean(small_split):
    """A mean divides by the cohort, as without shares, so a closed row is a row that nobody moved."""
    padding = PADDINGS["fake items"]
    made = experiment(small_split, "fedmf", padding, extra=",min_cohort=20", rounds=1)
    open_ = experiment(small_split, "fedmf", padding, extra=",min_cohort=2", rounds=1)
    closed = made.support.popularity() < 20
    assert 0 < closed.sum() < made.parts.train.n_items
    start = made.server.state()["items"].clone()
    items, others = (e.run(parts=("test",)).server.state()["items"] for e in (made, open_))
    assert items[closed].equal(start[closed])
    assert items[~closed].equal(others[~closed])


@pytest.mark.parametrize("killed_after", [0, 2])
@pytest.mark.parametrize("padding", ["own rows", "fake items"])
def test_a_resumed_run_equals_an_unbroken_one(small_split, tmp_path, padding, killed_after):
    """To the bit, bytes and ledger included, with real shares and some rounds lost."""
    extra = ",min_cohort=20,sampling.kind=poisson,sampling.rate=0.4"

    class KilledError(Exception):
        pass

    def progress(t, _):
        if t == killed_after:
            raise KilledError

    def start():
        return experiment(small_split, "fedmf", PADDINGS[padding], "protocol", extra, rounds=5)

    folders = [tmp_path / "unbroken", tmp_path / "broken"]
    for folder in folders:
        folder.mkdir()
    wanted = start().run(folders[0], parts=("test",))
    with pytest.raises(KilledError):
        start().run(folders[1], progress=progress, parts=("test",))
    found = start().run(folders[1], resume=True, parts=("test",))
    for half in ("server", "clients"):
        one, two = getattr(found, half).state(), getattr(wanted, half).state()
        assert all(one[key].equal(two[key]) for key in one)
    assert found.costs.up_bytes == wanted.costs.up_bytes
    assert found.costs.aborted_rounds == wanted.costs.aborted_rounds > 0
    assert found.guarantee == wanted.guarantee
    entries = [[json.loads(line) for line in (f / "ledger.jsonl").read_text().splitlines()] for f in folders]
    assert entries[0] == entries[1]


# What is claimed


@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("padding", PADDINGS)
def test_nothing_bounded_is_claimed_about_values_and_the_padding_claims_about_rows(padding, cohort):
    made = simulation("shared-sum:clip_norm=1," + PADDINGS[padding] + COHORTS[cohort], WHOLE, rows=support_of())
    for schema, reason in ((WHOLE, "left exactly, without noise"), (REAL, "a sum without noise bounds nothing")):
        claim = made.server_guard.ledger.guarantee()
        assert claim.epsilon == float("inf")
        assert claim.support == made.plan.mechanism.padding.claim
        assert claim.trust == "distributed"
        fresh = simulation("shared-sum:clip_norm=1," + PADDINGS[padding] + COHORTS[cohort], schema, rows=support_of())
        run(fresh, schema, rounds=1, queries=1)
        claim = fresh.server_guard.ledger.guarantee()
        assert claim.epsilon == float("inf")
        assert reason in claim.reason_if_inf
        assert made.plan.mechanism.padding.claim.sentence in claim.statements
        assert not any("amplification by sampling is claimed" in said for said in claim.statements)
        assert not made.plan.amplifies


def test_an_aggregator_generates_the_share_that_a_simulation_takes_from_the_clients_stream():
    sharing = PrivacyPlan.parse("shared-sum:padding.kind=no_padding").mechanism.secret_sharing
    streams, ring = Streams.from_seed(0), Ring(sharing.bits)
    dealer = ShareDealer(sharing, 5, streams, None, protocol=True)
    key = streams.words(Purpose.SHARE, 0, 0, [SERVER], 8)[0].tobytes()
    keys = agree_keys(5, sharing.aggregators, key)
    aggregators = [KeyStreams(ClientCiphers(own), ring, 1) for own in keys]
    elements, clients, counts = np.arange(8, dtype=ring.dtype), np.array([0, 2]), np.array([3, 5])
    for query in range(3):
        shares = dealer.split(1, (4, query), clients, counts, elements)
        generated = [own.take(4, query, clients, counts) for own in aggregators]
        assert all(np.array_equal(a, b) for a, b in zip(shares[1:], generated, strict=True))
        assert np.array_equal(ring.sum(shares), elements)
