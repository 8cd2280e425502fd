"""FedVAE: one shared variational autoencoder (the federated Mult-VAE that FedDAE compares with, Li et al., AAAI 2025).

Each client takes a few SGD steps on its one row; the server takes one optimiser step along the mean update.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.contracts import DefaultClip, MethodTraits, half_of_median
from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.fedvae.published import AS_PUBLISHED
from privfed.methods.method import Method, ServerReads, Training
from privfed.methods.preset import PUBLISHED
from privfed.methods.shared.vae import OneEncoder, SharedLayers, decode, encode, train
from privfed.methods.shared.vae_clients import LocalRound, UserRows, changes_in, counted, uploaded, whole
from privfed.methods.shared.vae_config import VAEConfig, in_cache
from privfed.methods.shared.vae_server import VAEServer
from privfed.methods.shared.warm_start import GramFactors, autoencoder
from privfed.updates import ClientUpdates


class FedVAEClients(StatefulClients):
    """Clients: each user's row, and no parameters."""

    steps = frozenset({"count", "train"})

    def __init__(self, config: VAEConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.config, self.architecture = config, config.architecture(data.n_items)
        self.rows = UserRows(data.positives)
        self.private = PrivateState({})

    def count(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """Own items, for the popularity prior."""
        return counted(self.rows.select(call.clients), call)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local steps on the whole autoencoder."""
        dtype = message.shared["encoder.0.weight"].dtype
        local = LocalRound.from_call(self.config, self.rows.select(call.clients), call, dtype)
        shared = SharedLayers(self.architecture, message.shared, local.coefficients, local.inputs)
        gate = OneEncoder(len(call.clients), dtype)
        train(shared.encoder(), gate, shared.decoder(), local.rows, local.noise, local.scale, local.beta)
        return uploaded(self.architecture, call, shared.changes())

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the decoder at the posterior mean, nothing dropped."""
        changes, shared = changes_in(self.architecture, updates), message.shared
        inputs = whole(self.rows.select(clients), shared["encoder.0.weight"].dtype)
        mean, _ = encode(self.architecture, shared, inputs, changes).chunk(2, 1)
        logits = decode(self.architecture, shared, mean, changes)
        return logits if candidates is None else torch.gather(logits, 1, candidates)


class FedVAETraining(Training):
    """Every client takes a few steps on its row; the server takes one along their mean."""

    server = VAEServer
    clients = FedVAEClients
    chunk = staticmethod(in_cache)
    # All rows of a call go through one matrix product, whose rounding depends on how many there are.
    bit_parity = False

    def extra_queries(self, config: VAEConfig) -> int:
        """One for the popularity prior."""
        return int(config.popularity_prior)

    def warm_start(self, config: VAEConfig, state: Mapping[str, Tensor], message: Message) -> Mapping[str, Tensor]:
        """Encoder and decoder at the factors of the released weights."""
        return autoencoder(state, GramFactors.from_message(message, config.latent))


METHOD = Method(
    name="fedvae",
    title="one shared variational autoencoder over interaction rows",
    display_name="FedVAE",
    source="FedVAE baseline of FedDAE, Li et al., AAAI 2025, after Mult-VAE, Liang et al., WWW 2018",
    config=VAEConfig,
    traits=MethodTraits(release="total", upload="dense"),
    training=FedVAETraining(),
    attack_surface=NamedBlocks("decoder.*.weight", "encoder.0.weight", "decoder.*.bias"),
    disclosure=ServerReads("the sums of autoencoder updates"),
    presets={PUBLISHED: AS_PUBLISHED},
    clip_norms=(
        DefaultClip(
            "upload",
            0.003,
            0.05,
            "on the flat side of a grid by validation NDCG@20 at epsilon 8 on MovieLens-100K, Tenrec and Douban books",
        ),
        *half_of_median(upload_l1=3.4),
    ),
)
