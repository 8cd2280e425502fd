"""FedRAP equals its paper told naively (autograd, one client at a time), and refuses what memory would not hold."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from privfed.federation import Call
from privfed.methods import method
from privfed.methods.fedrap import PersonalTablesError
from privfed.methods.shared.local_training import draw_samples

SETTINGS = {
    "dim": 4, "negatives": 2, "batch_size": 8, "epochs": 2, "lr": 0.5, "common_lr_factor": 0.05, "personal_lr": 2.0,
    "distance": 0.05, "sparsity": 0.3, "epoch_decay": 0.9, "round_decay": 0.8,
}  # fmt: skip


def naive_client(config, t, own, common, samples):
    """New private tensors and the client's copy of the common table, with whole tables under autograd."""
    names = ("w", "b", "personal")
    values = [own[name].double().requires_grad_() for name in names] + [common.clone().requires_grad_()]
    w, b, personal, shared = values
    grown = math.tanh(t / config.ramp_rounds) if config.schedule == "tanh" else 1.0
    for epoch in range(config.epochs):
        decayed = config.round_decay**t * config.epoch_decay**epoch
        rates = [config.lr, config.lr, config.personal_lr, config.common_lr_factor * len(common)]
        rates = [decayed * rate for rate in rates]
        optimiser = torch.optim.SGD([{"params": [v], "lr": lr} for v, lr in zip(values, rates, strict=True)])
        for batch in torch.arange(len(samples.items)).split(config.batch_size):
            ids, labels = samples.items[batch], samples.labels[batch].double()
            logits = (personal[ids] + shared[ids]) @ w + b
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            loss = loss - grown * config.distance * nn.functional.mse_loss(personal[ids], shared[ids])
            loss = loss + grown * config.sparsity * shared[ids].abs().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return {name: value.detach() for name, value in zip(names, values[:3], strict=True)}, shared.detach()


def private(w):
    """Committed private tensors, `[users, ...]` each."""
    return {name: value.view(w.data.n_users, -1, 4) if name == "personal" else value
            for name, value in w.clients.state().items()}  # fmt: skip


@pytest.mark.parametrize("schedule", ["tanh", "constant"])
def test_rounds_equal_a_loop_over_clients(world, few_users, schedule):
    w = world("fedrap", parts=few_users, chunk=5, schedule=schedule, **SETTINGS)
    seen = {}

    def look(clients, call, message, updates):
        scores = clients.score(call.clients, message, updates, None)
        seen.update(zip(call.clients.tolist(), scores, strict=True))

    w.simulation.observers.append(look)
    common = w.server.public().shared["items"].double()
    owned = [{name: value[user] for name, value in private(w).items()} for user in range(w.data.n_users)]
    for t in range(2):
        w.train(t + 1, first=t)
        after = []
        for user, own in enumerate(owned):
            call = Call(t, t, "train", 0, torch.tensor([user]), w.streams, {})
            owned[user], table = naive_client(w.clients.config, t, own, common, draw_samples(w.clients.sampler, call))
            after.append(table)
            expected = (owned[user]["personal"] + table) @ owned[user]["w"] + owned[user]["b"]
            torch.testing.assert_close(seen[user].double(), expected, rtol=1e-4, atol=1e-4)
            for name, value in owned[user].items():
                torch.testing.assert_close(private(w)[name][user].double(), value, rtol=1e-4, atol=1e-4)
        common = torch.stack(after).mean(0)
        torch.testing.assert_close(w.server.items.double(), common, rtol=1e-4, atol=1e-4)


def test_rows_that_nobody_sampled_stay_as_they_were(world, few_users):
    w = world("fedrap", parts=few_users, **SETTINGS)
    before = private(w)["personal"]
    w.train(1)
    moved = (private(w)["personal"] != before).any(2)
    positives = torch.from_numpy(few_users.train.mask(np.arange(w.data.n_users)))
    assert moved[positives].all()
    assert not moved.all()


def test_tables_beyond_the_bound_are_refused_before_anything_is_made(world, few_users):
    sentence = r"18 users, 70 items and dim 32 need 0.00015 GiB, more than personal_memory_gib = 1e-09: raise"
    with pytest.raises(PersonalTablesError, match=sentence):
        world("fedrap", parts=few_users, personal_memory_gib=1e-9)


def test_settings_of_the_released_code_are_the_preset():
    presets = method("fedrap").presets
    assert presets["published"].settings["schedule"] == "tanh"
    assert presets["released"].settings["schedule"] == "constant"
    assert presets["released"].settings["sparsity"] == 1e-3
