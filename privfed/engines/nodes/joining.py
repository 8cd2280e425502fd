"""Joining a run: an announced experiment is compared with the federation file, the node's policy and its budget."""

import secrets

import numpy as np

from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.budget import Budget, run_cost
from privfed.engines.nodes.codec import Address
from privfed.engines.nodes.errors import MessageError, NodeRefused, OtherFederationError, PolicyRefused
from privfed.engines.nodes.node_state import NodeState, RunMemory
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.private_side import PrivateSide
from privfed.engines.nodes.record import NodeRecord
from privfed.engines.nodes.two_servers import between_two_servers

_NONCE_BYTES = 16


class Joining:
    """Decides whether a node takes part in a run.

    Args:
        state: of the node.
        policy: of the node.
        party: the node's organisation.
        private_side: the clients of its users.
    """

    def __init__(self, state: NodeState, policy: Policy, party: Party, private_side: PrivateSide) -> None:
        self._state, self._policy, self._party, self._private_side = state, policy, party, private_side
        self._users = party.federation.users(party.seat)

    def join(self, announced: Announcement, address: Address) -> str:
        """Take part in a run, or stay in it where it was announced before; returns the nonce of what follows.

        Raises:
            MessageError: the announcement does not belong to the request, or to this federation.
            NodeRefused: the policy forbids the run, or it was announced with other settings.
        """
        if announced.run != address.run:
            raise MessageError("the announcement is of another run than the request; drop it")
        self._require_federation(announced)
        if self._state.record.run is None:
            self._begin(announced)
        elif self._state.record.run != announced:
            raise NodeRefused(
                "the run was announced to this node with other settings, and these do not change in a run"
            )
        record = self._state.record
        record.run, record.counter, record.nonce = announced, address.counter, secrets.token_hex(_NONCE_BYTES)
        return record.nonce

    def leave(self) -> None:
        """Leave the run; what it cost stays counted."""
        self._state.end(run_cost(self._state.run.run, self._state.ledger(), self._state.record.tier))

    def _require_federation(self, announced: Announcement) -> None:
        federation = self._party.federation
        if announced.federation != federation.digest:
            raise OtherFederationError(
                "the run is of another federation file than the one that this node pins; give both parties the same "
                "version, and begin a new run"
            )
        if (announced.population, announced.items) != (federation.population, federation.items):
            raise MessageError("the run is over other users or items than the federation file says; drop it")
        kinds, kind = federation.mechanisms, announced.config.privacy.mechanism.kind
        if kinds is not None and kind not in kinds:
            raise PolicyRefused(f"the run's plan is {kind}; the federation file allows {', '.join(kinds)}")

    def _begin(self, announced: Announcement) -> None:
        """Take part in a new run beside those that go on."""
        config, book = announced.config, self._state.book
        self._policy.accept_settings(config.method)
        self._policy.accept_plan(
            config.registered().name, config.privacy, announced.rounds, announced.n_users, seeded=announced.seeded
        )
        if between_two_servers(announced):
            self._policy.accept_helper(self._party.federation.helper)
        self._policy.accept_donors(np.intersect1d(self._users, announced.donors, assume_unique=True))
        if any(run.run == announced.run for run in book.ended):
            raise NodeRefused("this node has left that run and does not come back to it; begin a new run")
        if len(book.active) >= self._policy.max_runs:
            raise PolicyRefused(
                f"this node takes part in {len(book.active)} runs and its policy allows max_runs = "
                f"{self._policy.max_runs}; end one first"
            )
        Budget(self._policy, self._state.costs_of_other_runs()).accept_run(config.privacy)
        tier, salt = self._policy.tier_under(config.privacy), secrets.token_hex(ROOT_BYTES)
        assembly = self._private_side.assembled(announced, salt)
        self._state.begin(NodeRecord(salt=salt, tier=tier), RunMemory(assembly, assembly.clients.state()))
