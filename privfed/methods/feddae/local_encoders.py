"""Kinds of local encoders: the state that each keeps, how it trains and how it encodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.methods.feddae.config import FedDAEConfig
from privfed.methods.feddae.server import SECOND
from privfed.methods.feddae.vae_personal import LocalOptimiser, PersonalAffine, PersonalInput, TwoEncoders, UserVectors
from privfed.methods.shared.vae import Architecture, Encoder, Encoders, SharedLayers, behind, encode
from privfed.methods.shared.vae_clients import LocalRound
from privfed.methods.shared.vae_inputs import Inputs
from privfed.methods.shared.vae_layers import LayerChange, Trunk

Own = dict[str, Tensor]
"""Personal tensors of some users: `first.rows` has one row per own item, all others one entry per user."""

ROWS = "first.rows"


class LocalEncoding(Protocol):
    """One kind of local encoder."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape per user (per item of the user for `first.rows`) of everything a user keeps."""
        return {}

    def initial(self, users: int, start: Mapping[str, Tensor]) -> Own:
        """Initial state of `users` users, except tensors per item, from a public random encoder `start`."""
        del users, start
        return {}

    def initial_rows(self, items: Int64[Tensor, " k"], start: Mapping[str, Tensor]) -> Own:
        """Initial rows `first.rows` for items of the users; empty where the kind has none."""
        del items, start
        return {}

    def training(self, shared: SharedLayers, personal: Own, local: LocalRound, optimiser: LocalOptimiser) -> Encoders:
        """Both encoders for local training, which changes `personal` in place."""

    def outputs(
        self, parameters: Mapping[str, Tensor], personal: Own, inputs: Inputs, changes: Mapping[str, LayerChange]
    ) -> Tensor:
        """Mean and log variance `[clients, 2 latent]` of the local encoder alone."""


@dataclass(frozen=True, slots=True)
class Embedding(LocalEncoding):
    """A free mean and log variance per user, from the prior N(0, I)."""

    architecture: Architecture

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """One vector of mean and log variance."""
        return {"vectors": (2 * self.architecture.latent,)}

    def initial(self, users: int, start: Mapping[str, Tensor]) -> Own:
        """Zeros: mean 0, variance 1."""
        del start
        return {"vectors": torch.zeros(users, 2 * self.architecture.latent)}

    def training(self, shared: SharedLayers, personal: Own, local: LocalRound, optimiser: LocalOptimiser) -> Encoders:
        """The shared encoder and the vectors."""
        del local
        return TwoEncoders(shared.encoder(), UserVectors(personal["vectors"], optimiser))

    def outputs(
        self,
        parameters: Mapping[str, Tensor],
        personal: Own,
        inputs: Inputs,
        changes: Mapping[str, LayerChange],
    ) -> Float[Tensor, "clients width"]:
        """The vectors."""
        del parameters, inputs, changes
        return personal["vectors"]


@dataclass(frozen=True, slots=True)
class SparseFirstLayer:
    """A first layer per user, ragged; the deeper layers are the shared encoder's, which both rows pass through."""

    architecture: Architecture

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows of the user's items, and a bias."""
        width = self.architecture.encoder[1]
        return {ROWS: (width,), "first.bias": (width,)}

    def initial(self, users: int, start: Mapping[str, Tensor]) -> Own:
        """A copy of the same random bias for every user."""
        # A copy each: users of an expanded tensor would share memory, which local training writes to.
        return {"first.bias": start["encoder.0.bias"].expand(users, -1).clone()}

    def initial_rows(self, items: Int64[Tensor, " k"], start: Mapping[str, Tensor]) -> Own:
        """A copy of the same random layer for every user, without rows that the user never reads."""
        return {ROWS: start["encoder.0.weight"].index_select(0, items)}

    def training(self, shared: SharedLayers, personal: Own, local: LocalRound, optimiser: LocalOptimiser) -> Encoders:
        """Shared and personal first layer in front of one trunk."""
        return shared.encoder(extra_layers=[self.first(personal, local.inputs, optimiser)])

    def outputs(
        self, parameters: Mapping[str, Tensor], personal: Own, inputs: Inputs, changes: Mapping[str, LayerChange]
    ) -> Float[Tensor, "clients width"]:
        """The personal first layer, then the shared ones as the device has tuned them."""
        return behind(self.architecture, parameters, self.hidden(personal, inputs), changes)

    def first(self, personal: Own, inputs: Inputs, optimiser: LocalOptimiser) -> PersonalInput:
        """The first layer for training."""
        return PersonalInput(personal[ROWS], personal["first.bias"], inputs, optimiser)

    def hidden(self, personal: Own, inputs: Inputs) -> Float[Tensor, "clients first"]:
        """Output of the first layer."""
        # Personal rows lie in the order of the inputs' entries, so entry i reads row i. [0]: a single step.
        return inputs.times(personal[ROWS], torch.arange(len(personal[ROWS])))[0].add_(personal["first.bias"])


