"""CPU time, memory and bytes of `secure_agg`, next to the SecAgg+ of the `flwr` package where that is installed.

    python -m benchmarks.peers.secure_aggregation [--repeats 7]

Run from the repository root. `pip install flwr==1.41.0` adds the other side (the project does not depend on it);
without it only our side is measured, and the result says so. Contestants take turns within one process, and a ratio
is the median over the turns, so that other work on the machine meets both alike. Nothing here is asserted but that
sums are right: compare rows of one run, on one machine.

What a timed step holds, on either side, is written above the function that measures it.
"""

import hashlib
import importlib
import math
import multiprocessing
import os
import shutil
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
from cryptography.hazmat.backends.openssl import backend

from benchmarks import harness
from secure_agg import shamir
from secure_agg.encoding import FixedPoint, Ring, Rounding
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Stage, Suite, Terms, aggregate
from secure_agg.primitives.keys import KeyPair
from secure_agg.primitives.prg import RingElements, StreamCipher, add_keystreams, keystream, random_uints

Step = Callable[[], object]
"""What is timed; made anew for every time, because a client of ours does each step once."""

Row = dict[str, Any]

FLOOR = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
RUN = bytes(range(16))
GRAPHS = ((20, 11), (100, 60))
"""Neighbours and threshold."""
LENGTHS = (100_000, 1_000_000)
CLIP = 8.0
BATCH_SECONDS = 0.03
OPENSSL_BLOCK = 1 << 18
UP = (Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL)


# ---- timing


def take_turns(contestants: Mapping[str, Callable[[], Step]], repeats: int) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds of each contestant's step, `repeats` times in turn, each over enough steps for the clock."""
    counts = {}
    for name, prepare in contestants.items():
        step = prepare()
        start = time.process_time()
        step()
        counts[name] = min(1000, math.ceil(BATCH_SECONDS / max(time.process_time() - start, 1e-6)))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, prepare in contestants.items():
            steps = [prepare() for _ in range(counts[name])]
            wall, cpu = time.perf_counter(), time.process_time()
            for step in steps:
                step()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            times[name].append((cpu / counts[name], wall / counts[name]))
    return times


def milliseconds(times: Sequence[tuple[float, float]], clock: int = 0) -> tuple[float, float]:
    """Best and median; clock 0 is CPU, 1 is wall."""
    values = [1000 * pair[clock] for pair in times]
    return round(min(values), 3), round(statistics.median(values), 3)


def compared(what: Row, contestants: Mapping[str, Callable[[], Step]], repeats: int) -> Row:
    """One row: best and median of each contestant in CPU-ms, and how often ours goes into flwr's."""
    times = take_turns(contestants, repeats)
    row = dict(what)
    for name, pairs in times.items():
        row[f"{name}, best ms"], row[f"{name}, median ms"] = milliseconds(pairs)
    if "flwr" in times:
        for name in [name for name in times if name != "flwr"]:
            ratios = [theirs[0] / ours[0] for theirs, ours in zip(times["flwr"], times[name], strict=True)]
            row[f"flwr / {name}"] = round(statistics.median(ratios), 1)
    show(row)
    return row


