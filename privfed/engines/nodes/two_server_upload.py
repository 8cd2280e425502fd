"""A node's part in sums between two servers: one message, and silence ever after."""

from dataclasses import dataclass

from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.masking import as_array
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.two_servers import (
    SealingKey,
    SumRequest,
    between_two_servers,
    least_nodes,
    server_key,
)
from secure_agg.encoding import RingElements
from secure_agg.two_server import SumClient, SumTerms, roster_digest


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedSum:
    """A sum whose terms the node has accepted.

    Attributes:
        terms: of the sum.
        client: the node in it.
    """

    terms: SumTerms
    client: SumClient

    def parts(self, elements: RingElements) -> dict[str, Array]:
        """The node's parts for server and helper."""
        first, second = self.client.upload(self.terms, elements)
        return {"first": as_array(first), "second": as_array(second)}


class TwoServerUploads:
    """Decides which sums between two servers a node sends its vector for, once each.

    Args:
        state: of the node.
        policy: of the node.
        party: the node's organisation.
    """

    def __init__(self, state: NodeState, policy: Policy, party: Party) -> None:
        self._state, self._policy, self._party = state, policy, party
        self._least = least_nodes(policy.min_nodes, party.federation)

    def require(self, *, two_servers: bool) -> None:
        """Refuse a stage of the other way in which sums are made.

        Raises:
            NodeRefused: naming what the run was announced with.
        """
        if between_two_servers(self._state.run) is not two_servers:
            announced = "under masks" if two_servers else "between two servers"
            raise NodeRefused(f"the run was announced with sums that are made {announced}; ask for no others")

    def accept(self, packet: Packet, query: Query, size: tuple[int, int]) -> AcceptedSum:
        """Accept the terms of a query's sum; the number is taken, so that no other vector is sent under it.

        Args:
            packet: the server's request.
            query: in it.
            size: number and bits of the query's ring elements.

        Raises:
            PolicyRefused: the policy does not trust the helper, or not any more.
            MessageError: the request lacks a key, or the helper did not sign its own.
            SecureAggregationError: too small a sum, or a number that does not rise.
        """
        run, federation, record = self._state.run, self._party.federation, self._state.record
        self._policy.accept_helper(federation.helper)
        helper = SealingKey.read(packet, self._party, run.run)
        keys, least = (server_key(packet), helper.key), packet.whole("min_nodes", 0, 2**31)
        request = SumRequest.of_query(query, packet.whole("number"), least, size, keys)
        terms = request.terms(run, federation)
        client = SumClient(
            self._party.seat,
            self._party.identity,
            run=bytes.fromhex(run.run),
            servers=keys,
            roster=roster_digest(federation.directory()),
            min_clients=self._least,
            last=(record.session, 0),
        )
        client.accept(terms)
        record.session = request.number
        return AcceptedSum(terms, client)
