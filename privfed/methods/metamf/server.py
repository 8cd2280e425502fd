"""The server of MetaMF: a vector for every user, and the meta network, which learn from every user's own gradient."""

from collections.abc import Mapping

import torch
from torch import Tensor

from privfed.contracts import Block, Schema
from privfed.federation import PUBLIC, Federation, Individual, Message, Purpose, Streams
from privfed.methods.metamf.config import MetaMFConfig
from privfed.methods.metamf.model import MetaNetwork
from privfed.methods.method import PublicInfo
from privfed.methods.shared.server_optimiser import ServerOptimiser
from privfed.methods.shared.table_server import initial_table

_USERS = "users"
_OPTIMISER = "optimiser/"
_AT_ONCE = 256
"""Users whose parameters are generated together when gradients are taken, which keeps what that needs small."""


class MetaMFServer:
    """One query for every user's gradient by its generated parameters; the rest of the chain rule is the server's."""

    def __init__(self, config: MetaMFConfig, public_info: PublicInfo, streams: Streams) -> None:
        c, self.clip = config, config.gradient_clip
        self.network = MetaNetwork(public_info.n_items, c.dim, c.rank, c.user_dim, c.memory, c.hidden)
        draws = streams.normal(Purpose.INITIALISE, 0, 1, [PUBLIC], self.network.weights)[0]
        self.parameters = {
            _USERS: initial_table(streams, public_info.n_users, c.user_dim, 1.0),
            **self.network.initial(draws),
        }
        self.optimiser = ServerOptimiser(c.server_optimiser, c.server_lr, c.weight_decay)
        self.schema: Schema = {name: Block(shape) for name, shape in self.network.generated().items()}
        self._message: Message | None = None

    def round(self, federation: Federation, t: int) -> None:
        """Collect gradients, take them back through the meta network, and step."""
        release = federation.collect("train", federation.sample_cohort(t), self.public(), self.schema)
        if not len(release.pseudonyms):
            return
        self.parameters = self.optimiser.step(self.parameters, self._clipped(self._through(release)))
        self._message = None

    def public(self) -> Message:
        """Generated parameters, to each user its own."""
        if self._message is None:
            # Generating is the most work of a round, and a message is asked for several times in one.
            generated = self.network.generate(self.parameters, self.parameters[_USERS])
            self._message = Message({}, generated)
        return self._message

    def state(self) -> dict[str, Tensor]:
        """All that is learned, and the optimiser's moments."""
        return self.parameters | {_OPTIMISER + name: value for name, value in self.optimiser.state().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.parameters = {name: state[name] for name in self.parameters}
        moments = {name.removeprefix(_OPTIMISER): value for name, value in state.items() if name.startswith(_OPTIMISER)}
        self.optimiser.load(moments)
        self._message = None

    def _through(self, release: Individual) -> dict[str, Tensor]:
        """Minus the mean over uploads of every user's gradient by what the server learns."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in self.parameters.items()}
        for some in torch.split(torch.arange(len(release.pseudonyms)), _AT_ONCE):
            generated = self.network.generate(leaves, leaves[_USERS][release.pseudonyms[some]])
            sent = [release.uploads[name][some].to(value.dtype) for name, value in generated.items()]
            torch.autograd.backward(list(generated.values()), sent)
        clients = len(release.pseudonyms)
        return {
            name: torch.zeros_like(value) if value.grad is None else value.grad / clients
            for name, value in leaves.items()
        }

    def _clipped(self, updates: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The round's gradient cut to the clip; clients are bounded by nothing here."""
        if self.clip is None:
            return updates
        norm = sum(float(value.double().square().sum()) for value in updates.values()) ** 0.5
        keep = min(1.0, self.clip / norm) if norm else 1.0
        return {name: value * keep for name, value in updates.items()}
