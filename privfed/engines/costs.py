"""What a run costs: seconds by stage, bytes on the simulated wire, clients that took part."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from jaxtyping import Int64
from pydantic import BaseModel
from torch import Tensor

from privfed.contracts import Schema
from privfed.federation import Call, Cohort, Message, Streams
from privfed.guards import ClientGuard, RingCode, ServerGuard
from privfed.privacy import Ledger, PrivacyPlan
from privfed.updates import ClientUpdates
from secure_agg.encoding import RingElements


class SavedCosts(BaseModel):
    """Costs as a checkpoint keeps them."""

    seconds: dict[str, float]
    up_bytes: float
    down_bytes: float
    client_rounds: int
    aborted_rounds: int


@dataclass(slots=True)
class Costs:
    """Measured seconds by stage, bytes on the simulated wire, and rounds that were too small to open."""

    seconds: dict[str, float] = field(default_factory=lambda: {"clients": 0.0, "privacy": 0.0, "sum": 0.0})
    up_bytes: float = 0.0
    down_bytes: float = 0.0
    client_rounds: int = 0
    aborted_rounds: int = 0
    _stages: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    _since: float = field(default=0.0, init=False, repr=False, compare=False)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage; one that begins within another pauses it."""
        self._lap()
        self._stages.append(name)
        try:
            yield
        finally:
            self._lap()
            self._stages.pop()

    def _lap(self) -> None:
        now = time.perf_counter()
        if self._stages:
            self.seconds[self._stages[-1]] += now - self._since
        self._since = now

    def count(self, call: Call, received: Message, up_bytes: float) -> None:
        """Count what the clients of one call received and sent."""
        self.client_rounds += len(call.clients) if call.query_id == 0 else 0
        self.up_bytes += up_bytes
        self.down_bytes += received.bytes_per_client() * len(call.clients)

    def saved(self) -> SavedCosts:
        """As a checkpoint keeps them."""
        return SavedCosts(
            seconds=self.seconds,
            up_bytes=self.up_bytes,
            down_bytes=self.down_bytes,
            client_rounds=self.client_rounds,
            aborted_rounds=self.aborted_rounds,
        )

    @classmethod
    def from_saved(cls, saved: SavedCosts) -> "Costs":
        """The costs of `saved()`."""
        return cls(saved.seconds, saved.up_bytes, saved.down_bytes, saved.client_rounds, saved.aborted_rounds)

    def restore(self, saved: SavedCosts, *, first: bool) -> None:
        """Continue from `saved()`; of several processes the first goes on with all but the aborted rounds.

        Args:
            saved: costs of all processes.
            first: whether this is the first process.
        """
        self.aborted_rounds = saved.aborted_rounds
        if first:
            self.seconds, self.client_rounds = saved.seconds, saved.client_rounds
            self.up_bytes, self.down_bytes = saved.up_bytes, saved.down_bytes

    @classmethod
    def from_processes(cls, costs: Sequence["Costs"]) -> "Costs":
        """Costs of the clients of several processes; a round that one of them aborts is aborted in all."""
        return cls(
            {stage: sum(one.seconds[stage] for one in costs) for stage in costs[0].seconds},
            sum(one.up_bytes for one in costs),
            sum(one.down_bytes for one in costs),
            sum(one.client_rounds for one in costs),
            costs[0].aborted_rounds,
        )


class TimedGuard(ClientGuard):
    """A client guard whose seconds are counted as those of privacy."""

    def __init__(self, plan: PrivacyPlan, streams: Streams, costs: Costs) -> None:
        super().__init__(plan, streams)
        self.costs = costs

    def clip_(self, updates: ClientUpdates, clip_norm: float | None = None) -> int:
        """Clip, timed."""
        with self.costs.stage("privacy"):
            return super().clip_(updates, clip_norm)

    def protect(
        self,
        updates: ClientUpdates,
        call: Call,
        positions: Int64[Tensor, " n"],
        out: dict[str, Tensor] | None = None,
        steps: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Protect, timed."""
        with self.costs.stage("privacy"):
            return super().protect(updates, call, positions, out, steps)

    def ring_elements(
        self, code: RingCode, uploads: Mapping[str, Tensor], call: Call, positions: Int64[Tensor, " n"]
    ) -> list[RingElements]:
        """Encode, timed."""
        with self.costs.stage("privacy"):
            return super().ring_elements(code, uploads, call, positions)


class TimedServerGuard(ServerGuard):
    """A server guard whose seconds of drawing noise are counted as those of privacy."""

    def __init__(self, plan: PrivacyPlan, ledger: Ledger, streams: Streams, costs: Costs) -> None:
        super().__init__(plan, ledger, streams)
        self.costs = costs

    def add_noise_(
        self,
        sums: Mapping[str, Tensor],
        cohort: Cohort,
        step: str,
        query_id: int,
        schema: Schema,
        *,
        members: int,
        within: int,
    ) -> None:
        """Add the server's noise, timed."""
        with self.costs.stage("privacy"):
            super().add_noise_(sums, cohort, step, query_id, schema, members=members, within=within)

    def add_gaussian_(
        self, sums: Mapping[str, Tensor], round: int, query_id: int, schema: Schema, deviation: float
    ) -> None:
        """Add noise that stands for that of all clients, timed."""
        with self.costs.stage("privacy"):
            super().add_gaussian_(sums, round, query_id, schema, deviation)
