"""Stacked prefix heads against one naive perceptron per client and prefix, and autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privfed.methods.hetefedrec.prefix_heads import PrefixHeads
from privfed.methods.shared.heads import initial_perceptron


def problem(heads, clients, rows, seed):
    rng = torch.Generator().manual_seed(seed)
    weights = []
    for k in range(heads.heads):
        one = [initial_perceptron(heads.head(k), torch.rand(heads.head(k).size, generator=rng)) for _ in range(clients)]
        weights.append({name: torch.stack([w[name] for w in one]) for name in one[0]})
    user = torch.randn(clients, heads.width, generator=rng)
    items = torch.randn(clients, heads.width, rows, generator=rng)
    return weights, user, items, torch.randn(clients, heads.heads, rows, generator=rng)


def naive(heads, weights, user, items, client, k):
    width, w = heads.prefixes[k], {name: value[client] for name, value in weights[k].items()}
    u, v = user[client, :width], items[client, :width].T
    h = torch.cat([u.expand(len(v), -1), v], 1)
    last = len(heads.hidden)
    for j in range(last + 1):
        h = h @ w[f"W{j}"] + w[f"b{j}"]
        if j < last:
            h = torch.relu(h) if heads.activation == "relu" else nn.functional.leaky_relu(h, 0.01)
    return h[:, 0] + (v @ u if heads.inner else 0)


@given(
    prefixes=st.sampled_from([(4,), (2, 5), (3, 4, 9)]),
    hidden=st.sampled_from([(), (3,), (8, 8), (5, 4, 2)]),
    activation=st.sampled_from(["relu", "leaky_relu"]),
    inner=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=50, deadline=None)
def test_logits_and_gradients_equal_autograd(prefixes, hidden, activation, inner, seed):
    heads = PrefixHeads(prefixes, hidden, activation, inner)
    weights, user, items, dlogits = problem(heads, 3, 7, seed)
    stacked = {name: torch.zeros(shape) for name, shape in heads.shapes(3).items()}
    heads.pack_(stacked, weights)
    leaves = [value.requires_grad_() for w in weights for value in w.values()] + [
        user.requires_grad_(),
        items.requires_grad_(),
    ]
    wanted = torch.stack(
        [torch.stack([naive(heads, weights, user, items, c, k) for k in range(heads.heads)]) for c in range(3)]
    )
    gradients = torch.autograd.grad((wanted * dlogits).sum(), leaves)
    user, items = user.detach(), items.detach()
    forward = heads.forward(stacked, user, items)
    torch.testing.assert_close(forward.logits, wanted.detach(), rtol=1e-4, atol=1e-5)
    out = {name: torch.full_like(value, torch.nan) for name, value in stacked.items()}
    d_user, d_items = heads.backward(stacked, user, items, forward, dlogits, out)
    found = [value for w in heads.unpack(out) for value in w.values()] + [d_user, d_items]
    for a, b in zip(found, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    alone = heads.user_gradient(stacked, items, forward, dlogits)
    torch.testing.assert_close(alone, gradients[-2], rtol=1e-3, atol=1e-4)
    beyond = out["item0"] * ~heads.reach().bool().repeat_interleave(heads.outputs[0], 1)
    assert bool((beyond == 0).all())


def test_packing_and_unpacking_are_inverse():
    heads = PrefixHeads((2, 6), (4, 3))
    weights, *_ = problem(heads, 2, 1, 0)
    stacked = {name: torch.zeros(shape) for name, shape in heads.shapes(2).items()}
    heads.pack_(stacked, weights)
    for found, wanted in zip(heads.unpack(stacked), weights, strict=True):
        assert found.keys() == wanted.keys()
        assert all(found[name].equal(wanted[name]) for name in wanted)


@pytest.mark.parametrize("k", [0, 1])
def test_a_head_of_the_stack_is_the_head_by_itself(k):
    heads = PrefixHeads((4, 8), (8, 8), inner=True)
    weights, user, items, _ = problem(heads, 2, 16, 1)
    width = heads.prefixes[k]
    alone = PrefixHeads((width,), (8, 8), inner=True)
    both = {name: torch.zeros(shape) for name, shape in heads.shapes(2).items()}
    one = {name: torch.zeros(shape) for name, shape in alone.shapes(2).items()}
    heads.pack_(both, weights)
    alone.pack_(one, [weights[k]])
    torch.testing.assert_close(
        heads.forward(both, user, items).logits[:, k],
        alone.forward(one, user[:, :width], items[:, :width]).logits[:, 0],
    )
