"""HeteFedRec told naively: one client at a time, whole tables in float64, autograd, torch's own optimisers.

The oracle shares nothing with the trainers but the initial parameters and the drawn samples. It writes the loss as the
paper does (eq. 11 and 14), the star graph as a matrix, and the aggregation as zero-padded sums (eq. 7-9, 15).
"""

import numpy as np
import pytest
import torch
from torch import nn

from privfed.methods.hetefedrec.published import AS_PUBLISHED

SMALL = {"widths": (4, 8, 12), "hidden": (8, 4), "steps": 3, "lr_items": 0.02, "lr_heads": 0.01, "lr_user": 0.03,
         "lr_bias": 0.02}  # fmt: skip
NAMES = ("small", "medium", "large")


@pytest.fixture
def world(world):
    """Worlds with the published settings, where a test does not say otherwise."""
    published = AS_PUBLISHED.settings
    return lambda name, **settings: world(name, **(published | settings if name == "hetefedrec" else settings))


def variable(value):
    return value.detach().clone().double().requires_grad_()


class Naive:
    """Server and all clients of the nested variants."""

    def __init__(self, world):
        self.world, self.config = world, world.clients.config
        self.public = {name: value.double() for name, value in world.server.public().shared.items()}
        self.users = world.clients.state()["user"].double()
        self.group = naive_groups(self.config, world.data.positives.counts)

    def logits(self, p, u, items, width, name):
        h = torch.cat([u[:width].expand(len(items), -1), items[:, :width]], 1)
        last = len(self.config.hidden)
        for j in range(last + 1):
            h = h @ p[f"head.{name}.W{j}"] + p[f"head.{name}.b{j}"]
            if j < last:
                h = torch.relu(h) if self.config.activation == "relu" else nn.functional.leaky_relu(h, 0.01)
        z = h[:, 0]
        return z + items[:, :width] @ u[:width] if self.config.inner else z

    def propagated(self, user, u, table):
        """Layers 0 and 1 of LightGCN on the star, by its normalised adjacency matrix, averaged."""
        if self.config.base == "ncf":
            return u, table
        mine = self.world.data.positives.items_of(user)
        if self.config.propagation == "centre":
            return u + table[mine].sum(0) / max(len(mine), 1) ** 0.5, table
        adjacency = torch.zeros(1 + len(table), 1 + len(table), dtype=torch.float64)
        adjacency[0, 1 + mine] = adjacency[1 + mine, 0] = 1
        degree = adjacency.sum(1).clamp(min=1)
        nodes = torch.cat([u.unsqueeze(0), table])
        nodes = (nodes + (adjacency / (degree.unsqueeze(1) * degree).sqrt()) @ nodes) / 2
        return nodes[0], nodes[1:]

    def trains(self, group):
        return range(group + 1) if self.config.variant == "hetefedrec" and self.config.dual_task else [group]

    def train(self, user, samples):
        c, group = self.config, int(self.group[user])
        name, width = NAMES[group], c.widths[group]
        items = samples.items[samples.owner == 0]
        labels = samples.labels[samples.owner == 0].double()
        u, p = variable(self.users[user, :width]), {}
        keys = [k for k in self.public if k.startswith("head.")] + ["bias"] * c.item_bias
        p = {key: variable(self.public[key]) for key in keys}
        p["items"] = variable(self.public[f"items.{name}"])

        def loss():
            eu, table = self.propagated(user, u, p["items"])
            total = 0.0
            for k in self.trains(group):
                z = self.logits(p, eu, table[items], c.widths[k], NAMES[k])
                if c.base == "lightgcn" and c.propagation == "centre" and c.inner:
                    own = table[items][:, : c.widths[k]].square().sum(1) / labels.sum().sqrt()
                    z = z - labels * own
                if c.item_bias:
                    z = z + p["bias"][items, 0]
                total = total + nn.functional.binary_cross_entropy_with_logits(z, labels)
            total = total + c.user_l2 / 2 * u.square().sum()
            rows = p["items"][items]
            if c.variant == "hetefedrec" and c.decorrelation and group > 0 and len(rows) >= width:
                total = total + c.decorrelation * torch.linalg.matrix_norm(torch.corrcoef(rows.T)) / width
            return total

        kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
        make = kinds[c.local_optimiser]
        mine = kinds[c.user_optimiser]([u], lr=c.lr_user)
        heads = [value for key, value in p.items() if key.startswith("head.")]
        shared = make([{"params": heads, "lr": c.lr_heads}, {"params": [p["items"]], "lr": c.lr_items}]
                      + ([{"params": [p["bias"]], "lr": c.lr_bias}] if c.item_bias else []))  # fmt: skip
        for step in range(c.user_steps + c.steps):
            for parameter in (u, *p.values()):
                parameter.grad = None
            loss().backward()
            mine.step()
            if step >= c.user_steps:
                shared.step()
        start = {**self.public, "items": self.public[f"items.{name}"]}
        change = {key: value.detach() - start[key] for key, value in p.items()}
        eu, table = self.propagated(user, u, p["items"])
        scores = self.logits(p, eu, table, width, name) + (p["bias"][:, 0] if c.item_bias else 0)
        return u.detach(), change, scores.detach()

    def round(self, t, members):
        c, widest = self.config, self.config.widths[-1]
        padded = torch.zeros(self.world.data.n_items, widest, dtype=torch.float64)
        heads = {key: torch.zeros_like(value) for key, value in self.public.items() if not key.startswith("items.")}
        users, scores = {}, {}
        for user in members:
            alone = torch.tensor([user])
            samples = self.world.clients._samples(alone, self.world.streams, t, 0)
            users[user], change, scores[user] = self.train(user, samples)
            rows = change.pop("items")
            padded[:, : rows.shape[1]] += rows
            for key, value in change.items():
                heads[key] += value
        for user, value in users.items():
            self.users[user, : len(value)] = value
        for key, value in heads.items():
            self.public[key] = self.public[key] + value
        for name, width in zip(NAMES[: len(c.widths)], c.widths, strict=True):
            self.public[f"items.{name}"] = self.public[f"items.{name}"] + padded[:, :width]
        return scores

    def received(self, user):
        group = int(self.group[user])
        name, width = NAMES[group], self.config.widths[group]
        u, table = self.propagated(user, self.users[user, :width], self.public[f"items.{name}"])
        z = self.logits(self.public, u, table, width, name)
        return z + self.public["bias"][:, 0] if self.config.item_bias else z


