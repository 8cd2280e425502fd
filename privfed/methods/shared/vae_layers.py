"""Affine layers of a cohort in local training, each client with weights of its own that nobody ever forms.

A client's row has the gradient delta a^T in a layer with input a and output gradient delta. After SGD steps the
client's weight is W + sum_j c_j a_j delta_j^T and its bias b + sum_j c_j delta_j, so

    x W_client + b_client = (x W + b) + sum_j c_j (x . a_j + 1) delta_j,

one product with the shared weight for the whole cohort and a correction of rank j per client. The same holds
backwards. Weights are input-first, [in, out]. `c` is row e of `step_coefficients`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.methods.shared.vae_inputs import Inputs


def step_coefficients(
    steps: int, lr: float, *, accumulate: bool = False, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "steps_and_one steps"]:
    """c[e, j]: multiplicity of the gradient of step j in the weights before step e, times -lr; row `steps`: the upload.

    Args:
        steps: local steps.
        lr: local learning rate.
        accumulate: never set gradients to zero, so that step e moves by the sum of all gradients so far and the
            upload holds gradient j (from 0) `steps - j` times.
        dtype: of the result.
    """
    taken = torch.arange(steps + 1).unsqueeze(1) - torch.arange(steps)
    times = taken.clamp(min=0) if accumulate else taken > 0
    return times.to(dtype) * -lr


class Layer(Protocol):
    """One affine layer of every client. `forward` and `backward` of step e come in turn, for e = 0, 1, ..."""

    def forward(self, e: int, x: Tensor) -> Tensor:
        """Output `[clients, rows, out]` of input `[clients, rows, in]` in step e."""

    def backward(self, e: int, delta: Tensor) -> Tensor:
        """Gradient of the input, from the gradient of the output; takes the step."""


class FirstLayer(Protocol):
    """The layer that reads the input; its input needs no gradient."""

    def forward(self, e: int) -> Tensor:
        """Output `[clients, 1, out]` in step e."""

    def backward(self, e: int, delta: Tensor) -> None:
        """Take the step."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerChange:
    """Change of one layer by local training: weight + left^T right, bias + `bias`, per client.

    Where `sparse`, `left` is mostly zeros: inputs over the whole catalogue.
    """

    left: Float[Tensor, "clients rank in_"]
    right: Float[Tensor, "clients rank out"]
    bias: Float[Tensor, "clients out"]
    sparse: bool = False


