"""A federation without privacy or a wire: exact sums over everybody, in an order that chunks do not change."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from privfed.contracts import Schema
from privfed.federation import (
    Call,
    Clients,
    Cohort,
    FederationError,
    Individual,
    Message,
    Streams,
    Total,
    begin_query,
    perform,
)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedQuery:
    """One query as it was answered.

    Attributes:
        round: in which it was made.
        step: that clients were asked to run.
        message: that they received.
        schema: blocks that they could send.
        individual: whether the server received single uploads.
        uploads: what they sent, `[users, *shape]` each.
    """

    round: int
    step: str
    message: Message
    schema: Schema
    individual: bool
    uploads: Mapping[str, Tensor]


@dataclass(slots=True, eq=False)
class PlainFederation:
    """All users take part in every round.

    Attributes:
        clients: of the users.
        streams: their addressed randomness.
        n_users: how many there are.
        chunk: clients of one call.
        queries: all queries so far.
    """

    clients: Clients
    streams: Streams
    n_users: int
    chunk: int
    queries: list[RecordedQuery] = field(default_factory=list)
    _in_round: int = 0

    def sample_cohort(self, round: int) -> Cohort:
        """Everybody."""
        self._in_round = 0
        return Cohort(round, round, "all", float(self.n_users))

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Exact sums, added up over a stack of all uploads."""
        uploads = self.answer(step, cohort, message, schema, individual=False)
        wide = {name: torch.float64 if block.kind == "real" else torch.int64 for name, block in schema.items()}
        sums = {name: values.sum(0, dtype=wide[name]) for name, values in uploads.items()}
        kept = {name: values.float() if schema[name].kind == "real" else values for name, values in sums.items()}
        return Total(kept, float(self.n_users))

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Every upload under its user's number."""
        uploads = self.answer(step, cohort, message, schema, individual=True)
        return Individual(torch.arange(self.n_users), uploads)

    def answer(
        self, step: str, cohort: Cohort, message: Message, schema: Schema, *, individual: bool
    ) -> dict[str, Tensor]:
        """Run the step chunk by chunk and commit; refuses what is not finite, as every guard does."""
        stacked: list[dict[str, Tensor]] = []
        begin_query(self.clients, step, message)
        for users in torch.split(torch.arange(self.n_users), self.chunk):
            call = Call(cohort.round, cohort.id, step, self._in_round, users, self.streams, schema)
            updates = perform(self.clients, call, message.addressed_to(users))
            if not updates.finite():
                raise FederationError(f"step {step!r} sent NaN or infinity in round {cohort.round}")
            stacked.append({name: v.clone() for name, v in updates.materialise(torch.arange(len(users))).items()})
        uploads = {name: torch.cat([some[name] for some in stacked]) for name in schema}
        self.clients.commit()
        self._in_round += 1
        self.queries.append(RecordedQuery(cohort.round, step, message, schema, individual, uploads))
        return uploads
