"""Sums between two servers over nodes: what server, helper and nodes compute alike, and the helper's sealing key.

The server of the run is server 0. Server 1 is the helper that the federation file names by key. Every node sends one
message with a part for each of them; the helper is sent its parts by the server, and answers with its share of the sum.

Nobody is told the terms of a sum: each party computes them from the federation file, the announcement that it was sent
itself, and a `SumRequest`. So parts of nodes that were told of another plan, model, place or size than the helper were
made under other terms, and the helper cannot open them.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from pydantic import JsonValue

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.masking import as_array
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.queries import MEASURE, Query
from secure_agg.errors import ConfigurationError
from secure_agg.primitives.keys import KEY_BYTES, SIGNATURE_BYTES
from secure_agg.two_server import SumTerms, roster_digest
from secure_agg.two_server.shares import SEED_BYTES
from secure_agg.two_server.uploads import OVERHEAD

FIDELITY = "two-servers"
UPLOAD, RELEASE = "train.upload", "train.release"

HELPER_PART_BYTES = OVERHEAD + SEED_BYTES
"""Bytes of a node's part for the helper, whatever the length of its vector."""

_LABEL = b"privfed sum between two servers"
_WHOLE = ("number", "min_nodes", "round", "cohort_id", "query_id", "length", "bits")


def between_two_servers(announced: Announcement) -> bool:
    """Whether the sums of a run are made between two servers."""
    return announced.config.fidelity == FIDELITY


def least_nodes(min_nodes: int, federation: FederationFile) -> int:
    """The smallest number of nodes in a sum: two are left when those that may collude have subtracted their own."""
    return max(min_nodes, federation.min_organisations, federation.corrupt + 2)


@dataclass(frozen=True, slots=True)
class SealingKey:
    """The key that a helper's process drew for one run, under the helper's signature.

    Attributes:
        key: X25519.
        signature: of the helper over run and key.
    """

    key: bytes
    signature: bytes

    @classmethod
    def sign(cls, party: Party, run: str, key: bytes) -> Self:
        """The helper signs its key."""
        return cls(key, party.sign("sealing", bytes.fromhex(run) + key))

    @classmethod
    def read(cls, packet: Packet, party: Party, run: str) -> Self:
        """The key in a message, once the signature of the federation's helper is verified.

        Raises:
            MessageError: there is none, or the helper did not sign it for this run.
        """
        seat = party.federation.helper_seat
        if seat is None:
            raise MessageError("the federation file names no helper, so there is no key of one; drop the message")
        key = packet.array("helper_key", "uint8", (KEY_BYTES,)).tobytes()
        signature = packet.array("helper_signature", "uint8", (SIGNATURE_BYTES,)).tobytes()
        party.verify("sealing", bytes.fromhex(run) + key, signature, seat)
        return cls(key, signature)

    def arrays(self) -> dict[str, Array]:
        """As it travels."""
        return {"helper_key": as_array(self.key), "helper_signature": as_array(self.signature)}


@dataclass(frozen=True, slots=True)
class SumRequest:
    """What decides the terms of one sum, besides federation file and announcement.

    Attributes:
        number: of the sum, rising within the run over restarts of the server, too.
        min_nodes: smallest number of nodes in it.
        round, cohort_id, query_id: of the query.
        measured: whether it is a sum of metrics that trains nothing.
        model: SHA-256 of what every node is sent alike.
        length, bits: of the ring elements.
        server_key: X25519 key of the server for this sum.
        helper_key: of the helper for this run.
    """

    number: int
    min_nodes: int
    round: int
    cohort_id: int
    query_id: int
    measured: bool
    model: str
    length: int
    bits: int
    server_key: bytes
    helper_key: bytes

    @classmethod
    def of_query(
        cls, query: Query, number: int, min_nodes: int, size: tuple[int, int], keys: tuple[bytes, bytes]
    ) -> Self:
        """The request of a query's sum, as the server makes it and as a node comes to it by its own query.

        Args:
            query: as one node is sent it.
            number: of the sum.
            min_nodes: smallest number of nodes in it.
            size: number and bits of the ring elements.
            keys: of server and helper.
        """
        return cls(
            number, min_nodes, query.round, query.cohort_id, query.query_id, query.step == MEASURE,
            query.model or query.common_digest(), *size, *keys,
        )  # fmt: skip

    @classmethod
    def read(cls, packet: Packet, helper_key: bytes) -> Self:
        """The request that a helper is sent.

        Raises:
            MessageError: a value is missing or none.
        """
        whole = {name: packet.whole(name) for name in _WHOLE}
        measured, model = packet["measured"], packet.text("model", 2 * hashlib.sha256().digest_size)
        if type(measured) is not bool:
            raise MessageError("field 'measured' is no truth value; drop the message")
        return cls(
            **whole, measured=measured, model=model, server_key=server_key(packet), helper_key=helper_key
        )  # fmt: skip

    def fields(self) -> dict[str, JsonValue]:
        """As the helper is sent it, without the server's key."""
        return {**{name: getattr(self, name) for name in _WHOLE}, "measured": self.measured, "model": self.model}

    def terms(self, announced: Announcement, federation: FederationFile) -> SumTerms:
        """The terms of the sum in a run that was announced so.

        Raises:
            MessageError: no sum can have them.
        """
        place = [self.round, self.cohort_id, self.query_id, self.measured, self.model]
        bound = hashlib.sha256(_LABEL + json.dumps([announced.digest, *place]).encode()).digest()
        try:
            return SumTerms(
                bytes.fromhex(announced.run), self.number, 0, self.length, self.bits, self.min_nodes,
                (self.server_key, self.helper_key), roster_digest(federation.directory()), bound,
            )  # fmt: skip
        except ConfigurationError as refused:
            raise MessageError(f"no sum has the requested terms: {refused}") from None


def server_key(packet: Packet) -> bytes:
    """The server's key for one sum, in a message that the server signed."""
    return packet.array("server_key", "uint8", (KEY_BYTES,)).tobytes()
