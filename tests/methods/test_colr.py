"""CoLR equals its paper told naively: clients train the factor A of Q + A B, and B is everybody's."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from privfed.contracts import upload_bytes
from privfed.federation import Call
from privfed.methods import method
from privfed.methods.shared.local_training import draw_samples

SETTINGS = {
    "dim": 6, "rank": 2, "negatives": 2, "batch_size": 8, "epochs": 2, "user_lr_factor": 8.0, "item_lr_factor": 1.0,
}  # fmt: skip


def naive_client(config, message, vector, samples):
    """The user's new vector and its factor A."""
    items, basis = (message.shared[name].double() for name in ("items", "basis"))
    u = vector.double().requires_grad_()
    a = torch.zeros(len(items), config.rank, dtype=torch.float64, requires_grad=True)
    scale = (config.rank / config.dim) ** 0.5
    rates = config.lr * config.user_lr_factor, config.lr * config.item_lr_factor * len(items) * scale
    optimiser = torch.optim.SGD([{"params": [v], "lr": lr} for v, lr in zip((u, a), rates, strict=True)])
    for _ in range(config.epochs):
        for batch in torch.arange(len(samples.items)).split(config.batch_size):
            ids, labels = samples.items[batch], samples.labels[batch].double()
            optimiser.zero_grad()
            logits = (items[ids] + a[ids] @ basis) @ u
            nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
            optimiser.step()
    return u.detach(), a.detach()


def test_rounds_equal_a_loop_over_clients(world, few_users):
    w = world("colr", parts=few_users, chunk=5, **SETTINGS)
    seen = {}

    def look(clients, call, message, updates):
        scores = clients.score(call.clients, message, updates, None)
        seen.update(zip(call.clients.tolist(), scores, strict=True))

    w.simulation.observers.append(look)
    items = w.server.items.double()
    vectors = list(w.clients.state()["w"])
    for t in range(2):
        message = w.server.public()
        w.train(t + 1, first=t)
        factors = []
        for user, vector in enumerate(vectors):
            call = Call(t, t, "train", 0, torch.tensor([user]), w.streams, {})
            vectors[user], a = naive_client(w.clients.config, message, vector, draw_samples(w.clients.sampler, call))
            factors.append(a)
            expected = (items + a @ message.shared["basis"].double()) @ vectors[user]
            torch.testing.assert_close(seen[user].double(), expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(w.clients.state()["w"][user].double(), vectors[user], rtol=1e-4, atol=1e-4)
        items = items + torch.stack(factors).mean(0) @ message.shared["basis"].double()
        torch.testing.assert_close(w.server.items.double(), items, rtol=1e-4, atol=1e-4)


def test_the_basis_has_orthogonal_rows_is_new_every_round_and_follows_from_the_seed(world, few_users):
    w = world("colr", parts=few_users, **SETTINGS)
    first = w.server.public().shared["basis"]
    torch.testing.assert_close(first @ first.T, torch.eye(2) * 6 / 2)
    w.train(1)
    second = w.server.public().shared["basis"]
    assert not torch.allclose(first, second)
    again = world("colr", parts=few_users, **SETTINGS)
    again.server.load(w.server.state())
    assert again.server.public().shared["basis"].equal(second)


def test_an_update_of_the_table_has_the_rank_of_the_basis(world, few_users):
    w = world("colr", parts=few_users, **SETTINGS)
    before = w.server.items
    assert torch.linalg.matrix_rank(w.train(1).server.items - before, tol=1e-4) == 2


def test_a_dense_upload_costs_rank_over_dim_of_fedmfs(world, few_users):
    narrow, whole = world("colr", parts=few_users, **SETTINGS), world("fedmf", parts=few_users, dim=6)
    assert upload_bytes(narrow.server.schema) * 3 == upload_bytes(whole.server.schema)


def test_a_rank_above_the_width_is_refused():
    with pytest.raises(ValidationError, match="rank = 9 is above dim = 8"):
        method("colr").config(dim=8, rank=9)
