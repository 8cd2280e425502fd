"""The personal side of a dual-encoder autoencoder (FedDAE, Li et al., AAAI 2025): a local encoder and a gate per user.

Personal parameters belong to one client each, so they are plain stacked tensors that take real steps. They never
enter an update.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

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

    def _adam_move(self, name: str, gradient: Tensor, e: int) -> Tensor:
        if not e:
            self._moments[name] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        first, second = self._moments[name]
        one, two = self.BETAS
        first.mul_(one).add_(gradient, alpha=1 - one)
        second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
        scale = (second / (1 - two ** (e + 1))).sqrt_().add_(self.EPSILON)
        return torch.div(first, scale, out=scale).div_(1 - one ** (e + 1))


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
        d = delta.squeeze(1)
        gradient = d.index_select(0, self._inputs.rows.owner).mul_(self._inputs.values[e].unsqueeze(1))
        self._optimiser.step_("first.rows", self._rows, gradient, e)
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
        below = torch.bmm(delta, self._weight.transpose(1, 2))
        step_ = self._optimiser.step_
        step_(f"{self._name}.weight", self._weight, torch.bmm(self._input.transpose(1, 2), delta), e)
        step_(f"{self._name}.bias", self._bias, delta.squeeze(1), e)
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
