"""Federations over processes: losses at volume, servers that are killed, nodes that lie, and what a round costs.

    python -m benchmarks.speed.nodes losses   10 nodes, 500 rounds; in a third, 1 to 3 are lost at random stages
    python -m benchmarks.speed.nodes kills    a server that is killed with SIGKILL at 10 random moments of one run
    python -m benchmarks.speed.nodes corpus   every lie of the hostile corpus, by the test that draws from it
    python -m benchmarks.speed.nodes costs    exchanges, bytes and seconds of a round with 3, 5 and 10 nodes
    python -m benchmarks.speed.nodes devices  bytes, CPU-seconds and memory of one user of MovieLens-100K

Every node is a process of its own with a folder of its own. Sums are checked against counts made by hand from the users
whom the ledger says are in them, and models against a run that nothing happened to. Data are synthetic, where no other
set is named.
"""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from privfed.contracts import Block, Schema
from privfed.data import Split, SplitSpec, SyntheticSpec, generate, load, split
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.loopback import Fault, Loopback
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.nodes.run import train
from privfed.engines.nodes.transport import NodeId, Transport
from privfed.evaluation import RoundEvaluation
from privfed.experiment import Experiment
from privfed.federation import Federation, Message, Server
from privfed.guards.server_guard import ServerGuard
from privfed.methods.shared.vae_server import COUNTS
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.hash_chain import DIGEST, PREVIOUS
from privfed.privacy.ledger import Entry
from privfed.setup.config import ExperimentConfig

POLICY = '[policy]\nallow_simulation = true\nmechanisms = ["secure_sum"]\n'
STAGES = ("train.share", "train.input", "train.reveal")
USERS, ITEMS = 120, 200
SECURE, SHARES = "secure-sum:clip_norm=1.0", "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=3"
DEVICE_POLICY = """[policy]
allow_simulation = true
mechanisms = ["secure_sum", "distributed_gaussian", "local_laplace"]
"""
DEVICES: dict[str, tuple[str, dict[str, Any], int]] = {
    "popularity": (SHARES, {}, 1),
    "private-gram": (SHARES, {}, 1),
    "fedmf": (SECURE, {}, 4),
    "pfedrec": (SECURE, {}, 4),
    "gpfedrec": ("local-laplace:epsilon0=5,clip_norm=1", {}, 4),
    "fedvae": (SECURE, {}, 4),
    "feddae": (SECURE, {}, 4),
    "hetefedrec": (SHARES, {}, 4),
    "fair": (SECURE, {}, 4),
    "dfmr": ("secure-sum:clip_norm=1.0,bits=64", {}, 2),
}
"""Plan, settings and the largest number of rounds that is measured."""


def made_up_users() -> Split:
    """Synthetic data of 120 users."""
    spec = SyntheticSpec(
        name="synthetic-nodes", n_users=USERS, n_items=ITEMS, mean_per_user=20, min_per_user=6, rank=4, seed=1
    )
    return split(generate(spec), SplitSpec())


def experiment(method: str, rounds: int, **changes: Any) -> ExperimentConfig:
    """An experiment under a masked sum whose clip changes no upload."""
    plan = PrivacyPlan.parse("secure-sum:clip_norm=20.0")
    return ExperimentConfig(method={"name": method}, privacy=plan, rounds=rounds, chunk=16, seed=3, **changes)


def folders(place: Path, parts: Split, nodes: int) -> dict[int, Path]:
    """A folder for every node, with its policy and its users."""
    found = {}
    for number in range(nodes):
        found[number] = place / f"node{number}"
        found[number].mkdir(exist_ok=True)
        (found[number] / "node.toml").write_text(POLICY)
        if not (found[number] / "users.pfn").exists():
            NodeData.from_split(parts, np.arange(USERS)[number::nodes]).save(found[number])
    return found


