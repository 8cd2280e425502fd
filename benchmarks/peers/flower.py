"""What a round costs on Flower, and what of it is ours: seconds, CPU-seconds and bytes for 2, 3 and 5 nodes.

    python -m benchmarks.peers.flower --nodes 2 3 5 --exchanges 6

One machine, one SuperLink behind its gateway, TLS and node authentication. An exchange is one message to every node and
one back.
Variants, one after another on the same SuperLink and SuperNodes, as often as `--repeats` says:

    flower      an app that returns empty messages, with Flower's own `send_and_receive`
    floor       the same app, polled as `FlowerTransport` polls
    relay       empty messages through privfed's app to the node's own process and back
    secure sum  FedMF under a clip and secure sums (3 nodes and more): 3 exchanges a round, training included

CPU-seconds are of all processes of the federation together, bytes those between SuperNodes and SuperLink with TLS,
polling and heartbeats, counted by a relay of TCP streams. Idle cost is measured with no run. Wall seconds mean little
on a machine that does other things besides; its load average stands next to them.

Results go to `benchmarks/results/flower.json` after every variant.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from privfed.data import load, split
from privfed.engines.flower.server import FederationConfig
from privfed.engines.flower.trial import Trial, share_out
from privfed.evaluation import Protocol
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

APP = harness.ROOT / "examples" / "flower"
POLICY = """[policy]
methods = ["fedmf"]
mechanisms = ["secure_sum"]
"""
NODE = """import sys
from pathlib import Path
from privfed.engines.flower.service import LARGEST, Limits, NodeService
from privfed.engines.nodes.node import Node

class Echoing(Node):
    def handle(self, stage, request):
        return request if stage == "train.echo" else super().handle(stage, request)

with NodeService(Echoing(Path(sys.argv[1])), Path(sys.argv[2]), Limits(LARGEST)) as service:
    service.serve()
"""
PYPROJECT = """[project]
name = "{name}"
version = "1.0.0"
description = "Empty messages."
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.41,<2"]
[tool.flwr.app]
publisher = "privfed"
fab-format-version = 1
flwr-version-target = "1.41.0"
components = {{ serverapp = "{name}.server_app:app", clientapp = "{name}.client_app:app" }}
config = {{ nodes = 3, exchanges = 3, out = "" }}
"""
PLAIN_CLIENT = """from flwr.app import Message
from flwr.clientapp import ClientApp
app = ClientApp()
@app.train("echo")
def echo(message, context):
    return Message(message.content, reply_to=message)
"""
RELAYING_CLIENT = """from privfed.engines.flower.client import client_app
app = client_app()
"""
SERVER = """import json, time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
{imports}
app = ServerApp()
@app.main()
def main(grid, context):
    config, seconds = context.run_config, []
    while len(list(grid.get_node_ids())) < config["nodes"]:
        time.sleep(1)
    {before}
    for _ in range(config["exchanges"] + 1):
        started = time.monotonic()
        {exchange}
        assert len(replies) == config["nodes"], len(replies)
        seconds.append(time.monotonic() - started)
    Path(config["out"]).write_text(json.dumps(seconds[1:]))
"""
EMPTY = 'messages = [Message(RecordDict(), node, "train.echo", ttl=600.0) for node in grid.get_node_ids()]'
SEND = f"{EMPTY}; replies = list(grid.send_and_receive(messages, timeout=600))"
POLLED = f"""{EMPTY}; waiting, replies = set(grid.push_messages(messages)), []
        while waiting:
            found = list(grid.pull_messages(waiting))
            replies += found
            waiting -= {{reply.metadata.reply_to_message_id for reply in found}}
            time.sleep(0.1)"""
RELAYED = 'replies = transport.exchange("train.echo", dict.fromkeys(transport.nodes(), b""), 600.0)'
TRANSPORT = "from privfed.engines.flower.transport import FlowerTransport"
ECHOES = {
    "flower": (PLAIN_CLIENT, {"imports": "", "before": "", "exchange": SEND}),
    "floor": (PLAIN_CLIENT, {"imports": "", "before": "", "exchange": POLLED}),
    "relay": (
        RELAYING_CLIENT,
        {"imports": TRANSPORT, "before": "transport = FlowerTransport(grid)", "exchange": RELAYED},
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every number of nodes."""
    parser = harness.parser(__file__, __doc__, repeats=2, rounds=3)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 3, 5], help="numbers of nodes (default: 2 3 5)")
    parser.add_argument(
        "--exchanges", type=int, default=6, help="of every variant and pass, after one that is not counted"
    )
    parser.add_argument("--direct", action="store_true", help="past the gateway, to see what it costs")
    options = harness.parse(parser, arguments)
    record = harness.Record("flower", options, {})
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory() as folder:
            measure(nodes, options, record, Path(folder))


