"""The personal side of a dual-encoder autoencoder (FedDAE, Li et al., AAAI 2025): a local encoder and a gate per user.

Personal parameters belong to one client each, so they are plain stacked tensors that take real steps. They never
enter an update.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import HOST, on_host
from privfed.compute.received import refuse_shape
from privfed.methods.shared.vae import Encoders
from privfed.methods.shared.vae_inputs import Inputs


class LocalOptimiser:
    """SGD, or Adam (Kingma and Ba, ICLR 2015) with a fresh state, on stacked personal parameters.

    Args:
        lr: learning rate.
        adam: Adam with betas 0.9 and 0.999 and epsilon 1e-8 instead of SGD.
        accumulate: never set gradients to zero: every step uses the sum of all gradients so far.
    """

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, lr: float, *, adam: bool, accumulate: bool = False) -> None:
        self.lr, self.adam, self.accumulate = lr, adam, accumulate
        self._sums: dict[str, Tensor] = {}
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}

    def step_(
        self, name: str, value: Tensor, gradient: Tensor, e: int, times: Float[Tensor, "clients 1"] | None = None
    ) -> None:
        """Move `value`, in place, by step e; `times` multiplies the move."""
        if self.accumulate:
            gradient = self._sums[name].add_(gradient) if e else self._sums.setdefault(name, gradient.clone())
        move = self._adam_move(name, gradient, e) if self.adam else gradient
        value.sub_(move if times is None else move * times, alpha=self.lr)

    def product_step_(
        self,
        name: str,
        rows: Float[Tensor, "rows out"],
        x: Float[Tensor, " rows"],
        delta: Float[Tensor, "clients width"],
        owner: Int64[Tensor, " rows"],
        e: int,
    ) -> None:
        """Move `rows`, in place, by step e, where the gradient of row k is x[k] delta[owner[k]].

        Raises:
            IndexError: `delta` has another width than the rows, as a server's tables of other widths make it.
        """
        refuse_shape(f"the gradient of {name}", delta, (len(delta), rows.shape[1]))
        if not self.adam or self.accumulate or rows.device != HOST:
            self.step_(name, rows, delta.index_select(0, owner).mul_(x.unsqueeze(1)), e)
            return
        one, two = self.BETAS
        size, rise = self.lr / (1 - one ** (e + 1)), (1 - two ** (e + 1)) ** -0.5
        arrays = rows, *self._moments_of(name, rows, e), x.contiguous(), delta.contiguous(), owner
        _adam_step(size, rise, *map(on_host, arrays))

    def _moments_of(self, name: str, value: Tensor, e: int) -> tuple[Tensor, Tensor]:
        if not e:
            self._moments[name] = torch.zeros_like(value), torch.zeros_like(value)
        return self._moments[name]

    def _adam_move(self, name: str, gradient: Tensor, e: int) -> Tensor:
        first, second = self._moments_of(name, gradient, e)
        one, two = self.BETAS
        first.mul_(one).add_(gradient, alpha=1 - one)
        second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
        scale = (second / (1 - two ** (e + 1))).sqrt_().add_(self.EPSILON)
        return torch.div(first, scale, out=scale).div_(1 - one ** (e + 1))


_BETA1, _BETA2 = LocalOptimiser.BETAS
_EPSILON = LocalOptimiser.EPSILON


@compiled
def _adam_step(
    size: float,
    rise: float,
    rows: Float[np.ndarray, "rows out"],
    first: Float[np.ndarray, "rows out"],
    second: Float[np.ndarray, "rows out"],
    x: Float[np.ndarray, " rows"],
    delta: Float[np.ndarray, "clients out"],
    owner: Int64[np.ndarray, " rows"],
) -> None:
    """Adam of rows whose gradient is a product, which is formed where it is used: memory is what bounds the step.

    Args:
        size: lr / (1 - beta1^t).
        rise: 1 / sqrt(1 - beta2^t).
        rows: parameters.
        first: moments of them.
        second: moments of them.
        x: factor of each row's gradient.
        delta: of each client's rows.
        owner: client of each row.
    """
    real = rows.dtype.type
    keep1, take1, keep2, take2 = real(_BETA1), real(1 - _BETA1), real(_BETA2), real(1 - _BETA2)
    scale, root, small = real(size), real(rise), real(_EPSILON)
    for k in range(len(rows)):
        value, mean, square, d, factor = rows[k], first[k], second[k], delta[owner[k]], x[k]
        for j in range(len(value)):
            g = factor * d[j]
            m = keep1 * mean[j] + take1 * g
            v = keep2 * square[j] + take2 * g * g
            mean[j] = m
            square[j] = v
            # `/` would check for zero and keep the loop from being vectorised.
            value[j] -= np.divide(scale * m, np.sqrt(v) * root + small)


class UserVectors:
    """A local encoder that ignores its input: a free mean and log variance per user.

    A client encodes one row only, ever, so any encoder of its own is a constant up to dropout.
    """

    def __init__(self, vectors: Float[Tensor, "clients width"], optimiser: LocalOptimiser) -> None:
        self._vectors, self._optimiser = vectors, optimiser

    def forward(self, e: int) -> Float[Tensor, "clients 1 width"]:  # noqa: ARG002 (a constant)
        """The vectors."""
        return self._vectors.unsqueeze(1)

    def backward(self, e: int, delta: Float[Tensor, "clients 1 width"]) -> None:
        """Take the step."""
        self._optimiser.step_("vectors", self._vectors, delta.squeeze(1), e)


class PersonalInput:
    """A first layer of each client's own, with rows for its own items only.

    Rows of other items are never read and get no gradient, so leaving them out changes nothing.
    """

    def __init__(
        self,
        rows: Float[Tensor, "k out"],
        bias: Float[Tensor, "clients out"],
        inputs: Inputs,
        optimiser: LocalOptimiser,
    ) -> None:
        self._rows, self._bias, self._inputs, self._optimiser = rows, bias, inputs, optimiser
        self._entries = torch.arange(len(rows))

    def forward(self, e: int) -> Float[Tensor, "clients 1 out"]:
        """Output x W + b."""
        return self._now(e).times(self._rows, self._entries)[0].add_(self._bias).unsqueeze(1)

    def backward(self, e: int, delta: Float[Tensor, "clients 1 out"]) -> None:
        """Take the step."""
        d, inputs = delta.squeeze(1), self._inputs
        self._optimiser.product_step_("first.rows", self._rows, inputs.values[e], d, inputs.rows.owner, e)
        self._optimiser.step_("first.bias", self._bias, d, e)

    def _now(self, e: int) -> Inputs:
        return Inputs(self._inputs.rows, self._inputs.values[e : e + 1])


class PersonalAffine:
    """A dense layer of each client's own."""

    def __init__(
        self,
        name: str,
        weight: Float[Tensor, "clients in_ out"],
        bias: Float[Tensor, "clients out"],
        optimiser: LocalOptimiser,
    ) -> None:
        self._name, self._weight, self._bias, self._optimiser = name, weight, bias, optimiser
        self._input = weight.new_empty(0)

    def forward(self, e: int, x: Float[Tensor, "clients 1 in_"]) -> Float[Tensor, "clients 1 out"]:  # noqa: ARG002
        """Output x W + b."""
        self._input = x
        return torch.baddbmm(self._bias.unsqueeze(1), x, self._weight)

    def backward(self, e: int, delta: Float[Tensor, "clients 1 out"]) -> Float[Tensor, "clients 1 in_"]:
        """Take the step; returns the gradient of the input."""
        below, (clients, width, out) = torch.bmm(delta, self._weight.transpose(1, 2)), self._weight.shape
        rows, x, d = self._weight.view(-1, out), self._input.reshape(-1), delta.squeeze(1)
        owner = torch.arange(clients).repeat_interleave(width)
        self._optimiser.product_step_(f"{self._name}.weight", rows, x, d, owner, e)
        self._optimiser.step_(f"{self._name}.bias", self._bias, d, e)
        return below