class _History:
    """Values that passed a layer in all steps so far, `[clients, steps x rows, width]`."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.values = torch.empty(0)

    def add(self, e: int, value: Float[Tensor, "clients rows width"]) -> None:
        """Keep what passed in step e; of a single step, no copy."""
        if self._steps == 1:
            self.values = value
            return
        clients, rows, width = value.shape
        if not e:
            self.values = value.new_empty(clients, self._steps * rows, width)
        self.values[:, e * rows : (e + 1) * rows] = value


class LocalAffine:
    """A shared layer that every client tunes; several rows of one client may pass through it in each step."""

    def __init__(
        self,
        weight: Float[Tensor, "in_ out"],
        bias: Float[Tensor, " out"],
        coefficients: Float[Tensor, "steps_and_one steps"],
    ) -> None:
        self.weight, self.bias, self._c = weight, bias, coefficients
        self._inputs, self._deltas = (_History(coefficients.shape[1]) for _ in range(2))

    def forward(self, e: int, x: Float[Tensor, "clients rows in_"]) -> Float[Tensor, "clients rows out"]:
        """Output x W + b with each client's own W and b."""
        # [clients x rows, in]: one product with the shared weight for all clients.
        y = torch.addmm(self.bias, x.flatten(0, 1), self.weight).view(*x.shape[:2], -1)
        if e:
            past = e * x.shape[1]
            # [clients, rows, past rows]: x . a_j, and 1 for the bias, which every past step moved by delta_j alone.
            shares = torch.bmm(x, self._inputs.values[:, :past].transpose(1, 2)).add_(1)
            y.baddbmm_(shares.mul_(self._times(e, x.shape[1])), self._deltas.values[:, :past])
        self._inputs.add(e, x)
        return y

    def backward(self, e: int, delta: Float[Tensor, "clients rows out"]) -> Float[Tensor, "clients rows in_"]:
        """Input gradient delta W^T, with each client's own W."""
        g = (delta.flatten(0, 1) @ self.weight.T).view(*delta.shape[:2], -1)
        if e:
            past = e * delta.shape[1]
            # No 1 here: the gradient of an input does not pass through the bias.
            shares = torch.bmm(delta, self._deltas.values[:, :past].transpose(1, 2))
            g.baddbmm_(shares.mul_(self._times(e, delta.shape[1])), self._inputs.values[:, :past])
        self._deltas.add(e, delta)
        return g

    def change(self) -> LayerChange:
        """The update after the last step; the layer is used up."""
        steps, deltas = self._c.shape[1], self._deltas.values
        # On the right factor, which the bias is summed from as well, so it gets its coefficients for free.
        right = deltas.mul_(self._times(steps, deltas.shape[1] // steps).unsqueeze(1))
        return LayerChange(self._inputs.values, right, _summed(right))

    def _times(self, e: int, rows: int) -> Float[Tensor, " past"]:
        # Past rows come step by step, and all rows of a step have its coefficient.
        return self._c[e, :e].repeat_interleave(rows)


class LocalInput:
    """The shared first layer, on ragged rows: only a client's own items are read, for all steps in one pass."""

    def __init__(
        self,
        weight: Float[Tensor, "items out"],
        bias: Float[Tensor, " out"],
        coefficients: Float[Tensor, "steps_and_one steps"],
        inputs: Inputs,
    ) -> None:
        self._c = coefficients
        self._shared = inputs.times(weight, inputs.rows.items).add_(bias)
        self._inputs = inputs.dense()
        steps = coefficients.shape[1]
        # [clients, steps, steps], in advance: unlike in deeper layers, the inputs of all steps are known.
        self._shares = torch.bmm(self._inputs, self._inputs.transpose(1, 2)).add_(1) if steps > 1 else None
        self._deltas = _History(steps)

    def forward(self, e: int) -> Float[Tensor, "clients 1 out"]:
        """Output x W + b with each client's own W and b."""
        # A view that is used once, so that the correction may be added in place.
        y = self._shared[e].unsqueeze(1)
        if e and self._shares is not None:
            y.baddbmm_(self._shares[:, e : e + 1, :e] * self._c[e, :e], self._deltas.values[:, :e])
        return y

    def backward(self, e: int, delta: Float[Tensor, "clients 1 out"]) -> None:
        """Remember the step."""
        self._deltas.add(e, delta)

    def change(self) -> LayerChange:
        """The update after the last step; the layer is used up."""
        right = self._deltas.values.mul_(self._c[-1].unsqueeze(1))
        return LayerChange(self._inputs, right, _summed(right), sparse=True)


class Trunk:
    """The layers behind a first one, with tanh in front of each."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self._active: list[Tensor] = []

    def forward(self, e: int, x: Tensor) -> Tensor:
        """Output of the last layer; `x` is the first layer's output and is used up."""
        self._active = []
        for layer in self.layers:
            self._active.append(x.tanh_())
            x = layer.forward(e, x)
        return x

    def backward(self, e: int, delta: Tensor) -> Tensor:
        """Gradient of the first layer's output."""
        for layer, active in zip(reversed(self.layers), reversed(self._active), strict=True):
            # tanh' = 1 - tanh^2, from the output: the input was overwritten by it.
            delta = layer.backward(e, delta).mul_(active.square().neg_().add_(1))
        return delta


def affine(
    x: Float[Tensor, "clients in_"],
    weight: Float[Tensor, "in_ out"],
    bias: Float[Tensor, " out"],
    change: LayerChange | None,
) -> Float[Tensor, "clients out"]:
    """Output x W + b, or the same with what local training made of W and b."""
    return changed(torch.addmm(bias, x, weight), x, change)


def changed(
    y: Float[Tensor, "clients out"], x: Float[Tensor, "clients in_"], change: LayerChange | None
) -> Float[Tensor, "clients out"]:
    """Add to `y`, in place, what the change of a layer with input `x` makes of its output."""
    if change is None:
        return y
    shares = torch.bmm(x.unsqueeze(1), change.left.transpose(1, 2))
    return y.add_(change.bias).add_(torch.bmm(shares, change.right).squeeze(1))


def _summed(right: Float[Tensor, "clients rank out"]) -> Float[Tensor, "clients out"]:
    # A copy in any case: a view of `right` would be scaled together with it when an update is clipped in place.
    return right.sum(1) if right.shape[1] > 1 else right[:, 0].clone()