class Losses:
    """Which node is lost when: every third round on average, 1 to `max_nodes` of them, from a random stage on."""

    def __init__(self, seed: int, nodes: int, max_nodes: int) -> None:
        self.rng, self.nodes, self.max_nodes = np.random.default_rng(seed), nodes, max_nodes
        self.gone: dict[int, tuple[str, Fault]] = {}
        self.down: dict[int, float] = {}
        self.recovered: list[float] = []
        self.rounds_hit = 0
        self.counts: dict[str, int] = {}

    def next_round(self) -> None:
        """Sample what goes wrong in the round."""
        self.gone = {}
        if self.rng.random() < 1 / 3:
            self.rounds_hit += 1
            faults: tuple[Fault, ...] = ("drop", "kill_before", "kill_after", "late")
            for node in self.rng.choice(self.nodes, self.rng.integers(1, self.max_nodes + 1), replace=False):
                self.gone[int(node)] = (STAGES[self.rng.integers(3)], faults[self.rng.integers(4)])

    def __call__(self, node: int, stage: str) -> Fault | None:
        """What goes wrong with this request."""
        begins, fault = self.gone.get(node, ("", None))
        if fault is None or stage not in STAGES or STAGES.index(stage) < STAGES.index(begins):
            if node in self.down and stage == "train.input":
                self.recovered.append(time.monotonic() - self.down.pop(node))
            return None
        if stage == begins:
            name = f"{fault} at {stage}"
            self.counts[name] = self.counts.get(name, 0) + 1
            self.down[node] = time.monotonic()
            return fault
        return "drop"


@contextmanager
def counting(nodes: int, losses: Losses | None = None) -> Iterator[tuple[Split, RemoteFederation, Loopback, Path]]:
    """A federation that is queried for counts of items."""
    parts, config = made_up_users(), experiment("feddae", 1000)
    with tempfile.TemporaryDirectory() as made:
        place, data = Path(made), NodeData.for_server(parts)
        faults: dict[str, Any] = {} if losses is None else {"faults": losses}
        with Loopback(folders(place, parts, nodes), method="forkserver", **faults) as transport:
            yield parts, federation_over(transport, config, data, place / "ledger.jsonl"), transport, place


def federation_over(
    transport: Transport,
    config: ExperimentConfig,
    data: NodeData,
    ledger: Path,
    *,
    timeout: float = 120,
    dropout: float = 0.1,
) -> RemoteFederation:
    """A federation without a method, for queries of its own."""
    announced = Announcement.from_config(config, data, seeded=True)
    streams = announced.assemble(data, bytes(32)).streams
    guard = ServerGuard(config.privacy, Ledger(config.privacy, USERS, ledger), streams)
    return RemoteFederation(transport, announced, guard, streams, timeout=timeout, dropout=dropout)


class Counting(Server):
    """A server that queries who has which item."""

    def __init__(self) -> None:
        self.schema: Schema = {COUNTS: Block((ITEMS,))}
        self.latest = torch.zeros(ITEMS)

    def round(self, federation: Federation, t: int) -> None:
        """One query."""
        self.latest = federation.aggregate("count", federation.sample_cohort(t), Message({}), self.schema).sums[COUNTS]

    def public(self) -> Message:
        """Nothing to download."""
        return Message({})

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing to keep."""
        return {}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Nothing to continue from."""


def counted(parts: Split, users: np.ndarray) -> torch.Tensor:
    """Counts by hand."""
    held = np.zeros(ITEMS)
    np.add.at(held, parts.train.subset(users).items, 1)
    return torch.from_numpy(held).float()


def members_of(entry: Entry) -> np.ndarray:
    """Users who took part, which the plans of these runs do not hide."""
    members = entry.members()
    assert members is not None
    return members


