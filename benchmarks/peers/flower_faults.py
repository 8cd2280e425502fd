"""Faults on Flower: nodes that are killed in the middle of masked sums, and a server that is killed and goes on.

    python -m benchmarks.peers.flower_faults losses    5 nodes, 20 rounds; in a third, 1 to 3 die at random stages
    python -m benchmarks.peers.flower_faults server    the ServerApp, then the SuperLink, killed in one run of 3 nodes

One SuperLink and a SuperNode per node on this machine, over TLS, with node authentication. A node dies by SIGKILL to
its own process, before or after it has done what it was asked, and is started again at once, as by a service manager.
With `--patience 0` its SuperNode waits for it not at all, so that it is lost to the stage; by default it waits 20 s.
Sums are checked against counts made by hand from the users whom the ledger says are in them, ledgers of nodes against
that of the server, and the model of the killed server against the simulation in one process.

Results go to `benchmarks/results/flower_faults.json`.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from benchmarks import harness
from benchmarks.peers.flower import descendants
from benchmarks.speed.nodes import (
    STAGES,
    Counting,
    counted,
    dealt,
    entries_in,
    experiment,
    federation_over,
    folders,
    made_up_users,
    members_of,
    missing_entries,
)
from privfed.engines.flower.server import FederationConfig
from privfed.engines.flower.service import LARGEST, Limits, NodeService
from privfed.engines.flower.transport import FlowerTransport
from privfed.engines.flower.trial import Trial, TrialError
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party
from privfed.experiment import Experiment

APP = harness.ROOT / "examples" / "flower"
LONG, NODE = 3600.0, "benchmarks.peers.flower_faults"
PYPROJECT = """[project]
name = "counting"
version = "1.0.0"
description = "Counts of items."
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41,<2"]
[tool.flwr.app]
publisher = "privfed"
fab-format-version = 1
flwr-version-target = "1.41.0"
components = { serverapp = "counting.server_app:app", clientapp = "counting.client_app:app" }
config = { federation = "" }
"""
CLIENT = """from privfed.engines.flower.client import client_app
app = client_app()
"""
SERVER = """import sys
from flwr.serverapp import ServerApp
sys.path.insert(0, {root!r})
from benchmarks.peers.flower_faults import count
app = ServerApp()
@app.main()
def main(grid, context):
    count(grid, context.run_config["federation"])
