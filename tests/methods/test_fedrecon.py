"""FedRecon equals its paper told naively: rebuild the vector on one half, train items on the other."""

import pytest
import torch
from torch import nn

from privfed.federation import Call
from privfed.methods.fedrecon.client import parted
from privfed.methods.shared.local_training import draw_samples

SETTINGS = {
    "dim": 4, "negatives": 2, "batch_size": 8, "recon_epochs": 3, "epochs": 2, "recon_lr": 2.0, "item_lr_factor": 0.2,
}  # fmt: skip


def descend(value, rate, epochs, config, samples, logits):
    """SGD on `value` alone; `logits(value, ids)`."""
    items, labels = samples
    value = value.clone().requires_grad_()
    optimiser = torch.optim.SGD([value], lr=rate)
    for _ in range(epochs):
        for batch in torch.arange(len(items)).split(config.batch_size):
            optimiser.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(logits(value, items[batch]), labels[batch].double())
            loss.backward()
            optimiser.step()
    return value.detach()


def rebuilt(config, table, samples):
    start = torch.zeros(config.dim, dtype=torch.float64)
    return descend(start, config.recon_lr, config.recon_epochs, config, samples, lambda u, ids: table[ids] @ u)


def naive_client(config, table, samples):
    """The client's own copy of the table after training."""
    support = query = (samples.items, samples.labels)
    if config.split:
        middle = -(-len(samples.items) // 2)
        support, query = (tuple(part[s] for part in support) for s in (slice(middle), slice(middle, None)))
    u = rebuilt(config, table, support)
    rate = config.item_lr_factor * len(table)
    if not config.joint:
        return descend(table, rate, config.epochs, config, query, lambda v, ids: v[ids] @ u)
    u, v = u.requires_grad_(), table.clone().requires_grad_()
    optimiser = torch.optim.SGD([{"params": [u], "lr": config.recon_lr}, {"params": [v], "lr": rate}])
    for _ in range(config.epochs):
        for batch in torch.arange(len(query[0])).split(config.batch_size):
            ids, labels = query[0][batch], query[1][batch].double()
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(v[ids] @ u, labels).backward()
            optimiser.step()
    return v.detach()


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("joint", [True, False])
def test_rounds_equal_a_loop_over_clients(world, few_users, split, joint):
    w = world("fedrecon", parts=few_users, chunk=5, split=split, joint=joint, **SETTINGS)
    table = w.server.public().shared["items"].double()
    for t in range(2):
        w.train(t + 1, first=t)
        after = []
        for user in range(w.data.n_users):
            call = Call(t, t, "train", 0, torch.tensor([user]), w.streams, {})
            after.append(naive_client(w.clients.config, table, draw_samples(w.clients.sampler, call)))
        table = torch.stack(after).mean(0)
        torch.testing.assert_close(w.server.items.double(), table, rtol=1e-4, atol=1e-4)


def test_recommending_rebuilds_the_vector_from_all_training_items(world, few_users):
    w = world("fedrecon", parts=few_users, **SETTINGS).train(1)
    table, users = w.server.items.double(), torch.arange(w.data.n_users)
    scores = w.clients.score(users, w.server.public(), None, None)
    for user in users.tolist():
        samples = w.clients.samples_to_recommend(torch.tensor([user]))
        assert set(samples.items[samples.labels == 1].tolist()) == set(few_users.train.items_of(user).tolist())
        expected = table @ rebuilt(w.clients.config, table, (samples.items, samples.labels))
        torch.testing.assert_close(scores[user].double(), expected, rtol=1e-4, atol=1e-4)


def test_clients_keep_nothing_between_rounds(world, few_users):
    assert world("fedrecon", parts=few_users, **SETTINGS).train(1).clients.state() == {}


def test_halves_part_every_clients_samples(world, few_users):
    w = world("fedrecon", parts=few_users, **SETTINGS)
    call = Call(0, 0, "train", 0, torch.arange(w.data.n_users), w.streams, {})
    samples = draw_samples(w.clients.sampler, call)
    support, query = parted(samples)
    assert support.counts.tolist() == [-(-count // 2) for count in samples.counts.tolist()]
    assert (support.counts + query.counts).equal(samples.counts)
    for client in range(w.data.n_users):
        parts = [part.items[part.owner == client] for part in (support, query)]
        assert torch.cat(parts).equal(samples.items[samples.owner == client])
