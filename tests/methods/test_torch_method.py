"""Any torch module trained federated: equal to the module trained client by client, and refused where it must be."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field
from torch import nn

from privfed.data import Histories
from privfed.engines.transcript import Transcript
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import PUBLIC, Call, Federation, Purpose, Streams
from privfed.methods import ClientData, PublicInfo
from privfed.methods.shared.local_training import draw_samples
from privfed.methods.shared.samples import NegativeSampler
from privfed.methods.torch_method import TorchConfig, TorchMethodError, client, torch_method
from privfed.methods.torch_method.batched import client_tiles
from privfed.methods.torch_method.spec import belongs
from privfed.methods.torch_method.stacked import StackedModule
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import Dense, Rows


class Settings(TorchConfig):
    """Small and mild: float32 and float64 stay together."""

    dim: int = Field(6, ge=1)
    batch_size: int = 16
    negatives: int = 3


class Dot(nn.Module):
    """FedMF as a module."""

    def __init__(self, n_items, dim, scale=0.1):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.w = nn.Parameter(torch.randn(dim) * scale)
        nn.init.normal_(self.items.weight, std=scale)

    def forward(self, items):
        return self.items(items) @ self.w


class Rich(nn.Module):
    """Every kind of tensor at once, read by row: two tables, one number per item, a perceptron, a scalar, constants."""

    def __init__(self, n_items, dim):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.context = nn.Parameter(0.3 * torch.randn(n_items, 2))
        self.bias = nn.Parameter(0.1 * torch.randn(n_items))
        self.body = nn.Sequential(nn.Linear(2 * dim + 5, 7), nn.GELU(), nn.LayerNorm(7), nn.Linear(7, 1))
        self.offset = nn.Parameter(torch.zeros(()))
        self.user = nn.Parameter(torch.randn(dim))
        self.register_buffer("features", torch.randn(n_items, 2))
        self.register_buffer("tone", torch.randn(1))
        self.frozen = nn.Parameter(torch.randn(n_items, 1), requires_grad=False)

    def forward(self, items):
        q, extra = self.items(items), self.features[items] + self.context[items]
        x = torch.cat([q, self.user.expand_as(q), extra, self.tone * extra, self.frozen[items]], 1)
        return self.body(x)[:, 0] + self.bias[items] + self.offset


class Whole(nn.Module):
    """Looks at its whole table for every item, so that it cannot be cut into rows."""

    def __init__(self, n_items, dim):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.user = nn.Linear(dim, dim)

    def forward(self, items):
        table = self.items.weight
        return (self.user(table - table.mean(0)) @ table.mean(0).sin() + table.sum(1).tanh())[items]


MODULES = {
    "dot": (Dot, ("w",), {"items": 3.0, "w": 0.7}),
    "rich": (Rich, ("user", "body.0"), {"items": 5.0, "body.3.bias": 0.5, "body": 0.3, "bias": 2.0}),
    "whole": (Whole, ("user.weight",), {"items": 0.8}),
    "nothing private": (Dot, (), {}),
}
BY_ROW = {"dot": True, "rich": True, "whole": False, "nothing private": True}


def build(kind="dot", *, dtype=torch.float32, **more):
    make, private, rates = MODULES[kind]
    return torch_method(**{
        "name": "mine", "title": "a test", "source": "nobody", "config": Settings,
        "module": lambda config, n_items: make(n_items, config.dim).to(dtype),
        "private": private, "learning_rates": lambda config, n_items: rates,
        "item_block": "items.weight" if kind == "rich" else None,
    } | more)  # fmt: skip


@pytest.fixture
def mine(monkeypatch, world):
    """Build a world around a module: `mine("rich", dtype=torch.float64, plan=..., chunk=7, ...)`."""
    from privfed.methods import method as registered

    def make(kind="dot", *, made=None, dtype=torch.float32, **settings):
        found = made or build(kind, dtype=dtype)
        module = sys.modules["privfed.methods.registry"]
        monkeypatch.setattr(module, "entry_points", lambda group: [Entry(found)])
        assert registered("mine") is found
        return world("mine", **settings)

    return make


class Entry:
    """An entry point in memory."""

    name = "mine"

    def __init__(self, found):
        self.load = lambda: found


# The same, one client at a time


def naive_client(w, kind, dtype, user, start):
    """Local SGD of one client with an ordinary module and torch's own optimiser; returns the trained module."""
    make, _, rates = MODULES[kind]
    config = w.clients.config
    module = make(70, config.dim).to(dtype)
    module.load_state_dict(start)
    groups = [
        {
            "params": [p],
            "lr": rates[max(own, key=len)] if (own := [r for r in rates if belongs(name, r)]) else config.lr,
        }
        for name, p in module.named_parameters()
        if p.requires_grad
    ]
    optimiser = torch.optim.SGD(groups)
    sampler = NegativeSampler(w.data.positives, w.data.excluded, config.negatives)
    samples = draw_samples(sampler, Call(0, 0, "train", 0, torch.tensor([user]), w.streams, {}))
    for _ in range(config.epochs):
        for batch in torch.arange(len(samples.items)).split(config.batch_size):
            optimiser.zero_grad()
            logits = module(samples.items[batch])
            nn.functional.binary_cross_entropy_with_logits(logits, samples.labels[batch].to(dtype)).backward()
            optimiser.step()
    return module


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["f64", "f32"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_stacked_training_equals_each_client_alone(mine, few_users, kind, dtype, tolerance, epochs):
    w, seen = mine(kind, dtype=dtype, epochs=epochs, parts=few_users), []
    assert w.clients.module.by_row == BY_ROW[kind]
    shared = w.server.public().shared
    assert {value.dtype for value in shared.values()} == {dtype}
    scores = {}

    def look(halves, call, message, updates):
        seen.extend(
            (user, at, updates, halves.private.staged(call.clients)) for at, user in enumerate(call.clients.tolist())
        )
        scores.update(zip(call.clients.tolist(), halves.score(call.clients, message, updates, None), strict=True))

    start = dict(w.clients.module.module.state_dict())
    public = {name: value.clone() for name, value in shared.items()}
    w.simulation.observers.append(look)
    w.train(1)
    assert len(seen) == 18
    moves = {name: torch.zeros_like(value) for name, value in public.items()}
    for user, at, updates, staged in seen:
        module = naive_client(w, kind, dtype, user, start)
        wanted = {name: value.detach() for name, value in module.named_parameters()}
        found = raw(updates, at)
        assert found.keys() == public.keys()
        for name, value in public.items():
            torch.testing.assert_close(found[name], wanted[name] - value, rtol=0, atol=tolerance)
            moves[name] += (wanted[name] - value) / 18
        for name, values in staged.items():
            torch.testing.assert_close(values[at], wanted[name], rtol=0, atol=tolerance)
        torch.testing.assert_close(scores[user], module(torch.arange(70)).detach().float(), rtol=0, atol=1e-4)
    for name, value in w.server.public().shared.items():
        torch.testing.assert_close(value, public[name] + moves[name], rtol=0, atol=1e-5)


def raw(updates, at):
    """One client's update in its own dtype, part by part."""
    found = {}
    for part in updates.parts:
        mine = part.owner == at
        if isinstance(part, Rows):
            found[part.block] = part.values.new_zeros(updates.schema[part.block].shape)
            found[part.block][part.ids[mine]] = part.values[mine]
        else:
            assert isinstance(part, Dense)
            (found[part.block],) = part.values[mine]
    return found


def test_fedmf_written_as_a_module_is_fedmf(mine, world):
    """The same samples, learning rates and start give the same uploads; only the initial draw differs."""
    rates = {"user_lr_factor": 5.0, "item_lr_factor": 0.5}
    native = world("fedmf", dim=6, batch_size=16, negatives=3, **rates)
    made = build(learning_rates=lambda c, n: {"w": c.lr * 5.0, "items": c.lr * 0.5 * n}, per_user_start=True)
    w = mine(made=made)
    for half, theirs in (("server", "items.weight"), ("clients", "w")):
        ours = getattr(native, half).state()["items" if half == "server" else "w"]
        start = getattr(w, half).state()[theirs]
        assert ours.shape == start.shape
        assert float(start.std()) == pytest.approx(float(ours.std()), rel=0.15)
        assert abs(float(start.mean())) < 0.02
        getattr(w, half).load(getattr(w, half).state() | {theirs: ours})
    native.train(3)
    w.train(3)
    torch.testing.assert_close(w.server.parameters["items.weight"], native.server.items, rtol=0, atol=1e-5)
    torch.testing.assert_close(w.clients.state()["w"], native.clients.state()["w"], rtol=0, atol=1e-5)
    everybody = torch.arange(45)
    for one, other in ((None, None), (torch.randint(70, (45, 9), generator=torch.Generator().manual_seed(1)),) * 2):
        found = w.clients.score(everybody, w.server.public(), None, one)
        wanted = native.clients.score(everybody, native.server.public(), None, other)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


# Chunks, start, state


SAMPLED = "none:sampling.kind=poisson,sampling.rate=0.4"


@pytest.mark.parametrize(("kind", "plan"), [("dot", "none"), ("rich", "none"), ("rich", SAMPLED), ("whole", SAMPLED)])
def test_uploads_and_private_state_are_bit_equal_for_any_chunk(mine, few_users, kind, plan):
    """Over two rounds; the server stands still, because its float sums are close, not equal."""
    runs = []
    for chunk in (None, 1, 7, 16):
        tapped = Transcript(torch.arange(45), frozenset({"raw"}))
        parts = None if plan == SAMPLED else few_users
        w = mine(kind, chunk=chunk, transcript=tapped, epochs=2, plan=plan, parts=parts)
        w.server.optimiser.lr = 0.0
        w.train(2)
        uploads = {name: torch.cat([o.tensors[name] for o in tapped.joined("raw")]) for name in w.server.schema}
        runs.append((uploads, w.clients.state()))
    for found in runs[1:]:
        for one, other in zip(found, runs[0], strict=True):
            assert one.keys() == other.keys()
            assert all(one[name].equal(other[name]) for name in one)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_client_has_its_own_lane_and_large_clients_come_first(data):
    users = torch.tensor(sorted(data.draw(st.sets(st.integers(0, 99), min_size=1, max_size=40))))
    counts = torch.tensor(data.draw(st.lists(st.integers(0, 9), min_size=len(users), max_size=len(users))))
    period = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    tiles, alike = client_tiles(users, counts, period), 16 // period
    held = tiles[tiles >= 0]
    assert held.sort().values.equal(torch.arange(len(users)))
    assert (users[held] % period).equal((tiles >= 0).nonzero()[:, 1] % period)
    for lane in range(period):
        places = tiles[:, lane::period].flatten()
        sizes = counts[places[places >= 0]]
        assert (sizes[1:] <= sizes[:-1]).all()
        assert (places[len(sizes) :] == -1).all()
    assert len(tiles) == -(-max(torch.bincount(users % period)) // alike)


def test_initial_values_are_reproducible_and_leave_the_global_generator_alone(mine):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = mine("rich")
    assert torch.get_rng_state().equal(before)
    one.train(1)
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(2)
    again, other = mine("rich"), mine("rich", seed=4)
    first = Streams.from_seed(3).words(Purpose.INITIALISE, 0, 0, [PUBLIC], 2)[0].tolist()
    torch.manual_seed(first[0] << 32 | first[1])
    wanted = dict(Rich(70, 6).named_parameters())
    for name, value in again.server.parameters.items():
        assert value.equal(wanted[name])
        assert value.equal(mine("rich").server.parameters[name])
    assert not other.server.parameters["context"].equal(again.server.parameters["context"])


def test_private_parameters_start_in_public_or_from_each_users_own_key(mine, few_users):
    public = mine().clients.state()["w"]
    assert public.shape == (45, 6)
    assert (public == public[0]).all()
    made = build(per_user_start=True)
    own = mine(made=made).clients.state()["w"]
    assert len({tuple(row.tolist()) for row in own}) == 45
    assert mine(made=made, parts=few_users).clients.state()["w"].equal(own[:18])
    assert not mine(made=made, seed=4).clients.state()["w"].equal(own)


@pytest.mark.parametrize("kind", MODULES)
def test_private_parameters_are_nowhere_on_the_wire(mine, kind):
    tapped = Transcript(torch.arange(45), frozenset({"raw", "wire", "sum", "model"}))
    w = mine(kind, transcript=tapped).train(1)
    private, shared = set(w.clients.state()), set(w.server.schema)
    declared = MODULES[kind][1]
    assert private | shared == {n for n, p in w.clients.module.module.named_parameters() if p.requires_grad}
    assert private == {name for name in private | shared if any(belongs(name, own) for own in declared)}
    assert not private & shared
    assert set(w.server.public().shared) == shared
    for tap in ("raw", "wire", "sum", "model"):
        for seen in tapped.joined(tap):
            assert {name for name in seen.tensors if not name.startswith("@")} == shared


def test_the_server_holds_tensors_and_numbers_only(mine):
    server = mine("rich").train(1).server
    assert set(vars(server)) == {"parameters", "schema", "optimiser"}
    assert all(isinstance(value, torch.Tensor) for value in server.state().values())


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "momentum"])
def test_state_survives_a_save_and_load_into_fresh_halves(mine, optimiser):
    chosen = {"server_optimiser": optimiser, "server_lr": 0.05}
    one, other = mine("rich", **chosen).train(2), mine("rich", **chosen)
    other.server.load({name: value.clone() for name, value in one.server.state().items()})
    other.clients.load(one.clients.state())
    other.simulation.cohorts = one.simulation.cohorts
    one.train(3, first=2)
    other.train(3, first=2)
    for half in ("server", "clients"):
        found, wanted = getattr(other, half).state(), getattr(one, half).state()
        assert found.keys() == wanted.keys()
        assert all(found[name].equal(wanted[name]) for name in wanted)


