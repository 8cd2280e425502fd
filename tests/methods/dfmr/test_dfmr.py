"""DFMR as a federation: against its objective written out, against itself behind every sum, and what it becomes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.data import Histories
from privfed.federation import Total
from privfed.methods import ClientData
from privfed.methods.dfmr.schemas import ITEMS

METHODS = {
    "dfmr": ("dfmr", {}),
    "dfmr without balance": ("dfmr", {"alpha": 0.0}),
    "dfmr, both balanced, three blocks": ("dfmr", {"beta": 0.01, "blocks": 3}),
    "dcf": ("dcf", {}),
    "dcf, balanced": ("dcf", {"alpha": 0.01, "beta": 0.01}),
    "lightfr": ("lightfr", {}),
}
SHARED = [
    ("shared-sum", "exact"),
    ("shared-sum", "protocol"),
    ("shared-sum:aggregators=3", "protocol"),
    ("shared-sum:padding.kind=fake_items,padding.rho=5,min_cohort=2", "exact"),
    ("shared-sum:padding.kind=fake_items,padding.rho=5,padding.drawn=uniform,min_cohort=2,aggregators=3", "protocol"),
]


@pytest.fixture(scope="module")
def plain(coded):
    """Codes after two rounds without any protection, made once per method and size."""
    made = {}

    def codes(method, parts, d):
        key = method, id(parts), d
        if key not in made:
            name, settings = METHODS[method]
            made[key] = coded(name, parts=parts, d=d, **settings).train(2).codes
        return made[key]

    return codes


def same(found, wanted):
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("plan", "fidelity"), SHARED)
@pytest.mark.parametrize("method", METHODS)
def test_codes_behind_shared_sums_are_those_of_a_plain_run(coded, funnel, plain, method, plan, fidelity):
    name, settings = METHODS[method]
    revealed = []
    world = coded(name, plan=plan, fidelity=fidelity, **settings)
    total = world.simulation.server_guard.total

    def watch(sums, cohort, members, schema, mask):
        revealed.extend(rows.all() for rows in mask.values())
        return total(sums, cohort, members, schema, mask)

    world.simulation.server_guard.total = watch
    found = world.train(2).codes
    assert all(revealed)
    assert bool(revealed) == ("fake_items" in plan)
    assert same(found, plain(method, funnel, 8))


@pytest.mark.parametrize("fidelity", ["analytic", "exact", "protocol"])
@pytest.mark.parametrize("method", METHODS)
def test_codes_behind_masked_sums_are_those_of_a_plain_run(coded, few, plain, method, fidelity):
    name, settings = METHODS[method]
    world = coded(name, plan="secure-sum:clip_norm=1,bits=64", fidelity=fidelity, parts=few, d=2, **settings)
    assert same(world.train(2).codes, plain(method, few, 2))


class Withholding:
    """A federation that closes rows that fewer than `fewest` users have, whoever asks."""

    def __init__(self, simulation, support, fewest):
        self.simulation, self.open = simulation, torch.from_numpy(support.popularity() >= fewest)
        self.sample_cohort = simulation.sample_cohort

    def aggregate(self, step, cohort, message, schema):
        release = self.simulation.aggregate(step, cohort, message, schema)
        if ITEMS not in schema:
            return release
        rows = torch.where(self.open.unsqueeze(1), release.sums[ITEMS], 0)
        return Total({**release.sums, ITEMS: rows}, release.denominator, {ITEMS: self.open})


@pytest.mark.parametrize("fewest", [7, 22])
@pytest.mark.parametrize("method", ["dfmr", "dfmr, both balanced, three blocks", "dcf"])
def test_withheld_rows_are_decided_as_if_nobody_had_them(coded, method, fewest):
    name, settings = METHODS[method]
    plan = f"shared-sum:padding.kind=no_padding,min_cohort={fewest}"
    shared, protocol = (coded(name, plan=plan, fidelity=w, **settings).train(2) for w in ("exact", "protocol"))
    world = coded(name, **settings)
    sent = world.data.positives.union(world.data.examined(world.clients.config.examinations))
    federation = Withholding(world.simulation, sent, fewest)
    assert 5 < int((~federation.open).sum()) < 200
    for t in range(2):
        world.server.round(federation, t)
    assert same(shared.codes, world.codes)
    assert same(protocol.codes, world.codes)
    assert not same(world.codes, coded(name, **settings).train(2).codes)


def test_sums_of_withheld_rows_are_zero_wherever_they_are_seen(coded):
    from privfed.engines.transcript import Transcript

    transcript = Transcript(torch.arange(5), frozenset({"sum"}))
    plan = "shared-sum:padding.kind=no_padding,min_cohort=22"
    world = coded(plan=plan, transcript=transcript, guard=False).train(1)
    sent = world.data.positives.union(world.data.examined(None))
    closed = sent.popularity() < 22
    sums = [seen.tensors[ITEMS] for seen in transcript.observations if ITEMS in seen.tensors]
    assert len(sums) == 8
    assert all(not rows[closed].any() and rows[~closed].any() for rows in sums)


def test_a_repeated_sweep_leaves_withheld_rows_alone(coded):
    world = coded(plan="shared-sum:padding.kind=no_padding,min_cohort=22")
    before = world.server.items.copy()
    world.server._rose = lambda *args: True
    world.train(1)
    sent = world.data.positives.union(world.data.examined(None))
    closed = sent.popularity() < 22
    assert np.array_equal(world.server.items[closed], before[closed])
    assert not np.array_equal(world.server.items[~closed], before[~closed])


def objective(grid, kinds, users, items, balance_of_items):
    """4 d^2 K times the objective in item codes, term by term over dense tables."""
    total = -2 * int((balance_of_items * items).sum())
    for own, row in zip(kinds, users.astype(np.int64) @ items.T.astype(np.int64), strict=True):
        p, e, o = (np.flatnonzero(own == kind) for kind in (1, 2, 0))
        total += grid.w * ((grid.d - row[p]) ** 2).sum() + grid.s * ((grid.d + row[own != 1]) ** 2).sum()
        for i in p:
            pairs = ((grid.g1 - row[i] + row[e]) ** 2).sum() + ((grid.g2 - row[i] + row[o]) ** 2).sum()
            total += grid.purchase[i] * pairs
        for j in e:
            total += grid.examine[j] * ((grid.g3 - row[j] + row[o]) ** 2).sum()
    return int(total)


def better(loss, table, row, bit):
    """The sign of a bit that lowers the loss; as it is where both are equal."""
    losses = []
    for sign in (1, -1):
        changed = table.copy()
        changed[row, bit] = sign
        losses.append(loss(changed))
    return table[row, bit] if losses[0] == losses[1] else (1 if losses[0] < losses[1] else -1)


def tiny(seed, n=5, m=9):
    """Purchases and views of a few users, and the same as a table of kinds."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(3, (n, m), p=[0.5, 0.25, 0.25])
    kinds[0, 0] = 1
    bought, viewed = (Histories.from_pairs(*np.nonzero(kinds == kind), n, m) for kind in (1, 2))
    return ClientData(bought, bought, {"view": viewed}), kinds


