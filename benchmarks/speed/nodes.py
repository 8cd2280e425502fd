"""Federations over processes: losses at volume, servers that are killed, nodes that lie, and what a round costs.

    python -m benchmarks.speed.nodes losses   10 nodes, 500 rounds; in a third, 1 to 3 are lost at random stages
    python -m benchmarks.speed.nodes liars    10 nodes, 500 rounds; three lie under their own keys, two are killed
    python -m benchmarks.speed.nodes kills    a server that is killed with SIGKILL at 10 random moments of one run
    python -m benchmarks.speed.nodes corpus   every lie of the hostile corpus, by the test that draws from it
    python -m benchmarks.speed.nodes costs    exchanges, bytes and CPU of a round with 3, 10, 100 nodes in one process
    python -m benchmarks.speed.nodes devices  bytes, CPU-seconds and memory of one user of MovieLens-100K

Every node is a process of its own (in `costs`, an object) with a folder of its own. Sums are checked against counts
made by hand from the users whom the ledger says are in them, and models against a run that nothing happened to. Data
are synthetic, where no other set is named.
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
from unittest import mock

import numpy as np
import torch

from benchmarks import harness
from privfed.contracts import Block, Schema
from privfed.data import Split, SplitSpec, SyntheticSpec, generate, load, split
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.loopback import Fault, InProcess, Loopback
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.operations.progress import RoundReport
from privfed.engines.nodes.party import KEY_FILE, Party, found_federation
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.nodes.run import train
from privfed.engines.nodes.transport import NodeId, Transport
from privfed.experiment import Experiment
from privfed.federation import Federation, Message, Server
from privfed.guards.server_guard import ServerGuard
from privfed.methods.shared.vae_server import COUNTS
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.hash_chain import DIGEST, PREVIOUS
from privfed.privacy.ledger import Entry
from privfed.setup.config import ExperimentConfig
from secure_agg.primitives.keys import SIGNATURE_BYTES

POLICY = """[policy]
allow_simulation = true
mechanisms = ["secure_sum"]
min_own_users = 1
own_noise_suffices = false
"""
STAGES = ("train.share", "train.check", "train.input", "train.confirm", "train.reveal")
USERS, ITEMS = 120, 200
SECURE, SHARES = "secure-sum:clip_norm=1.0", "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=3"
DEVICE_POLICY = """[policy]
allow_simulation = true
min_own_users = 1
own_noise_suffices = false
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


def folders(
    place: Path, parts: Split, shards: Sequence[np.ndarray], *, policy: str = POLICY, public: bool = False
) -> Party:
    """Make a folder `node0`, `node1`, ... with key, policy and users for every node, once; returns the server."""
    own = place / "party"
    if (own / KEY_FILE).exists():
        return Party.load(own)
    server, organisations, operator = found_federation(shards, parts.train.n_users, parts.train.n_items)
    signature = server.federation.signature(operator)
    for number, (party, users) in enumerate(zip(organisations, shards, strict=True)):
        folder = place / f"node{number}"
        folder.mkdir()
        party.save(folder, signature, operator.public)
        (folder / "node.toml").write_text(policy)
        NodeData.from_split(parts, users, public=public).save(folder)
    own.mkdir()
    server.save(own, signature, operator.public)
    return server


def dealt(nodes: int, users: int = USERS) -> list[np.ndarray]:
    """Users of every node: each n-th."""
    return [np.arange(users)[number::nodes] for number in range(nodes)]


