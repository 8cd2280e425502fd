"""Score heads with hand-written gradients, stacked over clients: `W[c]` is client c's own weight.

Each head scores item vectors q and, in one call, takes a plain SGD step of the weighted binary cross-entropy on
its own parameters and returns dL/dq. Where sigma(z)(1 - sigma(z)) is below 1e-12 the gradient vanishes as in
torch's BCELoss: the published learning rates are so large that saturated logits do occur.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Parameters = dict[str, Tensor]

SATURATED = np.float32(1e-12)
"""Slopes of the sigmoid below this count as none."""

_NARROW = 16
"""Matrix libraries are slow at products with fewer columns than this, unless these are passed as rows."""


@dataclass(frozen=True, slots=True)
class LinearHead:
    """sigma(w q + b) with a private w (PFedRec, IJCAI 2023, eq. 3); without bias, w is a user vector (FedMF)."""

    dim: int
    bias: bool = True

    def logits(self, p: Mapping[str, Tensor], q: Float[Tensor, "n b dim"]) -> Float[Tensor, "n b"]:
        """Scores before the sigmoid."""
        z = (q * p["w"].unsqueeze(1)).sum(2)
        return z.add_(p["b"].unsqueeze(1)) if self.bias else z

    def step_head_(
        self,
        p: Parameters,
        q: Float[Tensor, "n b dim"],
        y: Float[Tensor, "n b"],
        weight: Float[Tensor, "n b"],
        lr: float,
    ) -> None:
        """One SGD step on w and b, in place."""
        g = bce_gradient(self.logits(p, q), y, weight)
        p["w"].sub_(torch.bmm(g.unsqueeze(1), q).squeeze(1), alpha=lr)
        if self.bias:
            p["b"].sub_(g.sum(1), alpha=lr)

    def item_gradient(
        self,
        p: Mapping[str, Tensor],
        q: Float[Tensor, "n b dim"],
        y: Float[Tensor, "n b"],
        weight: Float[Tensor, "n b"],
    ) -> Float[Tensor, "n b dim"]:
        """dL/dq."""
        g = bce_gradient(self.logits(p, q), y, weight)
        return g.unsqueeze(2) * p["w"].unsqueeze(1)


@dataclass(frozen=True, slots=True)
class NeuralHead:
    """A ReLU perceptron on [user vector, item vector] (NCF, WWW 2017, eq. 7).

    Parameters per client: `user` [dim], and `W0 [2 dim, h1], b0, W1 [h1, h2], ...` stored input-first. The
    user's part of the first layer is computed once per client, not once per sample.
    """

    dim: int
    hidden: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Layer widths from input to the single logit."""
        return (2 * self.dim, *self.hidden, 1)

    @property
    def layers(self) -> int:
        """Number of affine layers."""
        return len(self.hidden) + 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight of one client, without the user vector."""
        out: dict[str, tuple[int, ...]] = {}
        for j, (fan_in, fan_out) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True)):
            out |= {f"W{j}": (fan_in, fan_out), f"b{j}": (fan_out,)}
        return out

    @property
    def size(self) -> int:
        """Weights of one client, without the user vector."""
        return sum(math.prod(shape) for shape in self.shapes().values())

    def logits(self, p: Mapping[str, Tensor], q: Float[Tensor, "n b dim"]) -> Float[Tensor, "n b"]:
        """Scores before the sigmoid."""
        return self.activations(p, q)[-1].squeeze(2)

    def step_(
        self,
        p: Parameters,
        q: Float[Tensor, "n b dim"],
        y: Float[Tensor, "n b"],
        weight: Float[Tensor, "n b"],
        lr: float,
        lr_user: float,
    ) -> Float[Tensor, "n b dim"]:
        """One joint SGD step on the user vector (`lr_user`) and the weights (`lr`), in place; returns dL/dq."""
        *h, z = self.activations(p, q)
        g = bce_gradient(z.squeeze(2), y, weight).unsqueeze(2)
        for j in range(self.layers - 1, 0, -1):
            g_in = _through_relu(torch.bmm(g, p[f"W{j}"].transpose(1, 2)), h[j - 1])
            _descend_(p[f"W{j}"], h[j - 1], g, lr)
            p[f"b{j}"].sub_(g.sum(1), alpha=lr)
            g = g_in
        w_user, w_item = p["W0"][:, : self.dim], p["W0"][:, self.dim :]
        summed = g.sum(1)
        dq = torch.bmm(g, w_item.transpose(1, 2))
        d_user = torch.bmm(summed.unsqueeze(1), w_user.transpose(1, 2)).squeeze(1)
        _descend_(w_item, q, g, lr)
        w_user.sub_(p["user"].unsqueeze(2) * summed.unsqueeze(1), alpha=lr)
        p["b0"].sub_(summed, alpha=lr)
        p["user"].sub_(d_user, alpha=lr_user)
        return dq

    def activations(self, p: Mapping[str, Tensor], q: Float[Tensor, "n b dim"]) -> list[Tensor]:
        """The rectified output `[n, b, width]` of every hidden layer, then the logits `[n, b, 1]`."""
        w_user, w_item = p["W0"][:, : self.dim], p["W0"][:, self.dim :]
        base = torch.baddbmm(p["b0"].unsqueeze(1), p["user"].unsqueeze(1), w_user)
        h = [torch.baddbmm(base, q, w_item)]
        for j in range(1, self.layers):
            h[-1].relu_()
            h.append(torch.baddbmm(p[f"b{j}"].unsqueeze(1), h[-1], p[f"W{j}"]))
        return h


def _descend_(
    weight: Float[Tensor, "n fan_in fan_out"],
    x: Float[Tensor, "n b fan_in"],
    g: Float[Tensor, "n b fan_out"],
    lr: float,
) -> None:
    """One SGD step on the weight of an affine layer with input x and output gradient g."""
    if g.shape[2] < _NARROW:
        weight.sub_(torch.bmm(g.transpose(1, 2), x).transpose(1, 2), alpha=lr)
    else:
        weight.sub_(torch.bmm(x.transpose(1, 2), g), alpha=lr)


def _through_relu(gradient: Float[Tensor, "n b width"], h: Float[Tensor, "n b width"]) -> Float[Tensor, "n b width"]:
    """The gradient where the rectified output h is above zero, zero elsewhere, in one pass."""
    passed: Tensor = torch.ops.aten.threshold_backward(gradient, h, 0)
    return passed


def bce_gradient(
    logits: Float[Tensor, "n b"], y: Float[Tensor, "n b"], weight: Float[Tensor, "n b"]
) -> Float[Tensor, "n b"]:
    """d/dz of weight * BCE(sigma(z), y), zero where the sigmoid is saturated."""
    p = torch.sigmoid(logits)
    slope = p * (1 - p)
    return (p - y).mul_(weight).mul_(slope / slope.clamp(min=float(SATURATED)))


def initial_perceptron(head: NeuralHead, unit: Float[Tensor, " size"]) -> Parameters:
    """Torch's default initialisation of every layer from `head.size` uniforms in (0, 1)."""
    out, used = {}, 0
    for name, shape in head.shapes().items():
        size, fan_in = math.prod(shape), head.widths[int(name[1:])]
        out[name] = kaiming_uniform(shape, fan_in, unit[used : used + size])
        used += size
    return out


def kaiming_uniform(shape: Sequence[int], fan_in: int, unit: Float[Tensor, " size"]) -> Tensor:
    """Torch's default Linear initialisation, U(-1/sqrt(fan_in), 1/sqrt(fan_in)), from uniforms in (0, 1)."""
    return unit.mul(2).sub_(1).div_(fan_in**0.5).view(*shape).float()
