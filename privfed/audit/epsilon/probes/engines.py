"""What two engines release of prescribed uploads: `Simulation`, and a federation over nodes in this process.

Both run the code of a run: guards, ledgers, codec, masked sums. An audit is a simulation: everything that decides what
is released follows from its seed, also the keys and salts that the nodes of a deployment draw from the operating
system. Only the masks of a sum are drawn afresh, and these cancel.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from privfed.audit.active.stateless import StatelessServer
from privfed.audit.epsilon.probes.uploads import STEP, PrescribedClients, PrescribedUploads, in_slots
from privfed.contracts import Fidelity, Schema
from privfed.data import Histories, Split, SplitSpec
from privfed.engines.nodes.announcement import RUN_BYTES, Announcement
from privfed.engines.nodes.codec import Address, Packet
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Answer, Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party, found_federation
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.simulation import Simulation
from privfed.federation import Federation, FederationError, Message, Streams
from privfed.guards import ServerGuard
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig

NODES = 3
"""Nodes of a federation; fewer open no masked sum."""

_METHOD = "pfedrec"
"""Whose client side a node builds; its clients are replaced before the first query."""
_ITEMS = 8
_ROOT_FILE = "secret.key"

Released = Sequence[Mapping[str, Float64[Tensor, "rounds units size"]]]
"""Of every query: block -> weighted values over the clip norm of the query, per round and upload or slot."""


@dataclass(frozen=True, slots=True)
class Probe:
    """How uploads are released.

    Attributes:
        plan: of the run, with everybody in every round.
        each: whether every upload is released by itself, or the sum.
        rounds: numbers of the rounds.
        seed: of all keys.
        fidelity: how closely a simulation keeps to the wire.
    """

    plan: PrivacyPlan
    each: bool
    rounds: Sequence[int]
    seed: int
    fidelity: Fidelity = "exact"


@dataclass(frozen=True, slots=True)
class Engine:
    """What carries uploads to a server.

    Attributes:
        label: part of every seed, so that numbers do not depend on the names of code.
        release: what it releases of the uploads of a probe.
    """

    label: str
    release: Callable[[Probe, PrescribedUploads], Released]


@dataclass(slots=True, eq=False)
class _Queries(StatelessServer):
    """A server that makes the queries of a probe and keeps what is released."""

    probe: Probe
    uploads: PrescribedUploads
    clip_norm: Callable[[str], float | None]
    released: list[list[dict[str, Tensor]]] = field(default_factory=list)
    schema: Schema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = self.uploads.query_schemas[0]

    def round(self, federation: Federation, t: int) -> None:
        """All queries of one round."""
        cohort, revealed = federation.sample_cohort(t), list[dict[str, Tensor]]()
        for short, schema in zip(self.uploads.schemas, self.uploads.query_schemas, strict=True):
            clip = self.probe.plan.mechanism.clip
            norm = self.clip_norm(STEP) or (1.0 if clip is None else clip.norm)
            if self.probe.each:
                released = federation.collect(STEP, cohort, Message({}), schema).uploads
            else:
                released = federation.aggregate(STEP, cohort, Message({}), schema).sums
            revealed.append({name: in_slots(released[name], block) / norm for name, block in short.items()})
        self.released.append(revealed)

    def stacked(self) -> Released:
        """What was released, over rounds.

        Raises:
            FederationError: a round was aborted.
        """
        if len(self.released) != len(self.probe.rounds):
            raise FederationError(
                f"{len(self.released)} of {len(self.probe.rounds)} rounds of the audit were completed under the plan "
                f"{self.probe.plan.name!r}; all must be: look for what refuses them"
            )
        return [
            {name: torch.stack([queries[number][name] for queries in self.released]) for name in schema}
            for number, schema in enumerate(self.uploads.schemas)
        ]


def _release_simulated(probe: Probe, uploads: PrescribedUploads) -> Released:
    """What a simulation releases."""
    ledger = Ledger(probe.plan, uploads.population)
    engine = Simulation(
        PrescribedClients(uploads),
        probe.plan,
        uploads.population,
        Streams.from_seed(probe.seed),
        ledger,
        fidelity="analytic" if probe.fidelity == "analytic" else "exact",
    )
    server = _Queries(probe, uploads, engine.server_guard.clip_norm)
    for t in probe.rounds:
        engine.run(server, t)
    return server.stacked()


def _release_over_nodes(probe: Probe, uploads: PrescribedUploads) -> Released:
    """What nodes send and the server over them releases."""
    population = uploads.population
    config = ExperimentConfig(
        data="prescribed uploads", method={"name": _METHOD, "dim": 1}, privacy=probe.plan, rounds=max(probe.rounds) + 1
    )
    public = _secret(probe.seed, "public")
    shards = np.array_split(np.arange(population), NODES)
    keys = [_secret(probe.seed, f"identity {number}") for number in range(NODES + 1)]
    server_party, parties, _ = found_federation(shards, population, _ITEMS, keys=keys)
    announced = Announcement(
        run=_secret(probe.seed, "run")[:RUN_BYTES].hex(), federation=server_party.federation.digest, config=config,
        seeded=False, public=public.hex(), population=population, items=_ITEMS, queries=len(uploads.schemas),
    )  # fmt: skip
    policy = Policy(
        mechanisms=(probe.plan.mechanism.kind,), max_rounds=config.rounds, max_delta=probe.plan.delta,
        min_own_users=1, own_noise_suffices=False,
        tier="" if probe.plan.tiers is None else probe.plan.tiers.most_chosen,
    )  # fmt: skip
    with TemporaryDirectory(prefix="privfed-audit-", dir=_in_memory()) as folder:
        nodes = {
            party.seat: _node(Path(folder) / str(party.seat), policy, party, population, probe.seed, uploads)
            for party in parties
        }
        guard = ServerGuard(probe.plan, Ledger(probe.plan, population), Streams.from_seed(probe.seed))
        engine = RemoteFederation(InProcess(nodes), announced, server_party, guard)
        server = _Queries(probe, uploads, guard.clip_norm)
        for t in probe.rounds:
            engine.run(server, t)
        if engine.incidents:
            raise FederationError(f"a node of the audit did not answer: {engine.incidents[0].reason}")
    return server.stacked()


simulated = Engine("simulated", _release_simulated)
over_nodes = Engine("over_nodes", _release_over_nodes)


class _SeededNode(Node):
    """A node of the audit, whose users' noise follows from the audit's seed."""

    def __init__(
        self, folder: Path, policy: Policy, data: NodeData, clients: PrescribedClients, party: Party, salt: bytes
    ) -> None:
        super().__init__(folder, policy, data, clients, party)
        self._salt = salt.hex()
        # A process mixes entropy of its own into keys of noise: its noise would differ from audit to audit.
        self.state.entropy = salt

    def _announce(self, packet: Packet, address: Address) -> Answer:
        answer = super()._announce(packet, address)
        # A node salts its users' keys with what nobody can predict, too.
        self.state.record.salt = self._salt
        self.state.memory.assembly = self.private_side.assembled(self.state.run, self._salt)
        return answer


def _node(
    folder: Path,
    policy: Policy,
    party: Party,
    population: int,
    seed: int,
    uploads: PrescribedUploads,
) -> Node:
    """A node of the audit, whose key and salt follow from the seed."""
    folder.mkdir(parents=True)
    (folder / _ROOT_FILE).write_bytes(_secret(seed, f"node {folder.name}"))
    salt = _secret(seed, f"salt of node {folder.name}")
    data = NodeData(party.federation.users(party.seat), _nobody(population))
    return _SeededNode(folder, policy, data, PrescribedClients(uploads), party, salt)


def _nobody(population: int) -> Split:
    """Users without items."""
    blank = partial(np.empty, 0, np.int64)
    train, valid, test = (Histories.from_pairs(blank(), blank(), population, _ITEMS) for _ in range(3))
    return Split(SplitSpec(), train, valid, test, 0)


def _in_memory() -> Path | None:
    """A folder that no disk is behind, where there is one: nodes wait for the disk after every message."""
    shared = Path("/dev/shm")  # noqa: S108 (only where it is there and may be written)
    return shared if os.access(shared, os.W_OK | os.X_OK) else None


def _secret(seed: int, whose: str) -> bytes:
    return hashlib.sha256(f"privfed mechanism audit {seed} {whose}".encode()).digest()
