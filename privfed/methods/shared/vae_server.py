"""The server of federated autoencoders: shared parameters and an optimiser on the mean update."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Cohort, Federation, Message, Purpose, Streams
from privfed.methods.method import PublicInfo
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.shared.vae import Architecture
from privfed.methods.shared.vae_config import VAEConfig

COUNTS = "counts"
_UNIFORM_SHARE = 0.1
"""Share of the popularity prior that is uniform, so that unseen items can still be recommended."""


class VAEServer:
    """One query per round for `train`; with the popularity prior, one more for `count` in the first round.

    Args:
        config: settings.
        public_info: size of the catalogue.
        streams: the public key of initial parameters.
        more_encoders: names of further shared encoders.
    """

    def __init__(
        self, config: VAEConfig, public_info: PublicInfo, streams: Streams, more_encoders: Sequence[str] = ()
    ) -> None:
        self.config, self.architecture = config, config.architecture(public_info.n_items)
        self.parameters = initial_parameters(self.architecture, config, streams)
        for query_id, encoder in enumerate(more_encoders, 1):
            drawn = initial_parameters(self.architecture, config, streams, encoder=encoder, query_id=query_id)
            self.parameters |= {name: value for name, value in drawn.items() if name.startswith(encoder)}
        self.schema: Schema = {name: Block(tuple(value.shape)) for name, value in self.parameters.items()}
        self.optimiser: ServerOptimiser = config.optimiser()

    def round(self, federation: Federation, t: int) -> None:
        """Take one optimiser step along the cohort's mean update."""
        cohort = federation.sample_cohort(t)
        if self.config.popularity_prior and self.optimiser.steps == 0:
            self._start_from_popularity(federation, cohort)
        release = federation.aggregate("train", cohort, self.public(), self.schema)
        self.parameters = self.optimiser.step(self.parameters, {name: release.mean(name) for name in self.parameters})

    def public(self) -> Message:
        """All shared parameters."""
        return Message(self.parameters)

    def state(self) -> dict[str, Tensor]:
        """Parameters and the optimiser's moments."""
        moments = {f"optimiser/{name}": value for name, value in self.optimiser.state().items()}
        return {**self.parameters, **moments}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = {name: value for name, value in state.items() if "/" not in name}
        prefix = "optimiser/"
        self.optimiser.load(
            {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        )

    def _start_from_popularity(self, federation: Federation, cohort: Cohort) -> None:
        items = self.architecture.n_items
        release = federation.aggregate("count", cohort, Message({}), {COUNTS: Block((items,))})
        shares = release.mean(COUNTS).clamp(min=0).double()
        shares = shares / shares.sum().clamp(min=torch.finfo(torch.float64).tiny)
        prior = ((1 - _UNIFORM_SHARE) * shares + _UNIFORM_SHARE / items).log()
        name = f"{self.architecture.last}.bias"
        self.parameters = {**self.parameters, name: (prior - prior.mean()).float()}


def initial_parameters(
    architecture: Architecture, config: VAEConfig, streams: Streams, *, encoder: str = "encoder", query_id: int = 0
) -> dict[str, Tensor]:
    """Public initial parameters: everybody may know them and no data enters them.

    `query_id`, a query id, is part of the random address, so that a second encoder starts elsewhere.
    """
    unit = streams.uniform(Purpose.INITIALISE, 0, query_id, [PUBLIC], architecture.size)[0]
    return architecture.initial(unit, config.initialisation, encoder)
