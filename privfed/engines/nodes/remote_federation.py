"""`RemoteFederation`: the federation of a method's server over nodes that share no memory with it.

An ask under a plan with masked sums takes three exchanges (share, input, reveal), because keys for the next sum travel
with the reveal of this one; only nodes that have none are invited separately, before. Who does not answer in time has
dropped out, at any stage; with too few left the round is lost, and nothing is opened, charged to the server's ledger or
asked again. Users in a sum are charged when the survivors are known, before any node is asked to help open it.

A reply that does not belong is noted with the node and a reason (`Incident`), never with what it held, and counts as
none.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.contracts import Schema, schema_digest
from privfed.engines.cohorts import members
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.journal import Journal, Release
from privfed.engines.nodes.measuring import Part, measure_schema, results
from privfed.engines.nodes.policy import masked
from privfed.engines.nodes.queries import MEASURE, Query, coded_tensors_of, tensors_of
from privfed.engines.nodes.transport import NodeId, Transport
from privfed.engines.simulation import TooFewClientsError
from privfed.evaluation import EvaluationResult
from privfed.federation import Cohort, FederationError, Individual, Message, Server, Streams, Total
from privfed.guards import ServerGuard
from privfed.privacy import LedgerError
from privfed.privacy.ledger import from_ranges
from secure_agg import parameters
from secure_agg.errors import MessageRefused, RoundAborted, SecureAggregationError
from secure_agg.masking import MaskingServer, Terms
from secure_agg.prg import Words

_log = logging.getLogger("privfed.nodes")

FEWEST_NODES = 3
_MOST_RESTED = 15
_MEASURED_BITS = 64

Place = tuple[int, int]
_Members = Int64[np.ndarray, " _"]


@dataclass(frozen=True, slots=True)
class Incident:
    """A reply that was not used, or a refusal.

    Attributes:
        node: who.
        stage: in answer to what.
        reason: why, without anything that the reply held.
    """

    node: NodeId
    stage: str
    reason: str


@dataclass(slots=True)
class Traffic:
    """What a run took so far.

    Attributes:
        exchanges: with how many a stage went out.
        up_bytes, down_bytes: of messages that arrived.
        seconds: by stage.
        aborted_rounds: too small to open.
        missing: replies that did not come.
    """

    exchanges: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    aborted_rounds: int = 0
    missing: int = 0


@dataclass(slots=True, eq=False)
class _Session:
    """A masked sum that nodes are invited to.

    Attributes:
        server: of the sum.
        invitations: by seat.
        ring_elements: number and bits of the words.
        schema: SHA-256 of the blocks.
    """

    server: MaskingServer
    invitations: Mapping[int, bytes]
    ring_elements: tuple[int, int]
    schema: str


@dataclass(frozen=True, slots=True, eq=False)
class _Gathered:
    """What came of one ask.

    Attributes:
        nodes: whose users are in it, by seat.
        members: these users, ascending.
        sums: of the blocks; single uploads where these were asked for.
        within: users within the clip norm.
    """

    nodes: tuple[NodeId, ...]
    members: _Members
    sums: dict[str, Tensor]
    within: int = 0


class RemoteFederation:
    """A `Federation` over a transport.

    Args:
        transport: to the nodes.
        announced: the run.
        guard: the server's half of the privacy layer, with the ledger.
        streams: of the server, for the choice of cohorts.
        journal: of releases since the last checkpoint.
        timeout: seconds in which nodes answer; a stage in which they train has as many.
        min_nodes: fewest nodes whose sum is opened.
        corrupt, dropout: shares of the nodes that are allowed for when a threshold is chosen.

    Attributes:
        cohorts: how many there were.
        counted: by node, the last draw and ask whose release its users are in.
        incidents: replies that were not used.
        traffic: exchanges, bytes, seconds.
    """

    def __init__(
        self,
        transport: Transport,
        announced: Announcement,
        guard: ServerGuard,
        streams: Streams,
        *,
        journal: Journal | None = None,
        timeout: float = 600.0,
        min_nodes: int = FEWEST_NODES,
        corrupt: float = 0.1,
        dropout: float = 0.1,
    ) -> None:
        self.transport, self.announced, self.guard = transport, announced, guard
        self.journal = journal or Journal(None)
        self.cohorts = 0
        self.counted: dict[NodeId, Place] = {}
        self.incidents: list[Incident] = []
        self.traffic = Traffic()
        self._streams, self._timeout, self._min_nodes = streams, timeout, max(min_nodes, FEWEST_NODES)
        self._shares = corrupt, dropout
        self._run = bytes.fromhex(announced.run)
        self._serial = time.time_ns()
        self._seats: dict[NodeId, int] = {}
        self._users: dict[NodeId, _Members] = {}
        self._refused: set[NodeId] = set()
        self._misses: Counter[NodeId] = Counter()
        self._rested: Counter[NodeId] = Counter()
        self._number = 0
        self._next: _Session | None = None
        self._follows: dict[str, tuple[str, tuple[int, int]]] = {}
        self._latest = ""
        self._cohort: Cohort | None = None
        self._queries = 0
        self._taking: tuple[NodeId, ...] | None = None

    @property
    def seats(self) -> Mapping[NodeId, int]:
        """Ids of nodes in masked sums; they stay for a run."""
        return dict(self._seats)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from `progress()`."""
        self.cohorts = saved["draws"]
        self.counted = {int(node): (place[0], place[1]) for node, place in saved["counted"].items()}
        self._seats = {int(node): seat for node, seat in saved["seats"].items()}
        self.guard.clip_norms = dict(saved["clip_norms"])
        self.traffic.aborted_rounds = saved["aborted_rounds"]

    def progress(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "draws": self.cohorts,
            "counted": {str(node): list(place) for node, place in self.counted.items()},
            "seats": {str(node): seat for node, seat in self._seats.items()},
            "clip_norms": dict(self.guard.clip_norms),
            "aborted_rounds": self.traffic.aborted_rounds,
        }

    # What a method's server sees -------------------------------------------------------------------------------------

    def run(self, server: Server, t: int) -> bool:
        """One round of `server`; returns whether it was opened. A lost one leaves the server as it was."""
        before = {name: value.clone() for name, value in server.state().items()} if self.announced.queries > 1 else None
        try:
            server.round(self, t)
        except TooFewClientsError as lost:
            _log.warning("round %d is lost: %s", t + 1, lost)
            self.journal.lose(self.cohorts - 1)
            self.traffic.aborted_rounds += 1
            if before is not None:
                server.load(before)
            return False
        return True

    def sample_cohort(self, round: int) -> Cohort:
        """Draw the round's cohort by the plan's sampling rule.

        Raises:
            FederationError: this round has been drawn already.
            TooFewClientsError: the round was lost before the server was started again.
        """
        if self._cohort is not None and self._cohort.round == round:
            raise FederationError(f"round {round} has drawn its cohort already; one draw per round")
        sampling = self.guard.plan.sampling
        self._cohort = Cohort(round, self.cohorts, sampling.kind, sampling.expected(self.announced.population))
        self.cohorts += 1
        self._queries, self._taking = 0, None
        if self.journal.lost(self._cohort.id):
            raise TooFewClientsError(f"round {round + 1} was lost before and is not asked for again")
        return self._cohort

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Sum the cohort's protected uploads.

        Raises:
            TooFewClientsError: too few nodes or users were left; nothing was opened.
        """
        release = self._release(step, cohort, message, schema, each=False)
        return self.guard.total(release.blocks, cohort, len(release.members), schema)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release every protected upload under its pseudonym.

        Raises:
            FederationError: the plan hides single uploads.
            TooFewClientsError: no node answered.
        """
        if self.guard.plan.mechanism.release == "total":
            raise FederationError(
                f"step {step!r} needs every single upload, but under the plan {self.guard.plan.name!r} the server sees "
                f"only their sum; choose another plan or method"
            )
        release = self._release(step, cohort, message, schema, each=True)
        return self.guard.individual(torch.from_numpy(release.members), release.blocks)

    def measure(self, message: Message, t: int, parts: Sequence[Part]) -> dict[Part, EvaluationResult]:
        """Sums of metrics over all nodes that let them leave, as means; none where too few do."""
        protocol = self.announced.config.protocol
        schema = measure_schema(protocol, parts)
        addressed = Message(message.shared, message.personal, dict.fromkeys(parts, 1))

        def query(node: NodeId) -> Query:
            return Query(MEASURE, t, self.cohorts, 0, None, self._own(addressed, self._users[node]), schema)

        nodes = tuple(self._here())
        try:
            if masked(self.guard.plan):
                size = sum(block.size for block in schema.values())
                ring_elements, _ = self._masked(nodes, query, schema, (size, _MEASURED_BITS), lambda _: None)
                flat = torch.from_numpy(ring_elements.view(np.int64).copy())
                sums = {name: flat.view(block.shape) for name, block in schema.items()}
            else:
                sums = self._clear(nodes, query, schema, each=False).sums
        except TooFewClientsError as lost:
            _log.warning("nothing was measured after round %d: %s", t + 1, lost)
            return {}
        return results(sums, protocol, parts)

    def finish(self) -> None:
        """Tell nodes how the last ask ended."""
        nodes = self._here()
        self._exchange("train.settle", {node: (None, {}, {}) for node in nodes})

    # One ask ---------------------------------------------------------------------------------------------------------

    def _release(self, step: str, cohort: Cohort, message: Message, schema: Schema, *, each: bool) -> Release:
        """An ask's release: from the journal where it was opened before, else from the nodes."""
        if cohort is not self._cohort:
            raise FederationError("ask was called with a cohort of another draw; ask with the round's own cohort")
        query_id = self._queries
        self._queries += 1
        release = self.journal.find(cohort.id, query_id, step, schema)
        if release is None:
            release = self._asked_for(step, query_id, cohort, message, schema, each=each)
            self.journal.write(cohort.id, query_id, release)
        else:
            self._require_charged(cohort, step, query_id)
            self.guard.clip_norms = dict(release.clip_norms)
        self._taking = release.nodes
        self.counted |= dict.fromkeys(release.nodes, (cohort.id, query_id))
        return release

    def _asked_for(
        self, step: str, query_id: int, cohort: Cohort, message: Message, schema: Schema, *, each: bool
    ) -> Release:
        code = None if each else self.guard.code(schema)
        nodes = tuple(self._here()) if self._taking is None else self._taking
        chosen = self._chosen(cohort.round)
        clip_norm = self.guard.clip_norm(step)

        def query(node: NodeId) -> Query:
            own = self._users[node]
            mine = None if chosen is None else np.intersect1d(own, chosen, assume_unique=True)
            return Query(
                step, cohort.round, cohort.id, query_id, mine, self._own(message, own if mine is None else mine),
                schema, clip_norm,
            )  # fmt: skip

        def charge(members: _Members) -> None:
            self._charge(cohort, step, query_id, schema, members)

        if code is not None and schema:
            ring_elements, found = self._masked(nodes, query, schema, (code.length, code.ring.bits), charge)
            sums = code.decode(ring_elements)
        else:
            if chosen is not None:
                expected = [np.intersect1d(self._users[node], chosen, assume_unique=True) for node in nodes]
                charge(_together(expected))
            found = self._clear(nodes, query, schema, each=each)
            if chosen is None:
                charge(found.members)
            sums = found.sums
            if not each:
                self.guard.add_noise_(
                    sums, cohort, step, query_id, schema, members=len(found.members), within=found.within
                )
        if not each:
            sums = {name: s.float() if schema[name].kind == "real" else s for name, s in sums.items()}
        return Release(step, schema_digest(schema), found.nodes, found.members, sums, dict(self.guard.clip_norms))

    def _charge(self, cohort: Cohort, step: str, query_id: int, schema: Schema, users: _Members) -> None:
        """Charge the ledger; an ask that was charged before a restart with other users is not opened again."""
        try:
            self.guard.record(cohort, step, query_id, schema, torch.from_numpy(users))
        except LedgerError as refused:
            if (cohort.id, step, query_id) in {entry.address for entry in self.guard.ledger.entries}:
                raise TooFewClientsError(f"it was charged before the server was started again ({refused})") from refused
            raise

    def _require_charged(self, cohort: Cohort, step: str, query_id: int) -> None:
        if (cohort.id, step, query_id) not in {entry.address for entry in self.guard.ledger.entries}:
            raise LedgerError(
                f"round {cohort.round + 1} was opened and the ledger has no charge for it: it lost charges, so no "
                "guarantee could be honest"
            )

    def _chosen(self, round: int) -> _Members | None:
        """The users whom the plan's rule picks; None where each decides by its own coin."""
        plan = self.guard.plan
        if plan.sampling.kind == "poisson":
            return None
        return members(plan.sampling, self._streams, self.announced.population, round).numpy()

    def _own(self, message: Message, users: _Members) -> Message:
        """A message as one node's users receive it."""
        at = torch.from_numpy(users)
        personal = {name: values.index_select(0, at) for name, values in message.personal.items()}
        return Message(message.shared, personal, message.config)

    def _clear(
        self, nodes: Sequence[NodeId], query: Callable[[NodeId], Query], schema: Schema, *, each: bool
    ) -> _Gathered:
        """Partial sums added in the order of seats, or all uploads in the order of users."""
        queries = {node: query(node) for node in nodes}
        replies = self._exchange(
            "train.clear", {node: (one, {**one.fields(), "each": each}, one.arrays()) for node, one in queries.items()}
        )
        found: dict[NodeId, tuple[_Members, dict[str, Tensor], int]] = {}
        for node, packet in replies.items():
            try:
                mine = self._took_part(node, packet, queries[node])
                if each and (bits := self.guard.plan.upload_bits) is not None:
                    blocks = coded_tensors_of(packet, schema, len(mine), bits)
                else:
                    blocks = tensors_of(packet, schema, (len(mine),) if each else ())
                found[node] = mine, blocks, packet.whole("within", 0, len(mine))
            except MessageError as refused:
                self._note(node, "train.clear", str(refused))
        order = tuple(sorted(found, key=self._seats.__getitem__))
        taking = _together([found[node][0] for node in order])
        if not order or not self.guard.reveals(len(taking)):
            raise TooFewClientsError(f"{len(order)} of {len(nodes)} nodes answered, with {len(taking)} users")
        if each:
            place = np.argsort(np.concatenate([found[node][0] for node in order]), kind="stable")
            sums = {name: torch.cat([found[n][1][name] for n in order])[torch.from_numpy(place)] for name in schema}
        else:
            sums = {name: torch.stack([found[node][1][name] for node in order]).sum(0) for name in schema}
        return _Gathered(order, taking, sums, sum(found[node][2] for node in order))

    def _masked(
        self,
        nodes: Sequence[NodeId],
        query: Callable[[NodeId], Query],
        schema: Schema,
        size: tuple[int, int],
        charge: Callable[[_Members], None],
    ) -> tuple[Words, _Gathered]:
        """The sum of the nodes' words, and who is in it; `charge` runs before anybody is asked to open it."""
        layout = schema_digest(schema)
        self._follows[self._latest], self._latest = (layout, size), layout
        self._follows.setdefault(layout, (layout, size))
        session = self._opened(nodes, layout, size)
        server, seated = session.server, {self._seats[node]: node for node in nodes}
        taking: dict[NodeId, _Members] = {}
        try:
            rosters = self._addressed(server.advance(), seated)
            self._pass_on(server, "train.share", {n: (None, {}, {"roster": r}) for n, r in rosters.items()}, "shares")
            deliveries = self._addressed(server.advance(), seated)
            queries = {node: query(node) for node in deliveries}
            replies = self._pass_on(
                server,
                "train.input",
                {
                    n: (queries[n], queries[n].fields(), {**queries[n].arrays(), "delivery": d})
                    for n, d in deliveries.items()
                },
                "masked",
                lambda node, packet: taking.update({node: self._took_part(node, packet, queries[node])}),
            )
            together = _together([taking[node] for node in replies])
            requests = self._addressed(server.advance(), seated)
            if queries and not _is_measure(queries) and not self.guard.reveals(len(together)):
                raise TooFewClientsError(
                    f"{len(together)} users are left, too few for the plan {self.guard.plan.name!r}"
                )
            charge(together)
            self._next = self._invited()
            self._pass_on(
                server, "train.reveal", {n: (None, {}, self._opening(n, r)) for n, r in requests.items()}, "reveal",
                self._advertise,
            )  # fmt: skip
            server.advance()
        except RoundAborted as aborted:
            raise TooFewClientsError(str(aborted)) from aborted
        survivors = tuple(seated[seat] for seat in server.survivors)
        return server.total, _Gathered(survivors, together, {})

    def _opening(self, node: NodeId, request: Array) -> dict[str, Array]:
        """What opens a sum, and the invitation to the next one."""
        out = {"request": request}
        if self._next is not None and self._seats[node] in self._next.invitations:
            out["invitation"] = _bytes(self._next.invitations[self._seats[node]])
        return out

    def _opened(self, nodes: Sequence[NodeId], layout: str, size: tuple[int, int]) -> _Session:
        """The session of a sum, with the keys of all who advertised any."""
        session, self._next = self._next, None
        seats = {self._seats[node]: node for node in nodes}
        if (
            session is None
            or (session.schema, session.ring_elements) != (layout, size)
            or not seats.keys() <= set(session.invitations)
        ):
            session = self._session(tuple(seats), layout, size)
        missing = {seats[seat] for seat in session.server.waiting_for if seat in seats}
        self._pass_on(
            session.server,
            "train.invite",
            {n: (None, {}, {"invitation": _bytes(session.invitations[self._seats[n]])}) for n in sorted(missing)},
            "advertisement",
        )
        return session

    def _invited(self) -> _Session | None:
        """The session after this one, as the asks so far let expect; its keys travel with the reveal."""
        layout, size = self._follows[self._latest]
        seats = tuple(self._seats[node] for node in self._joined())
        return None if len(seats) < self._min_nodes else self._session(seats, layout, size)

    def _session(self, seats: Sequence[int], layout: str, size: tuple[int, int]) -> _Session:
        self._number += 1
        corrupt, dropout = self._shares
        try:
            chosen = parameters.choose(len(seats), corrupt=corrupt, dropout=dropout)
            terms = Terms.of(
                chosen, bits=size[1], length=size[0], run=self._run, round=self._number, layout=bytes.fromhex(layout)
            )
            server = MaskingServer(terms, clients=self._min_nodes)
            return _Session(server, server.invite(seats), size, layout)
        except SecureAggregationError as refused:
            raise TooFewClientsError(str(refused)) from refused

    def _advertise(self, node: NodeId, packet: Packet) -> None:
        """Take the keys for the next session that came with a reveal."""
        if self._next is None or "advertisement" not in packet.arrays:
            return
        said = packet.array("advertisement", "uint8", (None,)).tobytes()
        self._receive(self._next.server, node, "train.reveal", said)

    def _addressed(self, requests: Mapping[int, bytes], seated: Mapping[int, NodeId]) -> dict[NodeId, Array]:
        """Messages of the masked sum, by node; a seat that this ask leaves out gets none and drops out."""
        return {seated[seat]: _bytes(request) for seat, request in requests.items() if seat in seated}

    def _pass_on(
        self,
        server: MaskingServer,
        stage: str,
        requests: Mapping[NodeId, tuple[Query | None, Mapping[str, Any], Mapping[str, Array]]],
        name: str,
        besides: Callable[[NodeId, Packet], None] | None = None,
    ) -> list[NodeId]:
        """One exchange of the masked sum; returns whose replies it took."""
        taken = []
        for node, packet in self._exchange(stage, requests).items():
            try:
                if besides is not None:
                    besides(node, packet)
                said = packet.array(name, "uint8", (None,)).tobytes()
            except MessageError as refused:
                self._note(node, stage, str(refused))
                continue
            if self._receive(server, node, stage, said):
                taken.append(node)
        return taken

    def _receive(self, server: MaskingServer, node: NodeId, stage: str, said: bytes) -> bool:
        try:
            server.receive(self._seats[node], said)
        except (MessageRefused, RoundAborted) as refused:
            self._note(node, stage, str(refused))
            return False
        return True

    def _took_part(self, node: NodeId, packet: Packet, query: Query) -> _Members:
        """The node's users in its reply.

        Raises:
            MessageError: they are not ones that it hosts.
        """
        own = self._users[node]
        if query.step == MEASURE:
            return own
        if query.members is not None:
            return query.members
        try:
            said = from_ranges(packet.text("members"))
        except LedgerError as error:
            raise MessageError("the reply names no users; it is dropped") from error
        if not np.isin(said, own).all():
            raise MessageError("the reply names users that the node does not host; it is dropped")
        return said

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _joined(self) -> list[NodeId]:
        """Nodes that take part and are connected, by seat; new ones are told of the run first."""
        connected = sorted(set(self.transport.nodes()) - self._refused)
        new = [node for node in connected if node not in self._users]
        if new:
            self._announce(new)
        here = [node for node in connected if node in self._users]
        return sorted(here, key=self._seats.__getitem__)

    def _here(self) -> list[NodeId]:
        """Nodes to ask now: those that were silent again and again rest for some draws."""
        here = []
        for node in self._joined():
            if self._rested[node]:
                self._rested[node] -= 1
                continue
            here.append(node)
        return here

    def _announce(self, new: Sequence[NodeId]) -> None:
        free = max(self._seats.values(), default=-1) + 1
        for node in new:
            if node not in self._seats:
                self._seats[node], free = free, free + 1
        said = self.announced.model_dump(mode="json")
        replies = self._exchange(
            "train.announce", {node: (None, {"announcement": said, "seat": self._seats[node]}, {}) for node in new}
        )
        for node, packet in sorted(replies.items()):
            try:
                users = from_ranges(packet.text("users"))
                self._accept_users(users)
                self._number = max(self._number, packet.whole("session", -1))
                self._users[node] = users
            except (MessageError, LedgerError) as refused:
                self._refused.add(node)
                self._note(node, "train.announce", str(refused))

    def _accept_users(self, users: _Members) -> None:
        if len(users) and users[-1] >= self.announced.population:
            raise MessageError("the node hosts users beyond the population; it does not take part")
        if any(np.isin(users, theirs).any() for theirs in self._users.values()):
            raise MessageError("the node hosts users that another node hosts; it does not take part")

    def _exchange(
        self, stage: str, requests: Mapping[NodeId, tuple[Query | None, Mapping[str, Any], Mapping[str, Array]]]
    ) -> dict[NodeId, Packet]:
        """Send a stage and gather what answers it, in the order of the requests."""
        if not requests:
            return {}
        started, sent = time.perf_counter(), {}
        for node, (query, values, arrays) in requests.items():
            self._serial += 1
            bound = Address(self.announced.run, node, self._serial, stage)
            if query is not None:
                bound = query.address(self.announced.run, node, self._serial, stage)
            settled = self.counted.get(node)
            sent[node] = codec.request(bound, {**values, "settle": None if settled is None else list(settled)}, arrays)
        replies = self.transport.exchange(stage, sent, self._timeout)
        taken = {}
        for node, request in sent.items():
            packet = self._answer(node, stage, request, replies)
            if packet is not None:
                taken[node] = packet
        self.traffic.exchanges += 1
        self.traffic.seconds[stage] = self.traffic.seconds.get(stage, 0.0) + time.perf_counter() - started
        return taken

    def _answer(self, node: NodeId, stage: str, request: bytes, replies: Mapping[NodeId, bytes]) -> Packet | None:
        """One node's reply, if it is one."""
        self.traffic.down_bytes += len(request)
        data = replies.get(node)
        if data is None:
            self.traffic.missing += 1
            self._misses[node] += 1
            if self._misses[node] > 1:
                self._rested[node] = min(2 ** (self._misses[node] - 1) - 1, _MOST_RESTED)
            return None
        self._misses[node] = 0
        self.traffic.up_bytes += len(data)
        try:
            packet = codec.answer(data, request)
            if packet["refused"] is None:
                return packet
            self._serial = max(self._serial, packet.whole("serial", -1, 2**62))
        except MessageError as refused:
            self._note(node, stage, str(refused))
            return None
        self._note(node, stage, f"it refuses: {packet['refused'][:500]}")
        if stage == "train.announce":
            self._refused.add(node)
        elif "not announced" in packet["refused"]:
            self._users.pop(node, None)
        return None

    def _note(self, node: NodeId, stage: str, reason: str) -> None:
        self.incidents.append(Incident(node, stage, reason))
        _log.warning("node %d, %s: %s", node, stage, reason)


def _together(parts: Sequence[_Members]) -> _Members:
    """Users of several nodes, ascending."""
    return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))


def _is_measure(queries: Mapping[NodeId, Query]) -> bool:
    return next(iter(queries.values())).step == MEASURE


def _bytes(message: bytes) -> Array:
    return np.frombuffer(message, np.uint8)