def entries_in(path: Path) -> list[Entry]:
    """Entries of a ledger's file; the digests that link its lines are not checked."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [Entry.model_validate({k: v for k, v in line.items() if k not in (PREVIOUS, DIGEST)}) for line in lines]


def missing_entries(place: Path, nodes: int, opened: list[int]) -> int:
    """Number of opened rounds missing in the server's ledger or in that of a node whose users are in them."""
    recorded = entries_in(place / "ledger.jsonl")
    missing = len(opened) - len(recorded) + sum(e.round != t for e, t in zip(recorded, opened, strict=False))
    for number in range(nodes):
        [path] = (place / f"node{number}").glob("ledger-*.jsonl")
        cohorts, users = {entry.cohort_id for entry in entries_in(path)}, np.arange(USERS)[number::nodes]
        missing += sum(e.cohort_id not in cohorts for e in recorded if np.isin(users, members_of(e)).any())
    return missing


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and largest of some durations, and their number."""
    ends = zip(("median", "p95", "max"), np.quantile(seconds, (0.5, 0.95, 1)) if seconds else (), strict=False)
    return {name: round(float(value), 2) for name, value in ends} | {"times": len(seconds)}


def losses(options: argparse.Namespace, record: harness.Record, nodes: int = 10) -> None:
    """Rounds with losses: wrong sums, missing entries of ledgers, recovery."""
    faults, wrong, opened, rounds = Losses(7, nodes, 3), 0, [], options.rounds or 500
    started = time.monotonic()
    with counting(nodes, faults) as (parts, federation, transport, place):
        server = Counting()
        for t in range(rounds):
            faults.next_round()
            if federation.run(server, t):
                opened.append(t)
                users = members_of(federation.guard.ledger.entries[-1])
                wrong += not torch.equal(server.latest, counted(parts, users))
            if (t + 1) % 50 == 0:
                print(f"round {t + 1}: {wrong} wrong, {federation.traffic.aborted_rounds} aborted", flush=True)
        missing = missing_entries(place, nodes, opened)
        record.put(
            {
                "nodes": nodes, "rounds": rounds, "rounds_hit": faults.rounds_hit, "opened": len(opened),
                "aborted_rounds": federation.traffic.aborted_rounds, "wrong_sums": wrong, "missing_entries": missing,
                "faults": dict(sorted(faults.counts.items())), "restarts": transport.restarts,
                "recovery_seconds": spread(faults.recovered),
                "seconds": round(time.monotonic() - started, 1), "load": os.getloadavg()[1],
            },
            "losses",
        )  # fmt: skip


def serve(options: argparse.Namespace, record: harness.Record) -> None:
    """A server that may be killed: continues where the folder's run stopped."""
    del record
    place, parts = options.folder, made_up_users()
    config = experiment("hetefedrec", options.rounds, checkpoint_every=3)
    with Loopback(folders(place, parts, 3), method="forkserver") as transport:
        print("begun", flush=True)
        trained = train(config, NodeData.for_server(parts), transport, place / "server", seeded=True, timeout=300)
    torch.save(trained.server.state(), place / "model.pt")


def kills(options: argparse.Namespace, record: harness.Record) -> None:
    """One run, killed again and again, against the simulation in one process."""
    rng, parts, rounds, times = np.random.default_rng(11), made_up_users(), options.rounds or 24, options.kills
    config = experiment("hetefedrec", rounds, checkpoint_every=3)
    reference = Experiment(config, parts)
    reference.run(parts=())
    moments, finished = list[float](), False
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        while not finished:
            command = [sys.executable, "-m", "benchmarks.speed.nodes", "serve"]
            command += ["--folder", str(place), "--rounds", str(rounds)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=harness.ROOT) as process:
                assert process.stdout is not None
                process.stdout.readline()
                if len(moments) < times:
                    moment = float(rng.uniform(0, 12))
                    try:
                        process.wait(moment)
                    except subprocess.TimeoutExpired:
                        os.kill(process.pid, signal.SIGKILL)
                        moments.append(round(moment, 2))
                        ledger = place / "server" / "ledger.jsonl"
                        done = len(entries_in(ledger)) if ledger.exists() else 0
                        print(f"killed {len(moments)} times, {done} entries", flush=True)
                finished = process.wait() == 0
        model = torch.load(place / "model.pt", weights_only=True)
        same = all(torch.equal(model[name], value) for name, value in reference.server.state().items())
        entries = entries_in(place / "server" / "ledger.jsonl")
        record.put(
            {
                "kills": len(moments), "moments": moments, "rounds": rounds, "same_model": same,
                "entries": len(entries), "entries_in_order": [e.round for e in entries] == list(range(rounds)),
            },
            "kills",
        )  # fmt: skip


def corpus(*_: object) -> None:
    """Every lie of the corpus."""
    tests = harness.ROOT / "tests" / "engines" / "nodes" / "test_hostile.py"
    command = [sys.executable, "-m", "pytest", str(tests), "-q", "-p", "no:cacheprovider", "-k", "lying or lies"]
    subprocess.run(command, check=True, env={**os.environ, "PRIVFED_WHOLE_CORPUS": "1"})


def costs(options: argparse.Namespace, record: harness.Record) -> None:
    """Exchanges, bytes and seconds of a steady round."""
    found, rounds = {}, options.rounds or 20
    for nodes in (3, 5, 10):
        with counting(nodes) as (_, federation, _, _):
            server = Counting()
            federation.run(server, 0)
            before, started = federation.traffic.exchanges, time.monotonic()
            up, down = federation.traffic.up_bytes, federation.traffic.down_bytes
            for t in range(1, rounds + 1):
                federation.run(server, t)
            taken = federation.traffic
            found[str(nodes)] = {
                "exchanges": (taken.exchanges - before) / rounds,
                "up_bytes": round((taken.up_bytes - up) / rounds),
                "down_bytes": round((taken.down_bytes - down) / rounds),
                "seconds": round((time.monotonic() - started) / rounds, 3),
            }
    record.put({"ring_elements": ITEMS, "per_round": found, "load": os.getloadavg()[0]}, "costs")


