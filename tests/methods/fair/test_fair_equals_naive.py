"""FAIR's local training and server rule, told naively: one client at a time, dense Adam, dense matrices, in float64.

The oracle writes every subspace as a matrix, keeps a client's whole reduced tables as torch parameters, and takes
torch's own Adam and autograd. It shares the random words with the trainer and nothing else but the subspaces, which
have tests of their own.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from privfed.data import Histories
from privfed.federation import Call, Purpose, Streams, Total
from privfed.methods import ClientData, PublicInfo
from privfed.methods.fair import METHOD
from privfed.methods.fair.subspaces import Columns, LowRankTables
from privfed.methods.fair.tiers import SEEDS_APART

USERS, ITEMS, SEED = 9, 60, 5
CLOSE = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(SEED)
    counts = rng.integers(3, 30, USERS)
    user = np.repeat(np.arange(USERS), counts)
    item = np.concatenate([rng.permutation(ITEMS)[:n] for n in counts])
    histories = Histories.from_pairs(user, item, USERS, ITEMS)
    ratings = rng.integers(1, 6, len(item)).astype(np.float32)
    return ClientData(histories, histories, ratings=ratings)


@dataclass
class Halves:
    config: object
    server: object
    clients: object
    streams: object

    def round(self, users, t=0):
        """Raw updates of one round and the total that the server gets, in float64."""
        message = self.server.public()
        call = Call(t, t, "train", 0, users, self.streams, self.server.schema)
        updates = self.clients.train(call, message)
        sums = {
            name: torch.zeros(b.shape, dtype=torch.float64 if b.kind == "real" else torch.int64)
            for name, b in self.server.schema.items()
        }
        updates.add_to(sums)
        weights = [name for name, b in self.server.schema.items() if b.divides]
        total = Total(sums, float(sums[weights[0]].sum()) if weights else float(len(users)))
        return message, updates, total


def build(data, **settings):
    config = METHOD.config(**({"lr": 0.01, "batch_size": 8, "epochs": 3, "initial_scale": 0.3} | settings))
    streams = Streams.from_seed(SEED)
    server = METHOD.training.server(config, PublicInfo(data.n_users, data.n_items), streams)
    return Halves(config, server, METHOD.training.clients(config, data, streams), streams)


def samples_of(halves, data, user, t):
    """Minibatches (positives' places, negatives) of a user, from its words, in plain integers."""
    c, mine = halves.config, sorted(data.positives.items_of(user).tolist())
    n = len(mine)
    words = halves.streams.words(Purpose.SAMPLES, t, 0, [user], c.epochs * (8 + n))[0].tolist()
    free = [item for item in range(ITEMS) if item not in set(data.excluded.items_of(user).tolist())]
    bits = max(1, (n - 1).bit_length())
    for epoch in range(c.epochs):
        own = words[epoch * (8 + n) : (epoch + 1) * (8 + n)]
        order = list(range(n))
        for place in range(n if c.shuffle else 0):
            x, walking = place, True
            while walking:
                for odd, plus in zip(own[:8:2], own[1:8:2], strict=True):
                    x = (x * ((odd | 1) % 2**bits) + plus) % 2**bits
                    x ^= x >> max(1, bits // 2)
                walking = x >= n
            order[place] = x
        assert sorted(order) == list(range(n))
        negatives = [free[word * len(free) >> 32] for word in own[8:]]
        for first in range(0, n, c.batch_size):
            batch = slice(first, first + c.batch_size)
            yield [mine[place] for place in order[batch]], negatives[batch]


def matrix(subspace):
    """S of a subspace."""
    e = torch.arange(subspace.rows * subspace.width)
    S = torch.zeros(len(e), subspace.size)
    signs = subspace.signs(e)
    S[e, subspace.slots(e)] = torch.ones(len(e)) if signs is None else signs.double()
    return S


class Hashed:
    """A table that is S psi."""

    def __init__(self, halves, level, name, table):
        self.S, self.shape = matrix(halves.server.tiers.subspaces[level][name]), table.shape
        counts = self.S.abs().sum(0)
        offset = halves.config.reduce_offset if level else 0.0
        psi = torch.where(counts > 0, self.S.T @ table.flatten() / (counts + offset).clamp(min=1e-300), 0.0)
        self.parameters = [psi.requires_grad_()]

    def table(self):
        return (self.S @ self.parameters[0]).view(self.shape)


class Factored:
    """A table that is B C."""

    def __init__(self, halves, level, name, table):
        compressed = LowRankTables.compressed(*table.shape, 2**level, halves.config.rank)
        self.parameters = [factor.requires_grad_() for factor in compressed.reduce(table)]

    def table(self):
        return self.parameters[0] @ self.parameters[1]


class Cut:
    """A table's first columns beside zeros."""

    def __init__(self, halves, level, name, table):
        self.columns = Columns.compressed(*table.shape, 2**level)
        self.parameters = [self.columns.reduce(table).requires_grad_()]

    def table(self):
        missing = self.columns.width - self.columns.kept
        return torch.cat([self.parameters[0], torch.zeros(len(self.parameters[0]), missing)], 1)


def kept(halves, level, name, table):
    kind = {"fedhm": Factored if level else Hashed, "heterofl": Cut}.get(halves.config.variant, Hashed)
    return kind(halves, level, name, table)


def forward(model, user, layers, tables, items):
    x = torch.cat([user["mlp"].expand(len(items), -1), tables["mlp"][items]], 1)
    for j in range(len(model.hidden)):
        x = torch.relu(x @ layers[f"mlp.W{j}"] + layers[f"mlp.b{j}"])
    if model.gmf:
        x = torch.cat([user["gmf"] * tables["gmf"][items], x], 1)
    return x @ layers["predict.w"] + (layers["predict.b"] if model.bias else 0.0)


@dataclass
class TrainedSlots:
    """One client after training: changes of its whole tables and layers, its rows, and what it started from."""

    level: int
    started: dict
    tables: dict
    layers: dict
    users: dict


def train(halves, data, message, user, t):
    c, model = halves.config, halves.config.model
    level = int(halves.clients.tiering.levels_of(torch.tensor([user])))
    tables = {name: kept(halves, level, name, message.shared[f"items.{name}"]) for name in model.tables}
    started = {name: table.table().detach() for name, table in tables.items()}
    layers = {name: message.shared[name].clone().requires_grad_() for name in model.shapes()}
    rows = {name: halves.clients.state()[f"user.{name}"][user].requires_grad_() for name in model.tables}
    moved = [p for table in tables.values() for p in table.parameters]
    optimiser = torch.optim.Adam([*moved, *layers.values(), *rows.values()], lr=c.lr)
    ratings = dict(
        zip(data.positives.items_of(user).tolist(), data.ratings[data.positives.owners == user], strict=True)
    )
    for positives, negatives in samples_of(halves, data, user, t):
        now = {name: table.table() for name, table in tables.items()}
        score = forward(model, rows, layers, now, positives)
        if c.task == "ranking":
            loss = nn.functional.softplus(forward(model, rows, layers, now, negatives) - score).mean()
        else:
            target = torch.tensor([float(ratings[item]) for item in positives])
            loss = (score + c.rating_offset - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return TrainedSlots(
        level,
        started,
        {name: table.table().detach() - started[name] for name, table in tables.items()},
        {name: value.detach() - message.shared[name] for name, value in layers.items()},
        {name: value.detach() for name, value in rows.items()},
    )


VARIANTS = {
    "fair": {"scheme": "1x-2x-4x"},
    "deep": {"scheme": "1x-2x-4x", "hidden": (6, 4, 3), "dim": 4},
    "as released": {"scheme": "1x-4x", "subspace": "signed", "reduce_offset": 1e-3, "shuffle": False},
    "roast": {"scheme": "2x-8x", "subspace": "roast"},
    "one size": {"variant": "hom", "scheme": "1x-8x"},
    "whole": {"variant": "fedavg"},
    "low rank": {"variant": "fedhm", "scheme": "1x-2x-8x"},
    "low rank as released": {"variant": "fedhm", "scheme": "2x", "rank": "released"},
    "columns": {"variant": "heterofl", "scheme": "1x-2x-4x"},
    "ratings": {"task": "rating", "scheme": "1x-4x", "rating_offset": 3.0},
    "ratings, low rank": {"task": "rating", "variant": "fedhm", "scheme": "1x-4x", "hidden": (5, 3)},
    "one batch": {"batch_size": 512, "epochs": 1},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_client_trains_as_dense_adam_does(data, name):
    halves = build(data, **VARIANTS[name])
    users = torch.arange(USERS)
    message, updates, _ = halves.round(users)
    staged = halves.clients.private.staged(users)
    parts = {part.block: part for part in updates.parts}
    for user in range(USERS):
        wanted = train(halves, data, message, user, 0)
        one = torch.full((USERS,), -1)
        one[user] = 0
        for table, change in wanted.tables.items():
            found = torch.empty(1, ITEMS, halves.config.dim)
            parts[f"items.{table}"].write(one, found)
            torch.testing.assert_close(found[0], change, **CLOSE)
            assert change.abs().max() > 1e-3
        for layer, change in wanted.layers.items():
            torch.testing.assert_close(parts[layer].values[user], change, **CLOSE)
        for table, row in wanted.users.items():
            torch.testing.assert_close(staged[f"user.{table}"][user], row, **CLOSE)


def test_full_capacity_is_federated_averaging(data):
    """Three rounds of one-size FAIR at level 0 are FedAvg of parameters, told naively."""
    halves = build(data, scheme="1x", shares="realised")
    users = torch.arange(USERS)
    for t in range(3):
        message, _, total = halves.round(users, t)
        clients = [train(halves, data, message, user, t) for user in range(USERS)]
        halves.server._apply(total, None)
        halves.clients.commit()
        for name in halves.config.model.tables:
            mean = sum(message.shared[f"items.{name}"] + client.tables[name] for client in clients) / USERS
            torch.testing.assert_close(halves.server.parameters[f"items.{name}"], mean, **CLOSE)
        for name in halves.config.model.shapes():
            mean = sum(message.shared[name] + client.layers[name] for client in clients) / USERS
            torch.testing.assert_close(halves.server.parameters[name], mean, **CLOSE)


AVERAGED = {
    "fair": {"scheme": "1x-2x-4x"},
    "as released": {"scheme": "1x-4x", "subspace": "signed", "reduce_offset": 1e-3},
    "low rank": {"variant": "fedhm", "scheme": "1x-2x-8x"},
}


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("name", AVERAGED)
def test_deltas_and_a_full_proximal_term_average_parameters(data, name, weights):
    """The published rule: sum_i w_i of each client's own table, recovered; and with no pull, deltas alone."""
    halves = build(data, weights=weights, shares="realised", **AVERAGED[name])
    message, _, total = halves.round(torch.arange(USERS))
    n = data.positives.counts if weights == "samples" else np.ones(USERS)
    clients = [train(halves, data, message, user, 0) for user in range(USERS)]
    halves.server._apply(total, None)
    for table in halves.config.model.tables:
        wanted = sum(w * (c.started[table] + c.tables[table]) for w, c in zip(n / n.sum(), clients, strict=True))
        torch.testing.assert_close(halves.server.parameters[f"items.{table}"], wanted, **CLOSE)
    for layer in halves.config.model.shapes():
        wanted = sum(w * c.layers[layer] for w, c in zip(n / n.sum(), clients, strict=True)) + message.shared[layer]
        torch.testing.assert_close(halves.server.parameters[layer], wanted, **CLOSE)
    kept_all = build(data, weights=weights, shares="realised", proximal=0.0, **AVERAGED[name])
    message, _, total = kept_all.round(torch.arange(USERS))
    kept_all.server._apply(total, None)
    for table in halves.config.model.tables:
        wanted = sum(w * c.tables[table] for w, c in zip(n / n.sum(), clients, strict=True))
        found = kept_all.server.parameters[f"items.{table}"] - message.shared[f"items.{table}"]
        torch.testing.assert_close(found, wanted, **CLOSE)


@pytest.mark.parametrize("hashes", [3, USERS])
def test_devices_of_a_hash_function_train_as_if_everybody_had_it(data, hashes):
    """Inconsistent subspaces, and the server's mean of what devices hold."""
    settings = {"scheme": "1x-2x-4x", "assigned": "pseudonym", "shares": "realised", "scoring": "device"}
    users = torch.arange(USERS)
    mixed = build(data, hashes=hashes, **settings)
    message, updates, total = mixed.round(users)
    found = updates.materialise(users)
    everything = mixed.clients.score(users, message, updates, None)
    received = mixed.clients.score(users, message, None, None)
    wanted = {name: torch.zeros_like(message.shared[f"items.{name}"]) for name in mixed.config.model.tables}
    for hash in range(hashes):
        seeds = {"mlp_seed": 2023 + hash * SEEDS_APART, "gmf_seed": 6070 + hash * SEEDS_APART}
        alone = build(data, **seeds, **settings)
        _, reference, _ = alone.round(users)
        mine = users[users % hashes == hash]
        for name, values in reference.materialise(users).items():
            assert torch.equal(found[name][mine], values[mine]), name
        # Scores of whoever is together come from one product, whose rounding depends on how many they are.
        for found_scores, by in ((everything, reference), (received, None)):
            torch.testing.assert_close(found_scores[mine], alone.clients.score(users, message, by, None)[mine], **CLOSE)
        for user in mine.tolist():
            spaces = alone.clients.tiering.spaces[int(alone.clients.tiering.of_user[user])]
            for name, table in wanted.items():
                table.add_(spaces[name].project(message.shared[f"items.{name}"]), alpha=1 / USERS)
    mixed.server._apply(total, None)
    for name, table in wanted.items():
        # What devices started from, on average, and what they changed.
        mean = table + total.sums[f"items.{name}"] / USERS
        torch.testing.assert_close(mixed.server.parameters[f"items.{name}"], mean, **CLOSE)
    consistent = build(data, **settings).round(users)[1].materialise(users)
    assert not torch.equal(found["items.mlp"][4], consistent["items.mlp"][4])


def test_inconsistent_subspaces_add_up_in_one_table_only():
    with pytest.raises(ValueError, match="hashes = 2"):
        METHOD.config(hashes=2, placement="tier")
    with pytest.raises(ValueError, match="hashes = 2"):
        METHOD.config(hashes=2, variant="fedhm")


def test_heterofl_averages_over_holders(data):
    halves = build(data, variant="heterofl", scheme="1x-2x-4x", shares="realised")
    message, _, total = halves.round(torch.arange(USERS))
    clients = [train(halves, data, message, user, 0) for user in range(USERS)]
    halves.server._apply(total, None)
    columns = {client.level: 8 >> client.level for client in clients}

    def mean(changes, holds):
        holders = sum(holds)
        return torch.where(holders > 0, sum(change * hold for change, hold in zip(changes, holds, strict=True))
                           / holders.clamp(min=1), 0)  # fmt: skip

    column = torch.arange(8)
    held = [(column < columns[client.level]).double() for client in clients]
    for table in ("mlp", "gmf"):
        found = halves.server.parameters[f"items.{table}"] - message.shared[f"items.{table}"]
        torch.testing.assert_close(found, mean([client.tables[table] for client in clients], held), **CLOSE)
    rows = [torch.cat([torch.ones(8), hold]).unsqueeze(1) for hold in held]
    found = halves.server.parameters["mlp.W0"] - message.shared["mlp.W0"]
    torch.testing.assert_close(found, mean([client.layers["mlp.W0"] for client in clients], rows), **CLOSE)
    features = [torch.cat([hold, torch.ones(8)]) for hold in held]
    found = halves.server.parameters["predict.w"] - message.shared["predict.w"]
    torch.testing.assert_close(found, mean([client.layers["predict.w"] for client in clients], features), **CLOSE)
    assert min(columns.values()) == 2


def test_full_trn_averages_over_those_who_train(data):
    halves = build(data, variant="full_trn", scheme="1x-4x", shares="realised")
    message, _, total = halves.round(torch.arange(USERS))
    clients = [train(halves, data, message, user, 0) for user in range(USERS)]
    whole = [client for client in clients if client.level == 0]
    halves.server._apply(total, None)
    assert 0 < len(whole) < USERS
    for table in ("mlp", "gmf"):
        wanted = sum(client.tables[table] for client in whole) / len(whole)
        found = halves.server.parameters[f"items.{table}"] - message.shared[f"items.{table}"]
        torch.testing.assert_close(found, wanted, **CLOSE)
