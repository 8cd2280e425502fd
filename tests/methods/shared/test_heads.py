"""Hand-written gradients against autograd and BCELoss, one client at a time, in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from privfed.methods.shared.heads import LinearHead, NeuralHead, bce_gradient, initial_perceptron

CLIENTS, BATCH, DIM = 5, 9, 6
LR, LR_USER = 0.3, 2.0


def batch(seed):
    """Ragged batches: padding has weight 0, real samples the weight of a mean; y of both kinds."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, BATCH + 1, CLIENTS)
    weight = torch.zeros(CLIENTS, BATCH)
    for client, length in enumerate(lengths):
        weight[client, :length] = 1 / length
    q = torch.from_numpy(rng.normal(size=(CLIENTS, BATCH, DIM)).astype(np.float32))
    y = torch.from_numpy(rng.integers(2, size=(CLIENTS, BATCH)).astype(np.float32))
    return q, y, weight, lengths


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), atol=1e-5)


def mean_loss(logits, y):
    return nn.BCELoss()(torch.sigmoid(logits), y)


@pytest.mark.parametrize("hidden", [(), (7,), (8, 5), (32, 16, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_a_perceptron_step_is_autograds(hidden, seed):
    head = NeuralHead(DIM, hidden)
    g = torch.Generator().manual_seed(seed)
    p = {"user": torch.randn(CLIENTS, DIM, generator=g)}
    p |= {name: torch.randn(CLIENTS, *shape, generator=g) * 0.5 for name, shape in head.shapes().items()}
    q, y, weight, lengths = batch(seed)
    wanted = [naive_perceptron(p, q[c, :n], y[c, :n], c, head) for c, n in enumerate(lengths)]
    logits = head.logits(p, q)
    dq = head.step_(p, q, y, weight, LR, LR_USER)
    assert (dq[weight == 0] == 0).all()
    for client, (n, (loss_logits, new, d_items)) in enumerate(zip(lengths, wanted, strict=True)):
        close(logits[client, :n], loss_logits)
        close(dq[client, :n], d_items)
        for name, value in new.items():
            close(p[name][client], value)


def naive_perceptron(p, q, y, client, head):
    """One client with torch's own layers; weights are stored input-first, torch's output-first."""
    user = p["user"][client].double().requires_grad_()
    layers = [nn.Linear(i, o).double() for i, o in zip(head.widths[:-1], head.widths[1:], strict=True)]
    for j, layer in enumerate(layers):
        layer.weight.data = p[f"W{j}"][client].double().T.contiguous()
        layer.bias.data = p[f"b{j}"][client].double()
    items = q.double().requires_grad_()
    h = torch.cat([user.expand(len(q), -1), items], 1)
    for j, layer in enumerate(layers):
        h = layer(h) if j == len(layers) - 1 else torch.relu(layer(h))
    mean_loss(h[:, 0], y.double()).backward()
    new = {"user": user - LR_USER * user.grad}
    for j, layer in enumerate(layers):
        new[f"W{j}"] = (layer.weight - LR * layer.weight.grad).T
        new[f"b{j}"] = layer.bias - LR * layer.bias.grad
    return h[:, 0], new, items.grad


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_linear_heads_steps_are_autograds(bias, seed):
    head = LinearHead(DIM, bias)
    g = torch.Generator().manual_seed(seed)
    p = {"w": torch.randn(CLIENTS, DIM, generator=g), "b": torch.randn(CLIENTS, generator=g)}
    if not bias:
        del p["b"]
    q, y, weight, lengths = batch(seed)
    before = {name: value.clone() for name, value in p.items()}
    dq = head.item_gradient(p, q, y, weight)
    assert all(p[name].equal(before[name]) for name in p)
    head.step_head_(p, q, y, weight, LR)
    assert (dq[weight == 0] == 0).all()
    for client, n in enumerate(lengths):
        w = before["w"][client].double().requires_grad_()
        b = before["b"][client].double().requires_grad_() if bias else torch.zeros(()).double()
        items = q[client, :n].double().requires_grad_()
        mean_loss(items @ w + b, y[client, :n].double()).backward()
        close(dq[client, :n], items.grad)
        close(p["w"][client], w - LR * w.grad)
        if bias:
            close(p["b"][client], b - LR * b.grad)


def test_saturated_logits_are_treated_as_by_bceloss():
    """torch's float32 BCELoss loses the gradient of hopeless samples; the published rates rely on it."""
    z = torch.cat([torch.linspace(-120, 120, 4801), torch.tensor([-1e4, 1e4, 0.0])]).requires_grad_()
    for label in (0.0, 1.0):
        y = torch.full_like(z, label)
        (expected,) = torch.autograd.grad(nn.BCELoss(reduction="sum")(torch.sigmoid(z), y), z)
        found = bce_gradient(z.detach().unsqueeze(0), y.unsqueeze(0), torch.ones(1, len(z)))[0]
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    gone = bce_gradient(torch.tensor([[40.0, -90.0]]), torch.tensor([[0.0, 1.0]]), torch.ones(1, 2))
    assert gone.abs().max() < 1e-12
    alive = bce_gradient(torch.tensor([[12.0, -12.0]]), torch.tensor([[0.0, 1.0]]), torch.ones(1, 2))
    np.testing.assert_allclose(alive.numpy(), [[1, -1]], atol=1e-4)


def test_the_initial_perceptron_is_torchs_default_law():
    """Linear(i, o) draws weights and biases from U(-1/sqrt(i), 1/sqrt(i)); every uniform is used once."""
    head = NeuralHead(4, (6, 3))
    assert head.shapes() == {
        "W0": (8, 6), "b0": (6,), "W1": (6, 3), "b1": (3,), "W2": (3, 1), "b2": (1,),
    }  # fmt: skip
    assert head.size == 8 * 6 + 6 + 6 * 3 + 3 + 3 + 1
    unit = torch.from_numpy(np.random.default_rng(0).permutation(head.size) + 0.5) / head.size
    p = initial_perceptron(head, unit)
    fan_in = {"0": 8, "1": 6, "2": 3}
    used = torch.cat([(p[name].double() * fan_in[name[1:]] ** 0.5 + 1).flatten() / 2 for name in p])
    np.testing.assert_allclose(used.numpy(), unit.numpy(), atol=1e-6)
    for j, (i, o) in enumerate([(8, 6), (6, 3), (3, 1)]):
        bound = nn.Linear(i, o).weight.abs().max().item()
        assert p[f"W{j}"].abs().max() <= 1 / i**0.5
        assert bound <= 1 / i**0.5
        assert p[f"W{j}"].dtype == torch.float32
