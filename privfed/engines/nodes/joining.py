"""Joining a run: an announced experiment is compared with the node's policy and budget."""

import secrets

from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.budget import Budget, run_cost
from privfed.engines.nodes.codec import Address
from privfed.engines.nodes.errors import MessageError, NodeRefused
from privfed.engines.nodes.node_state import NodeState, RunMemory
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.record import NodeRecord


class Joining:
    """Decides whether a node takes part in a run.

    Args:
        state: of the node.
        policy: of the node.
        private_side: the clients of its users.
    """

    def __init__(self, state: NodeState, policy: Policy, private_side: PrivateSide) -> None:
        self._state, self._policy, self._private_side = state, policy, private_side

    def join(self, announced: Announcement, seat: int, address: Address) -> None:
        """Take part in a run, or stay in it where it was announced before.

        Raises:
            MessageError: the announcement does not belong to the request.
            NodeRefused: the policy forbids the run, or it was announced with other settings.
        """
        record = self._state.record
        if announced.run != address.run:
            raise MessageError("the announcement is of another run than the request; drop it")
        if record.run is None or record.run.run != announced.run:
            self._begin(announced)
        elif record.run != announced or (record.node, record.seat) != (address.node, seat):
            raise NodeRefused(
                "the run was announced to this node with other settings, and these do not change in a run"
            )
        record = self._state.record
        record.run, record.node, record.seat, record.serial = announced, address.node, seat, address.serial

    def _begin(self, announced: Announcement) -> None:
        """Leave an earlier run, whose cost stays counted."""
        config, record = announced.config, self._state.record
        self._policy.accept_plan(
            config.method_name, config.privacy, config.rounds, announced.population, seeded=announced.seeded
        )
        earlier = [*record.earlier]
        if record.run is not None:
            earlier.append(run_cost(record.run.run, self._state.ledger()))
        if any(run.run == announced.run for run in earlier):
            raise NodeRefused(
                "this node has left that run for another one and does not come back to it; begin a new run"
            )
        Budget(self._policy, earlier).accept_run(config.privacy)
        salt = secrets.token_hex(ROOT_BYTES)
        assembly = self._private_side.assembled(announced, salt)
        self._state.replace(
            NodeRecord(version=record.version, serial=record.serial, earlier=earlier, salt=salt),
            RunMemory(assembly, assembly.clients.state()),
        )
