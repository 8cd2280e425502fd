"""`Simulation`: the federation in one process, in chunks of clients that fit the caches.

Every party runs here, so a simulation measures utility, leakage and cost; it protects nobody. The code that clips,
noises and charges is the code that a deployment runs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.engines.transcript import Tap, Transcript
from privfed.federation import (
    SERVER,
    Call,
    Clients,
    Cohort,
    FederationError,
    Individual,
    Message,
    Purpose,
    Server,
    Streams,
    Total,
    perform,
)
from privfed.privacy import ClientGuard, Ledger, PrivacyPlan, ServerGuard
from privfed.updates import TILE, ClientUpdates, Schema, upload_bytes

Observer = Callable[[Clients, Call, Message, ClientUpdates], None]
"""The experimenter's view between training and guard: (clients, call, message, raw updates)."""

DEFAULT_CHUNK = 64
_COPIES_PER_CHUNK = 4


class MemoryLimitError(ValueError):
    """The run does not fit the memory it was given."""


@dataclass(slots=True)
class Costs:
    """Measured seconds by stage, and bytes on the simulated wire."""

    seconds: dict[str, float] = field(default_factory=lambda: {"clients": 0.0, "privacy": 0.0, "sum": 0.0})
    up_bytes: float = 0.0
    down_bytes: float = 0.0
    client_rounds: int = 0


