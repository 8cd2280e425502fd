"""Variational autoencoders over interaction rows (Mult-VAE, Liang et al., WWW 2018), one row per client.

    encoder  items - hidden - 2 latent        tanh between layers, none at the output, biases everywhere
    decoder  latent - reversed hidden - items
    loss     scale * (-sum_i r_i log softmax_i(decoder(z)) + beta KL(q(z) || N(0, I)))

`hidden=()` is the one-layer model. The loss is written with its gradient by hand. Several encoders of one client
(FedDAE, Li et al., AAAI 2025) mix into one posterior with weights w from a gate:

    mean = sum_r w_r mean_r,   variance = sum_r w_r^2 variance_r,   sum_r w_r = 1.

Weights are input-first, [in, out], except the decoder's last, which is output-first: every block with a row per
item has items on axis 0. Blocks are `encoder.<j>.weight`, `encoder.<j>.bias`, `decoder.<j>.weight`, ...
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.methods.shared.heads import kaiming_uniform
from privfed.methods.shared.multinomial import multinomial_gradient
from privfed.methods.shared.vae_inputs import Inputs, OwnRows
from privfed.methods.shared.vae_layers import (
    FirstLayer,
    Layer,
    LayerChange,
    LocalAffine,
    LocalInput,
    Trunk,
    affine,
    changed,
)

Initialisation = Literal["torch", "xavier"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """Widths of an autoencoder."""

    n_items: int
    latent: int
    hidden: tuple[int, ...] = ()

    @property
    def encoder(self) -> tuple[int, ...]:
        """Encoder widths, input first; the output holds mean and log variance."""
        return (self.n_items, *self.hidden, 2 * self.latent)

    @property
    def decoder(self) -> tuple[int, ...]:
        """Decoder widths, input first."""
        return (self.latent, *reversed(self.hidden), self.n_items)

    @property
    def last(self) -> str:
        """Name of the decoder's last layer, whose weight is output-first."""
        return f"decoder.{len(self.hidden)}"

    def layers(self, encoder: str = "encoder") -> dict[str, tuple[int, int]]:
        """(in, out) of every layer by name; `encoder` renames the encoder."""
        layers = {f"{encoder}.{j}": sides for j, sides in enumerate(pairwise(self.encoder))}
        return layers | {f"decoder.{j}": sides for j, sides in enumerate(pairwise(self.decoder))}

    def initial(self, unit: Float[Tensor, " size"], how: Initialisation, encoder: str = "encoder") -> dict[str, Tensor]:
        """Initial parameters from `size` uniforms in (0, 1).

        Args:
            unit: one uniform per parameter.
            how: `torch`: U(-a, a), a = 1 / sqrt(in), weights and biases, as torch's Linear. `xavier`: weights
                with a = sqrt(6 / (in + out)) (Glorot and Bengio, AISTATS 2010), biases zero.
            encoder: name of the encoder.
        """
        out: dict[str, Tensor] = {}
        used = 0
        for name, (fan_in, fan_out) in self.layers(encoder).items():
            shape = (fan_out, fan_in) if name == self.last else (fan_in, fan_out)
            for part, sides in (("weight", shape), ("bias", (fan_out,))):
                size = math.prod(sides)
                values = kaiming_uniform(sides, fan_in, unit[used : used + size])
                if how == "xavier":
                    values.mul_(math.sqrt(6 * fan_in / (fan_in + fan_out)) if part == "weight" else 0.0)
                out[f"{name}.{part}"], used = values, used + size
        return out

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self.layers().values())

    def layer(self, parameters: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
        """Weight, input-first, and bias of layer `name`."""
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return (weight.T if name == self.last else weight), bias


class Encoders(Protocol):
    """One or more encoders of every client, in local training."""

    def forward(self, e: int) -> Tensor:
        """Means and log variances `[clients, encoders, 2 latent]` in step e."""

    def backward(self, e: int, delta: Tensor) -> None:
        """Take the step, from the gradient of the output."""


class Encoder:
    """First layers of which each is read on its own, and one trunk behind all of them."""

    def __init__(self, firsts: Sequence[FirstLayer], trunk: Trunk) -> None:
        self.firsts, self.trunk = tuple(firsts), trunk

    def forward(self, e: int) -> Float[Tensor, "clients encoders width"]:
        """One output per first layer."""
        return self.trunk.forward(e, torch.cat([first.forward(e) for first in self.firsts], 1))

    def backward(self, e: int, delta: Float[Tensor, "clients encoders width"]) -> None:
        """Take the step in all layers."""
        below = self.trunk.backward(e, delta)
        for r, first in enumerate(self.firsts):
            first.backward(e, below[:, r : r + 1])


class Gate(Protocol):
    """Weights that each client gives to its encoders."""

    def weights(self) -> Tensor:
        """Positive weights `[clients, encoders]` that sum to one."""

    def backward(self, e: int, delta: Tensor) -> None:
        """Take the step, from the gradient of the weights."""


class OneEncoder:
    """The gate of a model with a single encoder."""

    def __init__(self, clients: int, dtype: torch.dtype) -> None:
        self._ones = torch.ones(clients, 1, dtype=dtype)

    def weights(self) -> Float[Tensor, "clients 1"]:
        """Always one."""
        return self._ones

    def backward(self, e: int, delta: Float[Tensor, "clients 1"]) -> None:
        """There is nothing to learn."""


class Decoder:
    """The decoder in local training."""

    def __init__(self, first: Layer, trunk: Trunk) -> None:
        self._first, self._trunk = first, trunk

    def forward(self, e: int, z: Float[Tensor, "clients latent"]) -> Float[Tensor, "clients items"]:
        """Logits."""
        return self._trunk.forward(e, self._first.forward(e, z.unsqueeze(1))).squeeze(1)

    def backward(self, e: int, delta: Float[Tensor, "clients items"]) -> Float[Tensor, "clients latent"]:
        """Take the step; returns the gradient of z."""
        return self._first.backward(e, self._trunk.backward(e, delta.unsqueeze(1))).squeeze(1)


class Posterior:
    """q(z) of every client: encoders mixed by the gate's weights."""

    def __init__(
        self, out: Float[Tensor, "clients encoders width"], weights: Float[Tensor, "clients encoders"]
    ) -> None:
        self._w = weights.unsqueeze(2)
        self._means, log_variances = out.chunk(2, 2)
        self._variances = log_variances.exp()
        self.mean = (self._w * self._means).sum(1)
        self._variance = (self._w.square() * self._variances).sum(1)
        self._deviation = self._variance.sqrt()

    def sample(self, noise: Float[Tensor, "clients latent"]) -> Float[Tensor, "clients latent"]:
        """A draw: mean + deviation x noise."""
        return self._deviation * noise + self.mean

    def divergence(self) -> Float[Tensor, " clients"]:
        """KL(q || N(0, I)) of every client."""
        return (self.mean.square() + self._variance - self._variance.log() - 1).sum(1) / 2

    def gradients(
        self, dz: Float[Tensor, "clients latent"], noise: Float[Tensor, "clients latent"], kl: Float[Tensor, " clients"]
    ) -> tuple[Float[Tensor, "clients encoders width"], Float[Tensor, "clients encoders"]]:
        """Gradients of the encoders' outputs and of the weights.

        Args:
            dz: gradient of the sample by the reconstruction.
            noise: what the sample was drawn with.
            kl: weight of KL(q || N(0, I)) = sum (mean^2 + variance - log variance - 1) / 2.
        """
        share = kl.unsqueeze(1)
        d_mean = (dz + share * self.mean).unsqueeze(1)
        d_variance = (dz * noise / self._deviation + share * (1 - 1 / self._variance)).mul_(0.5).unsqueeze(1)
        weighted = self._w * self._variances * d_variance
        d_weights = (d_mean * self._means + 2 * weighted).sum(2)
        return torch.cat([self._w * d_mean, self._w * weighted], 2), d_weights


def train(
    encoders: Encoders,
    gate: Gate,
    decoder: Decoder,
    rows: OwnRows,
    noise: Float[Tensor, "clients steps latent"],
    scale: Float[Tensor, " clients"],
    beta: float,
) -> None:
    """Full-batch steps of every client on its one row; all layers move together after each step.

    Args:
        encoders: the clients' encoders, which take the steps, as do gate and decoder.
        gate: how the encoders mix.
        decoder: the clients' decoders.
        rows: the items to reconstruct.
        noise: standard normal draws of every step.
        scale: factor of each client's loss.
        beta: weight of the KL term.
    """
    kl = scale * beta
    for e in range(noise.shape[1]):
        posterior = Posterior(encoders.forward(e), gate.weights())
        logits = decoder.forward(e, posterior.sample(noise[:, e]))
        dz = decoder.backward(e, multinomial_gradient(logits, rows, scale))
        d_out, d_weights = posterior.gradients(dz, noise[:, e], kl)
        encoders.backward(e, d_out)
        gate.backward(e, d_weights)


class SharedLayers:
    """The shared layers of a cohort in local training: builds encoders and decoder, and names what they uploaded."""

    def __init__(
        self,
        architecture: Architecture,
        parameters: Mapping[str, Tensor],
        coefficients: Float[Tensor, "steps_and_one steps"],
        inputs: Inputs,
    ) -> None:
        self.architecture, self.parameters = architecture, parameters
        self._coefficients, self._inputs = coefficients, inputs
        self._built: dict[str, LocalAffine | LocalInput] = {}

    def encoder(self, name: str = "encoder", extra_layers: Sequence[FirstLayer] = ()) -> Encoder:
        """The encoder of that name; further first layers, given as `extra_layers`, share its trunk."""
        first = LocalInput(*self._layer(f"{name}.0"), self._coefficients, self._inputs)
        self._built[f"{name}.0"] = first
        names = [f"{name}.{j}" for j in range(1, len(self.architecture.encoder) - 1)]
        return Encoder([first, *extra_layers], Trunk([self._affine(n) for n in names]))

    def decoder(self) -> Decoder:
        """The decoder."""
        first, *others = (self._affine(f"decoder.{j}") for j in range(len(self.architecture.decoder) - 1))
        return Decoder(first, Trunk(others))

    def changes(self) -> dict[str, LayerChange]:
        """Change of every layer by training, by name; the layers are used up."""
        return {name: layer.change() for name, layer in self._built.items()}

    def _affine(self, name: str) -> LocalAffine:
        layer = LocalAffine(*self._layer(name), self._coefficients)
        self._built[name] = layer
        return layer

    def _layer(self, name: str) -> tuple[Tensor, Tensor]:
        return self.architecture.layer(self.parameters, name)


def encode(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    inputs: Inputs,
    changes: Mapping[str, LayerChange],
    encoder: str = "encoder",
) -> Float[Tensor, "clients width"]:
    """Mean and log variance of every client, side by side, from the first step of `inputs`.

    Args:
        architecture: widths.
        parameters: shared parameters.
        inputs: the rows, as a rule with nothing dropped.
        changes: what local training made of the layers; empty for the shared model.
        encoder: name of the encoder.
    """
    weight, bias = architecture.layer(parameters, f"{encoder}.0")
    change = changes.get(f"{encoder}.0")
    h = inputs.times(weight, inputs.rows.items)[0].add_(bias)
    if change is not None:
        h = changed(h, inputs.dense()[:, 0], change)
    return behind(architecture, parameters, h, changes, encoder)


def behind(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    h: Float[Tensor, "clients first"],
    changes: Mapping[str, LayerChange],
    encoder: str = "encoder",
) -> Float[Tensor, "clients width"]:
    """The encoder's output from the output of its first layer, which is used up."""
    for j in range(1, len(architecture.encoder) - 1):
        name = f"{encoder}.{j}"
        h = affine(h.tanh_(), *architecture.layer(parameters, name), changes.get(name))
    return h


def decode(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    z: Float[Tensor, "clients latent"],
    changes: Mapping[str, LayerChange],
) -> Float[Tensor, "clients items"]:
    """Logits of every item."""
    h = affine(z, *architecture.layer(parameters, "decoder.0"), changes.get("decoder.0"))
    for j in range(1, len(architecture.decoder) - 1):
        name = f"decoder.{j}"
        h = affine(h.tanh_(), *architecture.layer(parameters, name), changes.get(name))
    return h
