"""Mult-VAE trained centrally (Liang et al., WWW 2018): what a federated autoencoder would reach without federation.

It has no privacy by design. In round 0 every client of the cohort sends its whole interaction row; from then on the
server trains alone, one epoch of mini-batches per round, and asks for nothing. Per gradient step, with rows r of
unit length and entries dropped at random as the encoder's input,

    loss  mean over users of  -sum_i r_i log softmax_i(decoder(z)) + beta KL(q(z) || N(0, I)),
    beta  cap x min(1, gradient steps so far / anneal_steps),

and Adam. Behind a plan with noise the server sees noisy rows, once; it sets negative entries to zero.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import Field, PositiveInt
from torch import Tensor

from privfed.compute.devices import placed
from privfed.contracts import Block, MethodTraits, Schema
from privfed.federation import (
    PUBLIC,
    SERVER,
    Call,
    Federation,
    Message,
    PrivateState,
    Purpose,
    StatefulClients,
    Streams,
)
from privfed.methods.attack_surface import NamedBlocks
from privfed.methods.client_data import ClientData
from privfed.methods.method import Method, MethodConfig, PublicInfo, ServerReads, Training
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.shared.vae import Architecture, Initialisation, decode, encode
from privfed.methods.shared.vae_clients import UserRows, whole
from privfed.methods.shared.vae_inputs import Inputs, OwnRows
from privfed.updates import ClientUpdates, Rows

HISTORY = "history"
_OPTIMISER = "optimiser/"


class MultVAEConfig(MethodConfig):
    """Autoencoder and central training. The paper's model: hidden (600,), latent 200, lr 1e-3, xavier."""

    latent: int = Field(64, ge=1, description="width of the latent vector")
    hidden: tuple[PositiveInt, ...] = Field(
        (), description="encoder widths between items and latent; the decoder mirrors them"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="share of the input entries dropped in each gradient step")
    batch_size: int | None = Field(500, ge=1, description="users per gradient step; null takes all of them at once")
    beta_cap: float = Field(0.2, ge=0, description="weight of the KL term after annealing")
    anneal_steps: int = Field(
        200, ge=0, description="gradient steps until beta_cap is reached (in the authors' code 40,000)"
    )
    initialisation: Initialisation = Field("torch", description="torch: as torch's Linear; xavier: Glorot, zero biases")
    lr: float = Field(1e-2, gt=0, description="learning rate of Adam; models with hidden layers need about 1e-3")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty in the gradient")

    def beta(self, step: int) -> float:
        """Weight of the KL term after `step` gradient steps."""
        return self.beta_cap * (min(1.0, step / self.anneal_steps) if self.anneal_steps else 1.0)

    def architecture(self, n_items: int) -> Architecture:
        """The autoencoder over a catalogue."""
        return Architecture(n_items, self.latent, self.hidden)


class DivergedError(ValueError):
    """The central loss is not a number any more."""


class MultVAEServer:
    """Public half: the collected rows, the autoencoder and its optimiser.

    It draws under a key of its own, from which no client's key follows.
    """

    def __init__(self, config: MultVAEConfig, public_info: PublicInfo, streams: Streams) -> None:
        self.config, self.architecture = config, config.architecture(public_info.n_items)
        unit = streams.uniform(Purpose.INITIALISE, 0, 0, [PUBLIC], self.architecture.size)[0]
        self.parameters = self.architecture.initial(unit, config.initialisation)
        self.schema: Schema = {HISTORY: Block((public_info.n_items, 1), bound=1)}
        self.rows = torch.zeros(0, public_info.n_items)
        self.optimiser = ServerOptimiser("adam", config.lr, config.weight_decay)
        self._key = streams.words(Purpose.SAMPLES, 0, 0, [SERVER], 8).tobytes()
        self._simulated = streams.simulated

    def round(self, federation: Federation, t: int) -> None:
        """Collect every row in round 0; train for one epoch.

        Raises:
            DivergedError: the loss is not finite.
        """
        if t == 0:
            release = federation.collect("reveal", federation.sample_cohort(t), self.public(), self.schema)
            rows = release.uploads[HISTORY][:, :, 0].clamp(min=0)
            self.rows = rows[rows.any(1)]
        if len(self.rows):
            self._epoch(Streams(self._key, simulated=self._simulated), t)

    def public(self) -> Message:
        """The autoencoder; never the rows."""
        return Message(self.parameters)

    def state(self) -> dict[str, Tensor]:
        """Parameters, Adam's moments, and the rows."""
        moments = {_OPTIMISER + name: value for name, value in self.optimiser.state().items()}
        return {**self.parameters, **moments, HISTORY: self.rows}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        moments = {name: value for name, value in state.items() if name.startswith(_OPTIMISER)}
        self.parameters = {name: value for name, value in state.items() if name not in moments and name != HISTORY}
        self.optimiser.load({name.removeprefix(_OPTIMISER): value for name, value in moments.items()})
        self.rows = state[HISTORY]

    def _epoch(self, own: Streams, t: int) -> None:
        """Every row once, in an order drawn anew."""
        users, width = len(self.rows), self.config.latent
        order = own.uniform(Purpose.SAMPLES, t, 0, [SERVER], users)[0].argsort(stable=True)
        for number, batch in enumerate(torch.split(order, self.config.batch_size or users)):
            rows = self.rows[batch]
            noise = own.normal(Purpose.LATENT, t, number, [SERVER], len(batch) * width)[0].view(len(batch), width)
            words = own.words(Purpose.DROPOUT, t, number, [SERVER], int(rows.count_nonzero()))[0]
            keep = placed(words >= np.uint32(self.config.dropout * 2**32))
            self._step(rows, inputs(rows, keep / (1 - self.config.dropout)), noise, t)

    def _step(
        self, rows: Float[Tensor, "users items"], read: Inputs, noise: Float[Tensor, "users latent"], t: int
    ) -> None:
        """One step of Adam."""
        tracked = {name: value.detach().requires_grad_() for name, value in self.parameters.items()}
        value = loss(self.architecture, tracked, rows, read, noise, self.config.beta(self.optimiser.steps))
        if not value.isfinite():
            raise DivergedError(
                f"training of multvae diverged: its loss is {value.item()} in round {t + 1}; lower its lr, now "
                f"{self.config.lr:g}, and start again"
            )
        gradients = torch.autograd.grad(value, list(tracked.values()))
        downhill = {name: -gradient for name, gradient in zip(tracked, gradients, strict=True)}
        self.parameters = self.optimiser.step(self.parameters, downhill)


