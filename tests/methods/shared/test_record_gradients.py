"""Clipped sums equal a loop over records with autograd, and Opacus; negatives are fresh, distinct and blind."""

import math
import warnings
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privfed.methods.shared.heads import LinearHead, NeuralHead
from privfed.methods.shared.record_gradients import clipped_linear, clipped_neural, with_negatives

N, RECORDS, SAMPLES, DIM = 3, 7, 5, 6
HIDDEN = (8, 4)
HEADS = {
    "linear": partial(clipped_linear, LinearHead(DIM)),
    "linear without bias": partial(clipped_linear, LinearHead(DIM, bias=False)),
    "neural": partial(clipped_neural, NeuralHead(DIM, HIDDEN)),
    "neural without hidden layers": partial(clipped_neural, NeuralHead(DIM, ())),
}
SCALES = [{}, {"items": 30.0, "user": 9.0, "w": 2.0, "b": 0.5}]


def parameters(name, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if name.startswith("linear"):
        shapes = {"w": (DIM,)} | ({} if "without" in name else {"b": ()})
    else:
        shapes = {"user": (DIM,), **NeuralHead(DIM, () if "without" in name else HIDDEN).shapes()}
    p = {key: torch.randn(N, *shape, generator=generator) * 0.5 for key, shape in shapes.items()}
    return p, torch.randn(N, RECORDS, SAMPLES, DIM, generator=generator)


def drawn_some():
    drawn = torch.ones(N, RECORDS)
    drawn[0, 2:] = 0
    drawn[1] = 0
    return drawn


def logits(name, p, q):
    """One client's logits of samples `[b, dim]`, told plainly."""
    if name.startswith("linear"):
        return q @ p["w"] + p.get("b", 0.0)
    h, last = torch.cat([p["user"].expand(len(q), -1), q], 1), (len(p) - 1) // 2 - 1
    for j in range(last + 1):
        h = h @ p[f"W{j}"] + p[f"b{j}"]
        h = h if j == last else torch.relu(h)
    return h[:, 0]


def naive(name, p, q, drawn, clip_norm, scales):
    """Record by record, in float64: autograd, joint norm, clip, sum."""
    sums = {key: torch.zeros_like(value).double() for key, value in p.items()}
    d_items, norms = torch.zeros_like(q).double(), []
    y = torch.tensor([1.0] + [0.0] * (q.shape[2] - 1), dtype=torch.float64)
    for c in range(len(q)):
        for r in range(q.shape[1]):
            if not drawn[c, r]:
                continue
            own = {key: value[c].double().requires_grad_() for key, value in p.items()}
            items = q[c, r].double().requires_grad_()
            loss = nn.functional.binary_cross_entropy_with_logits(logits(name, own, items), y)
            gradients = dict(zip([*own, "items"], torch.autograd.grad(loss, [*own.values(), items]), strict=True))
            norm = math.sqrt(sum((scales.get(key, 1.0) * g).square().sum() for key, g in gradients.items()))
            norms.append(norm)
            factor = min(1.0, clip_norm / norm)
            for key in own:
                sums[key][c] += factor * gradients[key]
            d_items[c, r] = factor * gradients["items"]
    return sums, d_items, norms


@pytest.mark.parametrize("scales", SCALES, ids=["plain norm", "scaled norm"])
@pytest.mark.parametrize("clip_norm", [0.05, 0.8, 1e6])
@pytest.mark.parametrize("name", HEADS)
def test_clipped_sums_equal_a_loop_over_records(name, clip_norm, scales):
    p, q = parameters(name)
    drawn = drawn_some()
    wanted, wanted_items, _ = naive(name, p, q, drawn, clip_norm, scales)
    found, found_items = HEADS[name](p, q, drawn, clip_norm, scales)
    assert found.keys() == wanted.keys() == p.keys()
    for key in wanted:
        torch.testing.assert_close(found[key].double(), wanted[key], rtol=2e-6, atol=1e-6 * min(clip_norm, 1.0))
    torch.testing.assert_close(found_items.double(), wanted_items, rtol=2e-6, atol=1e-6 * min(clip_norm, 1.0))
    assert not any(bool(sums[1].any()) for sums in found.values())


@given(seed=st.integers(0, 10_000), clip_norm=st.floats(1e-4, 10.0), scale=st.floats(0.1, 400.0))
@settings(max_examples=50, deadline=None)
def test_no_record_adds_more_than_the_clip_norm(seed, clip_norm, scale):
    scales = {"items": scale, "user": scale / 3}
    for name in ("linear", "neural"):
        p, q = parameters(name, seed)
        drawn = torch.zeros(N, RECORDS)
        drawn[:, seed % RECORDS] = 1
        sums, d_items = HEADS[name](p, q, drawn, clip_norm, scales)
        squares = sum((scales.get(key, 1.0) * s.double()).view(N, -1).square().sum(1) for key, s in sums.items())
        squares += (scale * d_items.double()).flatten(1).square().sum(1)
        assert bool((squares.sqrt() <= clip_norm).all())


def test_cancelling_samples_are_not_underestimated():
    """Two samples with all but opposite gradients: in float32 their Gram sum would be noise, and the clip luck."""
    head = NeuralHead(1, ())
    p = {"user": torch.zeros(1, 1), "W0": torch.zeros(1, 2, 1), "b0": torch.zeros(1, 1)}
    q = torch.tensor([[[[100.0], [100.01]]]])
    sums, _ = clipped_neural(head, p, q, torch.ones(1, 1), 1e-3, {})
    assert 0.25 * float(q[0, 0, 1, 0] - q[0, 0, 0, 0]) > 2e-3
    assert float(sums["W0"].abs().sum()) == pytest.approx(1e-3, rel=5e-3)


class Scaled(nn.Module):
    """FedNCF (or PFedRec) of one client as plain layers whose weights are theta / a, so that one rate fits all."""

    def __init__(self, name, p, table, scales):
        super().__init__()
        self.scales = scales
        self.items = nn.Embedding.from_pretrained(table / scales["items"], freeze=False)
        if name == "linear":
            self.layers = nn.ModuleList([self.linear(p["w"][:, None], p["b"][None])])
            self.user = None
        else:
            self.user = nn.Embedding.from_pretrained(p["user"][None] / scales["user"], freeze=False)
            self.layers = nn.ModuleList(self.linear(p[f"W{j}"], p[f"b{j}"]) for j in range(len(HIDDEN) + 1))

    @staticmethod
    def linear(weight, bias):
        layer = nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.T.clone(), bias.clone()
        return layer

    def forward(self, items):
        h = self.items(items) * self.scales["items"]
        if self.user is not None:
            h = torch.cat([self.user(torch.zeros_like(items)) * self.scales["user"], h], 2)
        for j, layer in enumerate(self.layers):
            h = layer(torch.relu(h) if j else h)
        return h.squeeze(2)


@pytest.mark.parametrize("scales", [{"items": 1.0, "user": 1.0}, {"items": 30.0, "user": 9.0}], ids=str)
@pytest.mark.parametrize("name", ["linear", "neural"])
def test_clipped_sums_equal_opacus(name, scales):
    """GradSampleModule and DPOptimizer without noise, on one client's records; Opacus adds 1e-6 to every norm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
    n_items, clip_norm = 40, 0.3
    slack = RECORDS * 1e-6
    p, _ = parameters(name)
    table = torch.randn(n_items, DIM, generator=torch.Generator().manual_seed(3))
    words = torch.randint(2**32, (N, RECORDS, SAMPLES - 1), generator=torch.Generator().manual_seed(4))
    items = with_negatives(torch.arange(N * RECORDS).view(N, RECORDS), words, n_items)
    sums, d_items = HEADS[name](p, table[items], torch.ones(N, RECORDS), clip_norm, scales)
    y = torch.zeros(RECORDS, SAMPLES)
    y[:, 0] = 1
    for c in range(N):
        module = GradSampleModule(Scaled(name, {k: v[c] for k, v in p.items()}, table, scales), loss_reduction="sum")
        optimizer = DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=clip_norm,
            expected_batch_size=1,
            loss_reduction="sum",
        )
        with warnings.catch_warnings():
            # It warns that a module whose inputs need no gradient has a backward hook.
            warnings.simplefilter("ignore")
            loss = nn.functional.binary_cross_entropy_with_logits(module(items[c]), y, reduction="none").mean(1).sum()
            loss.backward()
        optimizer.pre_step()
        inner = module._module
        own = {"items": inner.items.weight.grad}
        if name == "linear":
            own |= {"w": inner.layers[0].weight.grad[0], "b": inner.layers[0].bias.grad[0]}
        else:
            own["user"] = inner.user.weight.grad[0]
            for j, layer in enumerate(inner.layers):
                own |= {f"W{j}": layer.weight.grad.T, f"b{j}": layer.bias.grad}
        mine = {key: value[c] for key, value in sums.items()}
        flat = items[c].flatten()
        mine["items"] = torch.zeros_like(table).index_add_(0, flat, d_items[c].flatten(0, 1))
        for key, wanted in own.items():
            torch.testing.assert_close(scales.get(key, 1.0) * mine[key], wanted, rtol=0, atol=slack)


@given(seed=st.integers(0, 10_000), n_items=st.integers(5, 30))
@settings(max_examples=50, deadline=None)
def test_items_of_a_record_are_distinct(seed, n_items):
    generator = torch.Generator().manual_seed(seed)
    positives = torch.randint(n_items, (4, 9), generator=generator)
    words = torch.randint(2**32, (4, 9, 4), generator=generator)
    items = with_negatives(positives, words, n_items)
    assert items[:, :, 0].equal(positives)
    assert 0 <= int(items.min()) <= int(items.max()) < n_items
    ordered = items.sort(2).values
    assert bool((ordered[:, :, 1:] > ordered[:, :, :-1]).all())


def test_every_other_item_is_equally_likely_in_every_place():
    n_items, draws = 7, 70_000
    words = torch.randint(2**32, (1, draws, 3), generator=torch.Generator().manual_seed(0))
    items = with_negatives(torch.full((1, draws), 4), words, n_items)[0]
    for j in range(1, 4):
        share = torch.bincount(items[:, j], minlength=n_items) / draws
        assert share[4] == 0
        others = share[[0, 1, 2, 3, 5, 6]]
        assert float((others - 1 / 6).abs().max()) < 5 * math.sqrt(1 / 6 * 5 / 6 / draws)
