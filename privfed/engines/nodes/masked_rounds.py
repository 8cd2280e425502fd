"""The server's part in masked sums of nodes: sessions, rounds of messages, and opening a sum.

Keys for the next sum travel with the reveal of this one; only nodes that have none are invited separately, before. Who
does not answer in time has dropped out, at any stage; with too few left the round is aborted, and nothing is opened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from privfed.contracts import Schema, schema_digest
from privfed.engines.nodes.channel import Channel, NodeRequest
from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.gathering import Gathered, QueryOf, together
from privfed.engines.nodes.masking import as_array
from privfed.engines.nodes.membership import Membership
from privfed.engines.nodes.roster import Users
from privfed.engines.nodes.transport import NodeId
from privfed.engines.simulation import TooFewClientsError
from secure_agg.encoding import RingElements
from secure_agg.errors import MessageRefused, RoundAborted, SecureAggregationError
from secure_agg.masking import MaskingServer, Terms, choose_parameters

Size = tuple[int, int]
"""Number and bits of ring elements."""


@dataclass(slots=True, eq=False)
class _Session:
    """A masked sum that nodes are invited to.

    Attributes:
        server: of the sum.
        invitations: by seat.
        size: of the ring elements.
        schema: SHA-256 of the blocks.
    """

    server: MaskingServer
    invitations: Mapping[int, bytes]
    size: Size
    schema: str


class MaskedRounds:
    """Runs one masked sum after another over the nodes of a run.

    Args:
        channel: to the nodes.
        membership: of the nodes.
        run: name of the run.
        min_nodes: smallest number of nodes whose sum is opened.
        shares: shares of corrupt nodes and of dropouts that are allowed for when a threshold is chosen.
    """

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        run: bytes,
        min_nodes: int,
        shares: tuple[float, float],
    ) -> None:
        self._channel, self._membership, self._roster = channel, membership, membership.roster
        self._run, self._min_nodes, self._shares = run, min_nodes, shares
        self._next: _Session | None = None
        self._follows: dict[str, tuple[str, Size]] = {}
        self._latest = ""

    def sum(
        self, nodes: Sequence[NodeId], query: QueryOf, schema: Schema, size: Size, accept: Callable[[Users], None]
    ) -> tuple[RingElements, Gathered]:
        """The sum of the nodes' ring elements, and who is in it; `accept` runs before anybody helps to open it.

        Raises:
            TooFewClientsError: too few nodes or users are left; nothing is opened.
        """
        layout = schema_digest(schema)
        self._follows[self._latest], self._latest = (layout, size), layout
        self._follows.setdefault(layout, (layout, size))
        server = self._session(nodes, layout, size).server
        try:
            members = self._collect(server, nodes, query)
            requests = self._by_node(server.advance(), nodes)
            accept(members)
            self._open(server, requests)
        except RoundAborted as aborted:
            raise TooFewClientsError(str(aborted)) from aborted
        seated = self._roster.in_seats([*nodes])
        return server.total, Gathered(tuple(seated[seat] for seat in server.survivors), members, {})

    def forget_next(self) -> None:
        """Drop the session that the latest reveal opened, so that all nodes are invited anew."""
        self._next = None

    def _collect(self, server: MaskingServer, nodes: Sequence[NodeId], query: QueryOf) -> Users:
        """Have the nodes share secrets, train, and send masked inputs; returns whose users are in them."""
        rosters = self._by_node(server.advance(), nodes)
        self._pass_on(
            server, "train.share", {n: NodeRequest({"roster": roster}) for n, roster in rosters.items()}, "shares"
        )
        deliveries = self._by_node(server.advance(), nodes)
        queries, users = {node: query(node) for node in deliveries}, dict[NodeId, Users]()

        def note_members(node: NodeId, packet: Packet) -> None:
            users[node] = self._membership.took_part(node, packet, queries[node])

        requests = {n: NodeRequest({"delivery": delivery}, queries[n]) for n, delivery in deliveries.items()}
        replied = self._pass_on(server, "train.input", requests, "masked", note_members)
        return together([users[node] for node in replied])

    def _open(self, server: MaskingServer, requests: Mapping[NodeId, Array]) -> None:
        """Open the sum, and take keys for the next one."""
        self._next = self._expected()
        opening = {node: NodeRequest(self._opening(node, request)) for node, request in requests.items()}
        self._pass_on(server, "train.reveal", opening, "reveal", self._take_advertisement)
        server.advance()

    def _opening(self, node: NodeId, request: Array) -> dict[str, Array]:
        """What opens a sum, and the invitation to the next one."""
        out = {"request": request}
        if self._next is not None and self._roster.seats[node] in self._next.invitations:
            out["invitation"] = as_array(self._next.invitations[self._roster.seats[node]])
        return out

    def _session(self, nodes: Sequence[NodeId], layout: str, size: Size) -> _Session:
        """The session of a sum, with the keys of all who advertised any."""
        session, self._next = self._next, None
        seats = self._roster.in_seats([*nodes])
        if (
            session is None
            or (session.schema, session.size) != (layout, size)
            or not seats.keys() <= set(session.invitations)
        ):
            session = self._new_session(tuple(seats), layout, size)
        missing = sorted(seats[seat] for seat in session.server.pending_clients if seat in seats)
        invitations = {
            node: NodeRequest({"invitation": as_array(session.invitations[self._roster.seats[node]])})
            for node in missing
        }
        self._pass_on(session.server, "train.invite", invitations, "advertisement")
        return session

    def _expected(self) -> _Session | None:
        """The session after this one, as the queries so far let expect; its keys travel with the reveal."""
        layout, size = self._follows[self._latest]
        seats = tuple(self._roster.seats[node] for node in self._membership.joined())
        return None if len(seats) < self._min_nodes else self._new_session(seats, layout, size)

    def _new_session(self, seats: Sequence[int], layout: str, size: Size) -> _Session:
        self._roster.session += 1
        corrupt, dropout = self._shares
        try:
            chosen = choose_parameters(len(seats), corrupt=corrupt, dropout=dropout)
            terms = Terms.from_parameters(
                chosen, bits=size[1], length=size[0], run=self._run, round=self._roster.session,
                layout=bytes.fromhex(layout),
            )  # fmt: skip
            server = MaskingServer(terms, min_clients=self._min_nodes)
            return _Session(server, server.invite(seats), size, layout)
        except SecureAggregationError as refused:
            raise TooFewClientsError(str(refused)) from refused

    def _take_advertisement(self, node: NodeId, packet: Packet) -> None:
        """Take the keys for the next session that came with a reveal."""
        if self._next is not None and "advertisement" in packet.arrays:
            advertisement = packet.array("advertisement", "uint8", (None,)).tobytes()
            self._receive(self._next.server, node, "train.reveal", advertisement)

    def _by_node(self, requests: Mapping[int, bytes], nodes: Sequence[NodeId]) -> dict[NodeId, Array]:
        """Messages of the masked sum by node; a seat that this query leaves out gets none and drops out."""
        seated = self._roster.in_seats([*nodes])
        return {seated[seat]: as_array(request) for seat, request in requests.items() if seat in seated}

    def _pass_on(
        self,
        server: MaskingServer,
        stage: str,
        requests: Mapping[NodeId, NodeRequest],
        name: str,
        inspect: Callable[[NodeId, Packet], None] | None = None,
    ) -> list[NodeId]:
        """One exchange of the masked sum; returns whose replies are in it."""
        received = []
        for node, packet in self._channel.exchange(stage, requests).items():
            try:
                if inspect is not None:
                    inspect(node, packet)
                message = packet.array(name, "uint8", (None,)).tobytes()
            except MessageError as refused:
                self._channel.note(node, stage, str(refused))
                continue
            if self._receive(server, node, stage, message):
                received.append(node)
        return received

    def _receive(self, server: MaskingServer, node: NodeId, stage: str, message: bytes) -> bool:
        try:
            server.receive(self._roster.seats[node], message)
        except (MessageRefused, RoundAborted) as refused:
            self._channel.note(node, stage, str(refused))
            return False
        return True
