"""Answering an admitted query: training, and protected sums or uploads of the node's users."""

import logging
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.contracts import Schema, UpdateError
from privfed.engines.aggregation import Aggregation, BlockSums, IndividualRelease, PlainSum, ReleaseBuffer, RingSum
from privfed.engines.nodes.admission import Admission
from privfed.engines.nodes.codec import Array
from privfed.engines.nodes.errors import NodeRefused
from privfed.engines.nodes.measuring import PARTS, sums_of
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.queries import MEASURE, Query, coded_arrays
from privfed.federation import perform
from privfed.guards import ClientGuard, RingCode
from secure_agg.encoding import Ring, RingElements

_log = logging.getLogger("privfed.nodes")

_MEASURED_BITS = 64

_Members = Int64[np.ndarray, " members"]
Aggregated = TypeVar("Aggregated")


class Answering:
    """Trains a node's users and adds up what they send, each upload protected by itself.

    Args:
        state: of the node.
        policy: of the node.
        private_side: the clients of its users.
        admission: decides which queries are answered.
    """

    def __init__(self, state: NodeState, policy: Policy, private_side: PrivateSide, admission: Admission) -> None:
        self._state, self._policy = state, policy
        self._private_side, self._admission = private_side, admission

    def partial_sums(self, query: Query) -> tuple[BlockSums, _Members]:
        """Sums over the node's users, with every user's own noise where the plan has any."""
        if query.step == MEASURE:
            return BlockSums(self._measured(query)), self._private_side.users
        members = self._admission.admit(query)
        return self._added(query, members, PlainSum(query.schema, self.guard())), members

    def uploads(self, query: Query) -> tuple[Mapping[str, Array], _Members]:
        """Every user's own protected upload, as it travels."""
        members = self._admission.admit(query)
        buffer = ReleaseBuffer(None).uploads(query.schema, len(members))
        release = IndividualRelease(self.guard(), buffer)
        uploads, bits = self._added(query, members, release), self._state.plan.upload_bits
        if bits is not None:
            return coded_arrays(uploads, release.steps, query.schema, bits), members
        return {f"block/{name}": values.numpy() for name, values in uploads.items()}, members

    def ring_elements(self, query: Query) -> tuple[RingElements, _Members]:
        """The sum of the users' ring elements."""
        if query.step == MEASURE:
            sums = self._measured(query)
            flat = np.concatenate([sums[name].numpy().reshape(-1) for name in query.schema])
            return flat.astype(np.int64).view(Ring(_MEASURED_BITS).dtype), self._private_side.users
        code = self._code(query.schema)
        members = self._admission.admit(query)
        adding = RingSum(code, self.guard())
        self._add(query, members, adding)
        return adding.elements, members

    def size(self, query: Query) -> tuple[int, int]:
        """Number and bits of the ring elements of a query."""
        if query.step == MEASURE:
            return sum(block.size for block in query.schema.values()), _MEASURED_BITS
        code = self._code(query.schema)
        return code.length, code.ring.bits

    def guard(self) -> ClientGuard:
        """Protects every upload under its user's own key."""
        tier = self._state.record.tier or None
        return ClientGuard(self._state.plan, self._private_side.assembly.streams, tier, self._state.accounts().accounts)

    def _added(self, query: Query, members: _Members, aggregation: Aggregation[Aggregated]) -> Aggregated:
        self._add(query, members, aggregation)
        return aggregation.close()

    def _add(self, query: Query, members: _Members, aggregation: Aggregation[object]) -> None:
        """Train the members chunk by chunk, as a simulation does; then record the cost, and stage private state."""
        self._private_side.begin(query)
        self._require_usable(query, members)
        self._state.accounts().accounts.begin((query.cohort_id, query.query_id))
        for call, updates in self._private_side.computed(query, members):
            aggregation.add(call, updates)
        self._state.record_accounts()
        self._admission.record(query, members)
        self._private_side.stage(query)

    def _require_usable(self, query: Query, members: _Members) -> None:
        """Refuse a message without the tensors, or a schema without the blocks, that the step needs for anybody.

        A call of nobody finds it: that reads nobody's data, so what comes of it depends on the query alone.
        """
        call, received = self._private_side.call(query, members, torch.empty(0, dtype=torch.int64))
        try:
            perform(self._private_side.assembly.clients, call, received)
        except (KeyError, UpdateError):
            raise
        except Exception:  # a step need not work for nobody
            _log.debug("a call of nobody failed", exc_info=True)

    def _code(self, schema: Schema) -> RingCode:
        mechanism = self._state.plan.mechanism
        if mechanism.masking is None:
            raise NodeRefused("the run's plan has no masked sums; query in the clear")
        return RingCode(mechanism, schema, self._state.plan.sampling.max_cohort(self._state.run.n_users))

    def _measured(self, query: Query) -> dict[str, Tensor]:
        """Exact sums of metrics over the node's users."""
        if self._state.run.config.evaluation.private:
            raise NodeRefused("the run measures by a noisy sum that its plan covers, so no exact metrics leave")
        if not self._policy.evaluate:
            raise NodeRefused("this node's policy lets no sums of metrics leave (evaluate = false)")
        parts = [part for part in PARTS if query.message.config.get(part)]
        sums = dict(sums_of(self._private_side.read_only(), self._private_side.users, query.message, parts))
        if {name: tuple(v.shape) for name, v in sums.items()} != {n: b.shape for n, b in query.schema.items()}:
            raise NodeRefused("the sums of metrics in the query are not those of this run's protocol")
        for measured in sums.values():
            for users in measured[:, 0].tolist():
                self._policy.accept_own(users)
        return sums
