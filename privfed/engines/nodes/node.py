"""A node: it hosts the clients of its own users, and answers a server that it does not have to believe.

    announce   which experiment; the node's policy decides whether it takes part
    invite     terms of a masked sum -> public keys; where all goes well these travelled with the previous reveal
    share      roster -> sealed shares
    input      the query itself, and the shares -> trains its users; the sum of their ring elements under its masks
    reveal     survivors -> shares that open the sum, once; and keys for the next sum
    clear      the query under a plan without masked sums -> partial sums, or single protected uploads
    settle     how the last query ended

Every user's upload is clipped, rounded and noised by `ClientGuard` under that user's own key before the node adds
anything up, so the node is one party of the masked sum and its users' guarantee does not depend on it being large.

What a node must remember lies in its folder (`NodeRecord`), written before the reply that depends on it is handed out:
a process may be killed between any two messages, or serve only one of them. The outcome of a query reaches the node
with the next request (`counted`: the last query whose release its users are in); until then private state can go back
to what it was.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from pydantic import JsonValue, ValidationError

from privfed.compute.tiles import TILE
from privfed.contracts import UpdateError
from privfed.engines.nodes import codec
from privfed.engines.nodes.admission import Admission
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.answering import Answering
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import (
    MessageError,
    NodeRefused,
    NodesError,
    RefusalCode,
    StateError,
    UnknownRunError,
)
from privfed.engines.nodes.joining import Joining
from privfed.engines.nodes.masking import MaskedSession, as_array
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.policy import FILE as POLICY
from privfed.engines.nodes.policy import Policy, masked
from privfed.engines.nodes.printable import printable
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.public_sentence import public_sentence
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.record import QueryAddress
from privfed.federation import Clients, FederationError
from privfed.privacy import Ledger, PrivacyError, explain
from privfed.privacy.ledger import to_ranges
from secure_agg.errors import RoundAborted, SecureAggregationError

_log = logging.getLogger("privfed.nodes")

Answer = tuple[Mapping[str, JsonValue], Mapping[str, Array]]


class Node:
    """One node.

    Args:
        folder: its own, for state, ledger and keys; made where it is missing.
        policy: what it insists on; None reads `node.toml` in the folder.
        data: its users; None reads the file that `NodeData.save` wrote there.
        clients: take the place of the method's clients, in audits; None runs those of the announced method.

    Raises:
        StateError: the folder, the policy or the data cannot be read.
        PlanError: the policy has an unknown key or a bad value.
    """

    def __init__(
        self,
        folder: Path | str,
        policy: Policy | None = None,
        data: NodeData | None = None,
        clients: Clients | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.policy = policy or Policy.read(self.folder / POLICY)
        self.data = data or NodeData.load(self.folder)
        self.state = NodeState(self.folder)
        # A tile of the largest uploads must fit where a message does.
        self._max_upload_bytes = self.policy.max_message_mib * 2**20 // TILE
        self.private_side = PrivateSide(self.state, self.data, self._max_upload_bytes, clients)
        self._joining = Joining(self.state, self.policy, self.private_side)
        self._admission = Admission(self.state, self.policy, self.data, self.private_side)
        self._answering = Answering(self.state, self.policy, self.data, self.private_side, self._admission)
        self._session = MaskedSession(self.state, self.policy)
        self._handlers: Mapping[str, Callable[[Packet, Address], Answer]] = {
            "train.announce": self._announce,
            "train.invite": self._invite,
            "train.share": self._share,
            "train.input": self._input,
            "train.reveal": self._reveal,
            "train.clear": self._clear,
            "train.settle": self._settle,
        }

    def handle(self, stage: str, request: bytes) -> bytes:
        """Answer one request, or refuse it and say why; nothing that the request says raises.

        Args:
            stage: as the transport names it.
            request: bytes of the server.
        """
        try:
            with self.state.locked():
                self.state.refresh()
                packet = Packet.decode(request, self.policy.max_message_mib * 2**20)
                address = self._accept(stage, codec.address_of(packet))
                values, arrays = self._handlers[stage](packet, address)
                self.state.save()
                return codec.reply(request, values, arrays)
        except RoundAborted as aborted:
            return self._refuse(stage, request, f"{aborted}{self._keep_end()}", RefusalCode.ABORTED_ROUND)
        except MessageError as refused:
            self.state.reload()
            return self._refuse(stage, request, str(refused), refused.code)
        except (
            ValidationError, PrivacyError, SecureAggregationError, FederationError, UpdateError, NodesError,
        ) as refused:  # fmt: skip
            self.state.forget()
            told = explain(refused, Announcement) if isinstance(refused, ValidationError) else public_sentence(refused)
            code = refused.code if isinstance(refused, NodesError) else RefusalCode.REFUSED
            return self._refuse(stage, request, told, code, refused)
        except Exception as failed:
            self.state.forget()
            _log.exception("a request of stage %s failed", printable(stage, 40))
            return self._refuse(stage, request, public_sentence(failed), RefusalCode.NODE_FAILED)

    @property
    def ledger(self) -> Ledger | None:
        """What the run that it takes part in costs its users; None before one was announced."""
        self.state.refresh()
        return self.state.ledger() if self.state.record.run is not None else None

    def _refuse(
        self, stage: str, request: bytes, told: str, code: RefusalCode, because: Exception | None = None
    ) -> bytes:
        """Refuse a request: the log has the whole sentence, the server what names nothing of this machine."""
        record = self.state.record
        whole = told if because is None or isinstance(because, ValidationError) else str(because)
        _log.warning("node %d refuses %s: %s", record.node, printable(stage, 40), printable(whole, 1000))
        return codec.refusal(request, told, code, record.serial)

    def _keep_end(self) -> str:
        """Keep the end of an aborted masked sum, its secrets gone; returns what to add where that fails."""
        ended = self.state.record.masking
        self.state.forget()
        self.state.record.masking = ended
        try:
            with self.state.locked():
                self.state.save()
        except StateError as failed:
            self.state.forget()
            return f"; besides, {failed.public}"
        return ""

    def _accept(self, stage: str, address: Address) -> Address:
        """Refuse what is stale, misdirected or of an unknown run; remember the serial with the first change."""
        record = self.state.record
        if stage not in self._handlers or address.stage != stage:
            raise MessageError("the request came as another stage than it says, or as one that no node knows; drop it")
        if address.serial <= record.serial:
            raise MessageError("the request is not newer than one that was accepted before: it is a replay, so drop it")
        if stage != "train.announce":
            if record.run is None or address.run != record.run.run:
                raise UnknownRunError
            if address.node != record.node:
                raise MessageError("the request is for another node; drop it")
        record.serial = address.serial
        return address

    # Stages ----------------------------------------------------------------------------------------------------------

    def _announce(self, packet: Packet, address: Address) -> Answer:
        announced, seat = Announcement.model_validate(packet["announcement"]), packet.whole("seat", 0, 2**32 - 2)
        counted = _counted(packet)
        self._joining.join(announced, seat, address)
        self.private_side.settle(counted)
        record = self.state.record
        return {
            "users": to_ranges(self.data.users), "session": record.session, "cohort_id": record.cohort_id
        }, {}  # fmt: skip

    def _invite(self, packet: Packet, address: Address) -> Answer:
        del address
        self.private_side.settle(_counted(packet))
        return {}, {"advertisement": self._advertise(packet)}

    def _advertise(self, packet: Packet) -> Array:
        return as_array(self._session.advertise(_bytes(packet, "invitation")))

    def _share(self, packet: Packet, address: Address) -> Answer:
        del address
        self.private_side.settle(_counted(packet))
        return {}, {"shares": as_array(self._session.share(_bytes(packet, "roster")))}

    def _input(self, packet: Packet, address: Address) -> Answer:
        """Train, add up the users' ring elements, and return them under masks."""
        self._session.require_shared()
        query = Query.read(packet, address, self._max_upload_bytes, self.data.population)
        self.private_side.settle(_counted(packet))
        self._admission.refuse_second_input(query)
        self._session.require(query, self._answering.size(query))
        elements, members = self._answering.ring_elements(query)
        return {"members": self._disclosed(members)}, {
            "masked": as_array(self._session.mask(_bytes(packet, "delivery"), elements))
        }

    def _reveal(self, packet: Packet, address: Address) -> Answer:
        """Help to open the sum, once; then join the next session."""
        del address
        out = {"reveal": as_array(self._session.reveal(_bytes(packet, "request")))}
        if "invitation" in packet.arrays:
            with suppress(SecureAggregationError):
                out["advertisement"] = self._advertise(packet)
        return {}, out

    def _clear(self, packet: Packet, address: Address) -> Answer:
        """Train, and return partial sums or every user's protected upload."""
        query, each = Query.read(packet, address, self._max_upload_bytes, self.data.population), packet["each"]
        self.private_side.settle(_counted(packet))
        if masked(self.state.plan) and query.schema:
            raise NodeRefused("the run's plan opens nothing but masked sums; nothing leaves in the clear")
        if type(each) is not bool or (each and self.state.plan.mechanism.release == "total"):
            raise NodeRefused("the run's plan releases sums and no single uploads; query a sum")
        if each:
            arrays, members = self._answering.uploads(query)
            return {"members": self._disclosed(members), "within": 0}, arrays
        partial, members = self._answering.partial_sums(query)
        sums = {f"block/{name}": values.numpy() for name, values in partial.sums.items()}
        return {"members": self._disclosed(members), "within": partial.within}, sums

    def _settle(self, packet: Packet, address: Address) -> Answer:
        del address
        self.private_side.settle(_counted(packet))
        return {"charges": len(self.state.ledger().entries)}, {}

    def _disclosed(self, members: Int64[np.ndarray, " members"]) -> str | None:
        """Who took part, where the server does not know it already."""
        return to_ranges(members) if self.state.plan.sampling.kind == "poisson" else None


def _counted(packet: Packet) -> QueryAddress | None:
    """The last query whose release the node's users are in, as the server says it."""
    given = packet["counted"]
    if given is None:
        return None
    numbers = [n for n in given if type(n) is int and n >= 0] if isinstance(given, list) else []
    if not isinstance(given, list) or len(given) != 2 or len(numbers) != 2:
        raise MessageError("the last counted query is no cohort and query; drop the message")
    return numbers[0], numbers[1]


def _bytes(packet: Packet, name: str) -> bytes:
    return packet.array(name, "uint8", (None,)).tobytes()