class TwoEncoders:
    """Two encoders side by side."""

    def __init__(self, one: Encoders, other: Encoders) -> None:
        self._one, self._other = one, other

    def forward(self, e: int) -> Float[Tensor, "clients 2 width"]:
        """Both outputs."""
        return torch.cat([self._one.forward(e), self._other.forward(e)], 1)

    def backward(self, e: int, delta: Float[Tensor, "clients 2 width"]) -> None:
        """Take the step in both."""
        self._one.backward(e, delta[:, :1])
        self._other.backward(e, delta[:, 1:])


class PersonalGate:
    """softmax(r Psi + psi) with a Psi [items, 2] of each client's own (FedDAE), kept as its two logits.

    r is one on the client's m own items. Their rows of Psi and the bias all get the gradient of the logits and move
    alike, so the logits move by (m + 1) times one step of plain SGD or Adam: exactly the paper's gate, in two numbers.

    Args:
        logits: current logits, changed in place.
        counts: m of every client.
        optimiser: takes the steps; None keeps the gate as it is.
    """

    def __init__(
        self,
        logits: Float[Tensor, "clients encoders"],
        counts: Int64[Tensor, " clients"],
        optimiser: LocalOptimiser | None,
    ) -> None:
        self._logits, self._optimiser = logits, optimiser
        self._alike = (counts + 1).to(logits.dtype).unsqueeze(1)

    def weights(self) -> Float[Tensor, "clients encoders"]:
        """The trust in each encoder."""
        return self._logits.softmax(1)

    def backward(self, e: int, delta: Float[Tensor, "clients encoders"]) -> None:
        """Take the step."""
        if self._optimiser is None:
            return
        w = self.weights()
        gradient = w * (delta - (w * delta).sum(1, keepdim=True))
        self._optimiser.step_("gate", self._logits, gradient, e, self._alike)