def processes(place: Path, nodes: int, **options: Any) -> Loopback:
    """A process for every node's folder."""
    return Loopback({number: place / f"node{number}" for number in range(nodes)}, method="forkserver", **options)


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
        """Choose for the round."""
        self.gone = {}
        if self.rng.random() < 1 / 3:
            faults: tuple[Fault, ...] = ("drop", "kill_before", "kill_after", "late")
            self.lose(int(self.rng.integers(1, self.max_nodes + 1)), faults)

    def lose(self, nodes: int, faults: Sequence[Fault]) -> None:
        """Lose so many nodes in this round."""
        self.rounds_hit += 1
        for node in self.rng.choice(self.nodes, nodes, replace=False):
            stage, fault = STAGES[int(self.rng.integers(len(STAGES)))], faults[int(self.rng.integers(len(faults)))]
            self.gone[int(node)] = (stage, fault)

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


class Liars(Transport):
    """A transport in which some nodes' replies are replaced, every other one, by lies that they sign themselves.

    What a node adds to a sum is its own affair, and nobody can tell a false number from a true one; so the ring
    elements that it uploads stay as they are, and everything else may change.
    """

    def __init__(self, inner: Transport, parties: Mapping[int, Party], seed: int) -> None:
        self.inner, self.parties, self.rng = inner, parties, np.random.default_rng(seed)
        self.earlier: list[bytes] = []
        self.told: dict[str, int] = {}

    def nodes(self) -> Sequence[NodeId]:
        """As they are."""
        return self.inner.nodes()

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Pass on, and lie where a liar answers."""
        replies = dict(self.inner.exchange(stage, requests, timeout))
        for node in sorted(replies.keys() & self.parties.keys()):
            if stage in STAGES and self.rng.random() < 1 / 2:
                honest = replies[node][:-SIGNATURE_BYTES]
                replies[node] = self.parties[node].frame("reply", self.lie(stage, honest))
                self.earlier = [*self.earlier[-20:], honest]
        return replies

    def lie(self, stage: str, honest: bytes) -> bytes:
        """Something else than the honest reply."""
        packet = Packet.decode(honest)
        fields, arrays = dict(packet.fields), {name: array.copy() for name, array in packet.arrays.items()}
        free = sorted(name for name, array in arrays.items() if name != "masked" and array.size)
        kind = str(self.rng.choice(["cut", "replayed", "refusal", "field", *(["array"] if free else [])]))
        self.told[f"{kind} at {stage}"] = self.told.get(f"{kind} at {stage}", 0) + 1
        if kind == "cut":
            return honest[: int(self.rng.integers(len(honest)))]
        if kind == "replayed" and self.earlier:
            return self.earlier[int(self.rng.integers(len(self.earlier)))]
        if kind == "refusal":
            return Packet({**fields, "refused": "no", "code": "stale", "counter": 2**62}).encode()
        if kind == "array":
            bent = arrays[free[int(self.rng.integers(len(free)))]].reshape(-1).view(np.uint8)
            bent[int(self.rng.integers(len(bent)))] ^= np.uint8(1 << int(self.rng.integers(8)))
            return Packet(fields, arrays).encode()
        odd: tuple[Any, ...] = (None, -1, 2**62, "0-999999999999", "\x1b[2J", [], {})
        changed = sorted(fields)[int(self.rng.integers(len(fields)))]
        return Packet({**fields, changed: odd[int(self.rng.integers(len(odd)))]}, arrays).encode()


@contextmanager
def counting(
    nodes: int, losses: Losses | None = None, liars: Sequence[int] = ()
) -> Iterator[tuple[Split, RemoteFederation, Loopback, Path]]:
    """A federation that is queried for counts of items."""
    parts, config = made_up_users(), experiment("feddae", 1000)
    with tempfile.TemporaryDirectory() as made:
        place, data = Path(made), NodeData.for_server(parts)
        server = folders(place, parts, dealt(nodes))
        faults: dict[str, Any] = {} if losses is None else {"faults": losses}
        with processes(place, nodes, **faults) as inner:
            transport = Liars(inner, {node: Party.load(place / f"node{node}") for node in liars}, 5)
            yield parts, federation_over(transport, server, config, data, place / "ledger.jsonl"), inner, place


def federation_over(
    transport: Transport,
    server: Party,
    config: ExperimentConfig,
    data: NodeData,
    ledger: Path,
    *,
    timeout: float = 120,
) -> RemoteFederation:
    """A federation without a method, for queries of its own."""
    announced = Announcement.from_config(config, data, server.federation, seeded=True)
    streams = announced.assemble(data, bytes(32)).streams
    guard = ServerGuard(config.privacy, Ledger(config.privacy, USERS, ledger), streams)
    return RemoteFederation(transport, announced, server, guard, timeout=timeout)


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
    """Number of opened rounds missing in the server's ledger or in that of a node whose users are in them.

    A round that was recorded and then could not be opened stays recorded: shares of its secrets were revealed.
    """
    recorded = {entry.round: entry for entry in entries_in(place / "ledger.jsonl")}
    missing = sum(t not in recorded for t in opened)
    for number, users in enumerate(dealt(nodes)):
        files = (place / f"node{number}").rglob("ledger-*.jsonl")
        cohorts = {entry.cohort_id for file in files for entry in entries_in(file)}
        missing += sum(e.cohort_id not in cohorts for e in recorded.values() if np.isin(users, members_of(e)).any())
    return missing


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and largest of some durations, and their number."""
    ends = zip(("median", "p95", "max"), np.quantile(seconds, (0.5, 0.95, 1)) if seconds else (), strict=False)
    return {name: round(float(value), 2) for name, value in ends} | {"times": len(seconds)}


