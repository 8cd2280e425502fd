"""Training of methods that learn each positive against sampled negatives, with an item table on the server or not."""

from typing import Protocol

from privfed.methods.method import NegativeSampling, Training
from privfed.methods.shared.table_server import TableServer


class SamplingConfig(Protocol):
    """Settings of such a method."""

    @property
    def negatives(self) -> int:
        """Negatives per positive."""


class SampledTraining(Training):
    """Distinct negatives of every positive are drawn once a round."""

    def negatives(self, config: SamplingConfig) -> NegativeSampling:
        """As many per positive as the settings say."""
        return NegativeSampling(config.negatives)


class TableTraining(SampledTraining):
    """The same, with one item table that the server averages."""

    server = TableServer.from_config
