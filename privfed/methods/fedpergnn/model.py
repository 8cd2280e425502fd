"""The local graph network of FedPerGNN: attention over the user's own items, then a prediction (released code).

With history items j, candidates i, f the activation, and no neighbours beyond the own graph,

    z_j = f(H v_j),  p = f(U u),  q_i = f(C v_i),
    alpha = softmax_j leaky_relu(a . [p, N z_j]),   g = M [sum_j alpha_j z_j, p],

and the logit is g . q_i, or w . [g, q_i]; every layer has a bias. The second form adds a number of the user's to one of
the item's, so it ranks items in one order for everybody.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Predictor = Literal["dot", "additive"]
Activation = Literal["identity", "sigmoid"]

_LEAK = 0.3
"""Slope of the released code's leaky rectifier below zero."""


@dataclass(frozen=True, slots=True)
class GraphNetwork:
    """One network per client, stacked: every weight is `[clients, *shape]`.

    Attributes:
        dim: width of all layers.
        predictor: form of the prediction.
        activation: f.
    """

    dim: int
    predictor: Predictor
    activation: Activation

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight of one client."""
        inputs = {"history": 1, "user": 1, "candidate": 1, "neighbour": 1, "merge": 2}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, count in inputs.items():
            shapes |= {f"{name}.weight": (count * self.dim, self.dim), f"{name}.bias": (1, self.dim)}
        for name in ("attention", "output") if self.predictor == "additive" else ("attention",):
            shapes |= {f"{name}.weight": (2 * self.dim, 1), f"{name}.bias": (1, 1)}
        return shapes

    @property
    def size(self) -> int:
        """Number of weights of one client."""
        return sum(math.prod(shape) for shape in self.shapes().values())

    def initial(self, unit: Float[Tensor, " size"]) -> dict[str, Tensor]:
        """Glorot's uniform weights and biases of zero, from uniforms in (0, 1)."""
        out, used = {}, 0
        for name, shape in self.shapes().items():
            part = unit[used : used + math.prod(shape)].view(shape)
            reach = 0.0 if name.endswith("bias") else math.sqrt(6 / sum(shape))
            out[name] = part.mul(2).sub(1).mul(reach).float()
            used += math.prod(shape)
        return out

    def logits(
        self,
        p: Mapping[str, Tensor],
        user: Float[Tensor, "n dim"],
        history: Float[Tensor, "n h dim"],
        present: Bool[Tensor, "n h"],
        items: Float[Tensor, "n b dim"],
    ) -> Float[Tensor, "n b"]:
        """Scores before the sigmoid; `present` says where a history has an item."""
        z = self._activated(p, "history", history)
        own = self._activated(p, "user", user.unsqueeze(1))
        q = self._activated(p, "candidate", items)
        by_user, by_item = self._parts(p["attention.weight"])
        # [n, h, 1]: what items say, plus one number of the user's.
        attention = _affine(p, "neighbour", z) @ by_item + own @ by_user + p["attention.bias"]
        # Where the released code adds -99: with that, large weights would let padding, and so its length, be felt.
        hidden = (~present & present.any(1, keepdim=True)).unsqueeze(2)
        attention = torch.nn.functional.leaky_relu(attention, _LEAK).masked_fill(hidden, -math.inf)
        pooled = (attention.softmax(1) * z).sum(1, keepdim=True)
        graph = _affine(p, "merge", torch.cat([pooled, own], 2))
        if self.predictor == "dot":
            return torch.bmm(q, graph.transpose(1, 2)).squeeze(2)
        by_user, by_item = self._parts(p["output.weight"])
        return torch.baddbmm(graph @ by_user + p["output.bias"], q, by_item).squeeze(2)

    def _parts(self, weight: Float[Tensor, "n both 1"]) -> tuple[Tensor, Tensor]:
        """What a layer on [user, item] multiplies each of the two by."""
        return weight[:, : self.dim], weight[:, self.dim :]

    def _activated(self, p: Mapping[str, Tensor], name: str, x: Float[Tensor, "n b dim"]) -> Float[Tensor, "n b dim"]:
        y = _affine(p, name, x)
        return y.sigmoid() if self.activation == "sigmoid" else y


def _affine(p: Mapping[str, Tensor], name: str, x: Float[Tensor, "n b width"]) -> Float[Tensor, "n b dim"]:
    return torch.baddbmm(p[f"{name}.bias"], x, p[f"{name}.weight"])