class Metered(Transport):
    """A transport that counts, round by round, what its nodes' processes take."""

    def __init__(self, inner: Loopback, rounds: list[dict[str, float]]) -> None:
        self.inner, self.rounds = inner, rounds
        self.exchanges = self.up = self.down = 0
        self.before = self.now()

    def nodes(self) -> Sequence[NodeId]:
        """All of them."""
        return self.inner.nodes()

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Pass on and count."""
        replies = self.inner.exchange(stage, requests, timeout)
        self.exchanges += 1
        self.down += sum(map(len, requests.values()))
        self.up += sum(map(len, replies.values()))
        return replies

    def now(self) -> dict[str, float]:
        """Since the beginning, over all nodes."""
        ticks = sum(sum(map(int, fields[11:13])) for fields in map(stat, self.pids))
        taken = {"exchanges": self.exchanges, "up_bytes": self.up, "down_bytes": self.down}
        return {**taken, "cpu_seconds": ticks / os.sysconf("SC_CLK_TCK")}

    @property
    def pids(self) -> list[int]:
        """Processes of the nodes."""
        return [child.pid for child in multiprocessing.active_children() if child.pid is not None]

    def memory(self, name: str) -> float:
        """MB of the largest node: `VmRSS` now, `VmHWM` at its most."""
        found = [Path(f"/proc/{pid}/status").read_text().split(f"{name}:")[1].split()[0] for pid in self.pids]
        return max(map(int, found)) / 1e3

    def round(self, t: int, evaluated: RoundEvaluation | None) -> None:
        """A round is over."""
        del t, evaluated
        now = self.now()
        self.rounds.append({key: now[key] - self.before[key] for key in now})
        self.before = now


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def devices(options: argparse.Namespace, record: harness.Record) -> None:
    """One user per node, the most usual ones, at the catalogue and the settings that the methods come with."""
    parts = split(load("ml-100k"), SplitSpec())
    usual = np.sort(np.argsort(parts.train.counts, kind="stable")[len(parts.train.counts) // 2 :][:3])
    for method in options.methods:
        plan, settings, max_rounds = DEVICES[method]
        public = method == "dfmr"
        config = ExperimentConfig(
            method={"name": method, **settings},
            privacy=PrivacyPlan.parse(plan),
            rounds=min(options.rounds or 4, max_rounds),
            seed=3,
        )
        with tempfile.TemporaryDirectory() as made:
            place = Path(made)
            for number, user in enumerate(usual):
                (place / f"node{number}").mkdir()
                (place / f"node{number}" / "node.toml").write_text(DEVICE_POLICY)
                NodeData.from_split(parts, np.array([user]), public=public).save(place / f"node{number}")
            found: list[dict[str, float]] = []
            with Loopback({n: place / f"node{n}" for n in range(3)}, method="forkserver") as transport:
                time.sleep(1)
                meter = Metered(transport, found)
                idle = meter.memory("VmRSS")
                data = NodeData.for_server(parts, public=public)
                trained = train(config, data, meter, place / "server", seeded=True, progress=meter.round)
                peak = meter.memory("VmHWM")
        steady = found[1:] or found
        cost = {key: float(np.mean([one[key] for one in steady])) for key in steady[0]}
        row = {
            "plan": plan, "rounds": config.rounds, "aborted_rounds": trained.traffic.aborted_rounds,
            "exchanges": cost.pop("exchanges"),
            **{key: round(value / 3, 4) for key, value in cost.items()},
            "peak_mb": round(peak), "mb_over_idle": round(peak - idle), "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
        record.put(row, "devices", method)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of them."""
    parts: dict[str, Callable[[argparse.Namespace, harness.Record], None]] = {
        "losses": losses,
        "kills": kills,
        "corpus": corpus,
        "costs": costs,
        "devices": devices,
        "serve": serve,
    }
    parser = harness.parser(__file__, __doc__, parts=parts, rounds=None)
    parser.add_argument("--methods", nargs="+", default=list(DEVICES), choices=list(DEVICES), help="of devices")
    parser.add_argument("--kills", type=int, default=10, help="of the server (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = harness.parse(parser, arguments)
    parts[given.part](given, harness.Record("nodes", given, {}))


if __name__ == "__main__":
    main()
