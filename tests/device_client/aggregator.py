"""An aggregator of `secure_agg` on loopback, four of Python's clients, and beside them a device: node, or a page."""

import json
import queue
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from privfed.engines.nodes.http_transport import HttpTransport, answer
from privfed.guards.ring_code import RingCode
from privfed.methods.private_gram.queries import GRAM
from privfed.methods.shared.popular_head import POPULARITY
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Terms
from secure_agg.masking.messages import Envelope, Stage
from secure_agg.primitives.keys import Identity
from tests.browser import Browser

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


@dataclass
class Tab:
    """The device as a page of a browser, with its ledger in IndexedDB."""

    browser: Browser

    def __post_init__(self) -> None:
        self.public = bytes.fromhex(
            self.browser.ask(
                "import('../dist/index.js').then(async d => { window.d = d; window.end = new AbortController(); "
                "window.identity = await d.Identity.generate(); return d.hex(identity.publicKey) })"
            )
        )

    def tell(self, **what: Any) -> None:
        self.browser.ask(
            "(async told => { const ledger = new d.Ledger(new d.IndexedDbStore('joining')); "
            "await d.insistOnCrypto(); await ledger.allow(told.policy); window.refused = []; "
            "const keys = new Map(Object.entries(told.directory).map(([id, key]) => [Number(id), d.fromHex(key)])); "
            "const own = new Set(told.history); "
            "const one = new d.Participant(told.node, ledger, identity, told.rules, keys, () => own); "
            "window.state = () => ledger.state(); window.forget = () => ledger.withdraw(); "
            "d.participate(told.address, told.node, told.token, one, end.signal, why => refused.push(why.message)); "
            f"}})({json.dumps(what)})"
        )


class Aggregator:
    """Four of Python's clients and the device behind one HTTP transport, and what the server does."""

    def __init__(
        self, device: "Device | Tab", vectors: ModuleType, policy: dict[str, float], origins: Sequence[str] = ()
    ) -> None:
        self.vectors, self.run = vectors, secrets.token_hex(16)
        self.identities = {number: Identity.generate() for number in range(PEOPLE) if number != OURS}
        self.directory = {number: one.public for number, one in self.identities.items()} | {OURS: device.public}
        tokens = {number: secrets.token_hex(16) for number in range(PEOPLE)}
        self.transport = HttpTransport(tokens, patience=1.0, origins=origins)
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


def joined(
    device: Device | Tab, vectors: ModuleType, policy: dict[str, float], origins: Sequence[str] = ()
) -> Iterator[Aggregator]:
    aggregator = Aggregator(device, vectors, policy, origins)
    try:
        yield aggregator
    finally:
        aggregator.close()


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
