"""The helper of sums between two servers: it hosts nobody, and releases its share of each sum once.

    announce   which experiment; its own policy decides whether it takes part -> the key that parts are sealed to
    release    the nodes' parts for it, and the server's proposal -> its own proposal, and its share of the sum
    settle     the run has ended

It does not believe the server. It counts organisations and users of a sum itself, from parts that nodes signed and from
the federation file, and writes down whom a sum is over before its share leaves.

The key that parts are sealed to exists in the memory of one process only. Whatever was lost or restored of the folder,
a process that was started again can open no part that was sealed before, and so releases no second sum over it.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import (
    MessageError,
    NodeRefused,
    NodesError,
    OtherFederationError,
    OtherProtocolError,
    PolicyRefused,
    RefusalCode,
    StateError,
    UnknownRunError,
)
from privfed.engines.nodes.federation_file import SERVER_SEAT
from privfed.engines.nodes.files import locked, make_folder, read_file, write_file
from privfed.engines.nodes.masking import as_array
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import FILE as POLICY
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.printable import printable
from privfed.engines.nodes.protocol import OLDEST, newest_common, spoken
from privfed.engines.nodes.public_sentence import public_sentence
from privfed.engines.nodes.two_servers import (
    HELPER_PART_BYTES,
    SealingKey,
    SumRequest,
    between_two_servers,
    least_nodes,
)
from privfed.federation import FederationError
from privfed.privacy import PrivacyError, explain
from secure_agg.errors import MessageRefused, RoundAborted, SecureAggregationError
from secure_agg.primitives.keys import KeyPair
from secure_agg.two_server import SumServer

_log = logging.getLogger("privfed.nodes")
_NONCE_BYTES = 16
_STATE = "state"
_ELEMENT_BYTES = 8

Answer = tuple[Mapping[str, JsonValue], Mapping[str, Array]]


class ReleasedSum(BaseModel):
    """A sum that the helper released its share of.

    Attributes:
        number: of the sum.
        round, cohort_id, query_id: of its query.
        measured: whether it was a sum of metrics.
        organisations: seats of those in it, rising.
    """

    model_config = ConfigDict(extra="forbid")

    number: int
    round: int
    cohort_id: int
    query_id: int
    measured: bool
    organisations: tuple[int, ...]


class HelperRecord(BaseModel):
    """What a helper keeps of one run.

    Attributes:
        run: as it was announced.
        counter: of the last request that was accepted.
        nonce: of requests since the run was last announced.
        protocol: version of the messages that was chosen then.
        ended: whether the run has.
        released: every sum, before its share left.
    """

    model_config = ConfigDict(extra="forbid")

    run: Announcement
    counter: int = -1
    nonce: str = ""
    protocol: int = OLDEST
    ended: bool = False
    released: list[ReleasedSum] = []

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """The record in a file; None where there is none.

        Raises:
            StateError: it cannot be read.
        """
        if not path.exists():
            return None
        try:
            return cls.model_validate_json(read_file(path))
        except ValidationError as error:
            raise StateError(f"{path} is damaged, so what was released is not known; begin a new run") from error

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StateError: it cannot be written; what was there stays.
        """
        write_file(path, self.model_dump_json().encode())


@dataclass(slots=True, eq=False)
class _Process:
    """What this process alone knows of a run, and never writes down.

    Attributes:
        keys: that parts are sealed to.
        last: number of the last sum that was released under them.
    """

    keys: KeyPair = field(default_factory=KeyPair.generate)
    last: int = -1