"""


class Dying(Node):
    """A node that dies when an order lies in its folder."""

    def handle(self, stage: str, request: bytes) -> bytes:
        """Answer, or die before or after the work."""
        order = self.folder / "order.json"
        death = json.loads(order.read_text()) if order.exists() else {"stage": ""}
        if death["stage"] != stage:
            reply = super().handle(stage, request)
            tell(self.folder, "works" if stage == "train.input" else stage)
            return reply
        order.unlink()
        if death["after"]:
            super().handle(stage, request)
        tell(self.folder, "dies")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def tell(folder: Path, event: str) -> None:
    """Note what happened to a node, and when."""
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": event, "time": time.time()}) + "\n")


def count(grid: Any, file: str) -> None:
    """The server: queries every round who has which item, and orders deaths."""
    job = json.loads(Path(file).read_text())
    place, rounds, nodes = Path(job["place"]), job["rounds"], job["nodes"]
    parts, rng, transport = made_up_users(), np.random.default_rng(job["seed"]), FlowerTransport(grid)
    if len(transport.wait_for(nodes, 600)) < nodes:
        raise TrialError("not all nodes connected")
    config, data = experiment("feddae", rounds), NodeData.for_server(parts)
    party = Party.load(place / "party")
    federation = federation_over(transport, party, config, data, place / "ledger.jsonl", timeout=900)
    server, found = Counting(), list[dict[str, Any]]()
    for t in range(rounds):
        if time.time() > job["until"]:
            break
        ordered = [(stage, after) for _, stage, after in orders(rng, place, nodes)]
        started = time.monotonic()
        opened, wrong = federation.run(server, t), False
        if opened:
            wrong = not torch.equal(server.latest, counted(parts, members_of(federation.guard.ledger.entries[-1])))
        seconds = round(time.monotonic() - started, 1)
        found.append({"round": t, "deaths": ordered, "opened": opened, "wrong": wrong, "seconds": seconds})
        print(found[-1], flush=True)
        (place / "rounds.json").write_text(json.dumps(found))
    federation.finish()
    reasons = Counter(f"{incident.stage}: {incident.reason}" for incident in federation.incidents)
    kept = {"missing": federation.traffic.missing, "exchanges": federation.traffic.exchanges, "refused": dict(reasons)}
    (place / "traffic.json").write_text(json.dumps(kept))


def orders(rng: np.random.Generator, place: Path, nodes: int) -> list[tuple[int, str, bool]]:
    """Sample for a round: who dies, at which stage, and whether after the work."""
    for number in range(nodes):
        (place / f"node{number}" / "order.json").unlink(missing_ok=True)
    if rng.random() >= 1 / 3:
        return []
    given = []
    for number in rng.choice(nodes, rng.integers(1, 4), replace=False):
        stage, after = STAGES[rng.integers(3)], bool(rng.random() < 0.5)
        (place / f"node{number}" / "order.json").write_text(json.dumps({"stage": stage, "after": after}))
        given.append((int(number), stage, after))
    return given


def losses(options: argparse.Namespace, record: harness.Record, place: Path) -> None:
    """Rounds with losses; none begins after so many minutes."""
    rounds, nodes, seed, patience = options.rounds or 20, options.nodes, options.seed, options.patience
    names = [f"node{number}" for number in range(nodes)]
    folders(place, made_up_users(), dealt(nodes))
    app = place / "counting"
    (app / "counting").mkdir(parents=True)
    (app / "LICENSE").write_text((APP / "LICENSE").read_text())
    (app / "pyproject.toml").write_text(PYPROJECT)
    (app / "counting" / "__init__.py").touch()
    (app / "counting" / "client_app.py").write_text(CLIENT)
    (app / "counting" / "server_app.py").write_text(SERVER.format(root=str(harness.ROOT)))
    until = time.time() + 60 * options.minutes
    job = {"place": str(place), "rounds": rounds, "nodes": nodes, "seed": seed, "until": until}
    (place / "job.json").write_text(json.dumps(job))

    def start(trial: Trial, name: str) -> None:
        trial.start_node(
            name, place / name, [sys.executable, "-m", NODE, "node", "--folder", str(place / name), "--socket"]
        )

    with Trial(place / "trial", names, environment={"PYTHONPATH": str(harness.ROOT)}) as trial:
        for name in names:
            start(trial, name)
        trial.start_superlink()
        trial.start_gateway()
        trial.start_supernodes(patience=patience)
        trial.wait_for_nodes()
        started, restarts = time.monotonic(), 0
        trial.start_run("run", app, place / "job.json")
        while not trial.ended("run"):
            for name in names:
                if trial.ended(f"node-{name}"):
                    assert trial.wait(f"node-{name}", 0) == -signal.SIGKILL
                    start(trial, name)
                    restarts += 1
            time.sleep(0.1)
        if trial.wait("run", 0) or not (place / "traffic.json").exists():
            raise TrialError(trial.log("run").read_text())
        seconds = round(time.monotonic() - started)
    found = json.loads((place / "rounds.json").read_text())
    rounds, opened = len(found), [one["round"] for one in found if one["opened"]]
    back = {event: spread(recovery(place, names, event)) for event in ("serves", "works")}
    record.put(
        {
            "nodes": nodes, "rounds": rounds, "seed": seed, "rounds_hit": sum(bool(one["deaths"]) for one in found),
            "deaths": dict(Counter(f"{'after' if a else 'before'} {s}" for one in found for s, a in one["deaths"])),
            "restarts": restarts, "opened": len(opened), "aborted_rounds": rounds - len(opened),
            "wrong_sums": sum(one["wrong"] for one in found), "missing_entries": missing_entries(place, nodes, opened),
            **json.loads((place / "traffic.json").read_text()),
            "seconds_to_serve_again": back["serves"], "seconds_to_the_next_masked_input": back["works"],
            "seconds_a_round": spread([one["seconds"] for one in found]),
            "seconds": seconds, "load": round(os.getloadavg()[1], 1),
        },
        f"losses, patience {patience:g} s",
    )  # fmt: skip


def recovery(place: Path, names: Sequence[str], event: str) -> list[float]:
    """Seconds from every death of a node to the event after it."""
    found = []
    for name in names:
        died = None
        for line in (place / name / "events.jsonl").read_text().splitlines():
            happened = json.loads(line)
            if happened["event"] == "dies":
                died = happened["time"]
            elif happened["event"] == event and died is not None:
                found.append(happened["time"] - died)
                died = None
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    if not values:
        return {"times": 0}
    low, middle, high = (round(float(np.quantile(values, q)), 1) for q in (0, 0.5, 1))
    return {"times": len(values), "min": low, "median": middle, "max": high}


def server(options: argparse.Namespace, record: harness.Record, place: Path) -> None:
    """One run of HeteFedRec whose ServerApp is killed in its first third and whose SuperLink in its second."""
    parts, names, rounds = made_up_users(), ["node0", "node1", "node2"], options.rounds or 6
    config = experiment("hetefedrec", rounds, checkpoint_every=2)
    reference = Experiment(config, parts)
    reference.run(parts=())
    folders(place, parts, dealt(len(names)))
    shutil.copytree(place / "party", place / "server")
    NodeData.for_server(parts).save(place / "server")
    federation = FederationConfig(
        experiment=config, data=place / "server", folder=place / "run", seeded=True, timeout=300
    )
    (place / "federation.json").write_text(json.dumps({"federation": federation.model_dump(mode="json")}))
    kills = []
    with Trial(place / "trial", names) as trial:
        for name in names:
            trial.start_node(name, place / name)
        trial.start_superlink()
        trial.start_gateway()
        trial.start_supernodes()
        trial.wait_for_nodes()
        started = time.monotonic()
        trial.start_run("run", APP, place / "federation.json")
        for what, at in (("ServerApp", rounds // 3), ("SuperLink", 2 * rounds // 3)):
            before = recorded(place, trial, at)
            if what == "ServerApp":
                os.kill(server_app_of(trial), signal.SIGKILL)
            else:
                trial.stop("superlink", kill=True)
            killed = time.monotonic()
            if what == "SuperLink":
                trial.start_superlink()
            trial.stop("run")
            trial.start_run("run", APP, place / "federation.json")
            recorded(place, trial, before + 1)
            kills.append({"killed": what, "entries": before, "next_entry_after": round(time.monotonic() - killed, 1)})
            print(kills[-1], flush=True)
        if trial.wait("run", LONG):
            raise TrialError(trial.log("run").read_text())
        seconds = round(time.monotonic() - started)
    trained = safetensors.torch.load_file(place / "run" / "checkpoint" / "server.safetensors")
    found = entries_in(place / "run" / "ledger.jsonl")
    result = json.loads((place / "run" / "result.json").read_text())
    record.put(
        {
            "method": "hetefedrec", "rounds": rounds, "checkpoint_every": 2, "kills": kills,
            "same_model": all(trained[name].equal(value) for name, value in reference.server.state().items()),
            "entries": len(found), "entries_in_order": [one.round for one in found] == list(range(rounds)),
            "aborted_rounds": result["aborted_rounds"], "seconds": seconds, "load": round(os.getloadavg()[1], 1),
        },
        "server",
    )  # fmt: skip


def recorded(place: Path, trial: Trial, at_least: int) -> int:
    """Wait until the server's ledger has so many entries; returns how many it has."""
    path, end = place / "run" / "ledger.jsonl", time.monotonic() + LONG
    while not path.exists() or (have := len(entries_in(path))) < at_least:
        if trial.ended("run") or time.monotonic() > end:
            raise TrialError(trial.log("run").read_text())
        time.sleep(0.1)
    return have


def server_app_of(trial: Trial) -> int:
    """Number of the process that runs the ServerApp of this trial."""
    for pid in descendants({trial.processes["superlink"].pid}):
        if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise TrialError("no ServerApp runs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of them."""
    parser = harness.parser(__file__, __doc__, parts=("losses", "server", "node"), rounds=None, seed=7)
    parser.add_argument("--socket", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=5, help="number of nodes (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no round begins")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that a SuperNode waits for its node")
    parser.add_argument("--folder", type=Path, help="of a node; for the others new or empty, and kept")
    given = harness.parse(parser, arguments)
    if given.part == "node":
        with NodeService(Dying(given.folder), given.socket, Limits(LARGEST)) as service:
            tell(given.folder, "serves")
            service.serve()
        return
    with tempfile.TemporaryDirectory() as made:
        place = (given.folder or Path(made)).resolve()
        place.mkdir(exist_ok=True)
        record = harness.Record("flower_faults", given, {})
        {"losses": losses, "server": server}[given.part](given, record, place)


if __name__ == "__main__":
    main()
