"""The server of FedPerGNN: item vectors and the network's weights, moved along the mean gradient."""

from collections.abc import Mapping

from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Federation, Message, Purpose, Streams
from privfed.methods.fedpergnn.config import FedPerGNNConfig
from privfed.methods.fedpergnn.model import GraphNetwork
from privfed.methods.method import PublicInfo
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.shared.table_server import initial_table

_OPTIMISER = "optimiser/"


class FedPerGNNServer:
    """Parameters under the names of their blocks: `items`, and the weights of the network."""

    def __init__(self, config: FedPerGNNConfig, public_info: PublicInfo, streams: Streams) -> None:
        network = GraphNetwork(config.dim, config.predictor, config.activation)
        self.parameters = {
            "items": initial_table(streams, public_info.n_items, config.dim, config.initial_scale),
            **network.initial(streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], network.size)[0]),
        }
        self.optimiser = ServerOptimiser(config.server_optimiser, config.server_lr)
        self.schema: Schema = {name: Block(tuple(value.shape)) for name, value in self.parameters.items()}

    def round(self, federation: Federation, t: int) -> None:
        """One optimiser step along the cohort's mean gradient."""
        release = federation.aggregate("train", federation.sample_cohort(t), self.public(), self.schema)
        self.parameters = self.optimiser.step(self.parameters, {name: release.mean(name) for name in self.parameters})

    def public(self) -> Message:
        """All parameters."""
        return Message(self.parameters)

    def state(self) -> dict[str, Tensor]:
        """All parameters and the optimiser's moments."""
        return self.parameters | {_OPTIMISER + name: value for name, value in self.optimiser.state().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = {name: state[name] for name in self.parameters}
        moments = {name.removeprefix(_OPTIMISER): value for name, value in state.items() if name.startswith(_OPTIMISER)}
        self.optimiser.load(moments)
