"""The server's part in masked sums of nodes: sessions, rounds of messages, and opening a sum.

Keys for the next sum travel with the reveal of this one; only nodes that have none are invited separately, before. Who
does not answer in time has dropped out, at any stage; with too few left the round is aborted, and nothing is opened.
Who is proven to have sealed rubbish is left out of the run, and the sum begins again: nobody has trained by then.
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
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.roster import Users
from privfed.engines.simulation import TooFewClientsError
from secure_agg.encoding import RingElements
from secure_agg.errors import MessageRefused, PartiesAccused, RoundAborted, SecureAggregationError
from secure_agg.masking import MaskingServer, Terms, signed_threshold

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
        party: the server.
        run: name of the run.
        min_nodes: smallest number of nodes whose sum is opened.
    """

    def __init__(self, channel: Channel, membership: Membership, party: Party, run: bytes, min_nodes: int) -> None:
        self._channel, self._membership, self._roster = channel, membership, membership.roster
        self._run, self._federation = run, party.federation
        self._min_nodes = max(min_nodes, party.federation.min_organisations)
        self._next: _Session | None = None
        self._follows: dict[str, tuple[str, Size]] = {}
        self._latest = ""

    def sum(
        self, nodes: Sequence[int], query: QueryOf, schema: Schema, size: Size, accept: Callable[[Users], None]
    ) -> tuple[RingElements, Gathered]:
        """The sum of the nodes' ring elements, and who is in it; `accept` runs before anybody helps to open it.

        Raises:
            TooFewClientsError: too few nodes or users are left; nothing is opened.
        """
        layout = schema_digest(schema)
        self._follows[self._latest], self._latest = (layout, size), layout
        self._follows.setdefault(layout, (layout, size))
        server: MaskingServer | None = None
        try:
            server, deliveries = self._checked(nodes, layout, size)
            members = self._collect(server, deliveries, query)
            survivors = server.advance()
            accept(members)
            self._open(server, survivors)
        except RoundAborted as aborted:
            if isinstance(aborted, PartiesAccused):
                self._exclude(aborted, "train.confirm")
            for seat, reason in () if server is None else server.suspects.items():
                self._channel.note(seat, "train.reveal", reason)
                self._roster.suspected(seat)
            raise TooFewClientsError(str(aborted)) from aborted
        for seat, reason in server.suspects.items():
            self._channel.note(seat, "train.reveal", reason)
        return server.total, Gathered(tuple(server.survivors), members, {})

    def forget_next(self) -> None:
        """Drop the session that the latest reveal opened, so that all nodes are invited anew."""
        self._next = None

    def _checked(self, nodes: Sequence[int], layout: str, size: Size) -> tuple[MaskingServer, Mapping[int, bytes]]:
        """A session whose shares were checked by those who hold them; liars are excluded, and the others begin anew."""
        while True:
            server = self._session([seat for seat in nodes if seat not in self._roster.excluded], layout, size).server
            self._pass_on(server, "train.share", "roster", self._only(server.advance(), nodes), "shares")
            self._pass_on(server, "train.check", "delivery", server.advance(), "check")
            try:
                return server, server.advance()
            except PartiesAccused as accused:
                self._exclude(accused, "train.check")

    def _exclude(self, accused: PartiesAccused, stage: str) -> None:
        """Leave liars out of the rest of the run."""
        self._roster.exclude(accused.clients, str(accused))
        for seat in sorted(accused.clients):
            self._channel.note(seat, stage, f"it is left out of the run: {accused}")

    def _collect(self, server: MaskingServer, go_ahead: Mapping[int, bytes], query: QueryOf) -> Users:
        """Have the nodes train and send masked inputs; returns whose users are in them."""
        queries, users = {seat: query(seat) for seat in go_ahead}, dict[int, Users]()
        for query_of_one in [*queries.values()][:1]:
            server.bind(bytes.fromhex(query_of_one.model))

        def note_members(seat: int, packet: Packet) -> None:
            users[seat] = self._membership.took_part(seat, packet, queries[seat])

        replied = self._pass_on(server, "train.input", "go_ahead", go_ahead, "masked", note_members, queries)
        return together([users[seat] for seat in replied])

    def _open(self, server: MaskingServer, survivors: Mapping[int, bytes]) -> None:
        """Have the survivors confirmed, open the sum, and take keys for the next one."""
        self._pass_on(server, "train.confirm", "survivors", survivors, "confirmation")
        requests = server.advance()
        self._next = self._expected()
        invitations = {} if self._next is None else self._next.invitations
        more = {seat: {"invitation": as_array(invitations[seat])} for seat in requests if seat in invitations}
        self._pass_on(server, "train.reveal", "request", requests, "reveal", self._take_advertisement, more=more)
        server.advance()

    @staticmethod
    def _only(requests: Mapping[int, bytes], nodes: Sequence[int]) -> Mapping[int, bytes]:
        """Messages to those who take part in a query; a seat that it leaves out gets none and drops out."""
        return {seat: request for seat, request in requests.items() if seat in nodes}

    def _session(self, nodes: Sequence[int], layout: str, size: Size) -> _Session:
        """The session of a sum, with the keys of all who advertised any."""
        session, self._next = self._next, None
        if (
            session is None
            or (session.schema, session.size) != (layout, size)
            or not set(nodes) <= set(session.invitations)
        ):
            session = self._new_session(nodes, layout, size)
        invited = session.server.pending_clients & set(nodes)
        invitations = {seat: session.invitations[seat] for seat in sorted(invited)}
        self._pass_on(session.server, "train.invite", "invitation", invitations, "advertisement")
        return session

    def _expected(self) -> _Session | None:
        """The session after this one, as the queries so far let expect; its keys travel with the reveal."""
        layout, size = self._follows[self._latest]
        seats = self._membership.joined()
        return None if len(seats) < self._min_nodes else self._new_session(seats, layout, size)

    def _new_session(self, seats: Sequence[int], layout: str, size: Size) -> _Session:
        if len(seats) < self._min_nodes:
            raise TooFewClientsError(f"{len(seats)} nodes are at hand, fewer than {self._min_nodes}")
        self._roster.session += 1
        try:
            threshold = signed_threshold(len(seats), self._federation.corrupt)
            terms = Terms(
                self._run, self._roster.session, size[1], size[0], threshold, signed=True, layout=bytes.fromhex(layout)
            )
            directory = {seat: self._federation.key(seat) for seat in seats}
            server = MaskingServer(terms, min_clients=self._min_nodes, directory=directory)
            return _Session(server, server.invite(seats), size, layout)
        except SecureAggregationError as refused:
            raise TooFewClientsError(str(refused)) from refused

    def _take_advertisement(self, seat: int, packet: Packet) -> None:
        """Take the keys for the next session that came with a reveal."""
        if self._next is not None and "advertisement" in packet.arrays:
            advertisement = packet.array("advertisement", "uint8", (None,)).tobytes()
            self._receive(self._next.server, seat, "train.reveal", advertisement)

    def _pass_on(
        self,
        server: MaskingServer,
        stage: str,
        sent: str,
        messages: Mapping[int, bytes],
        returned: str,
        inspect: Callable[[int, Packet], None] | None = None,
        queries: Mapping[int, Query] | None = None,
        more: Mapping[int, Mapping[str, Array]] | None = None,
    ) -> list[int]:
        """One exchange of the masked sum; returns whose replies are in it.

        Args:
            server: of the sum.
            stage: of the exchange.
            sent: name of the server's messages.
            messages: by seat.
            returned: name of the replies.
            inspect: looks at a reply before it is used.
            queries: that travel along.
            more: arrays that travel along.
        """
        requests = {
            seat: NodeRequest({sent: as_array(message), **(more or {}).get(seat, {})}, (queries or {}).get(seat))
            for seat, message in messages.items()
        }
        received = []
        for seat, packet in self._channel.exchange(stage, requests).items():
            try:
                if inspect is not None:
                    inspect(seat, packet)
                message = packet.array(returned, "uint8", (None,)).tobytes()
            except MessageError as refused:
                self._channel.note(seat, stage, str(refused))
                continue
            if self._receive(server, seat, stage, message):
                received.append(seat)
        return received

    def _receive(self, server: MaskingServer, seat: int, stage: str, message: bytes) -> bool:
        try:
            server.receive(seat, message)
        except (MessageRefused, RoundAborted) as refused:
            self._channel.note(seat, stage, str(refused))
            return False
        return True
