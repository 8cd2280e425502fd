"""A node: it hosts the clients of its own users, and answers a server that it does not have to believe.

    announce   which experiment; the node's policy decides whether it takes part
    invite     terms of a masked sum -> public keys; where all goes well these travelled with the previous reveal
    share      roster -> sealed shares
    check      the others' sealed shares -> a signature that they are shares, or evidence against their sender
    input      the query, and everybody's signature -> trains its users; the sum of their ring elements under masks
    confirm    survivors -> a signature over them and the model that this node was sent
    reveal     everybody's signature over the same -> shares that open the sum, once; and keys for the next sum
    upload     the query of a run between two servers -> trains its users; one part of their sum for each server
    clear      the query under a plan without masked sums -> partial sums, or single protected uploads
    settle     how the last query ended; or that the run has

Nothing is believed for being received: every request is signed by the server that the federation file names, bound to
run, organisation, counter, stage and query, and answered under the node's own signature. What a refusal says is for
people, and names nothing of this machine.

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
    OtherProtocolError,
    RefusalCode,
    RolledBackError,
    SignatureError,
    StateError,
    UnknownRunError,
)
from privfed.engines.nodes.federation_file import SERVER_SEAT
from privfed.engines.nodes.files import make_folder
from privfed.engines.nodes.joining import Joining
from privfed.engines.nodes.masking import MaskedSession, as_array
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import FILE as POLICY
from privfed.engines.nodes.policy import Policy, masked
from privfed.engines.nodes.printable import printable
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.protocol import newest_common, spoken
from privfed.engines.nodes.public_sentence import public_sentence
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.engines.nodes.record import Book, QueryAddress
from privfed.engines.nodes.two_server_upload import TwoServerUploads
from privfed.federation import Clients, FederationError
from privfed.privacy import Ledger, PrivacyError, explain
from privfed.privacy.user_ranges import to_ranges
from secure_agg.errors import RoundAborted, SecureAggregationError

_log = logging.getLogger("privfed.nodes")

Answer = tuple[Mapping[str, JsonValue], Mapping[str, Array]]


class Node:
    """One node.

    Args:
        folder: its own, for state, ledger and keys; made where it is missing.
        policy: what it insists on; None reads `node.toml` in the folder.
        data: its users; None reads the file that `NodeData.save` wrote there.
        party: its organisation; None reads key and federation file there.
        clients: take the place of the method's clients, in audits; None runs those of the announced method.

    Raises:
        StateError: the folder, the policy, the data or the federation file cannot be read, or do not fit one another.
        PlanError: the policy has an unknown key or a bad value.
    """

    def __init__(
        self,
        folder: Path | str,
        policy: Policy | None = None,
        data: NodeData | None = None,
        clients: Clients | None = None,
        party: Party | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.policy = policy or Policy.read(self.folder / POLICY)
        self.data = data or NodeData.load(self.folder)
        self.party = party or Party.load(self.folder)
        self.state = NodeState(self.folder)
        self._require_fitting()
        # A tile of the largest uploads must fit where a message does.
        self._max_upload_bytes = self.policy.max_message_mib * 2**20 // TILE
        self.private_side = PrivateSide(self.state, self.data, self._max_upload_bytes, clients)
        self._joining = Joining(self.state, self.policy, self.party, self.private_side)
        self._admission = Admission(self.state, self.policy, self.party, self.private_side)
        self._answering = Answering(self.state, self.policy, self.private_side, self._admission)
        self._session = MaskedSession(self.state, self.policy, self.party)
        self._uploads = TwoServerUploads(self.state, self.policy, self.party)
        self._handlers: Mapping[str, Callable[[Packet, Address], Answer]] = {
            "train.announce": self._announce,
            "train.invite": self._invite,
            "train.share": self._share,
            "train.check": self._check,
            "train.input": self._input,
            "train.confirm": self._confirm,
            "train.reveal": self._reveal,
            "train.upload": self._upload,
            "train.clear": self._clear,
            "train.settle": self._settle,
        }

    def handle(self, stage: str, request: bytes) -> bytes:
        """Answer one request, or refuse it and say why; nothing that the request says raises.

        Args:
            stage: as the transport names it.
            request: bytes of the server.
        """
        return self.party.frame("reply", self._answered(stage, request))

    def _answered(self, stage: str, request: bytes) -> bytes:
        counter = -1
        try:
            message = self.party.unframe("request", self._bounded(request), SERVER_SEAT)
            packet = Packet.decode(message, self._max_bytes)
            address = codec.address_of(packet)
            with self.state.locked():
                self.state.open(address.run)
                counter = self.state.record.counter
                self._accept(stage, address, packet)
                counter = self.state.record.counter
                values, arrays = self._handlers[stage](packet, address)
                self.state.save()
                return codec.reply(request, self.party.seat, {**values, **self._receipt()}, arrays)
        except RoundAborted as aborted:
            return self._refuse(stage, request, f"{aborted}{self._keep_end()}", RefusalCode.ABORTED_ROUND, counter)
        except MessageError as refused:
            self.state.reload()
            return self._refuse(stage, request, str(refused), refused.code, counter)
        except (
            ValidationError, PrivacyError, SecureAggregationError, FederationError, UpdateError, NodesError,
        ) as refused:  # fmt: skip
            self.state.forget()
            told = explain(refused, Announcement) if isinstance(refused, ValidationError) else public_sentence(refused)
            code = refused.code if isinstance(refused, NodesError) else RefusalCode.REFUSED
            return self._refuse(stage, request, told, code, counter, refused)
        except Exception as failed:
            self.state.forget()
            _log.exception("a request of stage %s failed", printable(stage, 40))
            return self._refuse(stage, request, public_sentence(failed), RefusalCode.NODE_FAILED, counter)

    def ledger_of(self, run: str) -> Ledger | None:
        """What a run costs this node's users; None where it takes no part in it."""
        with self.state.locked():
            self.state.open(run)
            return self.state.ledger() if self.state.record.run is not None else None

    @property
    def ledger(self) -> Ledger | None:
        """What the latest run that it takes part in costs its users; None before one was announced."""
        active = list(Book.load(self.state.states).active)
        return self.ledger_of(active[-1]) if active else None

    @property
    def _max_bytes(self) -> int:
        return self.policy.max_message_mib * 2**20

    def _bounded(self, request: bytes) -> bytes:
        if len(request) > self._max_bytes:
            raise MessageError(
                f"a message of {len(request)} bytes was given and {self._max_bytes} are accepted; send less at once"
            )
        return request

    def _require_fitting(self) -> None:
        """Refuse data or a federation file that do not belong to this node."""
        federation, seat = self.party.federation, self.party.seat
        if seat in (SERVER_SEAT, federation.helper_seat):
            raise StateError(
                f"the key in this folder is the {federation.name_of(seat)}'s; a node needs the key of an organisation"
            )
        if (self.data.population, self.data.items) != (federation.population, federation.items):
            raise StateError(
                f"the data is of {self.data.population} users and {self.data.items} items and the federation file says "
                f"{federation.population} and {federation.items}; give the node the catalogue of the federation"
            )
        if not np.array_equal(self.data.users, federation.users(seat)):
            raise StateError(
                f"the data has other users than the federation file gives to {federation.name_of(seat)}; mend either"
            )
        make_folder(self.state.states)
        with self.state.locked():
            book = Book.load(self.state.states)
            if federation.version < book.federation:
                raise StateError(
                    f"the federation file has version {federation.version} and version {book.federation} was pinned "
                    "here before; get the newest one from the operator"
                )
            if federation.version > book.federation:
                book.federation = federation.version
                book.save(self.state.states)
            # Before the first message, so that none of them decides whether it is written.
            self.state.root()

    def _receipt(self) -> dict[str, JsonValue]:
        """What the server has to show again: how much of this node's budgets is recorded, under its own signature."""
        book = self.state.book
        text = f"{self.party.seat} {book.sequence} {book.head}"
        return {"receipt": [book.sequence, book.head, self.party.sign("receipt", text.encode()).hex()]}

    def _require_no_rollback(self, packet: Packet) -> None:
        """Refuse while what is kept here is older than a receipt of this node.

        Raises:
            RolledBackError: it is.
        """
        given = packet.fields.get("receipt")
        if given is None:
            return
        if not (isinstance(given, list) and len(given) == 3):
            raise MessageError("the receipt in the request is none of this node; drop the message")
        sequence, head, signature = given
        if type(sequence) is not int or not isinstance(head, str) or not isinstance(signature, str):
            raise MessageError("the receipt in the request is none of this node; drop the message")
        try:
            text = f"{self.party.seat} {sequence} {head}".encode()
            self.party.verify("receipt", text, bytes.fromhex(signature), self.party.seat)
        except (SignatureError, ValueError):
            raise MessageError("the receipt in the request is none of this node; drop the message") from None
        book = self.state.book
        if sequence > book.sequence or (sequence == book.sequence and head != book.head):
            raise RolledBackError(
                f"this node has signed a receipt of {sequence} recorded queries and its folder knows of "
                f"{book.sequence}: the folder was restored from a copy, so budgets and noise would be counted twice; "
                "take a new folder and have the operator add a new key"
            )

    def _refuse(
        self,
        stage: str,
        request: bytes,
        told: str,
        code: RefusalCode,
        counter: int,
        because: Exception | None = None,
    ) -> bytes:
        """Refuse a request: the log has the whole sentence, the server what names nothing of this machine."""
        whole = told if because is None or isinstance(because, ValidationError) else str(because)
        name = self.party.federation.name_of(self.party.seat)
        _log.warning("%s refuses %s: %s", name, printable(stage, 40), printable(whole, 1000))
        return codec.refusal(request, told, code, self.party.seat, counter)

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

    def _accept(self, stage: str, address: Address, packet: Packet) -> None:
        """Refuse what is stale, misdirected or of an unknown run; remember the counter with the first change."""
        record = self.state.record
        if stage not in self._handlers or address.stage != stage:
            raise MessageError("the request came as another stage than it says, or as one that no node knows; drop it")
        if address.counter <= record.counter:
            raise MessageError("the request is not newer than one that was accepted before: it is a replay, so drop it")
        self._require_no_rollback(packet)
        if stage == "train.announce":
            if address.seat not in (SERVER_SEAT, self.party.seat):
                raise MessageError("the request is for another node; drop it")
            return
        if record.run is None:
            raise UnknownRunError
        if address.seat != self.party.seat:
            raise MessageError("the request is for another node; drop it")
        if address.nonce != record.nonce:
            raise UnknownRunError
        if address.protocol != record.protocol:
            raise OtherProtocolError(
                f"the request is in version {address.protocol} of the protocol and version {record.protocol} was "
                "chosen; announce the run again"
            )
        record.counter = address.counter

    # Stages ----------------------------------------------------------------------------------------------------------

    def _announce(self, packet: Packet, address: Address) -> Answer:
        # How the last query ended is settled by the next request: here the server may not know yet whom it asks.
        chosen = newest_common(self.party.speaks, spoken(packet), self.party.federation.min_protocol)
        nonce = self._joining.join(Announcement.model_validate(packet["announcement"]), address)
        self.state.record.protocol = chosen
        return {"nonce": nonce, "speaks": list(self.party.speaks), "protocol": chosen}, {}

    def _invite(self, packet: Packet, address: Address) -> Answer:
        del address
        self.private_side.settle(_counted(packet))
        return {}, {"advertisement": self._advertise(packet)}

    def _advertise(self, packet: Packet) -> Array:
        self._uploads.require(two_servers=False)
        return as_array(self._session.advertise(_bytes(packet, "invitation")))

    def _share(self, packet: Packet, address: Address) -> Answer:
        del address
        self.private_side.settle(_counted(packet))
        return {}, {"shares": as_array(self._session.share(_bytes(packet, "roster")))}

    def _check(self, packet: Packet, address: Address) -> Answer:
        """Sign that the others' shares are shares, or accuse."""
        del address
        self.private_side.settle(_counted(packet))
        return {}, {"check": as_array(self._session.check(_bytes(packet, "delivery")))}

    def _input(self, packet: Packet, address: Address) -> Answer:
        """Train, add up the users' ring elements, and return them under masks; recorded only once all else is right."""
        self._session.require_shared()
        query, go_ahead = self._query(packet, address), _bytes(packet, "go_ahead")
        self.private_side.settle(_counted(packet))
        self._admission.refuse_second_input(query)
        self._session.require(query, self._answering.size(query))
        summed = self.state.record.summed = None if query.step == MEASURE else query.round
        self._admission.accept_organisations(summed, self._session.partners(go_ahead))
        elements, members = self._answering.ring_elements(query)
        return {"members": self._disclosed(members)}, {
            "masked": as_array(self._session.mask(go_ahead, elements, address.model))
        }

    def _upload(self, packet: Packet, address: Address) -> Answer:
        """Train, add up the users' ring elements, and return a part of the sum for each of two servers."""
        self._uploads.require(two_servers=True)
        query = self._query(packet, address)
        self._admission.refuse_second_input(query)
        accepted = self._uploads.accept(packet, query, self._answering.size(query))
        self.private_side.settle(_counted(packet))
        summed = None if query.step == MEASURE else query.round
        self._admission.accept_any_organisations(summed, accepted.terms.min_clients)
        elements, members = self._answering.ring_elements(query)
        return {"members": self._disclosed(members)}, accepted.parts(elements)

    def _confirm(self, packet: Packet, address: Address) -> Answer:
        """Sign who has survived, if these are enough for the policy."""
        del address
        survivors = _bytes(packet, "survivors")
        self._admission.accept_organisations(self.state.record.summed, self._session.survivors(survivors))
        return {}, {"confirmation": as_array(self._session.confirm(survivors))}

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
        query, each = self._query(packet, address), packet["each"]
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
        entries = len(self.state.ledger().entries)
        if packet.fields.get("final") is True:
            self._joining.leave()
        return {"entries": entries}, {}

    def _query(self, packet: Packet, address: Address) -> Query:
        run = self.state.run
        return Query.read(packet, address, self._max_upload_bytes, run.n_users, run.digest)

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
