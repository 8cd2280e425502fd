"""Rounds of DFMR on real conditions: chunks, absent and lost clients, kills, looks in between, and who holds what."""

import types

import numpy as np
import pytest
import torch

from privfed.data import Histories, Split
from privfed.engines.simulation import Simulation
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import FederationError, Message, PrivateState, StatefulClients, Streams, Total
from privfed.methods import ClientData, PublicInfo, method
from privfed.methods.dfmr.balance import Balance
from privfed.methods.dfmr.codes import unpack
from privfed.methods.dfmr.discrete import IntegerGrid, balanced_rows, inverse_root
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

SETTINGS = {"d": 5, "alpha": 0.3, "beta": 0.01, "blocks": 2}


def same(found, wanted):
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.fixture(scope="module")
def whole(coded):
    """Codes after three rounds in one chunk."""
    return coded(**SETTINGS).train(3).codes


@pytest.mark.parametrize(
    "plan", ["none", "shared-sum", "shared-sum:padding.kind=fake_items,padding.rho=5,min_cohort=2"]
)
@pytest.mark.parametrize("chunk", [13, 64, 149])
def test_codes_do_not_depend_on_chunks(coded, whole, plan, chunk):
    assert same(coded(plan=plan, chunk=chunk, **SETTINGS).train(3).codes, whole)


@pytest.mark.parametrize("plan", ["none", "shared-sum:padding.kind=fake_items,padding.rho=5,min_cohort=2"])
def test_codes_do_not_depend_on_the_order_of_clients(coded, whole, plan):
    world = coded(plan=plan, chunk=40, **SETTINGS)
    shuffled = np.random.default_rng(0)
    world.simulation.members = lambda round: torch.from_numpy(shuffled.permutation(150))
    assert same(world.train(3).codes, whole)


def test_codes_do_not_depend_on_chunks_of_one(coded, few):
    assert same(coded(parts=few, chunk=1, **SETTINGS).train(2).codes, coded(parts=few, **SETTINGS).train(2).codes)


@pytest.mark.parametrize("chunk", [20, None])
def test_a_repeated_sweep_does_not_depend_on_chunks(coded, chunk):
    def repeated(chunk):
        world = coded(chunk=chunk, **SETTINGS)
        world.server._rose = types.MethodType(always(type(world.server)._rose), world.server)
        return world.train(2)

    def always(rose):
        return lambda *args: [rose(*args)] != []

    world = repeated(chunk)
    assert world.server.repeated == 2
    assert same(world.codes, repeated(64).codes)
    assert not same(world.codes, coded(**SETTINGS).train(2).codes)


def test_a_repeated_sweep_forgets_the_one_before(coded):
    """With the inertia taken back it decides as the first one did, whatever was decided in between."""

    class Weightless:
        def __init__(self, simulation, server):
            self.simulation, self.server, self.sample_cohort = simulation, server, simulation.sample_cohort

        def aggregate(self, step, cohort, message, schema):
            release = self.simulation.aggregate(step, cohort, message, schema)
            sums = dict(release.sums)
            if step == "weigh":
                sums["loss"] = sums["loss"] + 2**60
            if step == "update":
                sums["inertia"] = sums["inertia"] * 0
            return Total(sums, release.denominator, release.revealed)

    world = coded(**SETTINGS, chunk=64)
    for t in range(2):
        world.server.round(Weightless(world.simulation, world.server), t)
    assert world.server.repeated == 2
    assert same(world.codes, coded(**SETTINGS).train(2).codes)


def test_looking_at_scores_in_the_middle_of_a_round_changes_nothing(coded, whole):
    world, looks = coded(chunk=64, **SETTINGS), []

    def look(clients, call, message, updates):
        public = world.server.public()
        for users in (call.clients[:5], torch.arange(150)):
            looks.append(clients.score(users, public.addressed_to(users), None, None))

    world.simulation.observers.append(look)
    assert same(world.train(3).codes, whole)
    assert len(looks) == 3 * 3 * (2 + 5 * 2) * 2