# Scores


@pytest.mark.parametrize("kind", MODULES)
def test_scores_of_candidates_are_columns_of_the_whole_catalogue_in_pieces_of_any_size(mine, kind, monkeypatch):
    w, checked = mine(kind).train(1), []
    candidates = torch.tensor([[0, 69, 5], [7, 7, 1], [30, 2, 44]])

    def look(halves, call, message, updates):
        whole = halves.score(call.clients, message, updates, None)
        some = candidates[torch.arange(len(call.clients)) % 3]
        torch.testing.assert_close(halves.score(call.clients, message, updates, some), whole.gather(1, some))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "_ITEMS_AT_ONCE", 9)
            torch.testing.assert_close(halves.score(call.clients, message, updates, None), whole)
        checked.append(len(call.clients))

    w.simulation.observers.append(look)
    w.train(2, first=1)
    assert sum(checked) == 45
    users = torch.tensor([2, 3, 11])
    whole = w.clients.score(users, w.server.public(), None, None)
    assert whole.shape == (3, 70)
    some = w.clients.score(users, w.server.public(), None, candidates)
    torch.testing.assert_close(some, whole.gather(1, candidates))


@settings(max_examples=50, deadline=None)
@given(
    items=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    clients_=st.integers(1, 4),
    kind=st.sampled_from(["dot", "rich", "whole"]),
)
def test_stacked_logits_are_those_of_each_module(items, clients_, kind):
    make = MODULES[kind][0]
    modules = [make(13, 3) for _ in range(clients_)]
    first = modules[0]
    for other in modules[1:]:
        other.load_state_dict(other.state_dict() | dict(first.named_buffers()) | {
            name: p for name, p in first.named_parameters() if not p.requires_grad
        })  # fmt: skip
    asked = torch.tensor(items)
    stacked = {
        name: torch.stack([dict(m.named_parameters())[name].detach() for m in modules])
        for name, p in first.named_parameters()
        if p.requires_grad
    }
    wanted = torch.stack([m(asked) for m in modules])
    whole = StackedModule(first, nn.functional.binary_cross_entropy_with_logits, by_row=False, row_constants={})
    every = asked.expand(clients_, -1)
    torch.testing.assert_close(whole.logits(stacked, every), wanted)
    if kind == "whole":
        return
    tables = {"items.weight", "context", "bias", "features", "frozen"}
    constants = {name: getattr(first, name).detach() for name in ("features", "frozen") if kind == "rich"}
    rows = StackedModule(first, nn.functional.binary_cross_entropy_with_logits, by_row=True, row_constants=constants)
    cut = {name: value[:, asked] if name in tables else value for name, value in stacked.items()}
    torch.testing.assert_close(rows.logits(cut, every), wanted)
    y, weight = torch.zeros(every.shape), torch.ones(every.shape, dtype=torch.bool)
    of_rows, of_whole = rows.gradients(cut, every, y, weight), whole.gradients(stacked, every, y, weight)
    for name, value in stacked.items():
        found = of_rows[name]
        if name in tables:
            found = torch.zeros_like(value).index_add_(1, asked, found)
        torch.testing.assert_close(found, of_whole[name])


