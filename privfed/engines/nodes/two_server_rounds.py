"""The server's part in sums between two servers: one exchange with the nodes, one with the helper.

Who does not answer in time is absent. The helper answers the server's proposal with its own and with its share of the
sum; a helper that is silent, refuses or answers something else leaves the sum unopened. The server records whose users
are in a sum before it opens it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from privfed.contracts import Schema
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.channel import Channel, NodeRequest
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.gathering import Gathered, QueryOf, together
from privfed.engines.nodes.masked_rounds import Size
from privfed.engines.nodes.masking import as_array
from privfed.engines.nodes.membership import Membership
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.roster import Users
from privfed.engines.nodes.two_servers import (
    HELPER_PART_BYTES,
    RELEASE,
    UPLOAD,
    SealingKey,
    SumRequest,
    least_nodes,
)
from privfed.engines.simulation import TooFewClientsError
from secure_agg.encoding import RingElements
from secure_agg.errors import MessageRefused, RoundAborted, SecureAggregationError
from secure_agg.primitives.keys import KeyPair
from secure_agg.two_server import SumServer
from secure_agg.two_server.uploads import claimed_client


class TwoServerRounds:
    """Runs one sum after another over the nodes of a run and its helper.

    Args:
        channel: to the nodes and the helper.
        membership: of both.
        party: the server.
        announced: the run.
        min_nodes: smallest number of nodes whose sum is opened.
    """

    def __init__(
        self, channel: Channel, membership: Membership, party: Party, announced: Announcement, min_nodes: int
    ) -> None:
        self._channel, self._membership, self._roster = channel, membership, membership.roster
        self._federation, self._announced = party.federation, announced
        self._min_nodes = least_nodes(min_nodes, party.federation)

    def sum(
        self, nodes: Sequence[int], query: QueryOf, schema: Schema, size: Size, accept: Callable[[Users], None]
    ) -> tuple[RingElements, Gathered]:
        """The sum of the nodes' ring elements, and who is in it; `accept` runs before it is opened.

        Raises:
            TooFewClientsError: there is no helper, or too few nodes or users are left; nothing is opened.
        """
        del schema
        helper = self._membership.helper
        if helper is None:
            raise TooFewClientsError("the helper is not connected or takes no part, so no sum can be opened")
        if len(nodes) < self._min_nodes:
            raise TooFewClientsError(f"{len(nodes)} nodes are at hand, fewer than {self._min_nodes}")
        try:
            return self._sum({seat: query(seat) for seat in nodes}, size, helper, accept)
        except SecureAggregationError as aborted:
            raise TooFewClientsError(str(aborted)) from aborted

    def _sum(
        self, queries: Mapping[int, Query], size: Size, helper: SealingKey, accept: Callable[[Users], None]
    ) -> tuple[RingElements, Gathered]:
        self._roster.session += 1
        keys, first = KeyPair.generate(), next(iter(queries.values()))
        request = SumRequest.of_query(
            first, self._roster.session, self._min_nodes, size, (keys.public, helper.key)
        )  # fmt: skip
        terms = request.terms(self._announced, self._federation)
        server = SumServer(terms, 0, keys, self._federation.directory(), min_clients=self._min_nodes)
        users, parts = self._collected(server, queries, request, helper)
        if len(parts) < self._min_nodes:
            raise TooFewClientsError(f"{len(parts)} of {len(queries)} nodes answered, fewer than {self._min_nodes}")
        proposal, release = self._answered(request, server.propose(), parts)
        server.release(proposal)
        for seat in parts.keys() - set(server.agreed):
            self._channel.note(seat, UPLOAD, "the helper could not open its part, so it is left out of the sum")
        members = together([users[seat] for seat in server.agreed])
        accept(members)
        return server.result(release).total, Gathered(server.agreed, members, {})

    def _collected(
        self, server: SumServer, queries: Mapping[int, Query], request: SumRequest, helper: SealingKey
    ) -> tuple[dict[int, Users], dict[int, bytes]]:
        """By seat, whose users are in an upload, and its part for the helper."""
        values = {"number": request.number, "min_nodes": request.min_nodes}
        arrays = {"server_key": as_array(request.server_key), **helper.arrays()}
        requests = {seat: NodeRequest(arrays, query, values) for seat, query in queries.items()}
        users, parts = dict[int, Users](), dict[int, bytes]()
        for seat, packet in self._channel.exchange(UPLOAD, requests).items():
            try:
                members, part = self._membership.took_part(seat, packet, queries[seat]), _part(packet)
                self._receive(server, seat, packet.array("first", "uint8", (None,)).tobytes())
                users[seat], parts[seat] = members, part
            except (MessageError, MessageRefused, RoundAborted) as refused:
                self._channel.note(seat, UPLOAD, str(refused))
        return users, parts

    @staticmethod
    def _receive(server: SumServer, seat: int, part: bytes) -> None:
        if claimed_client(part, server.terms, 0) != seat:
            raise MessageError("the part names another organisation than the one that sent it; it is dropped")
        server.receive(part)

    def _answered(self, request: SumRequest, proposal: bytes, parts: Mapping[int, bytes]) -> tuple[bytes, bytes]:
        """The helper's proposal and its release."""
        seat = self._federation.helper_seat
        assert seat is not None
        joined = np.frombuffer(b"".join(parts.values()), np.uint8).reshape(len(parts), HELPER_PART_BYTES)
        arrays = {"server_key": as_array(request.server_key), "proposal": as_array(proposal), "parts": joined}
        answer = self._channel.exchange(RELEASE, {seat: NodeRequest(arrays, values=request.fields())}).get(seat)
        if answer is None:
            raise TooFewClientsError("the helper released nothing, so the sum stays closed")
        try:
            return tuple(answer.array(name, "uint8", (None,)).tobytes() for name in ("proposal", "release"))  # type: ignore[return-value]
        except MessageError as refused:
            self._channel.note(seat, RELEASE, str(refused))
            raise TooFewClientsError(f"the helper's answer is none: {refused}") from refused


def _part(packet: Packet) -> bytes:
    return packet.array("second", "uint8", (HELPER_PART_BYTES,)).tobytes()