def test_scores_are_those_of_a_device_that_brought_its_code_up_to_date(coded):
    world = coded(**SETTINGS).train(2)
    public, everybody = world.server.public(), torch.arange(150)
    mine = world.clients.ready_codes(everybody, public)
    scores = world.clients.score(everybody, public, None, None)
    assert np.array_equal(scores.numpy(), mine.astype(np.int64) @ world.server.items.T.astype(np.int64))
    candidates = torch.tensor([[3, 199, 3]]).repeat(150, 1)
    assert world.clients.score(everybody, public, None, candidates).equal(scores[:, [3, 199, 3]])
    before = world.users
    world.train(3, first=2)
    assert np.array_equal(world.users, mine)
    assert not np.array_equal(before, mine)


def test_codes_that_are_shown_in_the_same_memory_are_read_anew(coded):
    world, everybody = coded(**SETTINGS).train(1), torch.arange(150)
    public = world.server.public()
    shown, packed = Message(dict(public.shared)), public.shared["codes"].clone()
    shown.shared["codes"][:] = packed.flip(0)
    reversed_codes = world.clients.ready_codes(everybody, shown)
    shown.shared["codes"][:] = packed
    assert not np.array_equal(reversed_codes, world.clients.ready_codes(everybody, shown))


def test_an_aborted_round_leaves_no_codes_to_answer_for(coded):
    world = coded(**SETTINGS).train(1)
    world.clients.discard()
    with pytest.raises(FederationError, match="query 'update' first"):
        world.clients.receive("bit", Message({}))


@pytest.mark.parametrize("plan", ["none", "shared-sum", "shared-sum:padding.kind=no_padding,min_cohort=3"])
def test_absent_users_keep_their_code_and_join_with_fresh_item_codes(coded, plan):
    joined = ":" if plan in ("none", "shared-sum") else ","
    world = coded(plan=f"{plan}{joined}sampling.kind=fixed,sampling.size=40", chunk=16, alpha=0.3)
    everybody, seen = torch.arange(150), set()
    for t in range(6):
        before, fresh = world.users, world.clients.ready_codes(everybody, world.server.public())
        present = world.simulation.members(t).numpy()
        world.train(t + 1, first=t)
        absent = np.setdiff1d(np.arange(150), present)
        assert np.array_equal(world.users[absent], before[absent])
        assert np.array_equal(world.users[present], fresh[present])
        seen.update(present.tolist())
    assert 100 < len(seen) < 150


def test_an_aborted_round_changes_nothing_and_the_next_goes_on(coded):
    plan = "shared-sum:min_cohort=40,sampling.kind=poisson,sampling.rate=0.27"
    world, lost = coded(plan=plan, alpha=0.3), []
    for t in range(8):
        before, members = (*world.codes, world.server.balance.matrix), len(world.simulation.members(t))
        world.train(t + 1, first=t)
        after = (*world.codes, world.server.balance.matrix)
        assert (members < 40) == same(after, before)
        if members < 40:
            lost.append(t)
    assert world.simulation.costs.aborted_rounds == len(lost)
    assert 1 < len(lost) < 7
    alone = coded(plan=plan, alpha=0.3)
    for t in set(range(8)) - set(lost):
        alone.train(t + 1, first=t)
    assert same(alone.codes, world.codes)


def test_a_round_without_anybody_changes_nothing(coded):
    world = coded(plan="none:sampling.kind=poisson,sampling.rate=0.5", alpha=0.3).train(1)
    before = (*world.codes, world.server.balance.matrix)
    world.simulation.members = lambda round: torch.arange(0)
    world.train(2, first=1)
    assert same((*world.codes, world.server.balance.matrix), before)
    del world.simulation.members
    assert not same(world.train(3, first=2).codes, before[:2])


def test_a_step_that_fails_leaves_no_trace(coded):
    """Also where the same round is asked again from the start, by another simulation of the same halves."""
    world, wanted = coded(chunk=40, alpha=0.3), coded(chunk=40, alpha=0.3).train(2).codes
    bit = world.clients.bit

    def failing(call, message):
        if call.query_id == 4 and call.clients[0] == 80:
            raise RuntimeError("the battery is empty")
        return bit(call, message)

    before = world.server.state()
    world.clients.bit = failing
    users = world.users
    with pytest.raises(RuntimeError):
        world.train(1)
    world.clients.bit = bit
    world.clients.load({"codes": torch.from_numpy(users)})
    world.server.load(before)
    world.simulation.cohorts, world.simulation._cohort = 0, None
    world.simulation.server_guard.ledger = coded().simulation.server_guard.ledger
    assert same(world.train(2).codes, wanted)


class KilledError(Exception):
    """Stands for the process being gone."""