# What a module must be


class Broken(Dot):
    """A dot product with one thing wrong."""

    def __init__(self, n_items, dim, wrong=lambda self, z, items: z, more=None):
        super().__init__(n_items, dim)
        for name, part in (more() if more else {}).items():
            setattr(self, name, part)
        self.wrong = wrong

    def forward(self, items):
        return self.wrong(self, super().forward(items), items)


def broken(wrong=lambda self, z, items: z, more=None):
    return {"module": lambda config, n_items: Broken(n_items, config.dim, wrong, more)}


def count(self, z, items):
    self.norm.total += 1
    return z


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1))


class Needy(TorchConfig):
    dim: int


REFUSED = {
    "batch norm": (
        broken(lambda s, z, i: s.norm(z.unsqueeze(1))[:, 0], lambda: {"norm": nn.BatchNorm1d(1)}),
        r"changes 'norm.running_mean' \(batch norm\?\).*LayerNorm",
    ),
    "batch norm without memory": (
        broken(
            lambda s, z, i: s.norm(z[:, None])[:, 0],
            lambda: {"norm": nn.BatchNorm1d(1, track_running_stats=False)},
        ),
        "mixes the items of a batch",
    ),
    "softmax over the batch": (broken(lambda s, z, i: z.log_softmax(0)), "mixes the items of a batch"),
    "a buffer that counts": (broken(count, lambda: {"norm": Counter()}), "changes 'norm.total'"),
    "a table that is renormalised": (
        broken(more=lambda: {"items": nn.Embedding(37, 6, max_norm=0.01)}), "changes 'items.weight'"
    ),
    "an embedding with padding": (
        broken(more=lambda: {"items": nn.Embedding(37, 6, padding_idx=3)}),
        "the embedding 'items' has a padding_idx",
    ),
    "dropout": (
        broken(lambda s, z, i: s.drop(z), lambda: {"drop": nn.Dropout(0.5)}),
        r"draws random numbers \(dropout\?\).*leave dropout out",
    ),
    "functional dropout": (broken(lambda s, z, i: nn.functional.dropout(z, 0.1)), "draws random numbers"),
    "a wrong private name": ({"private": ("users",)}, "private names 'users'.*there are w, items.weight"),
    "part of a private name": ({"private": ("item",)}, "private names 'item'"),
    "a frozen private parameter": (
        broken(more=lambda: {"z": nn.Parameter(torch.ones(1), requires_grad=False)}) | {"private": ("z",)},
        "private names 'z'",
    ),
    "logits with an axis too many": (broken(lambda s, z, i: z[:, None]), r"returned the shape \(8, 1\) for 8 items"),
    "one number for all": (broken(lambda s, z, i: z.sum()), r"returned the shape \(\) for 8 items"),
    "not a tensor": (broken(lambda s, z, i: (z, z)), "returned a tuple for 8 items"),
    "labels for logits": (broken(lambda s, z, i: z > 0), "returned the shape"),
    "forward that fails": (broken(lambda s, z, i: s.absent), "forward\\(items\\) failed .*absent"),
    "nothing shared": ({"private": ("w", "items")}, "no trainable parameter is left to share"),
    "nothing trainable": (
        {"module": lambda c, n: Dot(n, c.dim).requires_grad_(False), "private": ()}, "no trainable parameter"
    ),
    "whole numbers": (
        broken(more=lambda: {"n": nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)}),
        r"parameter 'n' is torch.int64; make it torch.float32",
    ),
    "half precision": ({"module": lambda c, n: Dot(n, c.dim).half()}, "is torch.float16; make it torch.float32"),
    "not a module": ({"module": lambda c, n: 3}, "returned a int; return a torch.nn.Module"),
    "a factory that fails": (
        {"module": lambda c, n: Dot(n, c.width)},
        "building its module for 37 items failed: .*width",
    ),
    "another start every time": (
        broken(more=lambda: {"z": nn.Parameter(torch.from_numpy(np.random.default_rng().random(3)))}),
        "'z' starts from other values when the module is built again",
    ),
    "a loss that is one number": (
        {"loss": lambda z, y: ((z - y) ** 2).mean()},
        r"loss.* returned the shape \(\) for 8 samples",
    ),
    "a loss module that is one number": ({"loss": nn.BCEWithLogitsLoss()}, "return one loss per sample"),
    "a loss that mixes": ({"loss": lambda z, y: -z.log_softmax(0) * y}, "loss mixes the samples of a batch"),
    "a loss that fails": ({"loss": lambda z: z}, "loss\\(logits, labels\\) failed"),
    "no table": ({"module": lambda c, n: nn.Sequential(Features(), nn.Linear(2, 1), nn.Flatten(0)), "private": ()},
        r"no shared parameter has the shape \[items, width\]"),
    "two tables": (
        {"module": lambda c, n: Rich(n, c.dim), "private": ("user",)},
        "nothing says which of the item tables context, items.weight attacks look at; name one as item_block",
    ),
    "a block that is no table": ({"item_block": "w"}, "item_block is 'w', but which of the item tables items.weight"),
    "settings without local training": ({"config": PublicInfo}, "config is PublicInfo; extend TorchConfig"),
    "settings without defaults": ({"config": Needy}, "the settings dim need a valid default"),
    "a rate for nothing": ({"learning_rates": lambda c, n: {"user": 1.0}}, "given for 'user', which names none of"),
    "a rate of zero": ({"learning_rates": lambda c, n: {"w": 0.0}}, "rate of 'w' is 0.0; give a positive number"),
}  # fmt: skip


