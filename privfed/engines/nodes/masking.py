"""A node's part in masked sums: keys, shares of secrets, one masked input, and one opening."""

import numpy as np

from privfed.contracts import schema_digest
from privfed.engines.nodes import codec
from privfed.engines.nodes.codec import Array
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.queries import Query
from secure_agg.encoding import RingElements
from secure_agg.masking import ClientRequirements, MaskingClient, Stage


class MaskedSession:
    """The masked sum that a node is in; its state is on the disk before an answer leaves.

    Terms are signed, by the keys of the federation file: no server can be on a roster in several guises, tell
    organisations apart, or open a sum whose survivors they did not all confirm.

    Args:
        state: of the node.
        policy: of the node.
        party: the node's organisation.
    """

    def __init__(self, state: NodeState, policy: Policy, party: Party) -> None:
        self._state, self._party = state, party
        federation = party.federation
        self._requirements = ClientRequirements(
            min_clients=max(policy.min_nodes, federation.min_organisations),
            min_threshold=policy.min_threshold,
            max_corrupt=federation.corrupt,
        )
        self._directory = {seat: federation.key(seat) for seat in range(len(federation.organisations))}

    def advertise(self, invitation: bytes) -> bytes:
        """Join the session that the invitation opens: fresh keys, and the old session's secrets are gone.

        Keys that were advertised in a reply that got lost are advertised again.
        """
        record = self._state.record
        if record.invited == codec.digest(invitation) and self._client().awaits is Stage.ROSTER:
            return bytes.fromhex(record.advertised)
        client = MaskingClient(
            self._party.seat,
            self._requirements,
            run=bytes.fromhex(self._state.run.run),
            last_round=record.session,
            identity=self._party.identity,
            directory=self._directory,
            store=self._store,
        )
        advertisement = client.advertise(invitation)
        record.session, record.invited = client.terms.round, codec.digest(invitation)
        record.advertised = advertisement.hex()
        return advertisement

    def share(self, roster: bytes) -> bytes:
        """Shares of the own secrets for the others of the roster."""
        return self._client().share(roster)

    def check(self, delivery: bytes) -> bytes:
        """A signature that the others' shares are shares, or the evidence that some are not."""
        return self._client().check(delivery)

    def require(self, query: Query, size: tuple[int, int]) -> None:
        """Refuse a query that the session's terms are not for.

        Args:
            query: of the server.
            size: number and bits of its ring elements.

        Raises:
            NodeRefused: no secrets are shared, or the terms are for other blocks.
        """
        terms = self._client().terms
        if (terms.length, terms.bits) != size or terms.layout.hex() != schema_digest(query.schema):
            raise NodeRefused("the blocks queried are not those that this masked sum was agreed for; invite anew")

    def require_shared(self) -> None:
        """Refuse a masked input before shares are checked.

        Raises:
            NodeRefused: none are checked in an open session.
        """
        if self._client().awaits is not Stage.GO_AHEAD:
            raise NodeRefused("this node has checked no shares in an open session; share first")

    def partners(self, go_ahead: bytes) -> frozenset[int]:
        """Seats of the organisations that the sum is over, as these have signed; nothing changes."""
        return self._client().partners(go_ahead)

    def mask(self, go_ahead: bytes, elements: RingElements, model: str) -> bytes:
        """The masked input, which adds up only with those of organisations that were sent the same model."""
        return self._client().mask(go_ahead, elements, bound=bytes.fromhex(model))

    def survivors(self, survivors: bytes) -> frozenset[int]:
        """Seats of the organisations that the server says are in the sum; nothing changes."""
        return self._client().survivors(survivors)

    def confirm(self, survivors: bytes) -> bytes:
        """The signed list of survivors."""
        return self._client().confirm(survivors)

    def reveal(self, request: bytes) -> bytes:
        """Shares that open the sum, once."""
        return self._client().unmask(request)

    def _client(self) -> MaskingClient:
        masking = self._state.record.masking
        if not masking:
            raise NodeRefused("this node is in no masked sum; invite it first")
        return MaskingClient.restore(
            masking.encode(), self._requirements,
            identity=self._party.identity, directory=self._directory, store=self._store,
        )  # fmt: skip

    def _store(self, snapshot: bytes) -> None:
        self._state.record.masking = snapshot.decode()


def as_array(message: bytes) -> Array:
    """A message of the masking protocol as it travels."""
    return np.frombuffer(message, np.uint8)
