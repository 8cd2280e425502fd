"""A device in node joins masked sums over HTTP beside Python's clients, against the aggregator of `secure_agg`."""

import json
import queue
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from privfed.engines.nodes.http_transport import HttpTransport, answer
from privfed.guards.ring_code import RingCode
from privfed.methods.private_gram.queries import GRAM
from privfed.methods.shared.popular_head import POPULARITY
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from secure_agg.errors import SecureAggregationError
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Terms
from secure_agg.masking.messages import Envelope, Stage
from secure_agg.primitives.keys import Identity

DEVICE = Path(__file__).resolve().parents[2] / "device"
PEOPLE, OURS, THRESHOLD, LEAST = 5, 2, 3, 4
MECHANISM = DistributedGaussian(clip_norm=1.0, noise_multiplier=8.0, n_min_honest=4)
HISTORY = [0, 1, 2, 5, 8, 13, 21, 34, 55]
RULES = {"minClients": LEAST, "minThreshold": THRESHOLD, "maxCorrupt": 1}
POLICY = {"epsilonPerYear": 20, "deltaPerYear": 1e-5, "leastCohort": PEOPLE, "leastHonest": 4}


@dataclass
class Peer:
    """One of Python's clients: a handler of the same three stages, with a vector that the test knows."""

    number: int
    identity: Identity
    directory: dict[int, bytes]
    vector: np.ndarray
    leaves_at: Stage | None = None
    layout: bytes = b""
    left: bool = False
    client: MaskingClient | None = None

    def handle(self, stage: str, request: bytes) -> bytes:
        if stage == "announce":
            return sha256(request).digest()
        if stage == "query":
            asked = json.loads(request)
            self.layout = sha256(request).digest()
            rules = ClientRequirements(min_clients=LEAST, min_threshold=THRESHOLD, max_corrupt=1)
            self.client = MaskingClient(
                self.number, rules, run=bytes.fromhex(asked["masking"]), identity=self.identity,
                directory=self.directory,
            )  # fmt: skip
            return self.layout
        assert self.client is not None
        kind = Envelope.decode(request).stage
        if kind is self.leaves_at:
            self.left = True
            return b""
        steps: dict[Stage, Callable[[bytes], bytes]] = {
            Stage.INVITATION: self.client.advertise,
            Stage.ROSTER: self.client.share,
            Stage.DELIVERY: self.client.check,
            Stage.GO_AHEAD: lambda message: self.client.mask(message, self.vector, bound=self.layout),
            Stage.SURVIVORS: self.client.confirm,
            Stage.REQUEST: self.client.unmask,
        }
        return steps[kind](request)


