"""The server of Mult-VAE: collected rows, and an autoencoder trained on them."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from privfed.compute.devices import placed
from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, SERVER, Federation, Message, Purpose, Streams
from privfed.methods.method import PublicInfo
from privfed.methods.references.multvae.config import MultVAEConfig
from privfed.methods.references.multvae.model import inputs, loss
from privfed.methods.references.shared.training import DivergedError
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.shared.vae_inputs import Inputs

HISTORY = "history"
_OPTIMISER = "optimiser/"


class MultVAEServer:
    """Server: the collected rows, the autoencoder and its optimiser.

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
