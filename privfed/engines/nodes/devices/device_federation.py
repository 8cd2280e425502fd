"""`DeviceFederation`: the federation of a method's server over people's devices, each a party of the masked sum itself.

A run is announced once, then every query is one masked sum: announce and query take an exchange each, a sum six. Who
does not answer in time, or otherwise than it should, has dropped out. Whose part is in a sum is in the ledger before
anybody helps to open it. Masks are bound to the announcement and the query, so that nobody is in a sum with people who
were announced less noise.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor

from privfed.contracts import Schema
from privfed.engines.nodes.channel import Incident
from privfed.engines.nodes.devices import messages
from privfed.engines.nodes.devices.terms import DeviceQuery, Terms
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.transport import Transport
from privfed.engines.simulation import TooFewClientsError
from privfed.federation import Cohort, FederationError, Individual, Message, Total
from privfed.guards import ServerGuard
from secure_agg import masking
from secure_agg.errors import SecureAggregationError
from secure_agg.masking import MaskingServer, Stage, signed_threshold

RUN_BYTES = 16
_COUNTER_BITS = 20


class DeviceFederation:
    """A `Federation` over a transport to devices; nodes of the transport are seats of the federation file.

    Args:
        transport: to the devices.
        party: the server.
        guard: the server's side of the privacy layer, with the ledger.
        terms: what is announced.
        queries: that the run makes, in order.
        timeout: seconds in which devices answer.

    Attributes:
        run: hexadecimal name of the run, in everybody's ledger.
        joined: seats that agreed to the announcement.
        summed: number of devices in every opened sum.
        incidents: replies that were not used.
    """

    def __init__(
        self,
        transport: Transport,
        party: Party,
        guard: ServerGuard,
        terms: Terms,
        queries: Sequence[DeviceQuery],
        timeout: float = 60.0,
    ) -> None:
        self.run = guard.ledger.run or secrets.token_hex(RUN_BYTES)
        self.joined: tuple[int, ...] = ()
        self.summed: list[int] = []
        self.incidents: list[Incident] = []
        self._transport, self._party, self._guard, self._timeout = transport, party, guard, timeout
        self._terms, self._queries = terms, list(queries)
        self._asked, self._announced = 0, b""
        self._cohort: Cohort | None = None
        # Above whatever a page that is still open was sent before; only a clock that was set back ends that.
        self._counter = int(time.time()) << _COUNTER_BITS

    def announce(self) -> tuple[int, ...]:
        """Announce the run to all devices that are connected; returns the seats that agreed.

        Raises:
            TooFewClientsError: they are fewer than the noise is sized for.
        """
        content = _json({"run": self.run, "terms": self._terms})
        self._announced = hashlib.sha256(content).digest()
        self.joined = self._agreed("announce", self._transport.nodes(), content, self._announced)
        self._require(self.joined, "agreed to the run")
        return self.joined

    def sample_cohort(self, round: int) -> Cohort:
        """Everybody who agreed.

        Raises:
            FederationError: this round has a cohort already.
        """
        if self._cohort is not None:
            raise FederationError(f"round {round} has sampled its cohort already; devices take part in one round")
        self._cohort = Cohort(round, 0, self._guard.plan.sampling.kind, float(len(self.joined)))
        return self._cohort

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Sum the protected uploads of those who stay to the end.

        Raises:
            FederationError: the query is not the next that was announced.
            TooFewClientsError: too few are left; nothing is opened.
        """
        index, self._asked = self._asked, self._asked + 1
        announced = self._queries[index] if index < len(self._queries) else None
        if cohort is not self._cohort or announced is None or (announced.step, announced.code.schema) != (step, schema):
            raise FederationError(f"query {index + 1} of step {step!r} is not the one that devices were announced")
        summed = secrets.token_hex(RUN_BYTES)
        head = {name: _digits(message.shared[name]) for name in announced.message}
        content = _json({"run": self.run, "query": index, "masking": summed, **head})
        layout = hashlib.sha256(self._announced + content).digest()
        members = self._agreed("query", self.joined, content, layout)
        elements, survivors = self._summed(announced, cohort, index, members, summed, layout)
        self.summed.append(len(survivors))
        sums: dict[str, Tensor] = announced.code.decode(elements)
        return self._guard.total({name: value.float() for name, value in sums.items()}, cohort, len(survivors), schema)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:  # noqa: ARG002
        """Devices send into sums only.

        Raises:
            FederationError: always.
        """
        raise FederationError(f"step {step!r} needs every single upload, and devices send into sums only")

    def _summed(
        self, query: DeviceQuery, cohort: Cohort, index: int, members: Sequence[int], summed: str, layout: bytes
    ) -> tuple[np.ndarray, tuple[int, ...]]:
        self._require(members, "answered the query")
        code, federation = query.code, self._party.federation
        directory = {seat: federation.key(seat) for seat in members}
        least = max(federation.min_organisations, self._guard.plan.mechanism.min_clients)
        try:
            threshold = signed_threshold(len(members), federation.corrupt)
            terms = masking.Terms(
                bytes.fromhex(summed), 0, code.ring.bits, code.length, threshold, signed=True, layout=layout
            )
            server = MaskingServer(terms, min_clients=least, directory=directory)
            server.bind(layout)
            requests = server.invite(members)
            while (awaited := server.awaits) is not None:
                for seat, answer in self._exchange("masking", requests).items():
                    self._receive(server, seat, answer)
                requests = server.advance()
                if awaited is Stage.MASKED_INPUT:
                    survivors = tuple(sorted(requests))
                    self._require(survivors, "are in the sum")
                    self._guard.record(cohort, query.step, index, code.schema, torch.tensor(survivors))
        except SecureAggregationError as aborted:
            raise TooFewClientsError(f"the sum was not opened: {aborted}") from aborted
        return server.total, server.survivors

    def _receive(self, server: MaskingServer, seat: int, answer: bytes) -> None:
        try:
            server.receive(seat, answer)
        except SecureAggregationError as refused:
            self._note(seat, "masking", str(refused))

    def _agreed(self, stage: str, seats: Sequence[int], content: bytes, digest: bytes) -> tuple[int, ...]:
        """Seats that answered with the digest of what they were told."""
        agreed = []
        for seat, answer in self._exchange(stage, dict.fromkeys(seats, content)).items():
            if answer == digest:
                agreed.append(seat)
            else:
                self._note(seat, stage, "it agreed to something else than it was told")
        return tuple(sorted(agreed))

    def _exchange(self, stage: str, contents: Mapping[int, bytes]) -> dict[int, bytes]:
        self._counter += 1
        frames = {
            seat: messages.request(self._party, seat, self._counter, stage, content)
            for seat, content in contents.items()
        }
        answers = {}
        for seat, frame in self._transport.exchange(stage, frames, self._timeout).items():
            try:
                answers[seat] = messages.reply_content(self._party, seat, frames[seat], frame)
            except MessageError as refused:
                self._note(seat, stage, str(refused))
        return answers

    def _require(self, seats: Sequence[int], did: str) -> None:
        if not self._guard.reveals(len(seats)):
            least = self._guard.plan.mechanism.min_clients
            raise TooFewClientsError(f"{len(seats)} devices {did}, and the noise is sized for sums of {least} or more")

    def _note(self, seat: int, stage: str, reason: str) -> None:
        self.incidents.append(Incident(self._party.federation.name_of(seat), stage, reason))


def _digits(tensor: Tensor) -> str:
    """The bytes of a tensor, little-endian, in hexadecimal digits; whole numbers in 32 bits."""
    values = tensor.cpu().numpy()
    return values.astype("<i4" if values.dtype.kind == "i" else "<f4").tobytes().hex()


def _json(content: Mapping[str, JsonValue]) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
