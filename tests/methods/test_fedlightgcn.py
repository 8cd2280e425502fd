"""Federated LightGCN is its paper told naively: one client at a time, the whole graph, autograd, plain SGD."""

import pytest
import torch
from torch import nn

from privfed.federation import Call
from privfed.methods import method
from privfed.methods.shared.local_training import draw_samples
from privfed.testing import check_method

SETTINGS = {"dim": 5, "batch_size": 16, "negatives": 3, "lr": 0.05, "user_lr_factor": 3.0, "item_lr_factor": 0.5}


def logits(form, user, items, mine, ids):
    """The graph written out: normalised adjacency of a star, layers 0 and 1."""
    a = torch.zeros(len(items), dtype=torch.float64)
    a[mine] = len(mine) ** -0.5
    if form == "star":
        layer = torch.cat([user.unsqueeze(0), items])
        adjacency = torch.zeros(len(layer), len(layer), dtype=torch.float64)
        adjacency[0, 1:] = adjacency[1:, 0] = a
        mean = (layer + adjacency @ layer) / 2
        return mean[1:][ids] @ mean[0]
    return items[ids] @ (user + a @ items) - (a * items.square().sum(1))[ids]


@pytest.mark.parametrize("form", ["star", "centre"])
def test_one_round_of_a_naive_loop(world, form):
    w = world("fedlightgcn", propagation=form, **SETTINGS)
    c, users = w.clients.config, torch.arange(w.data.n_users)
    call = Call(0, 0, "train", 0, users, w.streams, w.server.schema)
    samples, before = draw_samples(w.clients.sampler, call), w.server.items.double()
    message, total, scores = w.server.public(), torch.zeros_like(before), []
    updates = w.clients.train(call, message)
    found = w.clients.score(users, message, updates, None)
    vectors = w.clients.state()["user"].double()
    for user in users.tolist():
        own = vectors[user].clone().requires_grad_()
        items = before.clone().requires_grad_()
        mine = torch.from_numpy(w.data.positives.items_of(user))
        lr_items = c.lr * c.item_lr_factor * w.data.n_items
        optimiser = torch.optim.SGD([{"params": [own], "lr": c.lr * c.user_lr_factor},
                                     {"params": [items], "lr": lr_items}])  # fmt: skip
        for batch in (samples.owner == user).nonzero()[:, 0].split(c.batch_size):
            z = logits(form, own, items, mine, samples.items[batch])
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(z, samples.labels[batch].double()).backward()
            optimiser.step()
        total += items.detach() - before
        scores.append(logits(form, own, items, mine, torch.arange(w.data.n_items)).detach())
    torch.testing.assert_close(updates.stacked("items").sum(0).double(), total, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.double(), torch.stack(scores), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 7])
def test_company_decides_no_bit(world, chunk):
    one, other = (world("fedlightgcn", chunk=size, **SETTINGS).train(2) for size in (None, chunk))
    assert one.clients.state()["user"].equal(other.clients.state()["user"])


def test_as_published_it_keeps_the_contract():
    check_method(method("fedlightgcn"), **method("fedlightgcn").presets["published"].settings)