def peak_bytes(step: Step) -> int:
    """The most memory that a step holds at once beyond what was there, in numpy arrays and Python objects."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def show(row: Mapping[str, object]) -> None:
    """A row as it is done."""
    print("; ".join(f"{name}: {value}" for name, value in row.items()), flush=True)


# ---- our side


@dataclass(frozen=True, slots=True)
class Seat:
    """The middle one of `neighbours + 1` clients in a real round, kept as it was before sharing and before masking."""

    before_share: bytes
    roster: bytes
    before_mask: bytes
    delivery: bytes

    @classmethod
    def take(cls, neighbours: int, threshold: int, length: int, bits: int = 32, suite: Suite = Suite.AES256) -> "Seat":
        """Run the round up to masking; all are neighbours of all."""
        terms = Terms(RUN, 1, bits, length, threshold, suite=suite)
        server = MaskingServer(terms)
        clients = {client: MaskingClient(client, FLOOR, run=RUN) for client in range(neighbours + 1)}
        ours = clients[neighbours // 2]
        requests = server.invite(list(clients))
        for number, client in clients.items():
            server.receive(number, client.advertise(requests[number]))
        requests = server.advance()
        before_share, roster = ours.snapshot(), requests[ours.client]
        for number, client in clients.items():
            server.receive(number, client.share(requests[number]))
        return cls(before_share, roster, ours.snapshot(), server.advance()[ours.client])

    def sharing(self) -> Step:
        """Its step from the roster to the sealed shares."""
        return partial(MaskingClient.restore(self.before_share, FLOOR).share, self.roster)

    def masking(self, words: RingElements, threads: int = 1) -> Step:
        """Its step from the delivery to the masked input."""
        return partial(MaskingClient.restore(self.before_mask, FLOOR, threads=threads).mask, self.delivery, words)

    def masking_floats(self, values: Any, code: FixedPoint) -> Step:
        """The same from floats, which are clipped and encoded first."""
        client = MaskingClient.restore(self.before_mask, FLOOR)
        return lambda: client.mask(self.delivery, code.encode(np.clip(values, -code.bound, code.bound)))


def generating(out: RingElements, suite: Suite) -> Step:
    """One stream, written over `out`."""
    return partial(keystream, bytes(suite.stream.key_bytes), out, suite.stream)


def adding(words: RingElements, neighbours: int, suite: Suite) -> Step:
    """All streams of a client added to its words, keys at hand."""
    keys = [random_uints(suite.stream.key_bytes, np.uint8).tobytes() for _ in range(neighbours + 1)]
    total, half = words.copy(), neighbours // 2 + 1
    return partial(add_keystreams, total, keys[:half], keys[half:], suite.stream)


def recovering(neighbours: int, threshold: int, *, same_holders: bool) -> Callable[[], Step]:
    """The server's recovery of a dropped client's mask key; the holders differ each time unless they are the same."""
    pair = KeyPair.generate()
    shares = shamir.split(pair.private_bytes(), threshold, neighbours)
    draw = np.random.default_rng(0)

    def prepare() -> Step:
        holders = range(threshold) if same_holders else draw.permutation(neighbours)[:threshold].tolist()
        held = {holder + 1: shares[holder] for holder in holders}

        def recover() -> None:
            if KeyPair.from_private(shamir.reconstruct(held, threshold)).public != pair.public:
                raise RuntimeError("another key was recovered")

        return recover

    return prepare


# ---- their side


class Flower:
    """One client of flwr's SecAgg+ with `neighbours` others, as its modifier holds it before each stage."""

    def __init__(self, neighbours: int, threshold: int) -> None:
        common = "flwr.common.secure_aggregation"
        self.mod: ModuleType = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
        self.key: Any = importlib.import_module(f"{common}.secaggplus_constants").Key
        self.shamir: ModuleType = importlib.import_module(f"{common}.crypto.shamir")
        self.serialise: Callable[[list[Any]], Any] = importlib.import_module("flwr.common").ndarrays_to_parameters
        self.threshold, self.shares = threshold, neighbours + 1
        states, roster = {}, {}
        for number in range(1000, 1000 + self.shares):
            state = self.mod.SecAggPlusState()
            state.nid = number
            public = self.mod._setup(state, self._settings())
            states[number], roster[str(number)] = state, (public[self.key.PUBLIC_KEY_1], public[self.key.PUBLIC_KEY_2])
        self.roster = roster
        self.state = states[1000 + neighbours // 2]
        self.mod._share_keys(self.state, roster)
        self.delivery = self._delivery(states)

    def _settings(self) -> dict[str, float]:
        """The defaults of its workflow."""
        key = self.key
        return {
            key.SAMPLE_NUMBER: self.shares, key.SHARE_NUMBER: self.shares, key.THRESHOLD: self.threshold,
            key.CLIPPING_RANGE: CLIP, key.TARGET_RANGE: 1 << 22, key.MOD_RANGE: 1 << 32, key.MAX_WEIGHT: 1000.0,
        }  # fmt: skip

    def _delivery(self, states: Mapping[int, Any]) -> dict[str, Any]:
        """What the others encrypted for it; zeros of the right length stand for their shares, which it only stores."""
        me, mod = self.state.nid, self.mod
        seed_share, key_share = bytes(len(self.state.rd_seed_share_dict[me])), bytes(len(self.state.sk1_share_dict[me]))
        sources = [number for number in states if number != me]
        sealed = [
            mod.encrypt(self.state.ss2_dict[number], mod.share_keys_plaintext_concat(number, me, seed_share, key_share))
            for number in sources
        ]
        return {self.key.CIPHERTEXT_LIST: sealed, self.key.SOURCE_LIST: sources}

    def sharing(self) -> Step:
        """Its share-keys stage."""
        return partial(self.mod._share_keys, self.state, self.roster)

    def masking(self, values: Any) -> Step:
        """Its collect-masked-vectors stage."""
        parameters = self.serialise([values])
        return partial(self.mod._collect_masked_vectors, self.state, self.delivery, 100, parameters)

    @contextmanager
    def quantised(self, values: Any) -> Iterator[None]:
        """While this is open its masking stage finds the numbers already read, weighted and quantised."""
        ready = self.mod.quantize([values], CLIP, 1 << 22)
        with mock.patch.multiple(
            self.mod,
            parameters_to_ndarrays=lambda parameters: [],  # noqa: ARG005
            parameters_multiply=lambda parameters, ratio: parameters,  # noqa: ARG005
            quantize=lambda parameters, clipping, target: ready,  # noqa: ARG005
        ):
            yield

    def adding(self, values: Any) -> Step:
        """Generator and addition of its masking stage, seeds at hand."""
        mod, modulus = self.mod, 1 << 32
        start = mod.factor_combine(1, mod.quantize([values], CLIP, 1 << 22))
        shapes = [part.shape for part in start]
        seeds = [os.urandom(32), *self.state.ss2_dict.values()]

        def add() -> Any:
            total = start
            for number, seed in enumerate(seeds):
                mask = mod.pseudo_rand_gen(seed, modulus, shapes)
                total = (mod.parameters_subtraction if number % 2 else mod.parameters_addition)(total, mask)
            return mod.parameters_mod(total, modulus)

        return add

    def recovering(self) -> Step:
        """Its server's recovery of a dropped client's key from the threshold of shares; the key is also read."""
        shares = self.shamir.create_shares(self.state.sk1, self.threshold, self.shares)[: self.threshold]
        return lambda: self.mod.bytes_to_private_key(self.shamir.combine_shares(shares))


# ---- what is measured


def masking(repeats: int, flower: Mapping[int, Flower]) -> list[Row]:
    """The client's masking step, in three cuts.

    from floats: clip, quantise with stochastic rounding, open the neighbours' shares, agree on a mask key with each,
    make all masks, add them, and write the message; flwr's also reads its input from bytes and weights it.
    from words: the same with the numbers already quantised.
    masks only: streams made and added, keys or seeds at hand.
    """
    rows = []
    for neighbours, threshold in GRAPHS:
        theirs = flower.get(neighbours)
        for length in LENGTHS:
            values = np.random.default_rng(0).normal(scale=0.1, size=length).astype(np.float32)
            code, nearest = (
                FixedPoint.for_sum(Ring(32), bound=CLIP, clients=neighbours + 1, rounding=rounding)
                for rounding in (Rounding.STOCHASTIC, Rounding.NEAREST)
            )
            words = code.encode(values)
            wide = Seat.take(neighbours, threshold, length)
            narrow = Seat.take(neighbours, threshold, length, suite=Suite.AES128)
            cuts: dict[str, dict[str, Callable[[], Step]]] = {
                "from floats": {
                    "ours": partial(wide.masking_floats, values, code),
                    "ours, AES-128": partial(narrow.masking_floats, values, code),
                    "ours, nearest": partial(wide.masking_floats, values, nearest),
                },
                "from words": {
                    "ours": partial(wide.masking, words),
                    "ours, AES-128": partial(narrow.masking, words),
                },
                "masks only": {
                    "ours": partial(adding, words, neighbours, Suite.AES256),
                    "ours, AES-128": partial(adding, words, neighbours, Suite.AES128),
                },
            }
            for cut, contestants in cuts.items():
                what = {"cut": cut, "values": length, "neighbours": neighbours}
                if theirs is None:
                    rows.append(compared(what, contestants, repeats))
                    continue
                contestants["flwr"] = partial(theirs.adding if cut == "masks only" else theirs.masking, values)
                with theirs.quantised(values) if cut == "from words" else nullcontext():
                    rows.append(compared(what, contestants, repeats))
    return rows


def sharing(repeats: int, flower: Mapping[int, Flower]) -> list[Row]:
    """The client's sharing step: check the roster, cut two secrets, agree on a key with each neighbour, encrypt.

    Ours also decodes the roster's bytes, derives the graph, commits to its seed and encodes the message; flwr's
    dictionaries are given and returned as Python objects.
    """
    rows = []
    for neighbours, threshold in GRAPHS:
        contestants: dict[str, Callable[[], Step]] = {"ours": Seat.take(neighbours, threshold, 1).sharing}
        if neighbours in flower:
            contestants["flwr"] = flower[neighbours].sharing
        rows.append(compared({"neighbours": neighbours, "threshold": threshold}, contestants, repeats))
    return rows


def recovery(repeats: int, flower: Mapping[int, Flower]) -> list[Row]:
    """The server's recovery of a dropped client's mask key from a threshold of shares, up to a usable private key.

    Ours also compares the public key with the advertised one. "same holders": the survivors are those of the recovery
    before, so their weights are known.
    """
    rows = []
    for neighbours, threshold in GRAPHS:
        contestants = {
            "ours": recovering(neighbours, threshold, same_holders=False),
            "ours, same holders": recovering(neighbours, threshold, same_holders=True),
        }
        if neighbours in flower:
            contestants["flwr"] = flower[neighbours].recovering
        rows.append(compared({"neighbours": neighbours, "threshold": threshold}, contestants, repeats))
    return rows


def generation(repeats: int) -> list[Row]:
    """Keystream in GB per CPU-second next to `openssl speed` with 256 KiB blocks, which reports its user time.

    block: one block over and over, as openssl does. vector: 4 MB, as the mask of 1e6 words. added: 21 streams made and
    added to 4 MB.
    """
    program = shutil.which("openssl")
    block, vector = np.empty(OPENSSL_BLOCK // 4, np.uint32), np.zeros(1_000_000, np.uint32)
    rows = []
    for suite in Suite:
        speeds: dict[str, list[float]] = {"block": [], "vector": [], "added": [], "openssl": []}
        contestants: dict[str, tuple[int, Callable[[], Step]]] = {
            "block": (block.nbytes, partial(generating, block, suite)),
            "vector": (vector.nbytes, partial(generating, vector, suite)),
            "added": (21 * vector.nbytes, partial(adding, vector, 20, suite)),
        }
        for _ in range(repeats):
            for name, (size, prepare) in contestants.items():
                ((cpu, _wall),) = take_turns({name: prepare}, 1)[name]
                speeds[name].append(size / cpu / 1e9)
            if program:
                speeds["openssl"].append(openssl_speed(program, suite.stream))
        row: Row = {"cipher": str(suite.stream)}
        for name, values in speeds.items():
            if values:
                row[f"{name}, best GB/s"], row[f"{name}, median GB/s"] = (
                    round(max(values), 2),
                    round(statistics.median(values), 2),
                )
        for name in contestants if program else ():
            shares = [ours / theirs for ours, theirs in zip(speeds[name], speeds["openssl"], strict=True)]
            row[f"{name} / openssl"] = round(statistics.median(shares), 3)
        show(row)
        rows.append(row)
    return rows


def openssl_speed(program: str, cipher: StreamCipher) -> float:
    """GB per CPU-second of one second of `openssl speed`."""
    command = [program, "speed", "-mr", "-seconds", "1", "-bytes", str(OPENSSL_BLOCK), "-evp", str(cipher)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (result,) = [line for line in printed.splitlines() if line.startswith("+F:")]
    return float(result.split(":")[-1]) / 1e9


def every_cell(repeats: int) -> list[Row]:
    """Our masking step from words for every cipher, ring, length and graph; CPU-ms, best."""
    rows = []
    for neighbours, threshold in GRAPHS:
        for length in LENGTHS:
            for bits in (16, 32, 64):
                words = random_uints(length, Ring(bits).dtype)
                contestants = {
                    str(suite.stream): partial(Seat.take(neighbours, threshold, length, bits, suite).masking, words)
                    for suite in Suite
                }
                times = take_turns(contestants, repeats)
                row: Row = {"neighbours": neighbours, "values": length, "bits": bits}
                row |= {f"{name}, best ms": milliseconds(pairs)[0] for name, pairs in times.items()}
                show(row)
                rows.append(row)
    return rows


def hashing(count: int) -> Step:
    """SHA-256 of 64 MB in that many threads, which hold no lock: what the machine gives to threads just now."""
    piece = b"x" * (64_000_000 // count)

    def run() -> None:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(hashlib.sha256, [piece] * count))

    return run


def threads(repeats: int) -> list[Row]:
    """Our masking step from 1e6 words with one and with two threads; hashing shows whether a second core was free."""
    rows = []
    words = random_uints(1_000_000, np.uint32)
    steps: dict[str, Callable[[int], Step]] = {"hashing 64 MB": hashing}
    for neighbours, threshold in GRAPHS:
        steps[f"masking, {neighbours} neighbours"] = partial(
            Seat.take(neighbours, threshold, len(words)).masking, words
        )
    for what, prepare in steps.items():
        for count, pairs in take_turns({str(count): partial(prepare, count) for count in (1, 2)}, repeats).items():
            row: Row = {"step": what, "threads": int(count)}
            row["CPU, best ms"], row["CPU, median ms"] = milliseconds(pairs)
            row["wall, best ms"], row["wall, median ms"] = milliseconds(pairs, clock=1)
            show(row)
            rows.append(row)
    return rows


def client_memory(flower: Mapping[int, Flower]) -> list[Row]:
    """The most a client's step holds beyond its input, for 1e6 values; the ring words or floats are its input."""
    rows = []
    values = np.random.default_rng(0).normal(scale=0.1, size=1_000_000).astype(np.float32)
    words = random_uints(1_000_000, np.uint32)
    for neighbours, threshold in GRAPHS:
        seat = Seat.take(neighbours, threshold, len(words))
        code = FixedPoint.for_sum(Ring(32), bound=CLIP, clients=neighbours + 1, rounding=Rounding.STOCHASTIC)
        steps = {
            "share, ours": seat.sharing(),
            "mask from words, ours": seat.masking(words),
            "mask from floats, ours": seat.masking_floats(values, code),
        }
        if neighbours in flower:
            steps["share, flwr"] = flower[neighbours].sharing()
            steps["mask from floats, flwr"] = flower[neighbours].masking(values)
        row: Row = {"neighbours": neighbours}
        row |= {f"{name}, MB": round(peak_bytes(step) / 1e6, 2) for name, step in steps.items()}
        show(row)
        rows.append(row)
    return rows


def fidelity() -> list[Row]:
    """Bytes per client by message, from the traffic of real rounds without dropouts.

    least: the words of the vector up; of the shares 66 bytes per neighbour up and 66 down; one revealed share of 33
    per neighbour up. Everything else is counted as over: headers, terms, keys, ids of the roster, tags that
    authenticate sealed shares, commitments, flags, signatures.
    """
    rows = []
    for clients, neighbours, threshold, length, signed in (
        (21, 0, 11, 1_000_000, False),
        (21, 0, 15, 1_000_000, True),
        (101, 0, 60, 1_000_000, False),
        (1000, 40, 24, 100_000, False),
        (1000, 40, 24, 1_000_000, False),
    ):
        terms = Terms(RUN, 1, 32, length, threshold, neighbours, signed=signed)
        vector = random_uints(length, np.uint32)
        traffic = aggregate(dict.fromkeys(range(clients), vector), terms, requirements=FLOOR).traffic
        degree = terms.degree(clients)
        least_up, least_down = vector.nbytes + (66 + 33) * degree, 66 * degree
        each = {stage: size / clients for stage, size in traffic.items()}
        up = sum(size for stage, size in each.items() if stage in UP)
        both = sum(each.values())
        row: Row = {"clients": clients, "neighbours": degree, "values": length, "signed": signed}
        row |= {str(stage): round(each.get(stage, 0)) for stage in Stage}
        row |= {"up": round(up), "down": round(both - up), "least up": least_up, "least down": least_down}
        row["over, up %"] = round(100 * (up / least_up - 1), 3)
        row["over, both ways %"] = round(100 * (both / (least_up + least_down) - 1), 3)
        show(row)
        rows.append(row)
    return rows


def server_round(workers: int, clients: int = 1000, length: int = 100_000) -> Row:
    """The server of 1000 clients x 1e5 words, 40 neighbours, 100 of them lost before they send their masked input.

    It stands in a process of its own; the clients live in this one. CPU-seconds of each `advance`, of all `receive`
    together, and how much its memory grew at most.
    """
    terms = Terms(RUN, 1, 32, length, 24, 40)
    lost = set(range(0, clients, 10))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, terms, workers))
    process.start()
    members = {client: MaskingClient(client, FLOOR, run=RUN) for client in range(clients)}
    expected = terms.ring.zeros(length)
    stage, requests = ask(ours, list(members))
    while requests:
        for client, request in requests.items():
            match stage:
                case Stage.ADVERTISEMENT:
                    reply = members[client].advertise(request)
                case Stage.SHARES:
                    reply = members[client].share(request)
                case Stage.MASKED_INPUT if client in lost:
                    continue
                case Stage.MASKED_INPUT:
                    vector = random_uints(length, np.uint32)
                    np.add(expected, vector, out=expected)
                    reply = members[client].mask(request, vector)
                case _:
                    reply = members[client].unmask(request)
            ours.send((client, reply))
        stage, requests = ask(ours, None)
    total, row = ours.recv()
    process.join()
    if not np.array_equal(total, expected):
        raise RuntimeError("the total is not the sum of the survivors' vectors")
    return {"threads": workers, **row}


def ask(server: Connection, message: object) -> tuple[Stage | None, dict[int, bytes]]:
    """What the server awaits next, and its requests."""
    server.send(message)
    answer: tuple[Stage | None, dict[int, bytes]] = server.recv()
    return answer


def serve(clients: Connection, terms: Terms, workers: int) -> None:
    """The server's process: a list of clients begins the round, a pair is a reply, nothing closes the stage."""
    server = MaskingServer(terms, threads=workers)
    before = peak_mib()
    advances: dict[str, float] = {}
    received = wall = 0.0
    clients.send((Stage.ADVERTISEMENT, server.invite(clients.recv())))
    while not server.finished:
        message = clients.recv()
        start, wall = time.process_time(), time.perf_counter()
        if message is not None:
            server.receive(*message)
            received += time.process_time() - start
            continue
        stage, requests = server.awaits, server.advance()
        advances[f"after {stage}, CPU-s"] = time.process_time() - start
        wall = time.perf_counter() - wall
        clients.send((server.awaits, requests))
    row = advances | {"all advances, CPU-s": sum(advances.values())}
    row |= {"last advance, wall s": wall, "all receives, CPU-s": received}
    if before is not None:
        row["grown, MiB"] = (peak_mib() or before) - before
    clients.send((server.total, {name: round(value, 4) for name, value in row.items()}))


def peak_mib() -> float | None:
    """The most memory that this process has had so far, where Linux tells; `ru_maxrss` would count the parent's."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def server_rounds(repeats: int) -> list[Row]:
    """Some rounds with one thread and as many with two."""
    rows = []
    for workers in (1, 2) * repeats:
        rows.append(server_round(workers))
        show(rows[-1])
    return sorted(rows, key=lambda row: int(row["threads"]))


def targets(result: Mapping[str, list[Row]]) -> list[Row]:
    """What was asked for next to what came out, medians; ratios to flwr only where it was there."""
    rows: list[Row] = []

    def ask_for(what: str, least_or_most: str, measured: float | None) -> None:
        if measured is not None:
            sign, bound = least_or_most.split()
            met = measured >= float(bound) if sign == ">=" else measured <= float(bound)
            rows.append({"what": what, "asked": least_or_most, "measured": measured, "met": met})

    for row in result["masking"]:
        if (row["values"], row["neighbours"]) == (1_000_000, 20):
            for name in ("ours", "ours, AES-128"):
                ask_for(f"client masking, {row['cut']}, {name}", ">= 8", row.get(f"flwr / {name}"))
    for row in result["sharing"]:
        ask_for(f"share and encrypt to {row['neighbours']}", ">= 50", row.get("flwr / ours"))
    for row in result["recovery"]:
        what = f"recovery of a key, {row['threshold']} of {row['neighbours']}"
        ask_for(what, ">= 100", row.get("flwr / ours"))
    for row in result["generation"]:
        ask_for(f"{row['cipher']} / openssl speed, 4 MB", ">= 0.85", row.get("vector / openssl"))
    alone = [row for row in result["server"] if row["threads"] == 1]
    for name in ("all advances, CPU-s", "after reveal, CPU-s"):
        ask_for(f"server, {name}", "<= 1", statistics.median(row[name] for row in alone))
    for name in ("over, up %", "over, both ways %"):
        ask_for(f"bytes {name}, the worst round", "<= 1", max(row[name] for row in result["wire"]))
    for row in rows:
        show(row)
    return rows


def libraries() -> Row:
    """Versions of what ciphers come from."""
    program = shutil.which("openssl")
    printed = (
        subprocess.run([program, "version"], check=True, capture_output=True, text=True).stdout if program else None
    )
    return {
        "packages": {name: harness.version(name) for name in ("numpy", "cryptography", "flwr", "pycryptodome")},
        "openssl inside cryptography": backend.openssl_version_text(),
        "openssl program": printed and printed.split(" (")[0],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything, print each row as it is done, and keep them all."""
    parser = harness.parser(__file__, __doc__, repeats=7)
    options = harness.parse(parser, arguments)
    record = harness.Record("secure_aggregation", options, {}, anew=True)
    record.session["machine"] |= libraries()
    show(record.session["machine"])
    flower: dict[int, Flower] = {}
    if harness.version("flwr"):
        flower = {neighbours: Flower(neighbours, threshold) for neighbours, threshold in GRAPHS}
    else:
        print("flwr is not installed: only our side is measured", flush=True)
    result: dict[str, list[Row]] = {
        "masking": masking(options.repeats, flower),
        "sharing": sharing(options.repeats, flower),
        "recovery": recovery(options.repeats, flower),
        "generation": generation(options.repeats),
        "every cell": every_cell(options.repeats),
        "threads": threads(options.repeats),
        "client memory": client_memory(flower),
        "wire": fidelity(),
        "server": server_rounds(3),
    }
    record.results = {"targets": targets(result)} | result
    record.save()


if __name__ == "__main__":
    main()
