"""`HonestRun`: what an honest server has trained, and what it asks next, for a lying one to ask in its own way."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from privfed.contracts import Schema
from privfed.engines.simulation import Simulation
from privfed.federation import Cohort, Federation, Individual, Message, Total
from privfed.methods import ItemBlocks
from privfed.privacy import Ledger
from privfed.setup.assembly import Assembly


@dataclass(frozen=True, slots=True, eq=False)
class HonestQuery:
    """One query of an honest server.

    Attributes:
        step: of the clients.
        message: that was sent, not yet addressed.
        schema: blocks that may come back.
    """

    step: str
    message: Message
    schema: Schema


@dataclass(slots=True, eq=False)
class RecordingFederation:
    """A `Federation` that keeps every query of a round.

    Attributes:
        federation: that answers.
        queries: in the order in which they were made.
    """

    federation: Federation
    queries: list[HonestQuery] = field(default_factory=list)

    def sample_cohort(self, round: int) -> Cohort:
        """The round's cohort."""
        return self.federation.sample_cohort(round)

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """The sum, as the federation gives it."""
        self.queries.append(HonestQuery(step, message, schema))
        return self.federation.aggregate(step, cohort, message, schema)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Single uploads, as the federation gives them."""
        self.queries.append(HonestQuery(step, message, schema))
        return self.federation.collect(step, cohort, message, schema)


@dataclass(frozen=True, slots=True, eq=False)
class HonestRun:
    """A run after some honest rounds.

    Attributes:
        devices: private tensors of all clients.
        queries: of the round after.
    """

    devices: dict[str, Tensor]
    queries: Sequence[HonestQuery]


def trained(assembly: Assembly, rounds: int) -> HonestRun:
    """Train an assembled run for so many rounds, and record the queries of the next one."""
    config = assembly.config
    simulation = Simulation(
        assembly.clients,
        config.privacy,
        assembly.n_users,
        assembly.streams,
        Ledger(config.privacy, assembly.n_users, None, run=config.digest()),
        chunk=config.chunk or assembly.registered.training.preferred_chunk(),
        fidelity=config.fidelity,
        support=assembly.support,
    )
    for t in range(rounds):
        simulation.run(assembly.server, t)
    devices, recording = assembly.clients.state(), RecordingFederation(simulation)
    assembly.server.round(recording, rounds)
    return HonestRun(devices, recording.queries)


def about_items(assembly: Assembly, queries: Sequence[HonestQuery]) -> tuple[HonestQuery, ItemBlocks] | None:
    """The query that says most about items, and which of its blocks do; None where no query says anything.

    That is the one whose blocks the method's attack surface names; else the first with a block that has a row for
    every item.
    """
    blocks, n_items = assembly.item_blocks, assembly.parts.train.n_items
    if blocks is not None:
        for query in queries:
            if query.schema.keys() == assembly.server.schema.keys():
                return query, blocks
    for query in queries:
        named = [name for name, block in query.schema.items() if block.shape[:1] == (n_items,)]
        if named:
            return query, ItemBlocks(named[0])
    return None
