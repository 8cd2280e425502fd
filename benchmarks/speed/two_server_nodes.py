"""private-gram over nodes, under masks and between two servers: exchanges, bytes and processor time of every node.

    python -m benchmarks.speed.two_server_nodes [--only "10 nodes*"]

Run from the repository root. Every node and the helper is a process of its own with a folder of its own, on this
machine; the same experiment and seed in one process says what the public tensors have to be. Announcing and ending the
run take an exchange each, which are not counted, with or without a helper; the processor time of a node is that of its
process between its first request and its last, loading the method and training included. Data are synthetic.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.speed.nodes import POLICY, made_up_users, stat
from privfed.data import Split
from privfed.engines.flower.trial import share_out
from privfed.engines.nodes.federation_file import HELPER
from privfed.engines.nodes.loopback import Loopback
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.run import train
from privfed.engines.nodes.transport import NodeId, Transport
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig

PLAN = "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=30"
NODES = (3, 10)
AROUND = ("train.announce", "train.settle")
WAYS = {"exact": "masks", "two-servers": "two servers"}


class Counted(Transport):
    """A transport that counts stages and, by node, bytes."""

    def __init__(self, inner: Loopback) -> None:
        self.inner, self.stages = inner, Counter[str]()
        self.up, self.down = Counter[NodeId](), Counter[NodeId]()
        self.before = self.seconds() if inner.nodes() else {}

    def nodes(self) -> Sequence[NodeId]:
        """All of them."""
        return self.inner.nodes()

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Pass on and count."""
        replies = self.inner.exchange(stage, requests, timeout)
        self.stages[stage] += 1
        for node, request in requests.items():
            self.down[node] += len(request)
            self.up[node] += len(replies.get(node, b""))
        return replies

    def seconds(self) -> dict[NodeId, float]:
        """Processor seconds of every process so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        return {node: sum(map(int, stat(pid)[11:13])) / ticks for node, pid in self.inner.pids.items()}


def measured(nodes: int, fidelity: str, parts: Split, place: Path) -> dict[str, Any]:
    """One run."""
    names = [f"node{number}" for number in range(nodes)]
    two_servers = fidelity == "two-servers"
    policy = POLICY.replace('"secure_sum"', '"secure_sum", "distributed_gaussian"')
    folders = share_out(parts, policy, place, names, helper=two_servers)
    if two_servers:
        folders.append(place / HELPER)
    config = ExperimentConfig(
        method={"name": "private-gram", "histories": "long", "min_items": 0}, privacy=PrivacyPlan.parse(PLAN),
        rounds=1, seed=3, fidelity=fidelity,
    )  # fmt: skip
    reference = Experiment(config.model_copy(update={"fidelity": "exact"}), parts)
    reference.run(parts=())
    with Loopback(dict(enumerate(folders)), method="forkserver") as transport:
        counted, server = Counted(transport), place / "server"
        data, party = NodeData.load(server), Party.load(server)
        trained = train(config, data, party, counted, place / "run", seeded=True)
        spent = counted.seconds()
    own, theirs = trained.server.state(), reference.server.state()
    members = range(nodes)
    return {
        "nodes": nodes, "sums": WAYS[fidelity], "numbers": sum(values.numel() for values in theirs.values()),
        "same_model": own.keys() == theirs.keys() and all(torch.equal(own[name], theirs[name]) for name in own),
        "aborted_rounds": trained.traffic.aborted_rounds,
        "exchanges": sum(count for stage, count in counted.stages.items() if stage not in AROUND),
        "stages": dict(counted.stages),
        "up_bytes": round(float(np.mean([counted.up[node] for node in members]))),
        "down_bytes": round(float(np.mean([counted.down[node] for node in members]))),
        "cpu_seconds": round(float(np.mean([spent[node] - counted.before[node] for node in members])), 3),
        "helper_bytes": counted.up[nodes] + counted.down[nodes],
        "helper_cpu_seconds": round(spent[nodes] - counted.before[nodes], 3) if two_servers else 0.0,
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both ways with every number of nodes."""
    options = harness.parse(harness.parser(__file__, __doc__, only=[]), arguments)
    record, parts = harness.Record("two_server_nodes", options, {}), made_up_users()
    for nodes in NODES:
        for fidelity, sums in WAYS.items():
            name = f"{nodes} nodes, {sums}"
            if harness.chosen(name, options.only):
                with tempfile.TemporaryDirectory() as made:
                    record.put(measured(nodes, fidelity, parts, Path(made)), name)


if __name__ == "__main__":
    main()
