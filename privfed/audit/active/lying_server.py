"""`LyingServer`: asks what an honest server asked, of whom it likes, with a model of its own making."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from attacks import ServerView
from attacks.active import Craft
from privfed.audit.active.honest_run import HonestQuery
from privfed.audit.active.lies import Lie
from privfed.audit.active.silenced_clients import SilencedClients
from privfed.engines.simulation import Simulation
from privfed.federation import Call, Clients, Message
from privfed.methods import ItemBlocks
from privfed.privacy import Ledger
from privfed.setup.assembly import Assembly
from privfed.updates import ClientUpdates

Blocks = Mapping[str, Tensor]


class _RosterSimulation(Simulation):
    """A simulation in which the server says who takes part."""

    roster: Int64[Tensor, " members"]

    def members(self, round: int) -> Int64[Tensor, " members"]:  # noqa: ARG002 (whatever the round)
        return self.roster


@dataclass(slots=True, eq=False)
class LyingServer:
    """A server that lies to the clients of an assembled run; each of its probes is a query of a round of its own.

    The clip, noise, sums and refusals of a probe are those of the run's plan, executed by the same engine.

    Attributes:
        assembly: under the plan in question, with the devices as they are after training.
        query: that an honest server makes.
    """

    assembly: Assembly
    query: HonestQuery
    round: int = 1
    _clients: SilencedClients = field(init=False)
    _federation: _RosterSimulation = field(init=False)
    _single: list[dict[str, Tensor]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        assembly, config = self.assembly, self.assembly.config
        self._clients = SilencedClients(assembly.clients)
        self._federation = _RosterSimulation(
            self._clients,
            config.privacy,
            assembly.n_users,
            assembly.streams,
            Ledger(config.privacy, assembly.n_users, None, run=config.digest()),
            chunk=config.chunk or assembly.registered.training.preferred_chunk(),
            fidelity=config.fidelity,
            support=assembly.support,
            observers=[self._observe],
        )

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.assembly.parts.train.n_items

    def crafted(self, craft: Craft) -> Message:
        """The query's message with what all are sent crafted; what is addressed to single users stays as it was."""
        message = self.query.message
        shared = craft.model({name: values.numpy() for name, values in message.shared.items()}, self.n_items)
        return Message({name: torch.from_numpy(v) for name, v in shared.items()}, message.personal, message.config)

    def sum(
        self, message: Message, roster: Int64[Tensor, " members"], heard: Int64[Tensor, " heard"] | None = None
    ) -> Blocks:
        """What a sum over `roster` opens.

        Args:
            message: that those who are heard train on.
            roster: who takes part, ascending.
            heard: who is sent the message; the others are sent a broken model. None sends it to all.

        Raises:
            TooFewClientsError: the plan opens no sum of so few.
        """
        self._federation.roster, self._clients.heard = roster, heard
        self.round += 1
        try:
            cohort = self._federation.sample_cohort(self.round)
            return self._federation.aggregate(self.query.step, cohort, message, self.query.schema).sums
        finally:
            self._clients.discard()

    def isolated(
        self, message: Message, lie: Lie, cohorts: Mapping[int, Int64[Tensor, " members"]]
    ) -> Iterator[tuple[int, Blocks]]:
        """A sum for every target, by the number of the target.

        Args:
            message: that targets train on.
            lie: how one is isolated.
            cohorts: target -> everybody who would take part, the target first.
        """
        for target, cohort in cohorts.items():
            size = lie.roster_size(self.assembly.config.privacy, len(cohort))
            heard = torch.tensor([target]) if lie.unequal_models else None
            yield target, self.sum(message, cohort[:size].sort().values, heard)

    def uploads(self, message: Message, users: Int64[Tensor, " users"]) -> Blocks:
        """Single uploads of `users`, ascending, under a plan that leaves uploads as they are."""
        config, self._clients.heard = self.assembly.config, None
        collects = self.assembly.registered.traits.release == "individual"
        ask = self._federation.collect if collects else self._federation.aggregate
        self._single.clear()
        for roster in torch.split(users, config.privacy.sampling.max_cohort(self.assembly.n_users)):
            self._federation.roster = roster
            self.round += 1
            ask(self.query.step, self._federation.sample_cohort(self.round), message, self.query.schema)
        return {name: torch.cat([chunk[name] for chunk in self._single]) for name in self.query.schema}

    def _observe(self, clients: Clients, call: Call, message: Message, updates: ClientUpdates) -> None:  # noqa: ARG002
        if self.assembly.config.privacy.unprotected:
            self._single.append(updates.materialise(torch.arange(len(call.clients))))


def item_view(blocks: ItemBlocks, received: Blocks, round: int = 0) -> ServerView:
    """What n uploads or sums say about items, `[n, *shape]` each, as a view of n people."""
    roles = {role: _rows(values, wide=role != "bias") for role, values in blocks.read(received).items()}
    return ServerView(round, **roles)


def _rows(values: Tensor, *, wide: bool) -> Float32[np.ndarray, "n items ..."]:
    array = values.float().numpy()
    return array[:, :, None] if wide and array.ndim == 2 else array.reshape(*array.shape[:2], -1) if wide else array
