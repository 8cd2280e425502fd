"""What a transcript copies of the queries of a simulation, call by call."""

from jaxtyping import Int64
from torch import Tensor

from privfed.engines.aggregation.base import LookUp, QueryContext
from privfed.engines.aggregation.held_blocks import Holdings
from privfed.engines.transcript import Observation, Transcript
from privfed.federation import Call, Message
from privfed.updates import ClientUpdates


class Taps:
    """Shows every query to a transcript.

    Args:
        transcript: keeps the copies.
        unprotected: whether the plan leaves uploads as they are, so that what is on the wire was copied before.
    """

    def __init__(self, transcript: Transcript, *, unprotected: bool) -> None:
        self._transcript, self._unprotected = transcript, unprotected
        self._received: Message = Message({})
        self._raw: Observation | None = None
        self._holdings: Holdings | None = None

    def begin(
        self, query: QueryContext, members: Int64[Tensor, " members"], message: Message, clip_norm: float | None
    ) -> None:
        """A query is sent to `members`."""
        round, step = query.cohort.round, query.step
        self._holdings = Holdings(query.schema) if self._transcript.wants("sum", round, step) else None
        self._transcript.record_message(round, step, query.query_id, members, message, clip_norm)

    def trained(self, call: Call, received: Message, updates: ClientUpdates) -> None:
        """The clients of a call have trained, and nothing is clipped."""
        self._received, self._raw = received, None
        raw = self._transcript.record_uploads("raw", call, received, updates.materialise)
        if self._unprotected:
            self._raw = raw
        if self._holdings is not None:
            self._holdings.add(updates)

    def sent(self, call: Call, uploads: LookUp, positions: Int64[Tensor, " n"] | None) -> None:
        """Single protected uploads are on the wire."""
        if self._raw is not None:
            self._transcript.repeat_uploads("wire", self._raw, call.step)
        else:
            self._transcript.record_uploads("wire", call, self._received, uploads, positions)

    def released(self, query: QueryContext, members: Int64[Tensor, " members"], sums: dict[str, Tensor]) -> None:
        """A sum is released."""
        if self._holdings is not None:
            self._transcript.record_sum(query.cohort.round, query.step, members, sums, self._holdings)
        self._holdings = None
