"""RecVAE as a reference, trained centrally on everybody's rows (Shenbin et al., WSDM 2020).

An epoch trains the encoder for some passes on rows with dropped entries, makes it the former posterior of the prior,
and then trains the decoder on whole rows.
"""

from collections.abc import Mapping
from functools import partial

from jaxtyping import Float
from torch import Tensor

from privfed.data import Histories
from privfed.federation import PUBLIC, Message, Purpose, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, PublicInfo
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.recvae.model import (
    DECODER,
    ENCODER,
    PRIOR,
    RecVAEConfig,
    as_prior,
    decode,
    loss,
    posterior,
)
from privfed.methods.references.recvae.published import AS_PUBLISHED
from privfed.methods.references.shared.central import CentralTraining
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST
from privfed.methods.references.shared.revealing import RevealingClients
from privfed.methods.references.shared.rows import dropped, epoch_of_rows
from privfed.methods.references.shared.training import AdamServer, Draws, below
from privfed.methods.shared.vae_clients import whole
from privfed.methods.shared.vae_inputs import OwnRows


class RecVAEServer(AdamServer):
    """Server: encoder, decoder, and the encoder of the last epoch."""

    def __init__(self, config: RecVAEConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, n_items = config, public_info.n_items
        unit = streams.uniform(Purpose.INITIALISE, 0, 0, [PUBLIC], config.size(n_items))[0]
        parameters = config.initial(n_items, unit)
        super().__init__("recvae", config, public_info, streams, parameters, (ENCODER, DECODER))

    def epoch(self, lists: Histories, draws: Draws) -> None:
        """Passes for the encoder, a new prior, and passes for the decoder."""
        for _ in range(self.config.encoder_epochs):
            self._pass(lists, draws, ENCODER, self.config.dropout)
        self.parameters |= as_prior(self.parameters)
        for _ in range(self.config.decoder_epochs):
            self._pass(lists, draws, DECODER, 0.0)

    def published(self, lists: Histories) -> Message:  # noqa: ARG002 (a device encodes its own list)
        """Encoder and decoder."""
        return Message({name: value for name, value in self.parameters.items() if not name.startswith(PRIOR)})

    def _pass(self, lists: Histories, draws: Draws, part: str, dropout: float) -> None:
        for rows in epoch_of_rows(lists, self.config.batch_size, draws):
            read = dropped(rows, dropout, draws)
            noise = draws.normal(len(rows.counts), self.config.latent)
            self.descend(partial(loss, self.config), read, noise, part=part)


class RecVAEClients(RevealingClients):
    """The clients."""

    def __init__(self, config: RecVAEConfig, data: ClientData, streams: Streams) -> None:
        super().__init__(config, data, streams)
        self.config = config

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """Logits of the decoder at the posterior mean of the device's own row."""
        encoder = below(ENCODER, model)
        mean, _ = posterior(self.config.depth, encoder, whole(rows, encoder["0.weight"].dtype))
        return decode(model, mean)


class RecVAETraining(CentralTraining):
    """Histories are collected once and the server trains alone."""

    server = RecVAEServer
    clients = RecVAEClients


METHOD = Method(
    name="recvae",
    title="variational autoencoder with a composite prior, encoder and decoder trained in turns, centrally",
    display_name="RecVAE",
    source="RecVAE, Shenbin et al., WSDM 2020",
    config=RecVAEConfig,
    traits=CENTRAL,
    training=RecVAETraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)

__all__ = ["METHOD", "RecVAEClients", "RecVAEConfig", "RecVAEServer"]