def naive_round(grid, kinds, users, items, pull, blocks):
    """Users, then items in blocks, decide bit after bit; both tables in place. The loss after every block."""

    def loss(u, v):
        return objective(grid, kinds, u, v, pull)

    for bit, user in itertools.product(range(grid.d), range(len(users))):
        users[user, bit] = better(lambda u: loss(u, items), users, user, bit)
    losses = [loss(users, items)]
    for bit in range(grid.d):
        for block in np.array_split(np.arange(len(items)), blocks):
            signs = [better(lambda v: loss(users, v), items, item, bit) for item in block]
            items[block, bit] = signs
            losses.append(loss(users, items))
    return losses


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("blocks", [1, 2, 9])
@pytest.mark.parametrize("seed", range(4))
def test_a_round_is_the_naive_sweep_of_the_objective(coded, seed, blocks, beta):
    data, kinds = tiny(seed)
    world = coded(
        data=data, seed=seed, d=3, s=0.1, c0=3.0, lam=0.6, alpha=0.0, beta=beta, bits=12, blocks=blocks, guard=False,
        start_sweeps=0,
    )  # fmt: skip
    for t in range(2):
        users, items = world.users, world.server.items.astype(np.int64)
        pull = world.server._item_balance(world.server.items)
        losses = naive_round(
            world.server.grid, kinds, users, items, np.zeros_like(items) if pull is None else pull, blocks
        )
        world.simulation.run(world.server, t)
        assert np.array_equal(world.users, users)
        assert np.array_equal(world.server.items, items)
        if blocks == 9:
            assert all(after <= before for before, after in itertools.pairwise(losses))


@pytest.mark.parametrize("plan", ["none", "shared-sum"])
def test_the_guard_compares_the_objective_itself(coded, plan):
    data, kinds = tiny(1)
    world, losses = coded(data=data, d=3, s=0.1, c0=3.0, alpha=0.0, bits=12, plan=plan), []
    ask = world.simulation.aggregate

    def watch(step, cohort, message, schema):
        release = ask(step, cohort, message, schema)
        losses.extend(int(release.sums["loss"]) for _ in range("loss" in schema))
        return release

    world.simulation.aggregate = watch
    before = world.server.items.astype(np.int64)
    world.train(1)
    grid, (items, users) = world.server.grid, world.codes
    assert losses == [objective(grid, kinds, users, v, np.zeros_like(before)) for v in (before, items.astype(np.int64))]


