"""`Simulation`: the federation in one process, in chunks of clients that fit the caches.

Every party runs here, so a simulation measures utility, leakage and cost; it protects nobody. The code that clips,
noises and records is the code that a deployment runs.

How closely the messages are simulated is a choice (`Fidelity`), and every report names it. The guarantee does not
depend on it:

* `analytic`: Gaussian noise of all clients together is drawn once, on the sum, with the variance it has there; rounding
  to a ring is left out. For sweeps.
* `exact`: every client rounds and noises by itself, and ring elements are added in the open, which is what secure
  aggregation computes.
* `protocol`: like `exact`, with the ring elements going through the real masking protocol, messages and all. For proof:
  the two are equal to the bit.
* `two-servers`: the same with sums between two servers in place of masks, one message of every client for each sum.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Int64
from pydantic import BaseModel
from torch import Tensor

from privfed.compute.devices import placed
from privfed.compute.processes import ALONE, Processes
from privfed.compute.tiles import TILE
from privfed.contracts import Fidelity, Schema, refreshes_of, upload_bytes
from privfed.data import Histories
from privfed.engines.aggregation import (
    Aggregation,
    AnalyticSum,
    BlockSums,
    HeldBlocks,
    HeldBlockSum,
    IndividualRelease,
    MaskedSum,
    PlainSum,
    QueryContext,
    ReleaseBuffer,
    RingSum,
    ShareDealer,
    ShareSum,
    TwoServerSum,
)
from privfed.engines.aggregation.base import Result_co, unobserved
from privfed.engines.cohorts import members
from privfed.engines.costs import Costs, SavedCosts, TimedGuard, TimedServerGuard
from privfed.engines.taps import Taps
from privfed.engines.transcript import Transcript
from privfed.federation import (
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
    begin_query,
    perform,
)
from privfed.guards import RingCode
from privfed.guards.client_guard import ClipCounts
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.refusals import refuse_shared
from privfed.updates import Chunk, ClientUpdates, clients_at_once

Observer = Callable[[Clients, Call, Message, ClientUpdates], None]
"""The experimenter's view between training and guard: (clients, call, message, raw updates)."""

_COPIES_PER_CHUNK = 4


class TooFewClientsError(FederationError):
    """A round has too few honest clients for its noise: it is aborted and changes nothing."""


class SimulationProgress(BaseModel):
    """What a checkpoint keeps of a simulation.

    Attributes:
        cohorts: number of cohorts so far.
        uploads, clipped: number of uploads, and of those that the clip changed.
        clip_norms: of every step, where the plan adapts them.
        costs: of all processes.
        accounts: norms that left under accounts of several releases, by user.
    """

    cohorts: int
    uploads: int
    clipped: int
    clip_norms: dict[str, float]
    costs: SavedCosts
    accounts: dict[str, list[float]] = {}


