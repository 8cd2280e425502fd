"""`RemoteFederation`: the federation of a method's server over nodes that share no memory with it.

A query under a plan with masked sums takes five exchanges (share, check, input, confirm, reveal), two where the run's
sums are made between two servers (upload, release). Who does not answer in time has dropped out, at any stage; with too
few left the round is aborted, and nothing is opened, recorded in the server's ledger or queried again. Users in a sum
are recorded when the survivors are known, before any node helps to open it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from privfed.contracts import Schema, schema_digest
from privfed.engines.aggregation import QueryContext
from privfed.engines.cohorts import members
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.channel import Channel, ChannelState, Incident, MessageTraffic, NodeRequest
from privfed.engines.nodes.gathering import Gathered, Gathering
from privfed.engines.nodes.journal import Journal, Release
from privfed.engines.nodes.masked_rounds import MaskedRounds
from privfed.engines.nodes.measuring import Part, measure_schema, results
from privfed.engines.nodes.membership import Membership
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import masked
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.engines.nodes.roster import NodeRoster, Users
from privfed.engines.nodes.transport import Transport
from privfed.engines.nodes.two_server_rounds import TwoServerRounds
from privfed.engines.nodes.two_servers import between_two_servers
from privfed.engines.simulation import TooFewClientsError
from privfed.evaluation import EvaluationResult
from privfed.federation import Cohort, FederationError, Individual, Message, Server, Total
from privfed.guards import ServerGuard
from privfed.privacy import LedgerError

_log = logging.getLogger("privfed.nodes")

MIN_NODES = 3
_MEASURED_BITS, _SESSION_BITS = 64, 32


class FederationProgress(BaseModel):
    """What a checkpoint keeps of a federation over nodes.

    Attributes:
        cohorts: number of cohorts so far.
        channel: by seat, what each organisation has to be told.
        excluded: by seat that was proven to lie, what it did.
        clip_norms: of every step, where the plan adapts them.
        aborted_rounds: rounds that were too small to open.
    """

    cohorts: int
    channel: ChannelState
    excluded: dict[int, str]
    clip_norms: dict[str, float]
    aborted_rounds: int


class RemoteFederation:
    """A `Federation` over a transport.

    Args:
        transport: to the nodes.
        announced: the run.
        party: the server.
        guard: the server's side of the privacy layer, with the ledger.
        journal: of releases since the last checkpoint.
        timeout: seconds in which nodes answer; a stage in which they train has as many.
        min_nodes: smallest number of nodes whose sum is opened, beyond what the federation file asks for.
        starts: how often a server of this run was started before.

    Attributes:
        cohorts: number of cohorts so far.
        roster: of the nodes.
        abort_reason: why the latest round was aborted; None where it was not.
        released: the latest release of the latest round; None before its first.
    """

    def __init__(
        self,
        transport: Transport,
        announced: Announcement,
        party: Party,
        guard: ServerGuard,
        *,
        journal: Journal | None = None,
        timeout: float = 600.0,
        min_nodes: int = MIN_NODES,
        starts: int = 0,
    ) -> None:
        self.announced, self.guard = announced, guard
        self.journal = journal or Journal(None, announced.n_users)
        self.roster = NodeRoster(party.federation, starts << _SESSION_BITS, announced.donors)
        self._channel = Channel(transport, self.roster, party, announced.run, timeout, starts)
        self._membership = Membership(self._channel, self.roster, announced, party)
        run, at_least = bytes.fromhex(announced.run), max(min_nodes, MIN_NODES)
        self.masked_rounds = MaskedRounds(self._channel, self._membership, party, run, at_least)
        self._rounds: MaskedRounds | TwoServerRounds = self.masked_rounds
        if between_two_servers(announced):
            self._rounds = TwoServerRounds(self._channel, self._membership, party, announced, at_least)
        self._gathering = Gathering(self._channel, self._membership, guard)
        self.cohorts = 0
        self.abort_reason: str | None = None
        self.released: Release | None = None
        self._cohort: Cohort | None = None
        self._queries = 0
        self._survivors: tuple[int, ...] | None = None

    @property
    def incidents(self) -> list[Incident]:
        """Replies that were not used."""
        return self._channel.incidents

    @property
    def traffic(self) -> MessageTraffic:
        """Exchanges, bytes, seconds."""
        return self._channel.traffic

    def restore(self, saved: FederationProgress) -> None:
        """Continue from `progress()`."""
        self.cohorts, self._channel.state = saved.cohorts, saved.channel
        self.roster.excluded, self.guard.clip_norms = saved.excluded, saved.clip_norms
        self.traffic.aborted_rounds = saved.aborted_rounds

    def progress(self) -> FederationProgress:
        """What a checkpoint keeps."""
        return FederationProgress(
            cohorts=self.cohorts,
            channel=self._channel.state,
            excluded=self.roster.excluded,
            clip_norms=self.guard.clip_norms,
            aborted_rounds=self.traffic.aborted_rounds,
        )

    # What a method's server sees -------------------------------------------------------------------------------------

    def run(self, server: Server, t: int) -> bool:
        """One round of `server`; returns whether it was opened. An aborted one leaves the server as it was."""
        self.abort_reason = self.released = None
        before = {name: value.clone() for name, value in server.state().items()} if self.announced.queries > 1 else None
        try:
            server.round(self, t)
        except TooFewClientsError as aborted:
            _log.warning("round %d is aborted: %s", t + 1, aborted)
            self.abort_reason = str(aborted)
            self.journal.abort(self.cohorts - 1)
            self.traffic.aborted_rounds += 1
            if before is not None:
                server.load(before)
            return False
        return True

    def sample_cohort(self, round: int) -> Cohort:
        """Sample the round's cohort by the plan's sampling rule.

        Raises:
            FederationError: this round has a cohort already.
            TooFewClientsError: the round was aborted before the server was started again.
        """
        if self._cohort is not None and self._cohort.round == round:
            raise FederationError(f"round {round} has sampled its cohort already; sample one per round")
        plan = self.guard.plan
        self._cohort = Cohort(round, self.cohorts, plan.sampling.kind, plan.counted(self.announced.n_users))
        self.cohorts += 1
        self._queries, self._survivors = 0, None
        if self.journal.aborted(self._cohort.id):
            raise TooFewClientsError(f"round {round + 1} was aborted before and is not queried again")
        return self._cohort

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Sum the cohort's protected uploads.

        Raises:
            TooFewClientsError: too few nodes or users were left; nothing was opened.
        """
        release = self._release(QueryContext(step, self._queries, cohort, schema), message, each=False)
        return self.guard.total(release.blocks, cohort, len(release.members), schema)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release every protected upload under its pseudonym.

        Raises:
            FederationError: the plan hides single uploads.
            TooFewClientsError: no node answered.
        """
        if self.guard.plan.mechanism.release == "total":
            raise FederationError(
                f"step {step!r} needs every single upload, but under the plan {self.guard.plan.name!r} the server sees "
                f"only their sum; choose another plan or method"
            )
        release = self._release(QueryContext(step, self._queries, cohort, schema), message, each=True)
        return self.guard.individual(torch.from_numpy(release.members), release.blocks)

    def measure(self, message: Message, t: int, parts: Sequence[Part]) -> dict[Part, EvaluationResult]:
        """Sums of metrics over all nodes that let them leave, as means; none where too few do."""
        protocol = self.announced.config.protocol
        schema = measure_schema(protocol, parts)
        addressed = Message(message.shared, message.personal, dict.fromkeys(parts, 1))

        def query(seat: int) -> Query:
            received = _addressed(addressed, self.roster.users[seat])
            return _bound(Query(MEASURE, t, self.cohorts, 0, None, received, schema, announced=self.announced.digest))

        nodes = self._membership.available()
        try:
            if masked(self.guard.plan):
                size = sum(block.size for block in schema.values()), _MEASURED_BITS
                elements, _ = self._rounds.sum(nodes, query, schema, size, lambda _: None)
                flat = torch.from_numpy(elements.view(np.int64).copy())
                sums: Mapping[str, Tensor] = {name: flat.view(block.shape) for name, block in schema.items()}
            else:
                sums = self._gathering.gather(nodes, query, schema, each=False).blocks
        except TooFewClientsError as aborted:
            _log.warning("nothing was measured after round %d: %s", t + 1, aborted)
            return {}
        return results(sums, protocol, parts)

    def finish(self) -> None:
        """Tell nodes how the last query ended, and that the run has."""
        request = NodeRequest(values={"final": True})
        self._channel.exchange("train.settle", dict.fromkeys(self._membership.everybody(), request))

    # One query -------------------------------------------------------------------------------------------------------

    def _release(self, query: QueryContext, message: Message, *, each: bool) -> Release:
        """A query's release: from the journal where it was opened before, else from the nodes."""
        cohort = query.cohort
        if cohort is not self._cohort:
            raise FederationError("a query names the cohort of another round; query the round's own cohort")
        self._queries += 1
        release = self.journal.find(cohort.id, query.query_id, query.step, query.schema)
        if release is None:
            release = self._new_release(query, message, each=each)
            self.journal.write(cohort.id, query.query_id, release)
        else:
            self._require_recorded(query)
            self.guard.clip_norms = dict(release.clip_norms)
        self._survivors, self.released = release.nodes, release
        self._channel.state.counted |= dict.fromkeys(release.nodes, (cohort.id, query.query_id))
        return release

    def _new_release(self, context: QueryContext, message: Message, *, each: bool) -> Release:
        schema = context.schema
        code = None if each else self.guard.code(schema)
        nodes = self._membership.available() if self._survivors is None else self._survivors
        chosen, clip_norm = self._chosen(context.cohort.round), self.guard.clip_norm(context.step)
        announced = self.announced.digest
        model = Query(
            context.step, context.cohort.round, context.cohort.id, context.query_id, None, message, schema, clip_norm,
            announced=announced,
        ).common_digest()  # fmt: skip

        def query(seat: int) -> Query:
            hosted = self.roster.users[seat]
            taking_part = None if chosen is None else np.intersect1d(hosted, chosen, assume_unique=True)
            return Query(
                context.step, context.cohort.round, context.cohort.id, context.query_id, taking_part,
                _addressed(message, hosted if taking_part is None else taking_part),
                schema, clip_norm, model, announced,
            )  # fmt: skip

        if code is not None and schema:
            size = code.length, code.ring.bits
            elements, gathered = self._rounds.sum(
                nodes, query, schema, size, lambda users: self._accept(context, users)
            )
            blocks = code.decode(elements)
        else:
            if chosen is not None:
                self._record(context, np.intersect1d(self.roster.hosted(nodes), chosen, assume_unique=True))
            gathered = self._gathering.gather(nodes, query, schema, each=each)
            if chosen is None:
                self._record(context, gathered.members)
            blocks = gathered.blocks if each else self._noisy(context, gathered)
        if not each:
            blocks = {name: sums.float() if schema[name].kind == "real" else sums for name, sums in blocks.items()}
        clip_norms = dict(self.guard.clip_norms)
        return Release(context.step, schema_digest(schema), gathered.nodes, gathered.members, blocks, clip_norms)

    def _noisy(self, query: QueryContext, gathered: Gathered) -> dict[str, Tensor]:
        """Partial sums with the server's noise, where the plan has any."""
        self.guard.add_noise_(
            gathered.blocks, query.cohort, query.step, query.query_id, query.schema,
            members=len(gathered.members), within=gathered.within,
        )  # fmt: skip
        return gathered.blocks

    def _accept(self, query: QueryContext, users: Users) -> None:
        """Record a masked sum of these users, unless they are too few to open it.

        Raises:
            TooFewClientsError: they are.
        """
        if not self.guard.reveals(len(users)):
            raise TooFewClientsError(f"{len(users)} users are left, too few for the plan {self.guard.plan.name!r}")
        self._record(query, users)

    def _record(self, query: QueryContext, users: Users) -> None:
        """Record a query; one that was recorded before a restart with other users is not opened again."""
        try:
            self.guard.record(query.cohort, query.step, query.query_id, query.schema, torch.from_numpy(users))
        except LedgerError as refused:
            if self._is_recorded(query):
                raise TooFewClientsError(
                    f"it was recorded before the server was started again ({refused})"
                ) from refused
            raise

    def _require_recorded(self, query: QueryContext) -> None:
        if not self._is_recorded(query):
            raise LedgerError(
                f"round {query.cohort.round + 1} was opened and the ledger has no entry for it: it lost entries, so no "
                "guarantee could be honest"
            )

    def _is_recorded(self, query: QueryContext) -> bool:
        return (query.cohort.id, query.step, query.query_id) in {entry.address for entry in self.guard.ledger.entries}

    def _chosen(self, round: int) -> Users | None:
        """The users whom the plan's rule chooses; None where each decides by its own random bit."""
        plan = self.guard.plan
        if plan.sampling.kind == "poisson":
            return None
        return members(plan.sampling, self.announced.cohort_streams(), self.announced.n_users, round).numpy()


def _addressed(message: Message, users: Users) -> Message:
    """A message as one node's users receive it."""
    rows = torch.from_numpy(users)
    personal = {name: values.index_select(0, rows) for name, values in message.personal.items()}
    return Message(message.shared, personal, message.config)


def _bound(query: Query) -> Query:
    """A query with the digest of what all organisations are sent alike."""
    return replace(query, model=query.common_digest())
