"""NeuMF: a generalised matrix factorisation and a perceptron (He et al., Neural collaborative filtering, WWW 2017).

    score(u, i) = w . [ g_u * q_i | h(p_u, e_i) ] + b      eq. 11 and 12
    h = relu(W^T [p_u | e_i] + b) through one or more layers

with item rows q_i (table `gmf`) and e_i (table `mlp`), user rows g_u and p_u, all of one width. Without the product it
is NeuMF-MLP, which predicts ratings. The bias b cancels in a pairwise loss, so ranking goes without.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Parameters = dict[str, Tensor]

ITEMS_AT_ONCE = 2048
"""Items scored together: hidden layers of a block of them stay in a processor's cache."""


@dataclass(frozen=True, slots=True)
class NeuMF:
    """Shape of the network.

    Attributes:
        dim: width of user and item rows.
        hidden: widths of the perceptron's layers, at least one.
        gmf: whether the product of rows is part of it.
        bias: whether the last layer has one.
    """

    dim: int
    hidden: tuple[int, ...]
    gmf: bool = True
    bias: bool = False

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables; users and items have one of each."""
        return ("mlp", "gmf") if self.gmf else ("mlp",)

    @property
    def widths(self) -> tuple[int, ...]:
        """Layer widths from the perceptron's input to its last hidden layer."""
        return (2 * self.dim, *self.hidden)

    @property
    def features(self) -> int:
        """Inputs of the last layer: the product first, then the last hidden layer."""
        return self.hidden[-1] + (self.dim if self.gmf else 0)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every shared layer, in the order in which `flatten` lays them out."""
        out: dict[str, tuple[int, ...]] = {}
        for j, (fan_in, fan_out) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True)):
            out |= {f"mlp.W{j}": (fan_in, fan_out), f"mlp.b{j}": (fan_out,)}
        out["predict.w"] = (self.features,)
        return out | ({"predict.b": (1,)} if self.bias else {})

    @property
    def size(self) -> int:
        """Numbers in the shared layers."""
        return sum(math.prod(shape) for shape in self.shapes().values())


def initial_layers(model: NeuMF, unit: Float[Tensor, " size"]) -> Parameters:
    """Shared layers from `model.size` uniforms in (0, 1), in torch's default dtype.

    Hidden weights are U(-b, b) with b = sqrt(6 / (fan in + fan out)) (Glorot and Bengio, AISTATS 2010), the last
    layer's with b = sqrt(3 / fan in); biases are 0.
    """
    out: Parameters = {}
    for name, (first, *rest) in model.shapes().items():
        size = math.prod((first, *rest))
        piece, unit = unit[:size], unit[size:]
        biased = ".b" in name
        bound = 0.0 if biased else math.sqrt(6 / (first + rest[0]) if rest else 3 / first)
        out[name] = piece.mul(2).sub_(1).mul_(bound).view(first, *rest).to(torch.get_default_dtype())
    return out


def scores(
    model: NeuMF, p: Mapping[str, Tensor], items: Mapping[str, Float[Tensor, "*clients c dim"]]
) -> Float[Tensor, "clients c"]:
    """Scores of c items for every client.

    Args:
        model: the network.
        p: user rows `user.mlp` and `user.gmf` `[clients, dim]`; layers, for all `[*shape]` or each `[clients, *shape]`.
        items: rows of every table, for all `[c, dim]` or each `[clients, c, dim]`.
    """
    W = p["mlp.W0"]
    z = _rows(p["mlp.b0"]) + p["user.mlp"].unsqueeze(1) @ W[..., : model.dim, :]
    h = (items["mlp"] @ W[..., model.dim :, :] + z).relu_()
    for j in range(1, len(model.hidden)):
        h = (h @ p[f"mlp.W{j}"] + _rows(p[f"mlp.b{j}"])).relu_()
    w = _rows(p["predict.w"])
    score = (h @ w[..., -model.hidden[-1] :].mT).squeeze(2)
    if model.gmf:
        score += ((p["user.gmf"].unsqueeze(1) * w[..., : model.dim]) @ items["gmf"].mT).squeeze(1)
    return score + p["predict.b"] if model.bias else score


def scores_of_catalogue(
    model: NeuMF, p: Mapping[str, Tensor], tables: Mapping[str, Float[Tensor, "items dim"]]
) -> Float[Tensor, "clients items"]:
    """`scores` of every item of tables that all clients share, a block of items at a time."""
    n_items = len(tables["mlp"])
    out = p["user.mlp"].new_empty(len(p["user.mlp"]), n_items)
    for first in range(0, n_items, ITEMS_AT_ONCE):
        block = slice(first, first + ITEMS_AT_ONCE)
        out[:, block] = scores(model, p, {name: table[block] for name, table in tables.items()})
    return out


def _rows(vector: Float[Tensor, "*clients width"]) -> Float[Tensor, "clients 1 width"]:
    """One row for each client, or one for all."""
    return vector.view(-1, 1, vector.shape[-1])