class Simulation:
    """A `Federation` over in-process clients.

    Args:
        clients: private halves of the whole population.
        plan: the privacy plan; the guards are built from it.
        population: number of users.
        streams: keys of all parties (a simulation derives them from one seed).
        ledger: charged before anything is released.
        chunk: clients per call; None chooses whole tiles from `memory_limit`.
        memory_limit: bytes that update buffers may take; None sets no bound.
        transcript: what to tap; None taps nothing and costs nothing.
        observers: called per chunk between training and guard.

    Raises:
        MemoryLimitError: an individual release cannot fit.
    """

    def __init__(
        self,
        clients: Clients,
        plan: PrivacyPlan,
        population: int,
        streams: Streams,
        ledger: Ledger,
        *,
        chunk: int | None = None,
        memory_limit: int | None = None,
        transcript: Transcript | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.clients, self.plan, self.population = clients, plan, population
        self.client_guard = ClientGuard(plan, streams)
        self.server_guard = ServerGuard(plan, ledger)
        self.costs = Costs()
        self.transcript, self.observers = transcript, list(observers)
        self._streams, self._chunk, self._limit = streams, chunk, memory_limit
        self._cohort: Cohort | None = None
        self._members: Tensor = torch.empty(0, dtype=torch.int64)
        self._asks = 0
        self._buffer: dict[str, Tensor] = {}
        self.draws = 0

    def run(self, server: Server, t: int) -> None:
        """One round of `server`; its releases are confirmed and private state committed round by round."""
        try:
            server.round(self, t)
        except BaseException:
            self.clients.discard()
            raise
        if self.transcript is not None:
            self.transcript.record_public("model", t, server.public().shared)

    def draw(self, round: int) -> Cohort:
        """Draw the round's cohort by the plan's sampling rule.

        Raises:
            FederationError: this round has been drawn already.
        """
        if self._cohort is not None and self._cohort.round == round:
            raise FederationError(f"round {round} has drawn its cohort already; one draw per round")
        sampling = self.plan.sampling
        self._members = self.members(round)
        self._cohort = Cohort(round, self.draws, sampling.kind, sampling.expected(self.population))
        self.draws += 1
        self._asks = 0
        return self._cohort

    def members(self, round: int) -> Int64[Tensor, " members"]:
        """Who takes part in `round`: each client's own coin (Poisson), or the server's choice (fixed, epoch)."""
        sampling, everybody = self.plan.sampling, torch.arange(self.population)
        if sampling.kind == "poisson":
            coins = self._streams.uniform(Purpose.MEMBERSHIP, round, 0, everybody.tolist(), 1)[:, 0]
            return (coins < sampling.rate).nonzero().squeeze(1)
        if sampling.kind == "fixed":
            keys = self._streams.uniform(Purpose.MEMBERSHIP, round, 0, [SERVER], self.population)[0]
            return keys.argsort()[: sampling.size].sort().values
        if sampling.kind == "epoch":
            per_epoch = -(-self.population // sampling.size)
            epoch, turn = divmod(round, per_epoch)
            keys = self._streams.uniform(Purpose.EPOCH_ORDER, epoch, 0, [SERVER], self.population)[0]
            return keys.argsort()[turn * sampling.size : (turn + 1) * sampling.size].sort().values
        return everybody

    def ask(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Sum the cohort's protected uploads; sums of real blocks accumulate in float64."""
        ask = self._begin(step, cohort, schema)
        sums = {
            name: torch.zeros(b.shape, dtype=torch.float64 if b.kind == "real" else torch.int64)
            for name, b in schema.items()
        }
        for call, own, updates in self._chunks(step, ask, cohort, message, schema):
            started = time.perf_counter()
            if self.client_guard.adds_noise:
                for tile in torch.split(torch.arange(len(updates)), TILE):
                    protecting = time.perf_counter()
                    uploads = self.client_guard.wire(updates, call, tile)
                    protecting -= time.perf_counter()
                    self.costs.seconds["privacy"] -= protecting
                    started -= protecting
                    self._tap("wire", call, own, _chosen(uploads), tile)
                    for name, values in uploads.items():
                        sums[name].add_(values.sum(0, dtype=sums[name].dtype))
            else:
                if self.plan.protection.release == "individual":
                    self._tap("wire", call, own, updates.materialise)
                updates.add_to(sums)
            self.costs.seconds["sum"] += time.perf_counter() - started
        released = {name: s.float() if schema[name].kind == "real" else s for name, s in sums.items()}
        self.clients.commit()
        if self.transcript is not None:
            self.transcript.record_public("sum", cohort.round, released)
        return self.server_guard.total(released, cohort, len(self._members))

    def ask_each(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release every protected upload under its pseudonym.

        The uploads lie in one buffer that the next call uses again: a server may work in place but not keep it.
        """
        if self.plan.protection.release == "total":
            raise FederationError(
                f"step {step!r} needs every single upload, but under the plan {self.plan.name!r} the server sees only "
                f"their sum; choose another plan or method"
            )
        ask = self._begin(step, cohort, schema)
        needed = upload_bytes(schema) * len(self._members)
        if self._limit is not None and needed > self._limit:
            raise MemoryLimitError(
                f"an individual release of {len(self._members)} uploads needs {needed / 2**30:.2f} GiB but the "
                f"memory limit is {self._limit / 2**30:.2f} GiB; raise the limit, sample fewer clients per round "
                f"or use a smaller dimension"
            )
        uploads = self._release_buffer(schema, len(self._members))
        first = 0
        for call, own, updates in self._chunks(step, ask, cohort, message, schema):
            started = time.perf_counter()
            place = {name: values[first : first + len(updates)] for name, values in uploads.items()}
            self.client_guard.wire(updates, call, torch.arange(len(updates)), out=place)
            self._tap("wire", call, own, _chosen(place))
            first += len(updates)
            self.costs.seconds["privacy"] += time.perf_counter() - started
        self.clients.commit()
        return self.server_guard.individual(self._members, uploads)

    def _release_buffer(self, schema: Schema, members: int) -> dict[str, Tensor]:
        for name, block in schema.items():
            shape = (members, *block.shape)
            kept = self._buffer.get(name)
            if kept is None or kept.shape != shape:
                dtype = torch.float32 if block.kind == "real" else torch.int64
                self._buffer[name] = torch.empty(shape, dtype=dtype)
        return {name: self._buffer[name] for name in schema}

    def _begin(self, step: str, cohort: Cohort, schema: Schema) -> int:
        if cohort is not self._cohort:
            raise FederationError("ask was called with a cohort of another draw; ask with the round's own cohort")
        ask = self._asks
        self._asks += 1
        self.server_guard.charge(cohort, step, ask, schema, self._members)
        return ask

    def _chunks(
        self, step: str, ask: int, cohort: Cohort, message: Message, schema: Schema
    ) -> Iterator[tuple[Call, Message, ClientUpdates]]:
        for users in torch.split(self._members, self.chunk_size(schema)):
            if len(users) == 0:
                return
            started = time.perf_counter()
            call = Call(cohort.round, cohort.draw, step, ask, users, self._streams, schema)
            own = message.addressed_to(users)
            updates = perform(self.clients, call, own)
            self.client_guard.refuse_broken(updates, call)
            self.costs.seconds["clients"] += time.perf_counter() - started
            for observer in self.observers:
                observer(self.clients, call, own, updates)
            self._tap("raw", call, own, updates.materialise)
            started = time.perf_counter()
            self.client_guard.clip_(updates)
            self.costs.seconds["privacy"] += time.perf_counter() - started
            self.costs.client_rounds += len(users)
            self.costs.up_bytes += self.client_guard.upload_bytes(updates)
            self.costs.down_bytes += own.bytes_per_client() * len(users)
            yield call, own, updates

    def _tap(
        self,
        tap: Tap,
        call: Call,
        message: Message,
        uploads: Callable[[Tensor], Mapping[str, Tensor]],
        positions: Tensor | None = None,
    ) -> None:
        if self.transcript is not None:
            self.transcript.record_uploads(tap, call, message, uploads, positions)

    def chunk_size(self, schema: Schema) -> int:
        """Clients per chunk: whole tiles, within the memory limit."""
        chunk = self._chunk or DEFAULT_CHUNK
        if self._chunk is None and self._limit is not None:
            fits = self._limit // (_COPIES_PER_CHUNK * max(upload_bytes(schema), 1))
            chunk = min(chunk, max(fits // TILE, 1) * TILE)
        return chunk


def _chosen(uploads: Mapping[str, Tensor]) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """Look-up of some clients' uploads in stacked ones."""
    return lambda at: {name: values[at] for name, values in uploads.items()}
