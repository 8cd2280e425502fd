"""Held blocks: a client takes part in the sums of the blocks it holds, and nothing else changes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block, schema_digest
from privfed.engines.aggregation.held_blocks import Holdings
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import HELD_BY, HOLDERS, HOLDS, Transcript, load_observations
from privfed.federation import Message, PrivateState, StatefulClients, Streams
from privfed.privacy import Ledger, PrivacyPlan
from privfed.updates import ClientUpdates, Dense, Rows

ITEMS = 12
SCHEMA = {
    "items.0:2": Block((ITEMS, 2)),
    "seen": Block((ITEMS,), kind="integer", bound=1),
    "items.2:6": Block((ITEMS, 4)),
    "head.small": Block((3,)),
    "tier.1": Block((4, 2), weight=math.sqrt(2)),
    "head.large": Block(()),
}
LARGE = {"items.2:6", "head.large"}


def updates_of(users, schema, tiers, scale=1.0):
    """Everybody holds the small blocks; tier 1 its own table; tier 2 the large ones."""
    places, tier = torch.arange(len(users)), torch.tensor([tiers[user] for user in users.tolist()])

    def values(name, owners):
        made = [torch.from_numpy(np.random.default_rng([u, len(name)]).normal(size=schema[name].shape)) for u in owners]
        return torch.stack(made).float() * scale if made else torch.zeros(0, *schema[name].shape)

    parts = [Dense("seen", places, (users.unsqueeze(1) % ITEMS == torch.arange(ITEMS)).long())]
    for name, who in {
        "items.0:2": places,
        "head.small": places,
        "tier.1": places[tier == 1],
        "head.large": places[tier == 2],
    }.items():
        parts.append(Dense(name, who, values(name, users[who].tolist())))
    large = places[tier == 2]
    ids = torch.stack([users[large] % ITEMS, (users[large] + 5) % ITEMS], 1).sort(1).values
    rows = torch.ones(2 * len(large), 4) * (users[large].repeat_interleave(2).unsqueeze(1) + 1) * scale
    parts.append(Rows("items.2:6", large.repeat_interleave(2), ids.reshape(-1), rows))
    return ClientUpdates(users, schema, parts)


class Sized(StatefulClients):
    steps = frozenset({"train"})

    def __init__(self, tiers, scale):
        self.private = PrivateState({"steps": torch.zeros(len(tiers))})
        self.tiers, self.scale = tiers, scale

    def train(self, call, message):
        self.private.stage(call.clients, self.private.rows(call.clients))
        return updates_of(call.clients, call.schema, self.tiers, self.scale)


class OneSum:
    schema = SCHEMA

    def public(self):
        return Message({"x": torch.zeros(1)})

    def round(self, federation, t):
        self.total = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)


def summed(plan, tiers, fidelity="exact", scale=1.0, seed=0, rounds=1, **options):
    privacy = PrivacyPlan.parse(plan)
    simulation = Simulation(
        Sized(tiers, scale), privacy, len(tiers), Streams.from_seed(seed), Ledger(privacy, len(tiers)),
        fidelity=fidelity, **options,
    )  # fmt: skip
    server = OneSum()
    for t in range(rounds):
        simulation.run(server, t)
    return SimpleNamespace(total=server.total, costs=simulation.costs, simulation=simulation)


HELD, ALL = "secure-sum:clip_norm=4,blocks=held", "secure-sum:clip_norm=4"
MIXED = [0, 1, 2] * 6 + [1]


@pytest.mark.parametrize("chunk", [5, None])
def test_exact_protocol_and_all_blocks_agree_to_the_bit(chunk):
    padded = summed(ALL, MIXED)
    for fidelity in ("exact", "protocol"):
        held = summed(HELD, MIXED, fidelity, chunk=chunk)
        assert held.total.revealed == {}
        assert held.total.denominator == padded.total.denominator == len(MIXED)
        assert all(held.total.sums[name].equal(padded.total.sums[name]) for name in SCHEMA)
    assert padded.total.sums["seen"].sum() == len(MIXED)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=3, max_size=12))
def test_blocks_of_too_few_holders_stay_suppressed_and_disturb_no_other(tiers):
    held, padded, real = summed(HELD, tiers), summed(ALL, tiers), summed(HELD, tiers, "protocol")
    few = {
        *({"tier.1"} if tiers.count(1) < 3 else ()),
        *(LARGE if tiers.count(2) < 3 else ()),
    }
    assert set(held.total.revealed) == few
    for name, block in SCHEMA.items():
        assert held.total.sums[name].equal(real.total.sums[name])
        if name in few:
            assert not held.total.sums[name].any()
            assert held.total.revealed[name].shape == block.shape[:1]
            assert not held.total.revealed[name].any()
        else:
            assert held.total.sums[name].equal(padded.total.sums[name])


def test_the_analytic_fidelity_keeps_the_same_blocks_suppressed():
    tiers = [0] * 5 + [1] * 2 + [2] * 3
    law = summed(HELD, tiers, "analytic")
    assert set(law.total.revealed) == {"tier.1"}
    assert not law.total.sums["tier.1"].any()
    torch.testing.assert_close(law.total.sums["items.2:6"], summed(HELD, tiers).total.sums["items.2:6"])


def test_uploads_are_as_long_as_what_is_held():
    words = {0: 24 + 12 + 3, 1: 24 + 12 + 3 + 8, 2: 24 + 12 + 3 + 48 + 1}
    assert summed(HELD, MIXED).costs.up_bytes == 4 * sum(words[tier] for tier in MIXED)
    assert summed(ALL, MIXED).costs.up_bytes == 4 * len(MIXED) * (24 + 12 + 48 + 3 + 8 + 1)


def test_one_masked_sum_for_every_set_of_holders(monkeypatch):
    from privfed.engines.aggregation import masked_sum

    seen, real = [], masked_sum.aggregate

    def counted(words, terms, **options):
        seen.append((sorted(words), terms))
        return real(words, terms, **options)

    monkeypatch.setattr(masked_sum, "aggregate", counted)
    summed(HELD, MIXED, "protocol")
    everybody = list(range(len(MIXED)))
    assert [users for users, _ in seen] == [
        everybody,
        [u for u in everybody if MIXED[u] == 2],
        [u for u in everybody if MIXED[u] == 1],
    ]
    groups = [("items.0:2", "seen", "head.small"), ("items.2:6", "head.large"), ("tier.1",)]
    for names, (_, terms) in zip(groups, seen, strict=True):
        blocks = {name: SCHEMA[name] for name in names}
        assert terms.length == sum(block.size for block in blocks.values())
        assert terms.layout.hex() == schema_digest(blocks)
    assert len({terms.run for _, terms in seen}) == 3
    seen.clear()
    summed(ALL, MIXED, "protocol")
    assert len(seen) == 1


def test_holdings_group_blocks_by_their_holders():
    users = torch.arange(len(MIXED))
    holdings = Holdings(SCHEMA)
    for some in users.split(4):
        holdings.add(updates_of(some, SCHEMA, MIXED))
    assert holdings.held.shape == (len(MIXED), len(SCHEMA))
    for group in holdings.groups():
        for name in group.blocks:
            column = holdings.held[:, list(SCHEMA).index(name)]
            assert column.nonzero().squeeze(1).equal(group.holders)
    nobody = Holdings(SCHEMA)
    assert [group.blocks for group in nobody.groups()] == [tuple(SCHEMA)]
    assert len(nobody.groups()[0].holders) == 0


def test_the_transcript_says_who_of_the_audited_is_in_which_sum(tmp_path):
    audited = torch.tensor([1, 4, 5, 18])
    transcript = Transcript(audited, frozenset({"sum"}), step="train")
    plan = f"{HELD},sampling.kind=fixed,sampling.size=14"
    done = summed(plan, MIXED, transcript=transcript, rounds=2)
    first, second = transcript.joined("sum")
    assert (first.round, second.round) == (0, 1)
    names = sorted(SCHEMA)
    for seen in (first, second):
        members = done.simulation.members(seen.round)
        assert seen.users.equal(audited[torch.isin(audited, members)])
        for place, user in enumerate(seen.users.tolist()):
            held = {name for name, has in zip(names, seen.tensors[HOLDS][place].tolist(), strict=True) if has}
            own = {0: set(), 1: {"tier.1"}, 2: LARGE}[MIXED[user]]
            assert held == {"items.0:2", "seen", "head.small"} | own
        counted = dict(zip(names, seen.tensors[HELD_BY].tolist(), strict=True))
        assert counted["seen"] == 14
        assert counted["tier.1"] == sum(MIXED[user] == 1 for user in members.tolist())
        groups = dict(zip(names, seen.tensors[HOLDERS].tolist(), strict=True))
        assert groups["items.2:6"] == groups["head.large"] != groups["tier.1"] != groups["seen"]
    transcript.save(tmp_path)
    for wanted, found in zip((first, second), load_observations(tmp_path, ["sum"]), strict=True):
        assert found.users.equal(wanted.users)
        assert all(found.tensors[name].equal(wanted.tensors[name]) for name in wanted.tensors)


def test_several_sums_of_one_round_are_all_kept(tmp_path):
    transcript = Transcript(torch.arange(4), frozenset({"sum"}))
    holdings = Holdings({"v": Block((2,))})
    holdings.add(ClientUpdates(torch.arange(3), {"v": Block((2,))}, [Dense("v", torch.arange(3), torch.ones(3, 2))]))
    for value in (1.0, 2.0, 3.0):
        transcript.record_sum(7, "train", torch.arange(3), {"v": torch.full((2,), value)}, holdings)
    transcript.save(tmp_path)
    assert [float(o.tensors["v"][0]) for o in load_observations(tmp_path, ["sum"])] == [1.0, 2.0, 3.0]
    asked = Transcript(torch.arange(4), frozenset({"sum"}), step="train")
    asked.record_sum(7, "count", torch.arange(3), {"v": torch.ones(2)}, holdings)
    assert asked.observations == []


def weighted(total):
    return torch.cat([total[name].double().reshape(-1) * SCHEMA[name].weight for name in REAL])


REAL = [name for name, block in SCHEMA.items() if block.kind == "real"]
REAL_SCHEMA = {name: SCHEMA[name] for name in REAL}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2]), min_size=2, max_size=8),
    st.floats(0.01, 100.0),
    st.booleans(),
    st.data(),
)
def test_no_mix_of_tiers_lets_one_client_move_the_weighted_sum_by_more_than_the_clip(tiers, scale, per_block, data):
    """In the orthonormal basis: what the clip bounds is what the noise is sized for."""
    from privfed.guards import ClientGuard

    norms = {"clipping": "per_block", "block_norms": BOUNDS} if per_block else {}
    plan = PrivacyPlan.named("central-gaussian", clip_norm=1, noise_multiplier=1, **norms)
    clipped = updates_of(torch.arange(len(tiers)), SCHEMA, tiers, scale)
    ClientGuard(plan, Streams.from_seed(0)).clip_(clipped)
    uploads = clipped.materialise(torch.arange(len(tiers)))
    total = {name: value.double().sum(0) for name, value in uploads.items()}
    leaver = data.draw(st.integers(0, len(tiers) - 1))
    rest = {name: total[name] - uploads[name][leaver].double() for name in uploads}
    assert (weighted(total) - weighted(rest)).norm() <= 1 + 1e-6
    if per_block:
        for name, bound in BOUNDS.items():
            assert SCHEMA[name].weight * (total[name] - rest[name]).norm() <= bound + 1e-6


BOUNDS = dict.fromkeys(REAL, 1 / math.sqrt(len(REAL)))


class NoisySum(OneSum):
    schema = REAL_SCHEMA


def noise_on(plan, tiers, rounds, fidelity):
    """Released sums less the exact ones, in weighted coordinates, `[rounds, coordinates]`."""
    privacy, server, clients = PrivacyPlan.parse(plan), NoisySum(), SizedReal(tiers, 1e-3)
    simulation = Simulation(
        clients, privacy, len(tiers), Streams.from_seed(3), Ledger(privacy, len(tiers)), fidelity=fidelity
    )
    exact = updates_of(torch.arange(len(tiers)), SCHEMA, tiers, 1e-3).materialise(torch.arange(len(tiers)))
    wanted = weighted({name: value.double().sum(0) for name, value in exact.items()})
    found = []
    for t in range(rounds):
        simulation.run(server, t)
        assert server.total.denominator == len(tiers)
        found.append(weighted(server.total.sums) - wanted)
    return torch.stack(found)


class SizedReal(Sized):
    def train(self, call, message):
        self.private.stage(call.clients, self.private.rows(call.clients))
        whole = updates_of(call.clients, SCHEMA, self.tiers, self.scale)
        return ClientUpdates(call.clients, call.schema, [part for part in whole.parts if part.block in REAL])


@pytest.mark.parametrize("fidelity", ["exact", "analytic"])
@pytest.mark.parametrize(
    ("plan", "deviation"),
    [
        ("central-gaussian:clip_norm=2,noise_multiplier=1.5", 3.0),
        ("central-gaussian:clip_norm=2,noise_multiplier=1.5,clipping=per_block,block_norms.items.0:2=1,block_norms.items.2:6=1,"
         "block_norms.head.small=1,block_norms.tier.1=0.8,block_norms.head.large=0.6", 3.0),
        ("local-gaussian:clip_norm=0.5,noise_multiplier=2", math.sqrt(9)),
        ("distributed-gaussian:clip_norm=2,noise_multiplier=1.5,n_min_honest=9", 3.0),
    ],
)  # fmt: skip
def test_noise_has_its_scale_on_every_weighted_coordinate_whoever_owns_it(plan, deviation, fidelity):
    tiers = [0, 1, 2] * 3
    noise = noise_on(plan, tiers, 200, fidelity)
    assert noise.mean().abs() < 5 * deviation / math.sqrt(noise.numel())
    at = 0
    for name in REAL:
        block = noise[:, at : at + SCHEMA[name].size]
        at += SCHEMA[name].size
        tolerance = 5 / math.sqrt(2 * block.numel())
        assert block.std().item() == pytest.approx(deviation, rel=tolerance + 0.02), name


def test_plans_that_differ_in_held_blocks_differ_in_name_and_slug():
    held, padded = PrivacyPlan.parse(HELD), PrivacyPlan.parse(ALL)
    assert held.name == "secure sum (L2 <= 4, 32-bit ring, held blocks only)"
    assert held.slug == "secure-sum-clip-norm-4-blocks-held"
    assert (padded.name, padded.slug) == ("secure sum (L2 <= 4, 32-bit ring)", "secure-sum-clip-norm-4")
    assert PrivacyPlan.from_dict(held.to_dict()) == held
    said = Ledger(held, 10).guarantee().statements
    assert any("the server sees who holds which block" in sentence for sentence in said)
    assert not any("who holds which" in sentence for sentence in Ledger(padded, 10).guarantee().statements)
