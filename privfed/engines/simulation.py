"""`Simulation`: the federation in one process, in chunks of clients that fit the caches.

Every party runs here, so a simulation measures utility, leakage and cost; it protects nobody. The code that clips,
noises and charges is the code that a deployment runs.

How closely the wire is simulated is a choice (`Fidelity`), and every report names it. The guarantee does not depend on
it:

* `law`: Gaussian noise of all clients together is drawn once, on the sum, with the variance it has there; rounding to a
  ring is left out. For sweeps.
* `exact`: every client rounds and noises by itself, and ring words are added in the open, which is what secure
  aggregation computes.
* `protocol`: like `exact`, with the words going through the real masking protocol, messages and all. For proof: the
  two are equal to the bit.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import HOST, here, on_host, placed
from privfed.compute.processes import ALONE, Processes
from privfed.compute.tiles import TILE, tile_size
from privfed.contracts import Fidelity, Schema, Tap, schema_digest, upload_bytes
from privfed.data import Histories
from privfed.engines.holdings import BlockGroup, Holdings
from privfed.engines.share_sums import SharedQuery, SharedSums
from privfed.engines.transcript import Observation, Transcript
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
from privfed.guards import ClientGuard, RingCode, ServerGuard
from privfed.guards.client_guard import ClipCounts
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.sampling import Sampling
from privfed.setup.refusals import refuse_shared
from privfed.updates import Chunk, ClientUpdates, clients_at_once
from secure_agg.encoding import RingElements
from secure_agg.masking import Terms, aggregate, choose_parameters

Observer = Callable[[Clients, Call, Message, ClientUpdates], None]
"""The experimenter's view between training and guard: (clients, call, message, raw updates)."""

_COPIES_PER_CHUNK = 4
_SMALLER = "sample fewer clients per round or use a smaller dimension"
_RUN_WORDS = 4
"""32-bit words that name one masked sum."""


class TooFewClientsError(FederationError):
    """A round has too few honest clients for its noise: it is not opened and changes nothing."""


class MemoryLimitError(ValueError):
    """The run does not fit the memory it was given."""


@dataclass(slots=True)
class Costs:
    """Measured seconds by stage, bytes on the simulated wire, and rounds that were too small to open."""

    seconds: dict[str, float] = field(default_factory=lambda: {"clients": 0.0, "privacy": 0.0, "sum": 0.0})
    up_bytes: float = 0.0
    down_bytes: float = 0.0
    client_rounds: int = 0
    aborted_rounds: int = 0


