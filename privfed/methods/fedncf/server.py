"""The server of FedNCF: item table and perceptron, averaged."""

from collections.abc import Mapping

from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams
from privfed.methods.fedncf.config import FedNCFConfig
from privfed.methods.method import PublicInfo
from privfed.methods.shared.heads import NeuralHead, initial_perceptron
from privfed.methods.shared.table_server import initial_table


class FedNCFServer:
    """Server: item table and perceptron, both averaged."""

    def __init__(self, config: FedNCFConfig, public_info: PublicInfo, streams: Streams) -> None:
        head = NeuralHead(config.dim, config.hidden)
        self.parameters: dict[str, Tensor] = {
            "items": initial_table(streams, public_info.n_items, config.dim, config.initial_scale),
            **initial_perceptron(head, streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], head.size)[0]),
        }
        self.schema: Schema = {name: Block(tuple(p.shape)) for name, p in self.parameters.items()}

    def round(self, federation: Federation, t: int) -> None:
        """Average the cohort's updates of every block."""
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.parameters = {name: p + release.mean(name) for name, p in self.parameters.items()}

    def public(self) -> Message:
        """Item table and perceptron."""
        return Message(self.parameters)

    def state(self) -> dict[str, Tensor]:
        """All public parameters."""
        return dict(self.parameters)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = dict(state)