class Features(nn.Module):
    def forward(self, items):
        return torch.stack([items.float().sin(), items.float().cos()], 1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_honestly_is_refused_in_one_sentence(case):
    changes, words = REFUSED[case]
    with pytest.raises(TorchMethodError, match=words) as caught:
        build(**({"learning_rates": None} | changes))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("method 'mine': ")


def test_a_module_that_cannot_be_stacked_is_refused_where_it_would_train(mine):
    made = build(**broken(lambda s, z, i: z if z[0].detach().item() > -1e9 else -z))
    with pytest.raises(TorchMethodError, match=r"torch\.func\.vmap cannot stack its module over clients") as caught:
        mine(made=made)
    assert "\n" not in str(caught.value)


def test_what_only_the_real_catalogue_shows_is_refused_there(mine):
    made = build(**broken(lambda s, z, i: nn.functional.dropout(z, 0.5) if len(s.items.weight) > 50 else z))
    with pytest.raises(TorchMethodError, match="draws random numbers"):
        mine(made=made)


def test_dropout_of_zero_and_layers_in_eval_mode_are_fine(mine):
    more = {"drop": nn.Dropout(0.0), "norm": nn.BatchNorm1d(1).eval()}
    made = build(
        learning_rates=None,
        **broken(
            lambda s, z, i: s.norm(s.drop(z)[:, None])[:, 0],
            lambda: more,
        ),
    )
    assert mine(made=made).train(1).clients.module.by_row


@pytest.mark.parametrize("n_items", [1, 2, 6, 8])
def test_a_catalogue_as_long_as_something_else_is_never_mistaken(n_items):
    """With 6 items the user's vector is as long as the catalogue; nothing may be cut that is not read by item."""
    made = build()
    kept = int(n_items > 1)
    histories = Histories(np.array([0, kept, 2 * kept]), np.zeros(2 * kept, np.int64), n_items)
    streams = Streams.from_seed(0)
    config = Settings(negatives=1)
    halves = made.training.clients(config, ClientData(histories, histories), streams)
    server = made.training.server(config, PublicInfo(2, n_items), streams)
    call = Call(0, 0, "train", 0, torch.arange(2), streams, server.schema)
    updates = halves.train(call, server.public())
    assert updates.finite()
    assert halves.score(call.clients, server.public(), updates, None).shape == (2, n_items)


def test_blocks_for_attacks_are_found():
    rich, dot = build("rich"), build()
    assert (rich.attack_surface.output, rich.attack_surface.bias) == ("items.weight", "bias")
    assert (dot.attack_surface.output, dot.attack_surface.bias) == ("items.weight", None)
    assert (dot.traits.upload, build("whole").traits.upload) == ("rows", "dense")
    assert dot.disclosure.reads == "the sums of updates of items.weight"
    assert build(reads="a sum").disclosure.reads == "a sum"


# Behind plans, through an experiment


@pytest.fixture
def experiment(mine, small_split):
    def make(made=None, plan="none", *, kind="rich", **changes):
        mine(kind, made=made)
        config = ExperimentConfig(
            data="synthetic-tests",
            method={"name": "mine", "dim": 5},
            privacy=PrivacyPlan.parse(plan),
            protocol=Protocol(k=(5,)),
            rounds=4,
            evaluate_every=2,
            checkpoint_every=2,
            taps=TapConfig(places=("raw", "wire"), users=6, rounds=(0, 3)),
        )
        return Experiment(config.model_copy(update=changes), small_split)

    return make


def l1_norms(result, tap):
    """Norms of all tapped uploads, all blocks together."""
    return torch.cat(
        [
            torch.cat([value.flatten().view(len(value), -1) for value in seen.tensors.values()], 1)
            .double()
            .abs()
            .sum(1)
            for seen in result.transcript.joined(tap)
        ]
    )


PLANS = [
    ("rich", "none"),
    ("rich", "clip:clip_norm=0.5"),
    ("rich", "local-laplace:epsilon0=2,clip_norm=0.5"),
    ("whole", "local-laplace:epsilon0=2,clip_norm=0.5"),
    ("whole", SAMPLED),
]


@pytest.mark.parametrize(("kind", "plan"), PLANS)
def test_every_plan_applies_and_a_killed_run_continues_to_the_same_bits(experiment, tmp_path, kind, plan):
    wanted = experiment(kind=kind, plan=plan).run()
    assert l1_norms(wanted, "raw").min() > 0
    fidelity = wanted.transcript.joined("wire")
    if plan.startswith("clip"):
        assert l1_norms(wanted, "wire").max() <= 0.5 * (1 + 1e-6)
        assert wanted.clipped_fraction == 1.0
    if plan.startswith("local"):
        assert wanted.guarantee.epsilon == pytest.approx(8.0, rel=1e-4)
        assert all((value != 0).all() for seen in fidelity for value in seen.tensors.values())
    else:
        assert wanted.guarantee.epsilon == float("inf")

    class KilledError(Exception):
        pass

    def kill(t, evaluated):
        if t == 2:
            raise KilledError

    with pytest.raises(KilledError):
        experiment(kind=kind, plan=plan).run(tmp_path, progress=kill)
    found = experiment(kind=kind, plan=plan).run(tmp_path, resume=True)
    for half in ("server", "clients"):
        one, other = getattr(found, half).state(), getattr(wanted, half).state()
        assert one.keys() == other.keys()
        assert all(one[name].equal(other[name]) for name in one)
    assert found.history == wanted.history
    assert found.guarantee == wanted.guarantee


@pytest.mark.parametrize("plan", ["secure-sum:clip_norm=0.5", "central-gaussian:clip_norm=0.5,noise_multiplier=1"])
def test_plans_that_hide_uploads_apply_too(experiment, plan):
    result = experiment(plan=plan, taps=TapConfig(places=())).run()
    assert all(torch.isfinite(value).all() for value in result.server.state().values())


def test_training_ranks_better_than_the_start(experiment, small_split):
    rates = build(learning_rates=lambda c, n: {"items": 5.0 * n * c.lr, "w": 5.0 * c.lr}, per_user_start=True)
    config = {"rounds": 25, "evaluate_every": 1, "taps": TapConfig(places=()), "protocol": Protocol(k=(10,))}
    history = experiment(rates, **config).run().history
    first, last = (evaluated.results["test"].metric("hr", 10).value for evaluated in (history[0], history[-1]))
    assert last > first


def test_a_federation_is_all_a_server_is_given():
    """The server half asks once per round, for the declared blocks."""
    asked = []

    class Spy(Federation):
        def sample_cohort(self, round):
            return round

        def aggregate(self, step, cohort, message, schema):
            asked.append((step, cohort, set(message.shared), set(schema)))
            from privfed.federation import Total

            return Total({name: torch.ones(block.shape) for name, block in schema.items()}, 4.0)

    server = build().training.server(Settings(), PublicInfo(3, 12), Streams.from_seed(0))
    before = server.parameters["items.weight"].clone()
    server.round(Spy(), 7)
    assert asked == [("train", 7, {"items.weight"}, {"items.weight"})]
    torch.testing.assert_close(server.parameters["items.weight"], before + 0.25)
