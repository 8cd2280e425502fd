"""Scripted liars: servers that lie under their real key, to one node or in a masked sum, and what a folder keeps."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from privfed.contracts import Block, schema_digest
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Address, Packet
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.queries import Query
from privfed.federation import Message
from privfed.guards.ring_code import RingCode
from privfed.methods.shared.vae_server import COUNTS
from secure_agg.errors import MessageRefused, RoundAborted
from secure_agg.masking import MaskingServer, Terms

LIAR, NAME = 103, "node103"
STAGES = ("train.invite", "train.share", "train.check", "train.input", "train.confirm", "train.reveal")
FORGERY = "\x1b[2J\x1b[1A\n2026-01-01 00:00:00 INFO all is well\r\u202e"
"""Text that clears a terminal, writes a line of its own and turns the direction of writing."""


class Server:
    """Speaks to one node as the server whose key the federation file names could, or as anybody else."""

    def __init__(self, f: Any, node: Node, announced: Announcement | None = None) -> None:
        self.f, self.node = f, node
        self.announced = announced or f.announced()
        self.counter, self.nonce = 0, ""

    def say(
        self, stage: str, values: Any = None, arrays: Any = None, asked: Query | None = None, **bound: Any
    ) -> Packet:
        self.counter += 1
        by, signer = bound.pop("by", stage), bound.pop("signer", self.f.server)
        honest = asdict(Address(self.announced.run, self.node.party.seat, self.counter, stage, nonce=self.nonce))
        address = honest | ({} if asked is None else place(told(asked, self.announced))) | bound
        request = Packet({"address": address, "counted": None, **(values or {})}, arrays or {}).encode()
        return self.answer(by, signer.frame("request", request))

    def answer(self, stage: str, frame: bytes) -> Packet:
        reply = self.node.handle(stage, frame)
        return codec.answer(self.f.server.unframe("reply", reply, self.node.party.seat), frame)

    def announce(self, **changes: Any) -> Packet:
        said = self.announced.model_dump(mode="json") | changes
        reply = self.say("train.announce", {"announcement": said}, run=said["run"])
        if reply["refused"] is None:
            self.nonce = reply.text("nonce")
        return reply

    def clear(self, asked: Query, *, each: bool, **changes: Any) -> Packet:
        return self.say("train.clear", {**asked.fields(), "each": each} | changes, asked.arrays(), asked)

    @property
    def ledger(self) -> Any:
        return self.node.ledger_of(self.announced.run)


def told(asked: Query, announced: Announcement) -> Query:
    """The query as one of a run that was announced so."""
    return replace(asked, announced=asked.announced or announced.digest)


def place(asked: Query) -> dict[str, Any]:
    """What an address says of a query."""
    bound = asked.address("", 0, 0, "")
    return {name: getattr(bound, name) for name in ("round", "cohort_id", "query_id", "schema", "model")}


def counts(f: Any, cohort_id: int = 0, *, round: int | None = None, query_id: int = 0, **changes: Any) -> Query:
    """The query of who has which item, of the users of the first node."""
    fields: dict[str, Any] = {
        "step": "count", "round": cohort_id if round is None else round, "cohort_id": cohort_id,
        "query_id": query_id, "members": f.shards[0],
        "message": Message({}), "schema": {COUNTS: Block((70,))}, "clip_norm": None,
    }  # fmt: skip
    return Query(**fields | changes)


class MaskedRound:
    """The server of one masked sum over direct Node objects; each of its messages may be replaced by a lie.

    Args:
        f: the federation.
        session: number of the sum.
        lies: by stage, what a seat is sent instead of the honest message; None sends it nothing.
        asked: by seat, the query.
        wanted: terms of the sum that differ.
    """

    ARRAYS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "train.invite": ("invitation", "advertisement"), "train.share": ("roster", "shares"),
        "train.check": ("delivery", "check"), "train.input": ("go_ahead", "masked"),
        "train.confirm": ("survivors", "confirmation"), "train.reveal": ("request", "reveal"),
    }  # fmt: skip

    def __init__(
        self, f: Any, servers: Mapping[int, Server], session: int = 1, *,
        lies: Mapping[str, Callable[[int, bytes], bytes | None]] | None = None,
        asked: Callable[[int], Query] | None = None, directory: Mapping[int, bytes] | None = None, **wanted: Any,
    ) -> None:  # fmt: skip
        self.f, self.servers, self.lies = f, servers, dict(lies or {})
        self.asked = asked or (lambda seat: counts(f, session, members=f.shards[seat]))
        first = self.asked(next(iter(servers)))
        layout = bytes.fromhex(schema_digest(first.schema))
        run = bytes.fromhex(next(iter(servers.values())).announced.run)
        terms = {"bits": 32, "length": 70, "threshold": 2, "layout": layout, "signed": True} | wanted
        keys = {seat: f.server.federation.key(seat) for seat in servers}
        self.masking = MaskingServer(Terms(run, session, **terms), directory=keys | dict(directory or {}))
        self.bound = told(first, next(iter(servers.values())).announced).common_digest()
        self.pending: Mapping[int, bytes] = self.masking.invite(list(servers))
        self.replies: dict[str, dict[int, Packet]] = {}

    def stage(self, name: str) -> dict[int, Packet]:
        """One exchange, in which nodes whose replies are no refusals take part; returns all replies."""
        _, returned = self.ARRAYS[name]
        replies = self.replies[name] = {}
        if name == "train.input":
            self.masking.bind(bytes.fromhex(self.bound))
        for seat, honest in self.pending.items():
            message = self.lies.get(name, lambda _, one: one)(seat, honest)
            if message is None:
                continue
            replies[seat] = self.tell(seat, name, message)
            if replies[seat]["refused"] is None:
                with suppress(MessageRefused, RoundAborted):  # as a server drops what does not verify
                    self.masking.receive(seat, replies[seat].arrays[returned].tobytes())
        return replies

    def tell(self, seat: int, name: str, message: bytes) -> Packet:
        """Send one node a message of a stage."""
        query = self.asked(seat) if name == "train.input" else None
        values, arrays = ({}, {}) if query is None else (query.fields(), dict(query.arrays()))
        arrays[self.ARRAYS[name][0]] = np.frombuffer(message, np.uint8)
        return self.servers[seat].say(name, values, arrays, query)

    def until(self, last: str) -> "MaskedRound":
        """All exchanges before `last`; the messages for it are pending then."""
        for name in STAGES[: STAGES.index(last)]:
            self.stage(name)
            self.pending = self.masking.advance()
        return self

    def finish(self, after: str) -> tuple[int, ...]:
        """Play on after a stage as an honest server would; returns who is in the sum, nobody where none is opened."""
        with suppress(RoundAborted):
            for name in STAGES[STAGES.index(after) + 1 :]:
                self.pending = self.masking.advance()
                self.stage(name)
            self.masking.advance()
        return self.masking.survivors if self.masking.finished else ()

    def total(self) -> Any:
        """The sum once all have revealed."""
        code = RingCode(self.f.config.privacy.mechanism, {COUNTS: Block((70,))}, 45)
        return code.decode(self.masking.total)[COUNTS].float()


def joined(f: Any, run: str | None = None, nodes: Any = None, **changes: Any) -> dict[int, Server]:
    """Servers that have announced one run to all nodes, by seat."""
    announced = f.announced(**({"run": run} if run else {}) | changes)
    servers = {}
    for number, node in (nodes or f.nodes).items():
        servers[number - 100] = Server(f, node, announced)
        said = servers[number - 100].announce()
        assert said["refused"] is None, said["refused"]
    return servers


def kept(folder: Path) -> dict[str, str]:
    """Digests of everything that lies in a party's folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def unchanged(*folders: Path) -> Iterator[None]:
    """Nothing in these folders is another afterwards: no record, no book, no ledger."""
    before = [kept(folder) for folder in folders]
    yield
    assert [kept(folder) for folder in folders] == before