def inputs(rows: Float[Tensor, "users items"], factors: Float[Tensor, " entries"]) -> Inputs:
    """What the encoder reads: rows of unit length, each entry that is not zero times its factor."""
    owner, items = rows.nonzero(as_tuple=True)
    lengths = torch.linalg.vector_norm(rows, dim=1)
    own = OwnRows(owner, items, torch.bincount(owner, minlength=len(rows)), rows.shape[1])
    return Inputs(own, (rows[owner, items] / lengths[owner] * factors).unsqueeze(0))


def loss(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    rows: Float[Tensor, "users items"],
    read: Inputs,
    noise: Float[Tensor, "users latent"],
    beta: float,
) -> Float[Tensor, ""]:
    """Mean over users of -sum_i r_i log softmax_i(decoder(z)) + beta KL(q(z) || N(0, I)).

    Args:
        architecture: widths.
        parameters: of the autoencoder.
        rows: to reconstruct.
        read: what the encoder reads of them.
        noise: standard normal draws; z = mean + deviation x noise.
        beta: weight of the KL term.
    """
    mean, log_variance = encode(architecture, parameters, read, {}).chunk(2, 1)
    logits = decode(architecture, parameters, mean + noise * (log_variance / 2).exp(), {})
    likelihood = (rows * logits.log_softmax(1)).sum(1)
    kl = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
    return (beta * kl - likelihood).mean()


class MultVAEClients(StatefulClients):
    """Private halves: each user's row, and no parameters."""

    steps = frozenset({"reveal"})

    def __init__(self, config: MultVAEConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.architecture, self.rows = config.architecture(data.n_items), UserRows(data.positives)
        self.private = PrivateState({})

    def reveal(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The whole row: a one for every training item."""
        mine = self.rows.of(call.clients)
        ones = torch.ones(len(mine.items), 1)
        return ClientUpdates(call.clients, call.schema, [Rows(HISTORY, mine.owner, mine.items, ones)])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the decoder at the posterior mean of the device's own row, nothing dropped."""
        read = whole(self.rows.of(clients), message.shared["encoder.0.weight"].dtype)
        mean, _ = encode(self.architecture, message.shared, read, {}).chunk(2, 1)
        logits = decode(self.architecture, message.shared, mean, {})
        return logits if candidates is None else torch.gather(logits, 1, candidates)


class MultVAETraining(Training):
    """Histories are collected once and the server trains alone."""

    server = MultVAEServer
    clients = MultVAEClients
    step = None


METHOD = Method(
    name="multvae",
    title="one variational autoencoder, trained centrally on everybody's rows",
    display_name="Mult-VAE",
    source="Mult-VAE, Liang et al., WWW 2018",
    config=MultVAEConfig,
    traits=MethodTraits(release="individual", upload="rows", uploads_once=True),
    training=MultVAETraining(),
    attack_surface=NamedBlocks(HISTORY),
    disclosure=ServerReads("every user's whole interaction list"),
)
