"""What a node's own records say about its runs: the one file of this folder that reads a node's insides."""

import math
from contextlib import suppress
from dataclasses import dataclass

from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError, RefusalCode, StateError
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_state import NodeState
from privfed.engines.nodes.operations.health import HealthCode
from privfed.engines.nodes.record import Book, RunCost
from privfed.privacy import LedgerError
from secure_agg.primitives.keys import SIGNATURE_BYTES

ANSWERED = "answered"
"""Outcome of a request that was not refused."""

STAGES = frozenset(
    f"train.{step}"
    for step in ("announce", "invite", "share", "check", "input", "confirm", "reveal", "upload", "clear", "settle")
)
"""Stages that nodes answer."""

_LARGEST_REFUSAL = 2**16


@dataclass(frozen=True, slots=True)
class RunAccount:
    """What one run cost this node's users so far.

    Attributes:
        run: its name.
        epsilon: of the worst-off user; infinite where nothing is guaranteed.
        rounds: in which anything left.
        entries: of its ledger; None where it has ended.
    """

    run: str
    epsilon: float
    rounds: int
    entries: int | None = None

    @classmethod
    def from_cost(cls, cost: RunCost, entries: int | None = None) -> "RunAccount":
        """The account of a run by the node's book."""
        return cls(cost.run, math.inf if cost.epsilon is None else cost.epsilon, cost.rounds, entries)


def outcome(reply: bytes) -> str:
    """How a node answered: `answered`, or the code of its refusal."""
    if len(reply) > _LARGEST_REFUSAL:
        return ANSWERED
    try:
        code = Packet.decode(memoryview(reply)[:-SIGNATURE_BYTES]).fields.get("code")
    except MessageError:
        return RefusalCode.BAD_MESSAGE
    return ANSWERED if code is None else RefusalCode.from_wire(code)


def accounts(node: Node) -> list[RunAccount]:
    """All runs of a node, those that have ended first; waits for a request that is being answered.

    Raises:
        StateError, LedgerError: what the runs cost cannot be read.
    """
    book = NodeState(node.folder).audited()
    active = [RunAccount.from_cost(one.cost, one.entries) for one in book.active.values()]
    return [*map(RunAccount.from_cost, book.ended), *active]


def failure(node: Node) -> HealthCode | None:
    """Why a node cannot go on with a run that it takes part in; None where it can.

    Called where its requests are answered, never at the same time.
    """
    try:
        NodeState(node.folder).require_ledgers()
    except LedgerError:
        return HealthCode.LEDGER_REFUSED
    except StateError:
        return HealthCode.STATE_REFUSED
    return None


def limits(node: Node) -> tuple[float | None, float | None]:
    """What the node's policy allows a run and all runs together; None where it sets no bound."""
    return node.policy.max_epsilon_per_run, node.policy.max_epsilon


def active_runs(node: Node) -> int:
    """Number of runs that the node takes part in; 0 where its book cannot be read."""
    with suppress(StateError):
        return len(Book.load(node.state.states).active)
    return 0
