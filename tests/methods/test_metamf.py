"""MetaMF is its paper told naively: one loss over all users, differentiated through the whole network at once."""

import pytest
import torch
from torch import nn

from privfed.federation import Call
from privfed.methods import method
from privfed.methods.shared.local_training import draw_samples
from privfed.testing import check_method

SETTINGS = {"dim": 8, "rank": 3, "user_dim": 4, "memory": 6, "hidden": 7, "negatives": 3}


def naive_scores(p, user, n_items):
    """Scores of the catalogue for one user, from the formulas of the paper."""
    c = p["users"][user] @ p["memory"]

    def generated(hidden, name, *shape):
        h = torch.relu(c @ p[f"{hidden}.weight"] + p[f"{hidden}.bias"])
        return (h @ p[f"{name}.weight"] + p[f"{name}.bias"]).reshape(shape)

    items = generated("items", "left", n_items, 3) @ generated("items", "right", 3, 8)
    hidden = torch.relu(items @ generated("layer0", "W0", 8, 2) + generated("layer0", "b0", 2))
    return (hidden @ generated("layer1", "W1", 2, 1) + generated("layer1", "b1", 1))[:, 0]


@pytest.mark.parametrize("clip", [None, 0.01])
def test_one_round_of_a_naive_loop(world, clip):
    w = world("metamf", server_optimiser="sgd", server_lr=0.5, gradient_clip=clip, **SETTINGS)
    n_users, n_items = w.data.n_users, w.data.n_items
    samples = draw_samples(w.clients.sampler, Call(0, 0, "train", 0, torch.arange(n_users), w.streams, w.server.schema))
    p = {name: value.double().requires_grad_() for name, value in w.server.parameters.items()}
    loss = 0.0
    for user in range(n_users):
        mine = samples.owner == user
        z = naive_scores(p, user, n_items)[samples.items[mine]]
        loss += nn.functional.binary_cross_entropy_with_logits(z, samples.labels[mine].double()) / n_users
    loss.backward()
    norm = sum(value.grad.square().sum() for value in p.values()).sqrt()
    keep = 1.0 if clip is None else clip / norm
    assert clip is None or keep < 1
    w.train(1)
    for name, value in p.items():
        wanted = (value - 0.5 * keep * value.grad).detach()
        torch.testing.assert_close(w.server.parameters[name].double(), wanted, rtol=1e-5, atol=1e-6)


def test_every_device_scores_with_its_own_generated_model(world):
    w = world("metamf", **SETTINGS).train(1)
    users = torch.tensor([1, 20, 7])
    found = w.clients.score(users, w.server.public().addressed_to(users), None, None)
    wanted = torch.stack([naive_scores(w.server.parameters, user, w.data.n_items) for user in users.tolist()])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_users_whose_gradient_is_missing_are_left_where_they_were(world):
    w = world("metamf", plan="none:sampling.kind=fixed,sampling.size=5", server_optimiser="sgd", **SETTINGS)
    before = w.server.parameters["users"]
    w.train(1)
    assert int((w.server.parameters["users"] != before).any(1).sum()) == 5


def test_as_published_it_keeps_the_contract():
    check_method(method("metamf"), **method("metamf").presets["published"].settings)