class Helper:
    """The second server of a federation.

    Args:
        folder: its own, with key and federation file; its records are made there.
        policy: what it insists on, in the words of a node's; None reads `node.toml` in the folder.
        party: the helper; None reads key and federation file there.

    Raises:
        StateError: the folder cannot be read, or the key in it is not the helper's.
        PlanError: the policy has an unknown key or a bad value.
    """

    def __init__(self, folder: Path | str, policy: Policy | None = None, party: Party | None = None) -> None:
        self.folder = Path(folder)
        self.policy = policy or Policy.read(self.folder / POLICY)
        self.party = party or Party.load(self.folder)
        federation = self.party.federation
        if self.party.seat != federation.helper_seat:
            raise StateError(f"the key in {self.folder} is {federation.name_of(self.party.seat)}'s and no helper's")
        self._least = least_nodes(self.policy.min_nodes, federation)
        self._processes: dict[str, _Process] = {}
        self._handlers: Mapping[str, Callable[[HelperRecord, Packet, Address], Answer]] = {
            "train.release": self._release,
            "train.settle": self._settle,
        }
        make_folder(self._states)

    def handle(self, stage: str, request: bytes) -> bytes:
        """Answer one request, or refuse it and say why; nothing that the request says raises.

        Args:
            stage: as the transport names it.
            request: bytes of the server.
        """
        return self.party.frame("reply", self._answered(stage, request))

    def released(self, run: str) -> list[ReleasedSum]:
        """The sums of a run that this helper released its share of."""
        with locked(self._states):
            record = HelperRecord.load(self._path(run))
        return [] if record is None else record.released

    @property
    def _states(self) -> Path:
        return self.folder / _STATE

    def _path(self, run: str) -> Path:
        return self._states / f"{run}.json"

    def _answered(self, stage: str, request: bytes) -> bytes:
        counter = -1
        try:
            message = self.party.unframe("request", self._bounded(request), SERVER_SEAT)
            packet = Packet.decode(message, self._max_bytes)
            address = codec.address_of(packet)
            with locked(self._states):
                record = HelperRecord.load(self._path(address.run))
                counter = -1 if record is None else record.counter
                values, arrays = self._accepted(stage, record, packet, address)
                return codec.reply(request, self.party.seat, values, arrays)
        except ValidationError as refused:
            return self._refuse(stage, request, explain(refused, Announcement), RefusalCode.REFUSED, counter)
        except RoundAborted as aborted:
            return self._refuse(stage, request, str(aborted), RefusalCode.ABORTED_ROUND, counter)
        except (PrivacyError, SecureAggregationError, FederationError, NodesError) as refused:
            code = refused.code if isinstance(refused, NodesError) else RefusalCode.REFUSED
            return self._refuse(stage, request, public_sentence(refused), code, counter)
        except Exception as failed:
            _log.exception("a request of stage %s failed", printable(stage, 40))
            return self._refuse(stage, request, public_sentence(failed), RefusalCode.NODE_FAILED, counter)

    @property
    def _max_bytes(self) -> int:
        return self.policy.max_message_mib * 2**20

    def _bounded(self, request: bytes) -> bytes:
        if len(request) > self._max_bytes:
            raise MessageError(
                f"a message of {len(request)} bytes was given and {self._max_bytes} are accepted; send less at once"
            )
        return request

    def _refuse(self, stage: str, request: bytes, told: str, code: RefusalCode, counter: int) -> bytes:
        _log.warning("the helper refuses %s: %s", printable(stage, 40), printable(told, 1000))
        return codec.refusal(request, told, code, self.party.seat, counter)

    def _accepted(self, stage: str, record: HelperRecord | None, packet: Packet, address: Address) -> Answer:
        """The answer to a request that is not stale or misdirected."""
        if address.stage != stage or (stage not in self._handlers and stage != "train.announce"):
            raise MessageError(
                "the request came as another stage than it says, or as one that no helper knows; drop it"
            )
        if record is not None and address.counter <= record.counter:
            raise MessageError("the request is not newer than one that was accepted before: it is a replay, so drop it")
        if stage == "train.announce":
            if address.seat not in (SERVER_SEAT, self.party.seat):
                raise MessageError("the request is for another party; drop it")
            return self._announce(record, packet, address)
        if address.seat != self.party.seat:
            raise MessageError("the request is for another party; drop it")
        # Whoever has no key of the run is a process that was started since: it says so, and is told of the run again.
        if record is None or address.run not in self._processes or address.nonce != record.nonce:
            raise UnknownRunError
        if address.protocol != record.protocol:
            raise OtherProtocolError(
                f"the request is in version {address.protocol} of the protocol and version {record.protocol} was "
                "chosen; announce the run again"
            )
        record.counter = address.counter
        answer = self._handlers[stage](record, packet, address)
        record.save(self._path(address.run))
        return answer

    # Stages ----------------------------------------------------------------------------------------------------------

    def _announce(self, record: HelperRecord | None, packet: Packet, address: Address) -> Answer:
        chosen = newest_common(self.party.speaks, spoken(packet), self.party.federation.min_protocol)
        announced = Announcement.model_validate(packet["announcement"])
        if announced.run != address.run:
            raise MessageError("the announcement is of another run than the request; drop it")
        if record is None:
            self._accept_run(announced)
            record = HelperRecord(run=announced)
        elif record.ended or record.run != announced:
            raise NodeRefused("the run has ended here, or was announced with other settings; begin a new run")
        record.counter, record.nonce, record.protocol = address.counter, secrets.token_hex(_NONCE_BYTES), chosen
        record.save(self._path(announced.run))
        process = self._processes.setdefault(announced.run, _Process())
        sealing = SealingKey.sign(self.party, announced.run, process.keys.public)
        return {"nonce": record.nonce, "speaks": list(self.party.speaks), "protocol": chosen}, sealing.arrays()

    def _accept_run(self, announced: Announcement) -> None:
        """Refuse a new run that this helper takes no part in."""
        federation, config = self.party.federation, announced.config
        if announced.federation != federation.digest:
            raise OtherFederationError(
                "the run is of another federation file than the one that this helper pins; give both parties the same "
                "version, and begin a new run"
            )
        if (announced.population, announced.items) != (federation.population, federation.items):
            raise MessageError("the run is over other users or items than the federation file says; drop it")
        if not between_two_servers(announced):
            raise NodeRefused("the run's sums are not made between two servers, so it needs no helper")
        self.policy.accept_plan(
            config.registered().name, config.privacy, announced.rounds, announced.n_users, seeded=announced.seeded
        )
        if len(self._processes) >= self.policy.max_runs:
            raise PolicyRefused(
                f"this helper takes part in {len(self._processes)} runs and its policy allows max_runs = "
                f"{self.policy.max_runs}; end one first"
            )

    def _release(self, record: HelperRecord, packet: Packet, address: Address) -> Answer:
        """Agree on whom the sum is over, write it down, and release this helper's share of it."""
        process, federation = self._processes[address.run], self.party.federation
        request = SumRequest.read(packet, process.keys.public)
        self._refuse_second_sum(record, request)
        if request.length * _ELEMENT_BYTES > self._max_bytes:
            raise PolicyRefused(f"a sum of {request.length} elements is longer than a message may be; sum less at once")

        def store(number: tuple[int, int]) -> None:
            process.last = number[0]
            round = None if request.measured else request.round
            self.policy.accept_cohort(record.run.expected_users(federation, round, server.agreed))
            record.released.append(
                ReleasedSum(
                    number=request.number, round=request.round, cohort_id=request.cohort_id,
                    query_id=request.query_id, measured=request.measured, organisations=server.agreed,
                )
            )  # fmt: skip
            record.save(self._path(address.run))

        server = SumServer(
            request.terms(record.run, federation), 1, process.keys, federation.directory(),
            min_clients=self._least, last=(process.last, 0), store=store,
        )  # fmt: skip
        for part in packet.array("parts", "uint8", (None, HELPER_PART_BYTES)):
            try:
                server.receive(part.tobytes())
            except (MessageRefused, RoundAborted) as refused:
                _log.warning("the helper leaves out a part: %s", printable(str(refused), 200))
        proposal = server.propose()
        release = server.release(packet.array("proposal", "uint8", (None,)).tobytes())
        return {}, {"proposal": as_array(proposal), "release": as_array(release)}

    @staticmethod
    def _refuse_second_sum(record: HelperRecord, request: SumRequest) -> None:
        """Refuse a number that does not rise, a query that was summed before, and one that the run does not make."""
        run, place = record.run, (request.cohort_id, request.query_id)
        if any(request.number <= one.number for one in record.released):
            raise NodeRefused(f"the helper has released a sum of number {request.number} or later, and does so once")
        if request.measured:
            return
        summed = {(one.cohort_id, one.query_id) for one in record.released if not one.measured}
        if place in summed and not run.seeded:
            raise NodeRefused("the helper has released a sum of that query, and does so once")
        if request.round >= run.rounds or request.query_id >= run.queries:
            raise NodeRefused("the run makes no such query; begin a new run")

    def _settle(self, record: HelperRecord, packet: Packet, address: Address) -> Answer:
        """Forget the key of a run that has ended."""
        if packet.fields.get("final") is True:
            record.ended = True
            self._processes.pop(address.run, None)
        return {"entries": len(record.released)}, {}