class Simulation:
    """A `Federation` over in-process clients.

    Args:
        clients: client side of the whole population.
        plan: the privacy plan; the guards are built from it.
        population: number of users.
        streams: keys of all parties (a simulation derives them from one seed).
        ledger: records every query before anything is released.
        chunk: clients per call; where no number is given, whole tiles within `memory_limit`.
        memory_limit: bytes that update buffers may take; None sets no bound.
        fidelity: how closely messages are simulated.
        support: rows that every user announced under the plan's padding; None where none is drawn.
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
        self.costs = Costs()
        self.client_guard = TimedGuard(plan, streams, self.costs)
        self.server_guard = TimedServerGuard(plan, ledger, streams, self.costs)
        self.fidelity: Fidelity = fidelity
        self.transcript, self.observers = transcript, list(observers)
        self._taps = None if transcript is None else Taps(transcript, unprotected=plan.unprotected)
        self._sent = unobserved if self._taps is None else self._taps.sent
        self._streams, self._chunk, self._limit = streams, chunk, memory_limit
        self._cohort: Cohort | None = None
        self._members: Tensor = torch.empty(0, dtype=torch.int64)
        self._queries = 0
        self._buffer = ReleaseBuffer(memory_limit)
        self._shared: ShareDealer | None = None
        if plan.mechanism.secret_sharing is not None:
            self._shared = ShareDealer(
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
        """Sample the round's cohort by the plan's sampling rule.

        Raises:
            FederationError: this round has a cohort already.
        """
        if self._cohort is not None and self._cohort.round == round:
            raise FederationError(f"round {round} has sampled its cohort already; sample one per round")
        self._members = self.members(round)
        self._cohort = Cohort(round, self.cohorts, self.plan.sampling.kind, self.plan.counted(self.population))
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
        """Sum the cohort's protected uploads."""
        query = QueryContext(step, self._queries, cohort, schema)
        summed = self._release(query, message, self._aggregation(query))
        self.server_guard.add_noise_(
            summed.sums, cohort, step, query.query_id, schema, members=len(self._members), within=summed.within
        )
        sums = {name: values.float() if schema[name].kind == "real" else values for name, values in summed.sums.items()}
        self.clients.commit()
        if self._taps is not None:
            self._taps.released(query, self._members, sums)
        return self.server_guard.total(sums, cohort, len(self._members), schema, summed.revealed)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release every protected upload under its pseudonym.

        The uploads lie in one buffer that the next call uses again: a server may work in place but not keep it.
        """
        if self.plan.mechanism.release == "total":
            raise FederationError(
                f"step {step!r} needs every single upload, but under the plan {self.plan.name!r} the server sees only "
                f"their sum; choose another plan or method"
            )
        query = QueryContext(step, self._queries, cohort, schema)
        uploads = self._release(query, message, self._individual_release(schema))
        self.processes.spread_(uploads, self._members, self.population)
        self.clients.commit()
        return self.server_guard.individual(self._members, uploads)

    def _aggregation(self, query: QueryContext) -> Aggregation[BlockSums]:
        """How the uploads of a query are added up under the plan and at this fidelity.

        Raises:
            PlanError, HeadroomError: the plan cannot protect the blocks, or their sum does not fit the ring.
        """
        guard, processes = self.client_guard, self.processes
        if self._shared is not None:
            observe_rows = None if self.transcript is None else self.transcript.record_rows
            max_clients = self.plan.sampling.max_cohort(self.population)
            return ShareSum(query, self._shared, guard, max_clients, observe_rows, processes)
        code = self.server_guard.code(query.schema)
        masking = self.plan.mechanism.masking
        held: HeldBlocks | None = None
        if masking is not None and masking.held_blocks:
            held = HeldBlocks(query.schema, self.server_guard.reveals, processes)
        made = self._numbers_or_elements(query, code, held)
        return made if held is None else HeldBlockSum(made, held)

    def _numbers_or_elements(
        self, query: QueryContext, code: RingCode | None, held: HeldBlocks | None
    ) -> Aggregation[BlockSums]:
        guard, processes = self.client_guard, self.processes
        if code is not None and self.fidelity == "protocol":
            return MaskedSum(query, code, guard, self._streams, held)
        if code is not None and self.fidelity == "two-servers":
            return TwoServerSum(query, code, guard, self._streams, held)
        if code is not None and self.fidelity == "exact" and code.coordinates:
            return RingSum(code, guard, processes)
        if code is not None or self.fidelity == "analytic":
            members = len(self._members)
            return AnalyticSum(query, guard, self.server_guard, members, code, processes=processes, sent=self._sent)
        return PlainSum(query.schema, guard, processes=processes, sent=self._sent)

    def _individual_release(self, schema: Schema) -> IndividualRelease:
        uploads = self._buffer.uploads(schema, len(self._members))
        first = int((self._members < self.processes.first_user(self.population)).sum())
        return IndividualRelease(self.client_guard, uploads, first, self._sent)

    def _release(self, query: QueryContext, message: Message, aggregation: Aggregation[Result_co]) -> Result_co:
        """Record the query, let the cohort train, and add up what it sends."""
        self._begin(query)
        for call, received, updates in self._trained(query, message):
            with self.costs.stage("sum"):
                aggregation.add(call, updates)
            self.costs.count(call, received, 0 if self._shared else self.client_guard.upload_bytes(updates))
        with self.costs.stage("sum"):
            summed = aggregation.close()
        if isinstance(aggregation, ShareSum):
            self.costs.up_bytes += aggregation.up_bytes
        return summed

    def _begin(self, query: QueryContext) -> None:
        if query.cohort is not self._cohort:
            raise FederationError("a query names the cohort of another round; query the round's own cohort")
        if not self.server_guard.reveals(len(self._members)):
            raise TooFewClientsError(
                f"round {query.cohort.round + 1} has {len(self._members)} clients, too few for the plan "
                f"{self.plan.name!r}: it is aborted"
            )
        if refreshes_of(query.schema) > 1 and self.processes.size > 1:
            raise FederationError("devices keep accounts in one process, and several share them: start one process")
        self._queries += 1
        self.server_guard.record(query.cohort, query.step, query.query_id, query.schema, self._members)

    def _trained(self, query: QueryContext, message: Message) -> Iterator[tuple[Call, Message, ClientUpdates]]:
        """Updates of the members who live in this process, chunk by chunk, and what they were made from."""
        clip_norm = self.server_guard.clip_norm(query.step)
        if self._taps is not None:
            self._taps.begin(query, self._members, message, clip_norm)
        begin_query(self.clients, query.step, message)
        self.client_guard.accounts.begin((query.cohort.id, query.query_id))
        for users in torch.split(self.processes.own(self._members, self.population), self.chunk_size(query.schema)):
            if len(users) == 0:
                return
            call = Call(
                query.cohort.round, query.cohort.id, query.step, query.query_id, users, self._streams, query.schema,
                clip_norm, self.plan.mechanism.noisy_steps,
            )  # fmt: skip
            with self.costs.stage("clients"):
                received = message.addressed_to(users)
                updates = perform(self.clients, call, received)
                self.client_guard.refuse_broken(updates, call)
            for observer in self.observers:
                observer(self.clients, call, received, updates)
            if self._taps is not None:
                self._taps.trained(call, received, updates)
            yield call, received, updates

    def total_costs(self) -> Costs:
        """Costs of the clients of all processes."""
        return Costs.from_processes(self.processes.every(self.costs))

    def clip_counts(self) -> ClipCounts:
        """Number of uploads in all processes, and of those that the clip changed."""
        every = self.processes.every(self.client_guard.counts)
        return ClipCounts(sum(one.uploads for one in every), sum(one.clipped for one in every))

    def progress(self) -> SimulationProgress:
        """What a checkpoint keeps."""
        counts = self.clip_counts()
        return SimulationProgress(
            cohorts=self.cohorts,
            uploads=counts.uploads,
            clipped=counts.clipped,
            clip_norms=self.server_guard.clip_norms,
            costs=self.total_costs().saved(),
            accounts=self.client_guard.accounts.state(),
        )

    def restore(self, saved: SimulationProgress) -> None:
        """Continue from `progress()`; counts of all processes go on in the first."""
        self.cohorts, self.server_guard.clip_norms = saved.cohorts, saved.clip_norms
        self.client_guard.accounts.load(saved.accounts)
        self.costs.restore(saved.costs, first=self.processes.first)
        if self.processes.first:
            self.client_guard.counts.uploads, self.client_guard.counts.clipped = saved.uploads, saved.clipped

    def chunk_size(self, schema: Schema) -> int:
        """Clients per chunk: whole tiles, within the memory limit."""
        chunk = clients_at_once(self._chunk, schema)
        if not isinstance(self._chunk, int) and self._limit is not None:
            fits = self._limit // (_COPIES_PER_CHUNK * max(upload_bytes(schema), 1))
            chunk = min(chunk, max(fits // TILE, 1) * TILE)
        return chunk