class Simulation:
    """A `Federation` over in-process clients.

    Args:
        clients: private halves of the whole population.
        plan: the privacy plan; the guards are built from it.
        population: number of users.
        streams: keys of all parties (a simulation derives them from one seed).
        ledger: charged before anything is released.
        chunk: clients per call; where no number is given, whole tiles within `memory_limit`.
        memory_limit: bytes that update buffers may take; None sets no bound.
        fidelity: how closely the wire is simulated.
        support: rows that every user announced under the plan's cover; None where there is no drawn cover.
        transcript: what to tap; None taps nothing and costs nothing.
        observers: called per chunk between training and guard.
        processes: processes that share the clients; `clients` are those who live in this one.

    Raises:
        MemoryLimitError: an individual release cannot fit.
        ProcessesError: several processes were given something that needs all clients in one.
    """

    def __init__(
        self,
        clients: Clients,
        plan: PrivacyPlan,
        population: int,
        streams: Streams,
        ledger: Ledger,
        *,
        chunk: Chunk | None = None,
        memory_limit: int | None = None,
        fidelity: Fidelity = "exact",
        support: Histories | None = None,
        transcript: Transcript | None = None,
        observers: Sequence[Observer] = (),
        processes: Processes = ALONE,
    ) -> None:
        refuse_shared(processes, fidelity, transcript.taps if transcript else ())
        self.processes = processes
        self.clients, self.plan, self.population = clients, plan, population
        self.client_guard = ClientGuard(plan, streams)
        self.server_guard = ServerGuard(plan, ledger, streams)
        self.fidelity: Fidelity = fidelity
        self.costs = Costs()
        self.transcript, self.observers = transcript, list(observers)
        self._streams, self._chunk, self._limit = streams, chunk, memory_limit
        self._cohort: Cohort | None = None
        self._members: Tensor = torch.empty(0, dtype=torch.int64)
        self._queries = 0
        self._holdings: Holdings | None = None
        self._as_raw: Observation | None = None
        self._buffer: dict[str, Tensor] = {}
        self._shared: SharedSums | None = None
        if plan.mechanism.secret_sharing is not None:
            self._shared = SharedSums(
                plan.mechanism.secret_sharing, population, streams, support, protocol=fidelity == "protocol"
            )
            self.costs.up_bytes += float(self._shared.enrolment_bytes) if processes.first else 0.0
        self.cohorts = 0

    def run(self, server: Server, t: int) -> None:
        """One round of `server`; its releases are confirmed and private state committed round by round."""
        try:
            server.round(self, t)
        except TooFewClientsError:
            self.clients.discard()
            self.costs.aborted_rounds += 1
        except BaseException:
            self.clients.discard()
            raise
        if self.transcript is not None:
            self.transcript.record_public(t, server.public().shared)

    def sample_cohort(self, round: int) -> Cohort:
        """Draw the round's cohort by the plan's sampling rule.

        Raises:
            FederationError: this round has been drawn already.
        """
        if self._cohort is not None and self._cohort.round == round:
            raise FederationError(f"round {round} has drawn its cohort already; one draw per round")
        sampling = self.plan.sampling
        self._members = self.members(round)
        self._cohort = Cohort(round, self.cohorts, sampling.kind, sampling.expected(self.population))
        self.cohorts += 1
        self._queries = 0
        return self._cohort

    def members(self, round: int) -> Int64[Tensor, " members"]:
        """Who takes part in `round`."""
        sampling = self.plan.sampling
        if sampling.kind == "poisson" and self.processes.size > 1:
            hosted = placed(self.processes.hosted(self.population))
            inclusion = self._streams.uniform(Purpose.MEMBERSHIP, round, 0, hosted.tolist(), 1)[:, 0]
            return torch.cat(list(self.processes.every(hosted[inclusion < sampling.rate])))
        return members(sampling, self._streams, self.population, round)

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Sum the cohort's protected uploads; sums of real blocks accumulate in float64, ring words in their ring."""
        if self._shared is not None:
            self._shared.code(schema, self.plan.sampling.max_cohort(self.population))
        code = self.server_guard.code(schema)
        query_id, revealed = self._begin(step, cohort, schema), dict[str, Tensor]()
        tapped = self.transcript is not None and self.transcript.wants("sum", cohort.round, step)
        self._holdings = Holdings(schema) if tapped or self._held_only else None
        if self._shared is not None:
            sums, revealed = self._reconstruct_shares(self._shared, step, query_id, cohort, message, schema)
        elif code is not None and self.fidelity != "analytic" and (code.coordinates or self.fidelity == "protocol"):
            sums = self._sum_ring_elements(code, step, query_id, cohort, message, schema)
        else:
            sums = self._sum_numbers(code, step, query_id, cohort, message, schema)
        if self._holdings is not None:
            self._holdings.gather(self.processes)
        for group in self._groups(opening=False):
            for name in group.blocks:
                sums[name].zero_()
                revealed[name] = torch.zeros(schema[name].shape[:1], dtype=torch.bool)
        released = {name: s.float() if schema[name].kind == "real" else s for name, s in sums.items()}
        self.clients.commit()
        if tapped and self.transcript is not None and self._holdings is not None:
            self.transcript.record_sum(cohort.round, step, self._members, released, self._holdings)
        self._holdings = None
        return self.server_guard.total(released, cohort, len(self._members), schema, revealed)

    @property
    def _held_only(self) -> bool:
        """Whether clients take part in the sums of the blocks that they hold only."""
        masking = self.plan.mechanism.masking
        return masking is not None and masking.held_blocks

    def _groups(self, *, opening: bool) -> list[BlockGroup]:
        """Where clients send held blocks only, the blocks that enough of them hold, or those that too few hold."""
        if self._holdings is None or not self._held_only:
            return []
        return [g for g in self._holdings.groups() if self.server_guard.reveals(len(g.holders)) == opening]

    def _reconstruct_shares(
        self, shared: SharedSums, step: str, query_id: int, cohort: Cohort, message: Message, schema: Schema
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Sums of secret-shared uploads, and which rows of tables had enough clients to be opened."""
        adding = SharedQuery(shared, schema, cohort, self.plan.sampling.max_cohort(self.population), self.transcript)
        for call, _, updates, _ in self._chunks(step, query_id, cohort, message, schema):
            started = time.perf_counter()
            adding.add(call, updates)
            self.costs.seconds["sum"] += time.perf_counter() - started
        started = time.perf_counter()
        sums, revealed = adding.close(self.processes)
        self.costs.up_bytes += adding.up_bytes
        self.costs.seconds["sum"] += time.perf_counter() - started
        return sums, revealed

    def _sum_numbers(
        self, code: RingCode | None, step: str, query_id: int, cohort: Cohort, message: Message, schema: Schema
    ) -> dict[str, Tensor]:
        """Sums of uploads that travel as numbers, with each client's noise or with that of all at once."""
        sums = {
            name: torch.zeros(b.shape, dtype=torch.float64 if b.kind == "real" else torch.int64)
            for name, b in schema.items()
        }
        noise, within = self.plan.mechanism.noise, 0
        normal = noise is not None and (noise.law, noise.coordinates) == ("gaussian", "all")
        at_once = normal and self.fidelity == "analytic" and self.plan.upload_bits is None
        for call, own, updates, inside in self._chunks(step, query_id, cohort, message, schema):
            within += inside
            started = time.perf_counter()
            if code is not None:
                code.accepts(updates)
            if self.client_guard.rewrites and not at_once:
                started += self._add_noisy(sums, updates, call, own)
            else:
                if self.plan.mechanism.release == "individual":
                    self._tap("wire", call, own, self._wire_of(updates, call))
                updates.add_to(sums, precise=self.client_guard.sums_precisely)
            self.costs.seconds["sum"] += time.perf_counter() - started
        members, started = len(self._members), time.perf_counter()
        clients_within = torch.tensor(float(within), dtype=torch.float64)
        self.processes.add_({**sums, "clients within the clip norm": clients_within})
        if at_once and noise is not None:
            deviation = noise.scale * math.sqrt(members)
            self.server_guard.add_gaussian_(sums, cohort.round, query_id, schema, deviation)
        if code is not None and code.distributed is not None:
            self.server_guard.add_gaussian_(sums, cohort.round, query_id, schema, code.analytic_deviation(members))
        self.server_guard.add_noise_(sums, cohort, step, query_id, schema, members=members, within=int(clients_within))
        self.costs.seconds["privacy"] += time.perf_counter() - started
        return sums

    def _add_noisy(self, sums: Mapping[str, Tensor], updates: ClientUpdates, call: Call, own: Message) -> float:
        """Add every client's own noisy or rounded upload, tile by tile; returns the seconds that protecting took."""
        protecting = 0.0
        for tile in torch.split(torch.arange(len(updates)), tile_size()):
            protecting -= time.perf_counter()
            uploads = self.client_guard.protect(updates, call, tile)
            protecting += time.perf_counter()
            self._tap("wire", call, own, _chosen(uploads), tile)
            for name, values in uploads.items():
                sums[name].add_(values.sum(0, dtype=sums[name].dtype))
        self.costs.seconds["privacy"] += protecting
        return protecting

    def _wire_of(self, updates: ClientUpdates, call: Call) -> Callable[[Tensor], Mapping[str, Tensor]]:
        """What the clients at given positions would put on the wire by themselves."""
        return lambda positions: self.client_guard.protect(updates, call, positions)

    def _sum_ring_elements(
        self, code: RingCode, step: str, query_id: int, cohort: Cohort, message: Message, schema: Schema
    ) -> dict[str, Tensor]:
        """Sums of uploads that travel as ring words."""
        total, ring_elements = code.ring.zeros(code.length), dict[int, RingElements]()
        if here() != HOST and self.fidelity == "exact" and not code.randomised:
            return code.decode(
                self.processes.add_ring_elements_(
                    self._ring_elements_in_place(code, step, query_id, cohort, message, schema)
                )
            )
        for call, _, updates, _ in self._chunks(step, query_id, cohort, message, schema):
            started = time.perf_counter()
            for tile in torch.split(torch.arange(len(updates)), tile_size()):
                encoded = self.client_guard.ring_elements(code, updates.materialise(tile), call, tile)
                if self.fidelity == "protocol":
                    ring_elements |= zip(call.clients[tile].tolist(), encoded, strict=True)
                else:
                    total = code.ring.sum([total, *encoded])
            self.costs.seconds["privacy"] += time.perf_counter() - started
        if self.fidelity == "protocol":
            started = time.perf_counter()
            total = self._masked(code, ring_elements, cohort, query_id, schema)
            self.costs.seconds["sum"] += time.perf_counter() - started
        return code.decode(self.processes.add_ring_elements_(total))

    def _ring_elements_in_place(
        self, code: RingCode, step: str, query_id: int, cohort: Cohort, message: Message, schema: Schema
    ) -> RingElements:
        """The sum of uploads without noise shares, rounded and added on the accelerator; it leaves it once."""
        total = torch.zeros(code.length, dtype=torch.int64)
        for _, _, updates, _ in self._chunks(step, query_id, cohort, message, schema):
            started = time.perf_counter()
            for tile in torch.split(torch.arange(len(updates)), tile_size()):
                total += code.summed_steps(updates.materialise(tile))
            self.costs.seconds["privacy"] += time.perf_counter() - started
        return code.ring.reduce_(on_host(total).astype(code.ring.dtype))

    def _masked(
        self, code: RingCode, ring_elements: Mapping[int, RingElements], cohort: Cohort, query_id: int, schema: Schema
    ) -> RingElements:
        """The sum of the members' words as the protocol opens it: one vector, or one for every set of holders."""
        if not self._held_only:
            return aggregate(ring_elements, self._terms(code, cohort, query_id, schema, len(ring_elements))).total
        total = code.ring.zeros(code.length)
        for number, group in enumerate(self._groups(opening=True)):
            at = np.r_[tuple(code.places[name] for name in group.blocks)]
            held = {user: ring_elements[user][at] for user in self._members[group.holders].tolist()}
            blocks = {name: schema[name] for name in group.blocks}
            total[at] = aggregate(held, self._terms(code, cohort, query_id, blocks, len(held), number)).total
        return total

    def _terms(
        self, code: RingCode, cohort: Cohort, query_id: int, schema: Schema, clients: int, number: int = 0
    ) -> Terms:
        """Terms of masked sum `number` of an ask: of the blocks of `schema`, by so many clients."""
        chosen = choose_parameters(clients)
        ring_elements = self._streams.words(Purpose.RUN, cohort.round, query_id, [SERVER], _RUN_WORDS * (number + 1))[0]
        run, length = ring_elements[_RUN_WORDS * number :].tobytes(), sum(block.size for block in schema.values())
        layout = bytes.fromhex(schema_digest(schema))
        return Terms.from_parameters(
            chosen, bits=code.ring.bits, length=length, run=run, round=cohort.round, layout=layout
        )

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release every protected upload under its pseudonym.

        The uploads lie in one buffer that the next call uses again: a server may work in place but not keep it.
        """
        if self.plan.mechanism.release == "total":
            raise FederationError(
                f"step {step!r} needs every single upload, but under the plan {self.plan.name!r} the server sees only "
                f"their sum; choose another plan or method"
            )
        query_id = self._begin(step, cohort, schema)
        needed = upload_bytes(schema) * len(self._members)
        if self._limit is not None and needed > self._limit:
            raise MemoryLimitError(
                f"an individual release of {len(self._members)} uploads needs {needed / 2**30:.2f} GiB but the "
                f"memory limit is {self._limit / 2**30:.2f} GiB; raise the limit, {_SMALLER}"
            )
        uploads = self._release_buffer(schema, len(self._members))
        first = int((self._members < self.processes.first_user(self.population)).sum())
        for call, own, updates, _ in self._chunks(step, query_id, cohort, message, schema):
            started = time.perf_counter()
            place = {name: values[first : first + len(updates)] for name, values in uploads.items()}
            self.client_guard.protect(updates, call, torch.arange(len(updates)), out=place)
            self._tap("wire", call, own, _chosen(place))
            first += len(updates)
            self.costs.seconds["privacy"] += time.perf_counter() - started
        self.processes.spread_(uploads, self._members, self.population)
        self.clients.commit()
        return self.server_guard.individual(self._members, uploads)

    def _release_buffer(self, schema: Schema, members: int) -> dict[str, Tensor]:
        for name, block in schema.items():
            shape = (members, *block.shape)
            kept = self._buffer.get(name)
            if kept is None or kept.shape != shape:
                dtype = torch.float32 if block.kind == "real" else torch.int64
                try:
                    self._buffer[name] = torch.empty(shape, dtype=dtype)
                except RuntimeError as error:
                    raise MemoryLimitError(
                        f"there is no memory for an individual release of {members} uploads, which needs "
                        f"{upload_bytes(schema) * members / 2**30:.2f} GiB: {_SMALLER}"
                    ) from error
        return {name: self._buffer[name] for name in schema}

    def _begin(self, step: str, cohort: Cohort, schema: Schema) -> int:
        if cohort is not self._cohort:
            raise FederationError("ask was called with a cohort of another draw; ask with the round's own cohort")
        if not self.server_guard.reveals(len(self._members)):
            raise TooFewClientsError(
                f"round {cohort.round + 1} has {len(self._members)} clients, too few for the plan "
                f"{self.plan.name!r}: it is not opened"
            )
        query_id = self._queries
        self._queries += 1
        self.server_guard.record(cohort, step, query_id, schema, self._members)
        return query_id

    def _chunks(
        self, step: str, query_id: int, cohort: Cohort, message: Message, schema: Schema
    ) -> Iterator[tuple[Call, Message, ClientUpdates, int]]:
        clip_norm, noisy_steps = self.server_guard.clip_norm(step), self.plan.mechanism.noisy_steps
        if self.transcript is not None:
            self.transcript.record_message(cohort.round, step, query_id, self._members, message, clip_norm)
        own = self.processes.own(self._members, self.population)
        for users in torch.split(own, self.chunk_size(schema)):
            if len(users) == 0:
                return
            started = time.perf_counter()
            call = Call(cohort.round, cohort.id, step, query_id, users, self._streams, schema, clip_norm, noisy_steps)
            received = message.addressed_to(users)
            updates = perform(self.clients, call, received)
            self.client_guard.refuse_broken(updates, call)
            self.costs.seconds["clients"] += time.perf_counter() - started
            for observer in self.observers:
                observer(self.clients, call, received, updates)
            self._as_raw = None
            raw = self._tap("raw", call, received, updates.materialise)
            if self.plan.unprotected:
                self._as_raw = raw
            if self._holdings is not None:
                self._holdings.add(updates)
            started = time.perf_counter()
            within = self.client_guard.clip_(updates, clip_norm)
            self.costs.seconds["privacy"] += time.perf_counter() - started
            self.costs.client_rounds += len(users) if query_id == 0 else 0
            if self._shared is None:
                self.costs.up_bytes += self.client_guard.upload_bytes(updates)
            self.costs.down_bytes += received.bytes_per_client() * len(users)
            yield call, received, updates, within

    def total_costs(self) -> Costs:
        """Costs of the clients of all processes; rounds that were lost were lost in all."""
        every = self.processes.every(self.costs)
        return Costs(
            {stage: sum(one.seconds[stage] for one in every) for stage in self.costs.seconds},
            sum(one.up_bytes for one in every),
            sum(one.down_bytes for one in every),
            sum(one.client_rounds for one in every),
            self.costs.aborted_rounds,
        )

    def clip_counts(self) -> ClipCounts:
        """How often the clip bit in all processes."""
        every = self.processes.every(self.client_guard.counts)
        return ClipCounts(sum(one.uploads for one in every), sum(one.clipped for one in every))

    def _tap(
        self,
        tap: Tap,
        call: Call,
        message: Message,
        uploads: Callable[[Tensor], Mapping[str, Tensor]],
        positions: Tensor | None = None,
    ) -> Observation | None:
        """Show uploads to the transcript; what a plan without clip and noise puts on the wire was copied before."""
        if self.transcript is None:
            return None
        if self._as_raw is not None:
            self.transcript.repeat_uploads(tap, self._as_raw, call.step)
            return self._as_raw
        return self.transcript.record_uploads(tap, call, message, uploads, positions)

    def chunk_size(self, schema: Schema) -> int:
        """Clients per chunk: whole tiles, within the memory limit."""
        chunk = clients_at_once(self._chunk, schema)
        if not isinstance(self._chunk, int) and self._limit is not None:
            fits = self._limit // (_COPIES_PER_CHUNK * max(upload_bytes(schema), 1))
            chunk = min(chunk, max(fits // TILE, 1) * TILE)
        return chunk


def members(sampling: Sampling, streams: Streams, population: int, round: int) -> Int64[Tensor, " members"]:
    """Who takes part in `round`: each client's own coin (Poisson), or the server's choice (fixed, epoch)."""
    everybody = torch.arange(population)
    if sampling.kind == "poisson":
        inclusion = streams.uniform(Purpose.MEMBERSHIP, round, 0, everybody.tolist(), 1)[:, 0]
        return (inclusion < sampling.rate).nonzero().squeeze(1)
    if sampling.kind == "fixed":
        keys = streams.uniform(Purpose.MEMBERSHIP, round, 0, [SERVER], population)[0]
        return keys.argsort()[: sampling.size].sort().values
    if sampling.kind == "epoch":
        per_epoch = -(-population // sampling.size)
        epoch, turn = divmod(round, per_epoch)
        keys = streams.uniform(Purpose.EPOCH_ORDER, epoch, 0, [SERVER], population)[0]
        return keys.argsort()[turn * sampling.size : (turn + 1) * sampling.size].sort().values
    return everybody


def _chosen(uploads: Mapping[str, Tensor]) -> Callable[[Tensor], Mapping[str, Tensor]]:
    """Look-up of some clients' uploads in stacked ones."""
    return lambda at: {name: values[at] for name, values in uploads.items()}