@dataclass(frozen=True, slots=True)
class FullEncoder:
    """A whole encoder per user: a ragged first layer of the rows that the user reads, and dense others."""

    architecture: Architecture

    @property
    def sparse(self) -> SparseFirstLayer:
        """The encoder's first layer."""
        return SparseFirstLayer(self.architecture)

    @property
    def deeper(self) -> list[str]:
        """Names of the layers behind the first."""
        return [f"encoder.{j}" for j in range(1, len(self.architecture.encoder) - 1)]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows of the user's items, and every other parameter."""
        shapes = self.sparse.shapes()
        for name in self.deeper:
            sides = self.architecture.layers()[name]
            shapes |= {f"own.{name}.weight": sides, f"own.{name}.bias": sides[1:]}
        return shapes

    def initial(self, users: int, start: Mapping[str, Tensor]) -> Own:
        """A copy of the same random encoder for every user."""
        names = [f"{name}.{part}" for name in self.deeper for part in ("weight", "bias")]
        copies = {f"own.{name}": start[name].expand(users, *start[name].shape).clone() for name in names}
        return self.sparse.initial(users, start) | copies

    def initial_rows(self, items: Int64[Tensor, " k"], start: Mapping[str, Tensor]) -> Own:
        """Rows of the first layer."""
        return self.sparse.initial_rows(items, start)

    def training(self, shared: SharedLayers, personal: Own, local: LocalRound, optimiser: LocalOptimiser) -> Encoders:
        """Two encoders that have nothing in common."""
        layers = [
            PersonalAffine(name, personal[f"own.{name}.weight"], personal[f"own.{name}.bias"], optimiser)
            for name in self.deeper
        ]
        encoder = Encoder([self.sparse.first(personal, local.inputs, optimiser)], Trunk(layers))
        return TwoEncoders(shared.encoder(), encoder)

    def outputs(
        self,
        parameters: Mapping[str, Tensor],
        personal: Own,
        inputs: Inputs,
        changes: Mapping[str, LayerChange],
    ) -> Float[Tensor, "clients width"]:
        """The user's own encoder."""
        del parameters, changes
        h = self.sparse.hidden(personal, inputs)
        for name in self.deeper:
            weight, bias = personal[f"own.{name}.weight"], personal[f"own.{name}.bias"]
            # [clients, 1, in] times [clients, in, out]: nothing is shared, so there is no product over all clients.
            h = torch.bmm(h.tanh_().unsqueeze(1), weight).squeeze(1).add_(bias)
        return h


@dataclass(frozen=True, slots=True)
class SecondShared(LocalEncoding):
    """As released: the local encoder is loaded from the server's aggregate, so nothing of it is personal."""

    architecture: Architecture

    def training(self, shared: SharedLayers, personal: Own, local: LocalRound, optimiser: LocalOptimiser) -> Encoders:
        """Two shared encoders, both tuned and both uploaded."""
        del personal, local, optimiser
        return TwoEncoders(shared.encoder(), shared.encoder(SECOND))

    def outputs(
        self,
        parameters: Mapping[str, Tensor],
        personal: Own,
        inputs: Inputs,
        changes: Mapping[str, LayerChange],
    ) -> Float[Tensor, "clients width"]:
        """The second shared encoder."""
        del personal
        return encode(self.architecture, parameters, inputs, changes, SECOND)


def local_encoding(config: FedDAEConfig, architecture: Architecture) -> LocalEncoding:
    """The configured kind."""
    if config.upload_local_encoder:
        return SecondShared(architecture)
    kinds: dict[str, type[Embedding | SparseFirstLayer | FullEncoder]] = {
        "embedding": Embedding,
        "sparse_first_layer": SparseFirstLayer,
        "full": FullEncoder,
    }
    return kinds[config.local_encoder](architecture)