def naive_groups(config, counts):
    edges = np.quantile(counts, np.cumsum(config.shares)[:-1])
    return [sum(count >= edge for edge in edges) for count in counts]


def close(found, wanted, tolerance=2e-5):
    wanted = wanted.numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=tolerance * max(1.0, np.abs(wanted).max()))


def compare(world, rounds=2):
    """Uploads, public and private parameters and both kinds of scores after every round."""
    naive, seen = Naive(world), {}

    def look(clients, call, message, updates):
        scores = clients.score(call.clients, message, updates, None)
        seen.update(zip(call.clients.tolist(), scores, strict=True))

    world.simulation.observers.append(look)
    for t in range(rounds):
        members = world.simulation.members(t).tolist()
        seen.clear()
        world.train(t + 1, first=t)
        scores = naive.round(t, members)
        for user in members:
            close(seen[user], scores[user])
        for key, value in naive.public.items():
            close(world.server.public().shared[key], value)
        close(world.clients.state()["user"], naive.users)
        users = torch.arange(world.data.n_users)
        received = world.clients.score(users, world.server.public(), None, None)
        for user in users.tolist():
            close(received[user], naive.received(user))


VARIANTS = {
    "one group is plain FedNCF": {"widths": (8,), "shares": (1.0,)},
    "all parts": {},
    "no decorrelation": {"decorrelation": 0.0},
    "direct": {"variant": "direct"},
    "own head only, decorrelated": {"dual_task": False},
    "inner product and bias": {"inner": True, "item_bias": True, "activation": "leaky_relu"},
    "one layer": {"hidden": (), "inner": True},
    "user steps": {"user_steps": 2, "inner": True},
    "gathered at the centre": {
        "propagation": "centre",
        "inner": True,
        "item_bias": True,
        "user_steps": 2,
        # Adam would divide by gradients that all but cancel here, which float32 does not carry to five digits.
        "local_optimiser": "sgd",
        "user_optimiser": "sgd",
        "lr_items": 0.5,
        "lr_heads": 0.1,
        "lr_user": 0.5,
    },
    "gathered, no inner product, user penalty": {"propagation": "centre", "user_l2": 0.3, "user_steps": 1},
    "sgd": {
        "local_optimiser": "sgd",
        "user_optimiser": "sgd",
        "lr_items": 0.5,
        "lr_heads": 0.1,
        "lr_user": 0.5,
        "decorrelation": 0.3,
    },
}


@pytest.mark.parametrize("more", VARIANTS)
@pytest.mark.parametrize("base", ["ncf", "lightgcn"])
def test_two_rounds_of_every_part(world, few_users, base, more):
    compare(world("hetefedrec", base=base, parts=few_users, distillation=0, **(SMALL | VARIANTS[more])))


def test_part_of_the_clients_take_part(world):
    plan = "none:sampling.kind=epoch,sampling.size=17"
    compare(world("hetefedrec", plan=plan, distillation=0, **SMALL), rounds=3)
