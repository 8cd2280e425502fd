"""What a node's own records say about its runs: the one file of this folder that reads a node's insides."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError, RefusalCode, StateError
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.operations.health import HealthCode
from privfed.engines.nodes.operations.privacy_loss import loss_so_far
from privfed.privacy import Ledger, LedgerError

ANSWERED = "answered"
"""Outcome of a request that was not refused."""

STAGES = frozenset(
    f"train.{step}" for step in ("announce", "invite", "share", "input", "reveal", "clear", "settle")
)  # fmt: skip
"""Stages that nodes answer."""

_LARGEST_REFUSAL = 2**16
_RECORDED = frozenset({"train.announce", "train.input", "train.clear"})
_INTERNAL = frozenset({RefusalCode.REFUSED, RefusalCode.NODE_FAILED})


@dataclass(frozen=True, slots=True)
class RunAccount:
    """What one run cost this node's users so far.

    Attributes:
        run: its name.
        active: whether the node still answers queries of it.
        entries: of its ledger; 0 where only its cost is kept.
        rounds: in which anything left.
        epsilon: of the worst-off user, computed when it is called, which may take seconds; infinite where nothing is
            guaranteed, not a number where no accountant covers the run.
        max_epsilon: what the node allows this run; None sets no bound of its own.
    """

    run: str
    active: bool
    entries: int
    rounds: int
    epsilon: Callable[[], float]
    max_epsilon: float | None = None


def outcome(reply: bytes) -> str:
    """How a node answered: `answered`, or the code of its refusal."""
    if len(reply) > _LARGEST_REFUSAL:
        return ANSWERED
    try:
        code = Packet.decode(reply).fields.get("code")
    except MessageError:
        return RefusalCode.BAD_MESSAGE
    return ANSWERED if code is None else RefusalCode.from_wire(code)


def accounts(node: Node) -> tuple[RunAccount, ...]:
    """All runs of a node, the oldest first; called where the node answers its requests, never at the same time.

    Raises:
        LedgerError: the ledger of a run is missing or is no longer what was written.
        StateError: the node's record cannot be read.
    """
    with node.state.locked():
        ledger, record = node.ledger, node.state.record
    earlier = [
        RunAccount(
            one.run, active=False, entries=0, rounds=one.rounds,
            epsilon=partial(float, math.inf if one.epsilon is None else one.epsilon),
        )
        for one in record.earlier
    ]  # fmt: skip
    return (*earlier, *([] if ledger is None or record.run is None else [_active(record.run.run, ledger)]))


def may_change(stage: str, code: str) -> bool:
    """Whether accounts may be others after a request; a flood of malformed ones makes nobody read a ledger."""
    return stage in _RECORDED if code == ANSWERED else code in _INTERNAL


def max_epsilon(node: Node) -> float | None:
    """What the node's policy allows all runs together; None where it sets no bound."""
    return node.policy.max_epsilon


def failure(error: Exception) -> HealthCode:
    """Why the records cannot be read."""
    return HealthCode.STATE_REFUSED if isinstance(error, StateError) else HealthCode.LEDGER_REFUSED


FAILURES = (LedgerError, StateError)
"""What `accounts` raises."""


def _active(run: str, ledger: Ledger) -> RunAccount:
    entries = ledger.entries
    rounds = len({entry.cohort_id for entry in entries})
    return RunAccount(run, active=True, entries=len(entries), rounds=rounds, epsilon=loss_so_far(ledger))
