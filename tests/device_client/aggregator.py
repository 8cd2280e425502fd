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

from privfed.engines.nodes.devices import messages
from privfed.engines.nodes.devices.terms import DeviceQuery, announced_terms
from privfed.engines.nodes.federation_file import FederationFile, Organisation
from privfed.engines.nodes.http_transport import HttpTransport, answer
from privfed.engines.nodes.party import Party
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
AGAIN, CASE = 0.1, 4
"""The share of the head's popularity, as in this case of the vectors."""
MECHANISM = DistributedGaussian(clip_norm=1.0, noise_multiplier=8.0, n_min_honest=4)
HISTORY = [0, 1, 2, 5, 8, 13, 21, 34, 55]
POLICY = {"epsilonPerYear": 20, "deltaPerYear": 1e-5, "leastCohort": PEOPLE, "leastHonest": 4}


@dataclass
class Peer:
    """One of Python's clients: a handler of the same three stages, with a vector that the test knows."""

    party: Party
    vector: np.ndarray
    leaves_at: Stage | None = None
    announced: bytes = b""
    layout: bytes = b""
    left: bool = False
    client: MaskingClient | None = None
    counter: int = -1

    def handle(self, stage: str, request: bytes) -> bytes:
        self.counter, content = messages.request_content(self.party, request, stage, self.counter)
        said = self.say(stage, content)
        return said and messages.reply(self.party, request, said)

    def say(self, stage: str, request: bytes) -> bytes:
        if stage == "announce":
            self.announced = sha256(request).digest()
            return self.announced
        if stage == "query":
            asked = json.loads(request)
            self.layout = sha256(self.announced + request).digest()
            rules = ClientRequirements(min_clients=LEAST, min_threshold=THRESHOLD, max_corrupt=1)
            directory = {seat: self.party.federation.key(seat) for seat in range(PEOPLE)}
            self.client = MaskingClient(
                self.party.seat, rules, run=bytes.fromhex(asked["masking"]), identity=self.party.identity,
                directory=directory,
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
                "await d.insistOnCrypto(); window.ledger = new d.Ledger(new d.IndexedDbStore('joining')); "
                "return d.hex((await ledger.identity()).publicKey) })"
            )
        )

    def tell(self, **what: Any) -> None:
        self.browser.ask(
            "(async told => { await ledger.allow(told.policy); window.refused = []; const own = new Set(told.history); "
            "const signed = await d.Federation.read(d.ascii(told.federation), d.fromHex(told.signature), "
            "d.fromHex(told.operator)); const one = await d.Participant.join(ledger, signed, () => own); "
            "window.state = () => ledger.state(); window.forget = () => ledger.withdraw(); "
            "d.participate(told.address, told.token, one, end.signal, why => refused.push(why.message)); "
            f"}})({json.dumps(what)})"
        )


class Aggregator:
    """Four of Python's clients and the device behind one HTTP transport, and what the server does."""

    def __init__(
        self, device: "Device | Tab", vectors: ModuleType, policy: dict[str, float], origins: Sequence[str] = ()
    ) -> None:
        self.vectors, self.run = vectors, secrets.token_hex(16)
        server, operator = Identity.generate(), Identity.generate()
        identities = {seat: Identity.generate() for seat in range(PEOPLE) if seat != OURS}
        keys = {seat: one.public for seat, one in identities.items()} | {OURS: device.public}
        self.federation = FederationFile(
            name="people", version=1, server=server.public.hex(), population=PEOPLE, items=vectors.ITEMS,
            min_organisations=LEAST,
            organisations=tuple(
                Organisation(name=f"device-{seat}", key=keys[seat].hex(), users=str(seat)) for seat in range(PEOPLE)
            ),
        )  # fmt: skip
        self.server = Party.from_identity(self.federation, server)
        self.counter = 0
        tokens = {seat: secrets.token_hex(16) for seat in range(PEOPLE)}
        self.transport = HttpTransport(tokens, patience=1.0, origins=origins)
        self.peers: dict[int, Peer] = {}
        self._threads = []
        self._over = threading.Event()
        for seat, identity in identities.items():
            peer = self.peers[seat] = Peer(Party.from_identity(self.federation, identity), np.zeros(0, np.uint32))
            thread = threading.Thread(
                target=answer, args=(self.transport.address, seat, tokens[seat], peer, self._over.is_set)
            )
            thread.start()
            self._threads.append(thread)
        device.tell(
            address=self.transport.address, token=tokens[OURS], policy=policy, history=HISTORY,
            federation=self.federation.canonical.decode(), signature=self.federation.signature(operator),
            operator=operator.public.hex(),
        )  # fmt: skip
        schemas = [vectors.schema(n, MECHANISM, diagonal=True, weight=1.0, again=AGAIN) for n in (POPULARITY, GRAM)]
        self.codes = [RingCode(MECHANISM, schema, PEOPLE) for schema in schemas]
        queries = [DeviceQuery(n, code, diagonal=True) for n, code in zip((POPULARITY, GRAM), self.codes, strict=True)]
        self.terms = announced_terms(MECHANISM, queries, delta=1e-6, cohort=PEOPLE)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.transport.close()

    def exchange(self, stage: str, contents: dict[int, bytes], timeout: float) -> dict[int, bytes]:
        """Signed requests, and the contents of signed replies."""
        self.counter += 1
        frames = {seat: self.framed(seat, stage, content) for seat, content in contents.items()}
        replies = self.transport.exchange(stage, frames, timeout)
        return {
            seat: messages.reply_content(self.server, seat, frames[seat], one) for seat, one in replies.items() if one
        }

    def framed(self, seat: int, stage: str, content: bytes) -> bytes:
        return messages.request(self.server, seat, self.counter, stage, content)

    def ask(self, stage: str, content: Any, timeout: float = 20) -> dict[int, bytes]:
        request = json.dumps(content).encode()
        replies = self.exchange(stage, dict.fromkeys(range(PEOPLE), request), timeout)
        if stage == "announce":
            self.announced = self.layout = sha256(request).digest()
        else:
            self.layout = sha256(self.announced + request).digest()
        assert set(replies.values()) <= {self.layout}
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
        directory = {seat: self.federation.key(seat) for seat in range(PEOPLE)}
        server = MaskingServer(terms, min_clients=LEAST, directory=directory)
        server.bind(self.layout)
        requests = server.invite(list(range(PEOPLE)))
        while server.awaits is not None:
            for number, reply in self.exchange("masking", requests, timeout).items():
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
    case = json.loads((DEVICE / "vectors" / "uploading.json").read_text())["cases"][CASE]
    history = federation.vectors.HISTORIES.index(HISTORY)
    digits = next(one["values"] for one in case["uploads"] if (one["query"], one["history"]) == (index, history))
    values = np.frombuffer(bytes.fromhex(digits), "<f4").astype(np.float64)
    weights = np.concatenate([np.full(block.size, block.weight) for block in code.schema.values()])
    return mine - values * weights / code.distributed.grid