def measure(nodes: int, options: argparse.Namespace, record: harness.Record, folder: Path) -> None:
    """All variants for one number of nodes."""
    exchanges, name_of = options.exchanges, f"{nodes} nodes"
    config = prepare(nodes, options.rounds, folder)
    with Trial(folder / "trial", [f"node-{n}" for n in range(nodes)]) as trial:
        port = trial.port if options.direct else trial.gateway_port
        assert port is not None
        relay = CountingRelay(port)
        for name in trial.names:
            command = [sys.executable, str(folder / "node.py"), str(folder / "nodes" / name)]
            trial.start_node(name, folder / "nodes" / name, command)
        trial.start_superlink()
        trial.start_gateway()
        trial.start_supernodes(f"127.0.0.1:{relay.port}")
        trial.wait_for_nodes()
        time.sleep(10)
        with Meter(trial, relay) as idle:
            time.sleep(20)
        record.put({key: round(value / 20, 4) for key, value in idle.used.items()}, name_of, "idle, per second")
        for turn in range(options.repeats):
            for variant in ECHOES:
                out = folder / f"{variant}-{turn}.json"
                given = f'nodes={nodes} exchanges={exchanges} out="{out}"'
                with Meter(trial, relay) as meter:
                    trial.flwr("run", str(folder / variant), "trial", "--run-config", given, "--stream", timeout=3600)
                row = per_exchange(json.loads(out.read_text()), exchanges + 1, meter, nodes)
                record.put(row, name_of, f"{variant}, pass {turn + 1}")
        if nodes >= 3:
            with Meter(trial, relay) as meter:
                given = f'federation="{folder / "federation.json"}"'
                trial.flwr("run", str(APP), "trial", "--run-config", given, "--stream", timeout=3600)
            result = json.loads((config.folder / "result.json").read_text())
            assert not result["aborted_rounds"], result
            found = per_exchange([], result["exchanges"], meter, nodes)
            found["seconds"] = round(sum(result["seconds"].values()) / result["exchanges"], 3)
            found |= {"payload_bytes": round((result["up_bytes"] + result["down_bytes"]) / nodes / result["exchanges"])}
            found |= {"seconds_by_stage": result["seconds"], "exchanges": result["exchanges"]}
            record.put(found, name_of, "secure sum")


def prepare(nodes: int, rounds: int, folder: Path) -> FederationConfig:
    """Apps, nodes' folders and the server's file."""
    for variant, (client, server) in ECHOES.items():
        package = folder / variant / variant
        package.mkdir(parents=True)
        (folder / variant / "LICENSE").write_text((APP / "LICENSE").read_text())
        (folder / variant / "pyproject.toml").write_text(PYPROJECT.format(name=variant))
        (package / "__init__.py").touch()
        (package / "client_app.py").write_text(client)
        (package / "server_app.py").write_text(SERVER.format(**server))
    (folder / "node.py").write_text(NODE)
    config = ExperimentConfig(
        data="synthetic-small",
        method={"name": "fedmf"},
        privacy=PrivacyPlan.named("secure-sum", clip_norm=1.0),
        protocol=Protocol(state="received"),
        rounds=rounds,
        taps=TapConfig(places=()),
    )
    parts = split(load(config.data), config.split)
    share_out(parts, POLICY, folder / "nodes", [f"node-{n}" for n in range(nodes)])
    federation = FederationConfig(
        experiment=config, data=folder / "nodes" / "server", folder=folder / "run", nodes=max(nodes, 3)
    )
    (folder / "federation.json").write_text(json.dumps({"federation": federation.model_dump(mode="json")}))
    return federation


def per_exchange(seconds: list[float], exchanges: int, meter: "Meter", nodes: int) -> dict[str, Any]:
    """What one exchange took: median wall seconds, CPU-seconds of all, bytes of one node."""
    found: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
    if seconds:
        found |= {"seconds": round(statistics.median(seconds), 3), "all_seconds": [round(s, 2) for s in seconds]}
    found["cpu_seconds"] = round(meter.used["cpu_seconds"] / exchanges, 3)
    return found | {key: round(meter.used[key] / exchanges / nodes) for key in ("up_bytes", "down_bytes")}


class Meter:
    """CPU-seconds and bytes of a trial while something happens.

    Attributes:
        used: what was used.
    """

    def __init__(self, trial: Trial, relay: "CountingRelay") -> None:
        self.trial, self.relay, self.used = trial, relay, dict[str, float]()

    def __enter__(self) -> "Meter":
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        now = self._now()
        self.used = {key: now[key] - self._before[key] for key in now}

    def _now(self) -> dict[str, float]:
        roots = {name: process.pid for name, process in self.trial.processes.items()}
        every = sum(cpu_seconds(pid) for pid in descendants(set(roots.values())))
        superlink = cpu_seconds(roots["superlink"])
        bytes_ = {"up_bytes": self.relay.up, "down_bytes": self.relay.down}
        return {"cpu_seconds": every, "superlink_cpu_seconds": superlink, **bytes_}


def descendants(roots: set[int]) -> set[int]:
    """Processes that descend from `roots`, with them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def cpu_seconds(pid: int) -> float:
    """Of a process and of those of its children that have ended."""
    fields = stat(pid)
    return sum(int(value) for value in fields[11:15]) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; none where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


class CountingRelay:
    """A port that passes TCP streams on and counts their bytes.

    Attributes:
        port: where it listens.
        up, down: bytes towards the server and back.
    """

    def __init__(self, server: int) -> None:
        self._server, self.up, self.down = server, 0, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listening.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                near.close()
                continue
            for source, sink, name in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pass_on, args=(source, sink, name), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        try:
            while part := source.recv(1 << 16):
                sink.sendall(part)
                setattr(self, name, getattr(self, name) + len(part))
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


if __name__ == "__main__":
    main()