def losses(options: argparse.Namespace, record: harness.Record) -> None:
    """Rounds with losses: wrong sums, lost charges, recovery."""
    many_rounds(options, record, "losses", Losses(7, 10, 3))


class Kills(Losses):
    """Every round a fifth of the nodes is killed, at a random stage each."""

    def next_round(self) -> None:
        """Choose for the round."""
        self.gone = {}
        self.lose(self.nodes // 5, ("kill_before", "kill_after"))


def liars(options: argparse.Namespace, record: harness.Record) -> None:
    """The same with three nodes that lie whenever they are sent anything, and two of all that are killed."""
    many_rounds(options, record, "liars", Kills(7, 10, 2), (2, 5, 8))


def many_rounds(
    options: argparse.Namespace, record: harness.Record, name: str, faults: Losses, lying: Sequence[int] = ()
) -> None:
    """Rounds over ten processes, each against the counts by hand."""
    nodes, wrong, opened, rounds = faults.nodes, 0, list[int](), options.rounds or 500
    started = time.monotonic()
    with counting(nodes, faults, lying) as (parts, federation, transport, place):
        server = Counting()
        for t in range(rounds):
            faults.next_round()
            if federation.run(server, t):
                opened.append(t)
                users = members_of(federation.guard.ledger.entries[-1])
                wrong += not torch.equal(server.latest, counted(parts, users))
            if (t + 1) % 50 == 0:
                print(f"round {t + 1}: {wrong} wrong, {federation.traffic.aborted_rounds} aborted", flush=True)
        missing, recorded = missing_entries(place, nodes, opened), len(federation.guard.ledger.entries)
        record.put(
            {
                "nodes": nodes, "rounds": rounds, "rounds_hit": faults.rounds_hit, "opened": len(opened),
                "aborted_rounds": federation.traffic.aborted_rounds, "wrong_sums": wrong, "missing_entries": missing,
                "recorded_and_aborted": recorded - len(opened),
                "faults": dict(sorted(faults.counts.items())), "restarts": transport.restarts,
                "liars": len(lying), "excluded": len(federation.roster.excluded),
                "honest_excluded": len(federation.roster.excluded.keys() - set(lying)),
                "incidents": len(federation.incidents),
                "recovery_seconds": spread(faults.recovered),
                "seconds": round(time.monotonic() - started, 1), "load": os.getloadavg()[1],
            },
            name,
        )  # fmt: skip


def serve(options: argparse.Namespace, record: harness.Record) -> None:
    """A server that may be killed: continues where the folder's run stopped."""
    del record
    place, parts = options.folder, made_up_users()
    config = experiment("hetefedrec", options.rounds, checkpoint_every=3)
    party = folders(place, parts, dealt(3))
    with processes(place, 3) as transport:
        print("begun", flush=True)
        trained = train(
            config, NodeData.for_server(parts), party, transport, place / "server", seeded=True, timeout=300
        )
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


class Unsigned(Party):
    """A party that neither signs nor verifies messages, to see what that costs; terms of masked sums stay signed."""

    def sign(self, kind: Any, message: bytes) -> bytes:
        """Nothing, at full length."""
        del kind, message
        return bytes(SIGNATURE_BYTES)

    def verify(self, kind: Any, message: bytes | memoryview, signature: bytes, sender: int) -> None:
        """Believe it."""


def costs(options: argparse.Namespace, record: harness.Record) -> None:
    """Exchanges, bytes and processor time of a steady round of the server and all nodes in one process."""
    parts, config, rounds = made_up_users(), experiment("feddae", 1000), options.rounds or 10
    for nodes in (3, 10, 100):
        for kind in (Party, Unsigned):
            name = f"{nodes} nodes, {'signed' if kind is Party else 'unsigned'} messages"
            if not harness.chosen(name, options.only):
                continue
            with tempfile.TemporaryDirectory() as made, mock.patch("os.fsync"):
                place, data = Path(made), NodeData.for_server(parts)
                found = folders(place, parts, dealt(nodes))
                server = kind(found.federation, found.identity, found.seat)
                members = {}
                for number in range(nodes):
                    own = Party.load(place / f"node{number}")
                    party = kind(own.federation, own.identity, own.seat)
                    members[number] = Node(place / f"node{number}", party=party)
                federation = federation_over(InProcess(members), server, config, data, place / "ledger.jsonl")
                row = steady(federation, rounds) | {"load": round(os.getloadavg()[0], 1)}
            record.put(row, "costs", name)


def steady(federation: RemoteFederation, rounds: int) -> dict[str, float]:
    """What a round takes after the first."""
    server = Counting()
    assert federation.run(server, 0)
    taken, began = federation.traffic, time.process_time()
    before = taken.exchanges, taken.up_bytes, taken.down_bytes
    for t in range(1, rounds + 1):
        assert federation.run(server, t)
    after = taken.exchanges, taken.up_bytes, taken.down_bytes
    exchanges, up, down = ((now - then) / rounds for now, then in zip(after, before, strict=True))
    spent = (time.process_time() - began) / rounds
    return {"exchanges": exchanges, "up_bytes": round(up), "down_bytes": round(down), "cpu_s": round(spent, 4)}


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

    def round(self, report: RoundReport) -> None:
        """A round is over."""
        del report
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
            party = folders(place, parts, [np.array([user]) for user in usual], policy=DEVICE_POLICY, public=public)
            found: list[dict[str, float]] = []
            with processes(place, 3) as transport:
                time.sleep(1)
                meter = Metered(transport, found)
                idle = meter.memory("VmRSS")
                data = NodeData.for_server(parts, public=public)
                trained = train(config, data, party, meter, place / "server", seeded=True, progress=meter.round)
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
    parts: dict[str, Callable[..., None]] = {
        "losses": losses, "liars": liars, "kills": kills, "corpus": corpus, "costs": costs, "devices": devices,
        "serve": serve,
    }  # fmt: skip
    parser = harness.parser(__file__, __doc__, parts=parts, rounds=None, only=[])
    parser.add_argument("--methods", nargs="+", default=list(DEVICES), choices=list(DEVICES), help="of devices")
    parser.add_argument("--kills", type=int, default=10, help="of the server (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = harness.parse(parser, arguments)
    parts[given.part](given, harness.Record("nodes", given, {}))


if __name__ == "__main__":
    main()