@dataclass
class Device:
    """The process of the device, what it said, and its public key."""

    process: subprocess.Popen[str]
    said: queue.Queue[str] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self.public = bytes.fromhex(self.said.get(timeout=30).strip())

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)

    def tell(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def end(self) -> list[dict[str, Any]]:
        """End it, and everything that it said meanwhile."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0
        return [json.loads(line) for line in self.said.queue]


@pytest.fixture
def device() -> Iterator[Device]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    process = subprocess.Popen(
        [program, "test/join.mjs"],
        cwd=DEVICE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        yield Device(process)
        process.kill()


class Aggregator:
    """Four of Python's clients and the device behind one HTTP transport, and what the server does."""

    def __init__(self, device: Device, vectors: ModuleType, policy: dict[str, float]) -> None:
        self.vectors, self.run = vectors, secrets.token_hex(16)
        self.identities = {number: Identity.generate() for number in range(PEOPLE) if number != OURS}
        self.directory = {number: one.public for number, one in self.identities.items()} | {OURS: device.public}
        tokens = {number: secrets.token_hex(16) for number in range(PEOPLE)}
        self.transport = HttpTransport(tokens, patience=1.0)
        self.peers: dict[int, Peer] = {}
        self._threads = []
        self._over = threading.Event()
        for number, identity in self.identities.items():
            peer = self.peers[number] = Peer(number, identity, self.directory, np.zeros(0, np.uint32))
            thread = threading.Thread(
                target=answer, args=(self.transport.address, number, tokens[number], peer, self._over.is_set)
            )
            thread.start()
            self._threads.append(thread)
        device.tell(
            address=self.transport.address, node=OURS, token=tokens[OURS], policy=policy, rules=RULES, history=HISTORY,
            directory={number: key.hex() for number, key in self.directory.items()},
        )  # fmt: skip
        self.codes = [
            RingCode(MECHANISM, vectors.schema(name, MECHANISM, diagonal=True, weight=1.0), PEOPLE)
            for name in (POPULARITY, GRAM)
        ]
        queries = [vectors.query(n, c, diagonal=True) for n, c in zip((POPULARITY, GRAM), self.codes, strict=True)]
        beta = self.codes[0].distributed.event().beta  # type: ignore[union-attr]
        self.terms = vectors.terms(MECHANISM, PEOPLE, queries, beta)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.transport.close()

    def ask(self, stage: str, content: Any, timeout: float = 20) -> dict[int, bytes]:
        request = json.dumps(content).encode()
        replies = self.transport.exchange(stage, dict.fromkeys(range(PEOPLE), request), timeout)
        assert set(replies.values()) <= {sha256(request).digest()}
        self.layout = sha256(request).digest()
        return dict(replies)

    def announce(self, timeout: float = 20) -> set[int]:
        return set(self.ask("announce", {"run": self.run, "terms": self.terms}, timeout))

    def sum_of(self, index: int, timeout: float = 20) -> tuple[np.ndarray, tuple[int, ...]]:
        """The ring elements of a query's sum, and who is in it."""
        code, masking = self.codes[index], secrets.token_hex(16)
        model = self.vectors.tensors(self.vectors.SIDE, 0)
        head = {} if index == 0 else {
            name: self.vectors.hexadecimal(model[name].int() if name == "head" else model[name])
            for name in ("head", "shares", "scale")
        }  # fmt: skip
        self.ask("query", {"run": self.run, "query": index, "masking": masking} | head)
        for number, peer in self.peers.items():
            peer.vector = np.full(code.length, 1000 * number + index, code.ring.dtype)
        terms = Terms(
            bytes.fromhex(masking), 0, code.ring.bits, code.length, THRESHOLD, signed=True, layout=self.layout
        )
        server = MaskingServer(terms, min_clients=LEAST, directory=self.directory)
        server.bind(self.layout)
        requests = server.invite(list(range(PEOPLE)))
        while server.awaits is not None:
            for number, reply in self.transport.exchange("masking", requests, timeout).items():
                if reply:
                    server.receive(number, reply)
            requests = server.advance()
        return server.total, server.survivors


def joined(device: Device, vectors: ModuleType, policy: dict[str, float]) -> Iterator[Aggregator]:
    aggregator = Aggregator(device, vectors, policy)
    try:
        yield aggregator
    finally:
        aggregator.close()


@pytest.fixture
def federation(device: Device, vectors: ModuleType) -> Iterator[Aggregator]:
    yield from joined(device, vectors, POLICY)


def residual(federation: Aggregator, index: int, total: np.ndarray, others: list[int]) -> np.ndarray:
    """What the device's elements are beyond its rounded history, in steps: noise, and less than a step of rounding."""
    code = federation.codes[index]
    assert code.distributed is not None
    known = code.ring.sum([federation.peers[number].vector for number in others])
    mine = code.ring.centred(code.ring.reduce_((total - known).astype(code.ring.dtype)))
    case = json.loads((DEVICE / "vectors" / "uploading.json").read_text())["cases"][0]
    history = federation.vectors.HISTORIES.index(HISTORY)
    digits = next(one["values"] for one in case["uploads"] if (one["query"], one["history"]) == (index, history))
    values = np.frombuffer(bytes.fromhex(digits), "<f4").astype(np.float64)
    (block,) = code.schema.values()
    return mine - values * block.weight / code.distributed.grid


@pytest.mark.parametrize("leaver", [None, 4])
def test_sums_with_the_device_in_them_open_and_hold_its_history_under_noise(
    federation: Aggregator, device: Device, leaver: int | None
) -> None:
    assert federation.announce() == set(range(PEOPLE))
    noise = []
    for index in (0, 1):
        if index and leaver is not None:
            federation.peers[leaver].leaves_at = Stage.GO_AHEAD
        total, survivors = federation.sum_of(index)
        left = {leaver} if index and leaver is not None else set()
        assert set(survivors) == set(range(PEOPLE)) - left
        noise.append(residual(federation, index, total, [n for n in survivors if n != OURS]))
    (spent,) = device.end()
    for one, code in zip(noise, federation.codes, strict=True):
        assert code.distributed is not None
        assert 0.3 < one.var() / float(code.distributed.noise.client_variance) < 3
    assert spent["ledger"]["runs"] == 1
    assert 0 < spent["ledger"]["epsilon"] <= POLICY["epsilonPerYear"]


def test_a_device_refuses_what_its_owner_does_not_allow_and_is_silent(device: Device, vectors: ModuleType) -> None:
    for federation in joined(device, vectors, POLICY | {"epsilonPerYear": 0.1}):
        assert federation.announce(timeout=3) == set(range(PEOPLE)) - {OURS}
        refused, spent = device.end()
        assert "your policy allows 0.1 a year" in refused["refused"]
        assert spent["ledger"]["runs"] == 0


def test_a_query_is_answered_once_and_a_run_is_joined_once(federation: Aggregator, device: Device) -> None:
    federation.announce()
    federation.sum_of(0)
    asked = {"run": federation.run, "query": 0, "masking": secrets.token_hex(16)}
    assert OURS not in federation.ask("query", asked, timeout=2)
    assert OURS not in federation.announce(timeout=2)
    said = device.end()
    assert ["was answered" in said[0]["refused"], "joined twice" in said[1]["refused"]] == [True, True]


def test_a_server_that_tells_the_device_something_else_opens_nothing(federation: Aggregator) -> None:
    """Terms whose layout is not the digest of what the device was asked: it leaves, and no sum holds it."""
    federation.announce()
    true = federation.ask

    def lying(stage: str, content: Any, timeout: float = 20) -> dict[int, bytes]:
        replies = true(stage, content, timeout)
        federation.layout = bytes(32)
        return replies

    federation.ask = lying  # type: ignore[method-assign]
    try:
        _, survivors = federation.sum_of(0, timeout=2)
    except SecureAggregationError:
        survivors = ()
    assert OURS not in survivors