def hub(coded, *, guard, users, **options):
    """Users who bought item 0 and saw three others, at codes where deciding all items at once raises the objective."""
    n, m = len(users), 4
    owner = np.repeat(np.arange(n), 3)
    bought = Histories.from_pairs(np.arange(n), np.zeros(n, np.int64), n, m)
    data = ClientData(bought, bought, {"view": Histories.from_pairs(owner, np.tile([1, 2, 3], n), n, m)})
    world = coded(
        data=data, d=2, w=0, s=0, lam=1.0, c0=1.0, exponent=0, gamma1=0, gamma2=0, gamma3=0, alpha=0, bits=4,
        start_sweeps=0, guard=guard, **options,
    )  # fmt: skip
    world.server.items = np.array([[-1, -1], [-1, 1], [-1, -1], [-1, 1]], np.int8)
    world.clients.load({"codes": torch.tensor(users, dtype=torch.int8)})
    kinds = np.tile([1, 2, 2, 2], (n, 1))
    return world, lambda: objective(world.server.grid, kinds, world.users, world.server.items, 0)


@pytest.mark.parametrize("chunk", [1, 2, None])
def test_the_guard_repeats_a_sweep_that_rose(coded, chunk):
    codes = [[-1, -1], [-1, 1]]
    loose, loss = hub(coded, guard=False, users=codes, chunk=chunk)
    first = loss()
    loose.train(1)
    assert np.array_equal(loose.users, codes)  # the users' own update changes nothing here
    assert loss() > first
    watched, loss = hub(coded, guard=True, users=codes, chunk=chunk)
    watched.train(1)
    assert watched.server.repeated == 1
    assert loss() <= first
    assert loose.server.repeated == 0


def test_one_block_per_item_does_not_rise_at_the_hub(coded):
    world, loss = hub(coded, guard=True, users=[[-1, -1], [-1, 1]], blocks=4)
    first = loss()
    world.train(3)
    assert world.server.repeated == 0
    assert loss() <= first


@pytest.mark.parametrize("plan", ["shared-sum:min_cohort=2", "shared-sum:padding.kind=no_padding,min_cohort=2"])
def test_a_repeated_sweep_behind_shared_sums_is_the_plain_one(coded, plan):
    codes = [[-1, -1], [-1, 1]]
    plain, _ = hub(coded, guard=True, users=codes)
    found, _ = hub(coded, guard=True, users=codes, plan=plan)
    assert same(found.train(2).codes, plain.train(2).codes)
    assert found.server.repeated == plain.server.repeated > 0


def test_without_pairs_the_guard_has_nothing_to_sum(coded):
    world = coded("dcf", guard=True)
    assert not {"loss", "inertia"} & set(world.server.schema)
    assert len(world.server.program()) == 1 + 8


def test_dfmr_without_pairs_is_dcf(coded):
    settings = {"s": 0.002, "alpha": 0.05, "beta": 0.01}
    one = coded("dfmr", c0=0.0, **settings).train(3)
    assert same(one.codes, coded("dcf", **settings).train(3).codes)
    assert not same(one.codes, coded("dfmr", **settings).train(3).codes)


def test_which_behaviours_are_examinations(coded, funnel):
    codes = {which: coded(examinations=which).train(2).codes for which in (None, ("view",), ("cart",), ())}
    assert same(codes[None], codes[("view",)])
    assert not same(codes[None], codes[("cart",)])
    assert not same(codes[None], codes[()])
    alone = replace(funnel, auxiliary={})
    assert same(codes[()], coded(parts=alone).train(2).codes)
    carts = replace(funnel, auxiliary={"cart": funnel.auxiliary["cart"], "favourite": funnel.auxiliary["cart"]})
    assert same(codes[("cart",)], coded(parts=carts).train(2).codes)


def test_carts_are_views_too(coded):
    assert same(
        coded(examinations=("view", "cart")).train(1).codes, coded(examinations=("cart", "view")).train(1).codes
    )


@pytest.mark.parametrize("plan", ["none", "shared-sum:padding.kind=no_padding,min_cohort=2"])
def test_examinations_of_items_with_few_buyers_can_be_left_out(coded, plan):
    """Rows of such items hold zeros from everybody, so that no opened sum is one examiner's code."""
    careful, plain = coded(plan=plan, min_buyers=3), coded(plan=plan)
    buyers = careful.data.positives.popularity()
    kinds, items = careful.clients.support.kind, careful.clients.support.items
    assert (buyers[items[kinds == 2]] >= 3).all()
    assert (buyers[plain.clients.support.items[plain.clients.support.kind == 2]] < 3).any()
    careful.train(2)
    assert np.array_equal(coded(plan="none", min_buyers=3).train(2).server.items, careful.server.items)