def experiment(parts, plan, **settings):
    config = ExperimentConfig(
        data="synthetic-funnel-small",
        method={"name": "dfmr", "d": 8} | settings,
        privacy=PrivacyPlan.parse(plan),
        protocol=Protocol(k=(10,), state="received"),
        rounds=4,
        seed=5,
        evaluate_every=1,
        checkpoint_every=1,
        taps=TapConfig(places=("sum", "model"), users=6, rounds=(0, 3)),
    )
    return Experiment(config, parts)


@pytest.mark.parametrize("killed_after", [0, 2])
@pytest.mark.parametrize(
    ("plan", "settings"),
    [
        ("none", {"alpha": 0.3, "beta": 0.01}),
        ("none:sampling.kind=fixed,sampling.size=30", {"start": "server"}),
        ("shared-sum:padding.kind=fake_items,padding.rho=2,min_cohort=3", {"blocks": 2}),
        (
            "shared-sum:padding.kind=no_padding,min_cohort=40,sampling.kind=poisson,sampling.rate=0.3",
            {"start": "server"},
        ),
    ],
)
def test_a_resumed_run_equals_an_unbroken_one(funnel, tmp_path, plan, settings, killed_after):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    unbroken.mkdir()
    broken.mkdir()
    wanted = experiment(funnel, plan, **settings).run(unbroken)

    def kill(t, evaluated):
        if t == killed_after:
            raise KilledError

    with pytest.raises(KilledError):
        experiment(funnel, plan, **settings).run(broken, progress=kill)
    found = experiment(funnel, plan, **settings).run(broken, resume=True)
    for half in ("server", "clients"):
        one, other = getattr(found, half).state(), getattr(wanted, half).state()
        assert one.keys() == other.keys()
        assert all(one[name].equal(other[name]) for name in one)
    assert found.history == wanted.history
    assert found.guarantee == wanted.guarantee
    for count in ("up_bytes", "down_bytes", "client_rounds", "aborted_rounds"):
        assert getattr(found.costs, count) == getattr(wanted.costs, count)
    restored = experiment(funnel, plan, **settings)
    assert restored.restore(broken) == 4
    assert restored.recommend(3, 4).equal(experiment_scores(wanted, 3))


def experiment_scores(result, user):
    users = torch.tensor([user])
    return result.clients.score(users, result.server.public().addressed_to(users), None, None)[0]


FORBIDDEN = (Histories, ClientData, PublicInfo, Split, StatefulClients, PrivateState, Streams, Simulation)
LEAVES = (torch.Tensor, np.ndarray, str, bytes, int, float, bool, type(None), type, types.ModuleType)


def reachable(root):
    """Every object reachable through attributes, slots, containers, bound methods and closures."""
    seen, todo = {}, [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        yield thing
        if isinstance(thing, LEAVES):
            continue
        if isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, list | tuple | set | frozenset):
            todo += thing
        elif isinstance(thing, types.MethodType):
            todo += [thing.__self__, thing.__func__]
        elif isinstance(thing, types.FunctionType):
            todo += [cell.cell_contents for cell in thing.__closure__ or ()]
        else:
            slots = [s for c in type(thing).__mro__ for s in getattr(c, "__slots__", ())]
            names = {*getattr(thing, "__dict__", {}), *(s for s in slots if hasattr(thing, s))}
            todo += [getattr(thing, name) for name in names]


@pytest.mark.parametrize("name", ["dfmr", "dcf", "lightfr"])
def test_a_server_holds_nothing_that_is_private_and_no_row_per_user(coded, name):
    world = coded(name).train(2)
    found = list(reachable(world.server))
    assert not [thing for thing in found if isinstance(thing, FORBIDDEN)]
    arrays = [thing for thing in found if isinstance(thing, np.ndarray | torch.Tensor) and thing.ndim]
    assert any(len(array) == 200 for array in arrays)
    assert not [array for array in arrays if len(array) == 150]
    assert any(isinstance(thing, FORBIDDEN) for thing in reachable({"a": world.clients.bit}))


def test_what_a_server_begins_with_does_not_depend_on_what_is_private(coded, funnel):
    data = ClientData.from_split(funnel, "train")
    other = ClientData(data.positives, data.excluded, {"view": data.positives.complement()})
    one, two = coded(data=data).server, coded(data=other).server
    assert all(one.state()[name].equal(value) for name, value in two.state().items())
    assert one.schema == two.schema


