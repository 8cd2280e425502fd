"""Small federations whose messages are fuzzed: six organisations in this process, of whom two may lie."""

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privfed.data import Split, SplitSpec, SyntheticSpec, generate, split
from privfed.engines.final_queries import measurement
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import found_federation
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.nodes.run import train
from privfed.engines.nodes.transport import Transport
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Server
from privfed.guards import ServerGuard
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig

USERS, ITEMS, SEATS, ROUNDS = 42, 30, 6, 2
LIARS = (4, 5)
KINDS = ("unprotected", "clip_only", "local_laplace", "central_gaussian", "secure_sum", "distributed_gaussian")
POLICY = Policy(
    allow_simulation=True, mechanisms=KINDS, evaluate=True, min_own_users=1, own_noise_suffices=False, max_runs=1000,
    max_rounds=10**6, max_delta=0.9, max_message_mib=16,
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What a federation trains.

    Attributes:
        method: name.
        plan: as on the command line.
        settings: of the method.
        seeded: whether sums and models must be those of the simulation.
        exact: whether models are to the bit.
        policy: what its nodes insist on besides.
        measured: whether quality is measured by one more query, and never exactly.
    """

    method: str
    plan: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True
    exact: bool = False
    policy: Mapping[str, Any] = field(default_factory=dict)
    measured: bool = False


SECURE = "secure-sum:clip_norm=10.0"
SETTINGS: Mapping[str, Setting] = {
    "masked": Setting("feddae", SECURE, {"popularity_prior": True}, exact=True),
    "masked, cohorts": Setting("feddae", SECURE + ",sampling.kind=fixed,sampling.size=20"),
    "masked, own bits": Setting(
        "private-gram",
        "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=5",
        seeded=False,
        policy={
            "max_epsilon": 1e6,
            "max_epsilon_per_run": 1e5,
            "max_clip_norm": 20.0,
            "min_noise_multiplier": 0.1,
            "min_users": 10,
            "own_noise_suffices": True,
            "methods": ("private-gram",),
        },
    ),
    "masked, measured": Setting(
        "private-gram",
        "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=5",
        {"min_items": 0},
        exact=True,
        measured=True,
    ),
    "masked, a year": Setting(
        "private-gram-year",
        "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=5",
        {"refreshes": 2, "head": 6, "min_items": 0, "select": False, "histories": "long"},
        exact=True,
    ),
    "partial sums": Setting("feddae", "none"),
    "partial sums, own bits": Setting(
        "feddae", "central-gaussian:clip_norm=1,noise_multiplier=1,sampling.kind=poisson,sampling.rate=0.5"
    ),
    "counted uploads": Setting("feddae", "local-laplace:epsilon0=5,clip_norm=1"),
    "counted coded uploads": Setting("feddae", "clip:clip_norm=1,upload_bits=8"),
    "uploads": Setting("gpfedrec", "local-laplace:epsilon0=5,clip_norm=1", seeded=False),
    "coded uploads": Setting("gpfedrec", "local-laplace:epsilon0=5,clip_norm=1,upload_bits=7"),
}


class SmallFederation:
    """One federation in a folder.

    Args:
        folder: its own.
        setting: what it trains.
        seed: of the experiment.

    Attributes:
        config: of the experiment.
        nodes: by seat, which is also the number of the connection.
        parties: organisations by seat.
        server: the server's party.
    """

    def __init__(self, folder: Path, setting: Setting, seed: int = 3) -> None:
        self.folder, self.setting = folder, setting
        spec = SyntheticSpec(
            name="synthetic-fuzz", n_users=USERS, n_items=ITEMS, mean_per_user=8, min_per_user=4, rank=3, seed=1
        )
        self.parts: Split = split(generate(spec), SplitSpec())
        self.config = ExperimentConfig(
            method={"name": setting.method, **setting.settings}, privacy=PrivacyPlan.parse(setting.plan),
            rounds=ROUNDS, chunk=16, seed=seed, protocol=Protocol(state="received", ties="pessimistic"),
            **({"evaluation": {"private": True}} if setting.measured else {}),
        )  # fmt: skip
        self.shards = [np.sort(some) for some in np.array_split(np.arange(USERS), SEATS)]
        keys = [bytes([place + 1]) * 32 for place in range(SEATS + 1)]
        self.server, self.parties, _ = found_federation(self.shards, USERS, ITEMS, corrupt=0, keys=keys)
        self.public = self.config.registered().traits.public_target
        self.nodes = {seat: self._node(seat) for seat in range(SEATS)}
        self.server_data = NodeData.for_server(self.parts, public=self.public)
        self._runs = 0

    def _node(self, seat: int) -> Node:
        data = NodeData.from_split(self.parts, self.shards[seat], public=self.public)
        policy = POLICY.model_copy(update=dict(self.setting.policy))
        return Node(self.folder / f"node{seat}", policy, data, party=self.parties[seat])

    def remote(self, transport: Transport) -> tuple[RemoteFederation, Server]:
        """A new run, and the server side of its method."""
        announced = Announcement.from_config(
            self.config, self.server_data, self.server.federation, seeded=self.setting.seeded
        )
        assembly = announced.assemble(self.server_data, secrets.token_bytes(32))
        ledger = Ledger(self.config.privacy, USERS)
        guard = ServerGuard(self.config.privacy, ledger, assembly.streams)
        return RemoteFederation(transport, announced, self.server, guard, timeout=3600), assembly.server

    def measure(self, remote: RemoteFederation, server: Server) -> bool:
        """Ask once, after the last round, for the noisy sum of metrics; returns whether it was released."""
        assembly = remote.announced.assemble(self.server_data, secrets.token_bytes(32))
        assembly.server.load(server.state())
        return remote.run(measurement(assembly), self.config.rounds)

    def wrong_training(self) -> str | None:
        """What is wrong with a whole run of an honest server over the nodes as they are now; None where nothing is."""
        self._runs += 1
        folder = self.folder / f"server{self._runs}"
        trained = train(
            self.config, self.server_data, self.server, InProcess(self.nodes), folder, seeded=self.setting.seeded
        )
        lines = (folder / "ledger.jsonl").read_text().splitlines()
        shutil.rmtree(folder)
        if trained.incidents:
            return f"an honest run has an incident: {trained.incidents[0]}"
        if trained.traffic.aborted_rounds:
            return "an honest round was aborted"
        if not self.setting.seeded:
            return None
        reference, charges = self._simulated()
        mine, theirs = trained.server.public().shared, reference.server.public().shared
        for name, values in theirs.items():
            close = torch.allclose(mine[name], values, atol=1e-5)
            if not (torch.equal(mine[name], values) if self.setting.exact else close):
                return f"an honest run trained another {name} than the simulation"
        return None if lines == charges else "an honest run charged otherwise than the simulation"

    def _simulated(self) -> tuple[Experiment, list[str]]:
        folder = self.folder / "simulation"
        folder.mkdir()
        experiment = Experiment(self.config, self.parts)
        experiment.run(folder, parts=("test",) if self.setting.measured else ())
        lines = (folder / "ledger.jsonl").read_text().splitlines()
        shutil.rmtree(folder)
        return experiment, lines
