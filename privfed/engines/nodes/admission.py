"""Admitting a query: it is checked against plan, policy and budgets, and recorded before anything of it leaves."""

import math
from collections.abc import Collection

import numpy as np
from jaxtyping import Int64

from privfed.contracts import schema_digest
from privfed.engines.nodes.budget import Budget
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.privacy import SchemaSummary
from privfed.privacy.refusals import refuse_unprotected_blocks
from privfed.setup.evaluation_query import CHOICE, STEP

_ONCE_IN = 1e9
"""Rounds in which once fewer users take part under Poisson sampling than Hoeffding's inequality allows for."""


class Admission:
    """Decides which queries a node answers.

    Args:
        state: of the node.
        policy: of the node.
        party: the node's organisation.
        private_side: the clients of its users.
    """

    def __init__(self, state: NodeState, policy: Policy, party: Party, private_side: PrivateSide) -> None:
        self._state, self._policy = state, policy
        self._party, self._private_side = party, private_side

    def admit(self, query: Query) -> Int64[np.ndarray, " members"]:
        """Check a query and whether its cost fits; returns who trains, with their private state loaded.

        Nothing is recorded: clients may still fail on what they were sent, and then nothing leaves.

        Raises:
            NodeRefused: the node does not answer it.
        """
        if query.step not in self._private_side.assembly.clients.steps:
            raise NodeRefused(f"{query.step!r} is no step that clients of this run answer; query one of their steps")
        self._refuse_other_measurement(query)
        refuse_unprotected_blocks(self._state.plan, query.schema)
        self._policy.accept_clip_norm(self._state.plan, query.clip_norm)
        digest = query.digest()
        self._refuse_out_of_order(query, digest)
        self._private_side.load(query)
        members = self._private_side.members(query)
        self._accept_own(members)
        if self._is_new(query):
            self._accept_cost(query, members)
        else:
            self._refuse_other_noise(query, digest)
        return members

    def record(self, query: Query, members: Int64[np.ndarray, " members"]) -> None:
        """Write down what an admitted query costs, before anything of it leaves; what repeats to the bit is free."""
        record = self._state.record
        if self._is_new(query):
            self._record_new(query, members)
        if query.cohort_id != record.cohort_id:
            record.cohort_id, record.query, record.calls, record.base = query.cohort_id, 0, [], record.current
            record.calls_digest, record.round = {}, query.round
        record.calls_digest[query.query_id], record.epoch = query.digest(), self._state.epoch

    def accept_organisations(self, round: int | None, seats: Collection[int]) -> None:
        """Refuse a masked sum over the users of these organisations if they are too few for the policy.

        They are counted from the federation file and the sampling rule, so that nobody's word enters. It holds for
        those whom an input is masked with and again for those who survive: a server that says others dropped out gets
        no smaller sum.

        Args:
            round: whose cohort is added up; None where it is everybody, as for metrics.
            seats: of the organisations.

        Raises:
            PolicyRefused: they are too few.
        """
        self._policy.accept_cohort(self._expected(round, seats))

    def accept_any_organisations(self, round: int | None, nodes: int) -> None:
        """Refuse a sum over this organisation and any others, so many in all, if some of them host too few users.

        Args:
            round: as for `accept_organisations`.
            nodes: number of organisations.

        Raises:
            PolicyRefused: the smallest of them have too few.
        """
        own = self._party.seat
        others = sorted(self._expected(round, [seat]) for seat in self._party.federation.directory() if seat != own)
        self._policy.accept_cohort(self._expected(round, [own]) + sum(others[: nodes - 1]))

    def _expected(self, round: int | None, seats: Collection[int]) -> float:
        return self._state.run.expected_users(self._party.federation, round, seats)

    def _accept_own(self, members: Int64[np.ndarray, " members"]) -> None:
        """Refuse a query that too few of the node's own users take part in.

        Under Poisson sampling each user's own random bit decides, and a refusal must not depend on it: what counts is
        the expected number for the sum and, for noise in shares, the number that is missed once in a billion rounds.
        """
        plan, taking, certain = self._state.plan, float(len(members)), len(members)
        if plan.sampling.kind == "poisson":
            hosted = len(self._private_side.users)
            taking = plan.sampling.rate * hosted
            certain = min(certain, math.floor(taking - math.sqrt(hosted * math.log(_ONCE_IN) / 2)))
        if plan.mechanism.release == "total" and len(self._private_side.users):
            self._policy.accept_own(taking)
        self._policy.accept_share(plan, max(certain, 0))

    def refuse_second_input(self, query: Query) -> None:
        """Refuse a second masked input for a query, except in a simulation, where it repeats to the bit.

        Sums of the same inputs over other survivors would differ by what single nodes sent.

        Raises:
            NodeRefused: the node has sent its masked input.
        """
        record = self._state.record
        answered = query.cohort_id == record.cohort_id and query.query_id in record.calls_digest
        if answered and query.step != MEASURE and not self._state.run.seeded:
            raise NodeRefused(
                "this node has sent its masked input of that query, and does so once; go on with a new cohort"
            )

    def _refuse_other_measurement(self, query: Query) -> None:
        """Refuse a measurement that is not the announced one, and a query of training in its place.

        What is announced follows from the settings of the run: when it comes, its blocks, which bound what it costs,
        and how often it comes.
        """
        run = self._state.run
        after = query.round - run.config.rounds
        if after < 0 and query.step not in (STEP, CHOICE):
            return
        if after < 0 or not run.final:
            raise NodeRefused(
                f"the query is of step {query.step!r} in round {query.round + 1} of a run that trains for "
                f"{run.config.rounds}, and metrics are asked for once, after the last; begin a new run"
            )
        asked = run.final[min(after, len(run.final) - 1)]
        if query.step != STEP or schema_digest(query.schema) != schema_digest(asked.schema):
            raise NodeRefused(
                f"round {query.round + 1} is for the announced vector of metrics alone, and the query asks for "
                "something else; begin a new run"
            )
        if query.query_id >= asked.count:
            raise NodeRefused(
                f"the announced vector of metrics is summed {asked.count} times, and the query is number "
                f"{query.query_id + 1}; begin a new run"
            )

    def _refuse_out_of_order(self, query: Query, digest: str) -> None:
        record = self._state.record
        if query.cohort_id < record.cohort_id:
            raise NodeRefused("the query is older than one that this node has answered; go on with a new cohort")
        rounds, queries = self._state.run.rounds, self._state.run.queries
        if query.round >= rounds:
            raise NodeRefused(f"the query is of round {query.round + 1} of a run of {rounds}; begin a new run")
        if (query.round == record.round) != (query.cohort_id == record.cohort_id) or query.round < record.round:
            raise NodeRefused("rounds rise with their cohorts, one cohort per round; go on with the next round")
        before = record.query if query.cohort_id == record.cohort_id else 0
        if query.query_id != before:
            raise NodeRefused(
                f"this node has answered {before} queries of cohort {query.cohort_id} and is sent number "
                f"{query.query_id + 1}: it sits out the rest of the round"
            )
        if query.query_id >= queries:
            raise NodeRefused(f"the query is number {query.query_id + 1} of its cohort, and the run makes {queries}")
        if query.cohort_id == record.cohort_id and record.calls_digest.get(query.query_id, digest) != digest:
            raise NodeRefused(
                "the query was made before with another message, and its noise is out; go on with a new cohort"
            )

    def _is_new(self, query: Query) -> bool:
        recent = {entry.address for entry in self._state.ledger().entries[-self._state.run.queries :]}
        return (query.cohort_id, query.step, query.query_id) not in recent

    def _refuse_other_noise(self, query: Query, digest: str) -> None:
        """Refuse to repeat a recorded query where its noise would not be the same."""
        record = self._state.record
        if record.calls_digest.get(query.query_id) != digest or query.cohort_id != record.cohort_id:
            raise NodeRefused("the query was recorded before and its noise may be out; go on with a new cohort")
        if record.epoch != self._state.epoch and not self._state.run.seeded:
            raise NodeRefused(
                "the query was recorded by a process that has ended, so this one cannot repeat its noise; go on with a "
                "new cohort"
            )

    def _accept_cost(self, query: Query, members: Int64[np.ndarray, " members"]) -> None:
        """Refuse a new query that the node's budgets have no room for."""
        others = self._state.costs_of_other_runs()
        charged = self._private_side.users if self._state.plan.sampling.kind == "all" else members
        budget = self._state.memory.budget
        if budget is None or budget.earlier != others:
            budget = self._state.memory.budget = Budget(self._policy, others, self._state.record.tier)
        budget.accept(
            self._state.ledger(), cohort_id=query.cohort_id, round=query.round, step=query.step, index=query.query_id,
            schema=SchemaSummary.from_schema(query.schema), participants=charged,
        )  # fmt: skip

    def _record_new(self, query: Query, members: Int64[np.ndarray, " members"]) -> None:
        record, ledger = self._state.record, self._state.ledger()
        ledger.record(
            cohort_id=query.cohort_id, round=query.round, step=query.step, index=query.query_id,
            schema=SchemaSummary.from_schema(query.schema),
            participants=None if self._state.plan.amplifies else members,
        )  # fmt: skip
        record.charges, record.head = len(ledger.entries), ledger.head
        self._state.book.add(self._state.run.run, record.charges, record.head, self._state.epoch)
