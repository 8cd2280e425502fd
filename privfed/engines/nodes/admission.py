"""Admitting a query: it is checked against plan, policy and ledger, and recorded before anything of it leaves."""

import numpy as np
from jaxtyping import Int64

from privfed.engines.nodes.budget import Budget
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.privacy import SchemaSummary
from privfed.privacy.refusals import refuse_unprotected_blocks


class Admission:
    """Decides which queries a node answers.

    Args:
        state: of the node.
        policy: of the node.
        data: of the node.
        private_side: the clients of its users.
    """

    def __init__(self, state: NodeState, policy: Policy, data: NodeData, private_side: PrivateSide) -> None:
        self._state, self._policy, self._data, self._private_side = state, policy, data, private_side

    def admit(self, query: Query) -> Int64[np.ndarray, " members"]:
        """Check a query and record its cost; returns who trains, with their private state loaded.

        Raises:
            NodeRefused: the node does not answer it.
        """
        digest = query.digest()
        if query.step not in self._private_side.assembly.clients.steps:
            raise NodeRefused(f"{query.step!r} is no step that clients of this run answer; query one of their steps")
        refuse_unprotected_blocks(self._state.plan, query.schema)
        self._policy.accept_clip_norm(self._state.plan, query.clip_norm)
        self._refuse_out_of_order(query, digest)
        self._private_side.load(query)
        members = self._private_side.members(query)
        self._policy.accept_share(self._state.plan, len(members))
        self._record(query, members, digest)
        return members

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

    def _refuse_out_of_order(self, query: Query, digest: str) -> None:
        record = self._state.record
        if query.cohort_id < record.cohort_id:
            raise NodeRefused("the query is older than one that this node has answered; go on with a new cohort")
        before = record.query if query.cohort_id == record.cohort_id else 0
        if query.query_id != before:
            raise NodeRefused(
                f"this node has answered {before} queries of cohort {query.cohort_id} and is sent number "
                f"{query.query_id + 1}: it sits out the rest of the round"
            )
        if query.cohort_id == record.cohort_id and record.calls_digest.get(query.query_id, digest) != digest:
            raise NodeRefused(
                "the query was made before with another message, and its noise is out; go on with a new cohort"
            )

    def _record(self, query: Query, members: Int64[np.ndarray, " members"], digest: str) -> None:
        """Write down what the query costs; what repeats to the bit costs nothing more."""
        record, ledger = self._state.record, self._state.ledger()
        recent = {entry.address for entry in ledger.entries[-self._state.run.queries :]}
        if (query.cohort_id, query.step, query.query_id) not in recent:
            self._record_new(query, members)
        elif record.calls_digest.get(query.query_id) != digest or query.cohort_id != record.cohort_id:
            raise NodeRefused("the query was recorded before and its noise may be out; go on with a new cohort")
        if query.cohort_id != record.cohort_id:
            record.cohort_id, record.query, record.calls, record.base = query.cohort_id, 0, [], record.current
            record.calls_digest = {}
        record.calls_digest[query.query_id] = digest

    def _record_new(self, query: Query, members: Int64[np.ndarray, " members"]) -> None:
        record, ledger, plan = self._state.record, self._state.ledger(), self._state.plan
        summary, everybody = SchemaSummary.from_schema(query.schema), plan.sampling.kind == "all"
        budget = self._state.memory.budget or Budget(self._policy, record.earlier)
        self._state.memory.budget = budget
        budget.accept(
            ledger, cohort_id=query.cohort_id, round=query.round, step=query.step, index=query.query_id,
            schema=summary, participants=self._data.users if everybody else members,
        )  # fmt: skip
        ledger.record(
            cohort_id=query.cohort_id, round=query.round, step=query.step, index=query.query_id, schema=summary,
            participants=None if plan.amplifies else members,
        )  # fmt: skip
        record.charges, record.head = len(ledger.entries), ledger.head
