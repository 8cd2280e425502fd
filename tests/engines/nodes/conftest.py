"""A small federation over nodes: four of them in this process, each behind bytes and with a folder of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.helper import Helper
from privfed.engines.nodes.journal import Journal
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party, found_federation
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.nodes.run import train
from privfed.experiment import Experiment
from privfed.federation import Message
from privfed.guards.server_guard import ServerGuard
from privfed.methods.shared.vae_server import COUNTS
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig
from secure_agg.primitives.keys import Identity

HELPER = 199
KINDS = ("unprotected", "clip_only", "local_laplace", "central_gaussian", "secure_sum", "distributed_gaussian")
OPEN = Policy(
    allow_simulation=True, mechanisms=KINDS, evaluate=True, min_own_users=1, own_noise_suffices=False, max_runs=100
)


class CountServer:
    """A server that asks every round who has which item: its sums can be checked by hand."""

    def __init__(self, items: int) -> None:
        self.schema = {COUNTS: Block((items,))}
        self.sums: list[Any] = []

    def round(self, federation: Any, t: int) -> None:
        total = federation.aggregate("count", federation.sample_cohort(t), Message({}), self.schema)
        self.sums.append((t, total.sums[COUNTS].clone()))

    def public(self) -> Message:
        return Message({})

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Any) -> None:
        del state


@dataclass
class Federation:
    """Everything that one run over nodes needs."""

    folder: Path
    parts: Any
    config: ExperimentConfig
    shards: list[np.ndarray]
    policy: Policy = OPEN
    seeded: bool = True
    corrupt: int = 0
    helping: Identity | None = None
    nodes: dict[int, Any] = field(default_factory=dict)
    data: dict[int, NodeData] = field(default_factory=dict)
    parties: dict[int, Party] = field(default_factory=dict)
    server: Party = field(init=False)

    def __post_init__(self) -> None:
        train = self.parts.train
        self.server, parties, self.operator = found_federation(
            self.shards, train.n_users, train.n_items, names=[f"node{100 + n}" for n in range(len(self.shards))],
            corrupt=self.corrupt, helper=b"" if self.helping is None else self.helping.public,
        )  # fmt: skip
        if self.helping is not None:
            self.policy = self.policy.model_copy(update={"helper": self.helping.public.hex()})
            self.helper = self.new_helper()
        for place, users in enumerate(self.shards):
            number = 100 + place
            self.data[number] = NodeData.from_split(self.parts, users, public=self.public)
            self.parties[number] = parties[place]
            self.nodes[number] = self.node(number)

    def node(self, number: int, **changes: Any) -> Node:
        """The process of a node, anew."""
        given = {"policy": self.policy, "data": self.data[number], "party": self.parties[number]} | changes
        return Node(self.folder / f"node{number}", **given)

    def new_helper(self, **changes: Any) -> Helper:
        """The process of the helper, anew."""
        assert self.helping is not None
        party = Party.from_identity(self.server.federation, self.helping)
        return Helper(self.folder / "helper", **{"policy": self.policy, "party": party} | changes)

    @property
    def handlers(self) -> dict[int, Any]:
        """The nodes, and the helper as whichever process it is when it is asked."""
        return {**self.nodes, **({} if self.helping is None else {HELPER: lambda: self.helper})}

    def announced(self, **changes: Any) -> Announcement:
        """A new run."""
        return Announcement.from_config(
            self.config, self.server_data, self.server.federation, **{"seeded": self.seeded} | changes
        )

    @property
    def public(self) -> bool:
        return self.config.registered().traits.public_target

    @property
    def server_data(self) -> NodeData:
        return NodeData.for_server(self.parts, public=self.public)

    def fresh(self) -> dict[int, Callable[[], Node]]:
        """A new process for every message, as far as memory goes."""
        return {n: lambda n=n: self.node(n) for n in self.nodes}

    def simulated(self) -> tuple[Experiment, list[str]]:
        """The same experiment in one process, and the lines of its ledger."""
        folder = self.folder / "simulation"
        folder.mkdir(exist_ok=True)
        experiment = Experiment(self.config, self.parts)
        experiment.run(folder, parts=())
        return experiment, (folder / "ledger.jsonl").read_text().splitlines()

    def train(self, transport: Any = None, name: str = "server", **changes: Any) -> Any:
        transport = transport or InProcess(self.handlers)
        given = {"party": self.server, "transport": transport, "folder": self.folder / name, "seeded": self.seeded}
        return train(self.config, self.server_data, **given | changes)

    def ledger_lines(self, name: str = "server") -> list[str]:
        return (self.folder / name / "ledger.jsonl").read_text().splitlines()

    def remote(self, transport: Any = None, *, journal: Journal | None = None) -> RemoteFederation:
        """The federation alone, for asks that no method makes."""
        announced = self.announced()
        assembly = announced.assemble(self.server_data, bytes(32))
        ledger = Ledger(self.config.privacy, self.parts.train.n_users)
        guard = ServerGuard(self.config.privacy, ledger, assembly.streams)
        return RemoteFederation(
            transport or InProcess(self.handlers), announced, self.server, guard, journal=journal, timeout=60
        )

    def counts(self, users: np.ndarray) -> torch.Tensor:
        """Who has which item, added up over some users."""
        held = np.zeros(self.parts.train.n_items)
        np.add.at(held, self.parts.train.subset(users).items, 1)
        return torch.from_numpy(held).float()


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives a power cut, so nothing waits until the disk has it."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def federation(small_split: Any, tmp_path: Path) -> Callable[..., Federation]:
    """Build one: `federation("feddae", "secure-sum:clip_norm=1.0", rounds=3)`."""

    def build(
        method: str = "feddae", plan: str = "secure-sum:clip_norm=10.0", *, settings: Any = None, nodes: int = 4,
        policy: Policy = OPEN, seeded: bool = True, mixed: bool = False, corrupt: int = 0, helped: bool = False,
        **changes: Any,
    ) -> Federation:  # fmt: skip
        fields = {"rounds": 2, "chunk": 16, "seed": 3} | changes
        config = ExperimentConfig(
            method={"name": method, **(settings or {})}, privacy=PrivacyPlan.parse(plan), **fields
        )
        everybody = np.arange(45)
        if mixed:
            shards = [everybody[place::nodes] for place in range(nodes)]
        elif nodes == 3:
            shards = [everybody[:16], everybody[16:32], everybody[32:]]
        else:
            shards = [np.sort(some) for some in np.array_split(everybody, nodes)]
        helping = Identity.generate() if helped else None
        return Federation(tmp_path, small_split, config, shards, policy, seeded, corrupt, helping)

    return build


@pytest.fixture
def count_server(small_split: Any) -> Callable[[], CountServer]:
    """Makes servers whose sums are counts of items."""
    return lambda: CountServer(small_split.train.n_items)
