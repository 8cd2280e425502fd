"""NeuMF's scores against torch modules, one client at a time, and its initial layers."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from privfed.methods.fair import FairConfig
from privfed.methods.fair.neumf import NeuMF, initial_layers, scores, scores_of_catalogue
from privfed.methods.fair.training import network

SHAPES = [NeuMF(8, (8,)), NeuMF(4, (6, 5)), NeuMF(6, (4,), gmf=False, bias=True), NeuMF(3, (5, 2), bias=True)]


def parameters(model, clients, generator):
    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    users = {f"user.{name}": draw(clients, model.dim) for name in model.tables}
    return users, {name: draw(*shape) for name, shape in model.shapes().items()}


def naive(model, users, layers, tables, client):
    """Modules with the client's weights, over all rows of its tables."""
    n = len(tables["mlp"])
    x = torch.cat([users["user.mlp"][client].expand(n, -1), tables["mlp"]], 1)
    for j in range(len(model.hidden)):
        linear = nn.Linear(*layers[f"mlp.W{j}"].shape)
        linear.weight.data, linear.bias.data = layers[f"mlp.W{j}"].T, layers[f"mlp.b{j}"]
        x = nn.ReLU()(linear(x))
    if model.gmf:
        x = torch.cat([users["user.gmf"][client] * tables["gmf"], x], 1)
    last = nn.Linear(model.features, 1)
    last.weight.data = layers["predict.w"].unsqueeze(0)
    last.bias.data = layers.get("predict.b", torch.zeros(1))
    return last(x).squeeze(1).detach()


@pytest.mark.parametrize("model", SHAPES, ids=str)
def test_scores_are_those_of_modules(model):
    generator = torch.Generator().manual_seed(1)
    users, layers = parameters(model, 3, generator)
    tables = {name: torch.randn(7, model.dim, generator=generator) for name in model.tables}
    wanted = torch.stack([naive(model, users, layers, tables, client) for client in range(3)])
    torch.testing.assert_close(scores(model, users | layers, tables), wanted)


@pytest.mark.parametrize("model", SHAPES, ids=str)
def test_layers_and_rows_of_one_s_own(model):
    generator = torch.Generator().manual_seed(2)
    users, _ = parameters(model, 2, generator)
    each = [parameters(model, 1, generator)[1] for _ in range(2)]
    layers = {name: torch.stack([own[name] for own in each]) for name in model.shapes()}
    items = {name: torch.randn(2, 5, model.dim, generator=generator) for name in model.tables}
    found = scores(model, users | layers, items)
    for client in range(2):
        mine = {name: rows[client] for name, rows in items.items()}
        torch.testing.assert_close(found[client], naive(model, users, each[client], mine, client))


@pytest.mark.parametrize("model", SHAPES[:1] + SHAPES[2:3], ids=str)
def test_the_catalogue_in_blocks_is_the_catalogue(model, monkeypatch):
    monkeypatch.setattr("privfed.methods.fair.neumf.ITEMS_AT_ONCE", 4)
    generator = torch.Generator().manual_seed(3)
    users, layers = parameters(model, 2, generator)
    tables = {name: torch.randn(10, model.dim, generator=generator) for name in model.tables}
    p = users | layers
    torch.testing.assert_close(scores_of_catalogue(model, p, tables), scores(model, p, tables))


def test_sizes():
    model = NeuMF(8, (8,))
    assert model.tables == ("mlp", "gmf")
    assert model.size == 16 * 8 + 8 + 16
    assert NeuMF(8, (8,), gmf=False, bias=True).shapes()["predict.w"] == (8,)


def test_initial_layers_have_the_spread_of_the_papers():
    model = NeuMF(32, (64, 16))
    unit = torch.rand(model.size, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    layers = initial_layers(model, unit)
    assert {name: tuple(value.shape) for name, value in layers.items()} == model.shapes()
    for j, (fan_in, fan_out) in enumerate([(64, 64), (64, 16)]):
        bound = math.sqrt(6 / (fan_in + fan_out))
        W = layers[f"mlp.W{j}"]
        assert bound * 0.95 < float(W.abs().max()) <= bound
        assert abs(float(W.mean())) < bound / 10
        assert not layers[f"mlp.b{j}"].any()
    assert float(layers["predict.w"].abs().max()) <= math.sqrt(3 / 48)
    assert all(value.dtype == torch.float32 for value in layers.values())


def test_tables_that_keep_unequal_rows_are_refused() -> None:
    config = FairConfig()
    assert network(config, np.array([4, 4]), factored=False).kept.tolist() == [4, 4]
    with pytest.raises(ValueError, match=r"keep \[4, 2\] values"):
        network(config, np.array([4, 2]), factored=False)
