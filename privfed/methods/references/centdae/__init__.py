"""CentDAE as a reference: FedDAE's autoencoder with two encoders and a gate, trained centrally (Li et al., AAAI 2025).

The paper says of it only that it is a central version of FedDAE. Here both encoders and the gate are shared by all
users, and are trained on everybody's rows with the loss of Mult-VAE; the gate is FedDAE's linear layer on the row.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softmax

from privfed.data import Histories
from privfed.federation import PUBLIC, Message, Purpose, Streams
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, PublicInfo
from privfed.methods.preset import PUBLISHED
from privfed.methods.references.centdae.published import AS_PUBLISHED
from privfed.methods.references.multvae.config import MultVAEConfig
from privfed.methods.references.shared.central import CentralTraining
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.references.shared.factors import CENTRAL, WHOLE_LIST
from privfed.methods.references.shared.revealing import RevealingClients
from privfed.methods.references.shared.rows import dropped, epoch_of_rows, multinomial
from privfed.methods.references.shared.training import AdamServer, Draws, Parameters
from privfed.methods.shared.heads import kaiming_uniform
from privfed.methods.shared.vae import Architecture, Posterior, decode, encode
from privfed.methods.shared.vae_clients import whole
from privfed.methods.shared.vae_inputs import Inputs, OwnRows

_ENCODERS = ("encoder", "second")
_GATE = "gate"


class CentDAEConfig(MultVAEConfig):
    """Settings of CentDAE: those of Mult-VAE, among the best of few on validation items of MovieLens-100K."""

    epochs: int = Field(1, ge=1, description="passes over all users in a round")


def initial(config: CentDAEConfig, n_items: int, streams: Streams) -> dict[str, Tensor]:
    """Two encoders that start apart, a decoder, and a gate."""
    architecture, parameters = config.architecture(n_items), dict[str, Tensor]()
    for query, encoder in reversed(list(enumerate(_ENCODERS))):
        unit = streams.uniform(Purpose.INITIALISE, 0, query, [PUBLIC], architecture.size)[0]
        parameters |= architecture.initial(unit, config.initialisation, encoder)
    drawn = streams.uniform(Purpose.INITIALISE, 0, len(_ENCODERS), [PUBLIC], 2 * (n_items + 1))[0]
    return parameters | {
        f"{_GATE}.weight": kaiming_uniform((n_items, 2), n_items, drawn[2:]),
        f"{_GATE}.bias": kaiming_uniform((2,), n_items, drawn[:2]),
    }


def mixed(architecture: Architecture, parameters: Parameters, read: Inputs) -> Posterior:
    """The posterior of every user: both encoders', mixed by the gate."""
    outputs = [encode(architecture, parameters, read, {}, encoder) for encoder in _ENCODERS]
    gate = read.times(parameters[f"{_GATE}.weight"], read.rows.items)[0] + parameters[f"{_GATE}.bias"]
    return Posterior(torch.stack(outputs, 1), softmax(gate, 1))


class CentDAEServer(AdamServer):
    """Server: the autoencoder with two encoders and a gate."""

    def __init__(self, config: CentDAEConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, self.architecture = config, config.architecture(public_info.n_items)
        super().__init__("centdae", config, public_info, streams, initial(config, public_info.n_items, streams))

    def epoch(self, lists: Histories, draws: Draws) -> None:
        """Every row once."""
        for rows in epoch_of_rows(lists, self.config.batch_size, draws):
            read = dropped(rows, self.config.dropout, draws)
            noise = draws.normal(len(rows.counts), self.config.latent)
            self.descend(self.loss, read, noise)

    def loss(self, parameters: Parameters, read: Inputs, noise: Float[Tensor, "users latent"]) -> Float[Tensor, ""]:
        """Mean over users of -sum_i r_i log softmax_i(decoder(z)) + beta KL(q(z) || N(0, I))."""
        posterior, beta = mixed(self.architecture, parameters, read), self.config.beta(self.optimisers[""].steps)
        logits = decode(self.architecture, parameters, posterior.sample(noise), {})
        return (beta * posterior.divergence() - multinomial(logits, read.rows)).mean()

    def published(self, lists: Histories) -> Message:  # noqa: ARG002 (a device encodes its own list)
        """The autoencoder."""
        return Message(self.parameters)


class CentDAEClients(RevealingClients):
    """The clients."""

    def __init__(self, config: CentDAEConfig, data: ClientData, streams: Streams) -> None:
        super().__init__(config, data, streams)
        self.architecture = config.architecture(data.n_items)

    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """Logits of the decoder at the mixed posterior mean of the device's own row."""
        read = whole(rows, model["encoder.0.weight"].dtype)
        return decode(self.architecture, model, mixed(self.architecture, model, read).mean, {})


class CentDAETraining(CentralTraining):
    """Histories are collected once and the server trains alone."""

    server = CentDAEServer
    clients = CentDAEClients


METHOD = Method(
    name="centdae",
    title="one autoencoder with two encoders and a gate, trained centrally on everybody's rows",
    display_name="CentDAE",
    source="CentDAE, Li et al., AAAI 2025",
    config=CentDAEConfig,
    traits=CENTRAL,
    training=CentDAETraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=WHOLE_LIST,
    presets={PUBLISHED: AS_PUBLISHED},
)