def test_user_codes_begin_at_home_unless_the_server_is_to_make_them(coded):
    """Then each device receives its own, in the first round that is opened and in no other."""

    def messages(**settings):
        world, sent = coded(chunk=64, **settings), []
        world.simulation.observers.append(lambda clients, call, message, updates: sent.append((call, message)))
        return world.train(3), sent

    world, sent = messages()
    assert not any(message.personal for _, message in sent)
    assert np.array_equal(coded(plan="shared-sum", seed=3).users, coded(seed=3).users)
    world, sent = messages(start="server")
    made = world.server._users
    personal = [(call, message) for call, message in sent if message.personal]
    assert [(call.round, call.step, len(call.clients)) for call, _ in personal] == [
        (0, "update", n) for n in (64, 64, 22)
    ]
    for call, message in personal:
        assert np.array_equal(message.personal["start"].numpy(), made[call.clients.numpy()])
    plan = "shared-sum:min_cohort=40,sampling.kind=poisson,sampling.rate=0.27"
    lost = coded(start="server", plan=plan)
    members = lost.simulation.members
    lost.simulation.members = lambda t: members(t)[: 39 if t == 0 else None]
    first = next(t for t in range(20) if len(lost.simulation.members(t)) >= 40)
    assert first > 0
    got = []
    lost.simulation.observers.append(lambda clients, call, message, updates: got.append((call.round, message)))
    lost.train(first + 3)
    assert {t for t, message in got if message.personal} == {first}


def test_devices_send_integers_within_their_bounds(coded):
    world, checked = coded(**SETTINGS), set()

    def look(clients, call, message, updates):
        for name, values in updates.materialise(torch.arange(len(updates))).items():
            assert values.dtype == torch.int64
            assert int(values.abs().max()) <= call.schema[name].bound
            checked.add(name)

    world.simulation.observers.append(look)
    world.train(2)
    names = {"field", "coupling", "clients", "totals", "products", "loss", "inertia", "items", "pull"}
    assert checked == names


@pytest.mark.parametrize("bits", [4, 30, 44, 55])
@pytest.mark.parametrize("seed", range(3))
def test_balance_is_x_of_the_slides_in_whole_numbers(seed, bits):
    rng = np.random.default_rng(seed)
    codes = rng.choice(np.array([-1, 1], np.int8), (60, 6))
    codes[:, 5] = codes[:, 4]  # a null direction
    grid = IntegerGrid.from_parameters(9, 6, w=1, s=0, lam=1, c=np.ones(9), gammas=(0.0, 0.0, 0.0), bits=bits)
    products = codes.astype(np.int64).T @ codes.astype(np.int64)
    balance = Balance.from_moments(grid, 0.7, codes.sum(0, dtype=np.int64), products, 60)
    found = balance.on(codes)
    centred = codes - codes.mean(0)
    left, lengths, right = np.linalg.svd(centred, full_matrices=False)
    kept = lengths > 1e-6
    x = np.sqrt(60) * left[:, kept] @ right[kept]
    unit = 4 * 36 * 2.0**bits * 0.7
    np.testing.assert_allclose(found, unit * x, atol=4 + 1e-12 * unit)
    mean = codes.mean(0)
    rows = balanced_rows(codes, mean, inverse_root(mean, products.astype(np.float64)), 60)
    np.testing.assert_allclose(found, unit * rows, atol=4 + 1e-12 * unit)
    exact = [
        [sum(int(c) * int(r) for c, r in zip(code, column, strict=True)) for column in balance.matrix.T]
        for code in codes
    ]
    assert np.array_equal(found, np.array(exact) - balance.centre.astype(np.int64))


def test_item_codes_travel_packed(coded):
    world = coded(d=12, alpha=0.3)
    public = world.server.public()
    assert public.shared["codes"].shape == (200, 2)
    assert np.array_equal(unpack(public.shared["codes"].numpy(), 12), world.server.items)
    assert set(public.shared) == {"codes", "balance", "centre"}
    assert set(coded("dcf").server.public().shared) == {"codes"}


def test_dfmr_is_registered_with_its_relatives():
    for name in ("dfmr", "dcf", "lightfr"):
        registered = method(name)
        assert registered.name == name
        assert registered.traits.public_target
        assert registered.traits.release == "total"
