"""What happened in a round, as a record and as one line for whoever follows a run.

    round 3 of 10: opened with 3 nodes, 45 users, in 1.2 s; epsilon 0.813 at delta 1e-05
    round 4 of 10: ABORTED, nothing was opened, in 60.1 s: 1 of 3 nodes answered; 1 of 4 rounds aborted so far; ...

Epsilon is that of the server's ledger, which may hold the query of an aborted round: users are recorded before a sum is
opened.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from privfed.engines.nodes.channel import MessageTraffic
from privfed.engines.nodes.operations.logs import escape
from privfed.engines.nodes.operations.privacy_loss import loss_so_far
from privfed.evaluation import RoundEvaluation
from privfed.evaluation.result import Metric

if TYPE_CHECKING:
    from privfed.engines.nodes.remote_federation import RemoteFederation

UNUSED = "unused_reply"
"""Code of incidents that are no refusals."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A round that has ended, and the run so far.

    Attributes:
        round: its number, from 1.
        rounds: of the whole run.
        reason: why it was aborted; None where it was opened.
        nodes: whose users are in the round's last release.
        users: in it.
        seconds: that the round took.
        epsilon: of the run so far, computed when it is called, which may take seconds (`loss_so_far`).
        delta: at which epsilon holds.
        traffic: of the run so far.
        incidents: of the run so far, by code.
        standing: number of organisations that joined, of these that rest because they were silent again and again, that
            refused, and that are excluded because they were proven to lie.
        evaluated: quality, where it was measured.
    """

    round: int
    rounds: int
    reason: str | None
    nodes: int
    users: int
    seconds: float
    epsilon: Callable[[], float]
    delta: float
    traffic: MessageTraffic = field(default_factory=MessageTraffic)
    incidents: Mapping[str, int] = field(default_factory=dict)
    standing: Mapping[str, int] = field(default_factory=dict)
    evaluated: RoundEvaluation | None = None


def round_report(
    federation: "RemoteFederation", t: int, seconds: float, evaluated: RoundEvaluation | None
) -> RoundReport:
    """The record of round `t`, which has just ended: the one function here that reads a federation's insides."""
    release, roster, ledger = federation.released, federation.roster, federation.guard.ledger
    opened = federation.abort_reason is None and release is not None
    return RoundReport(
        round=t + 1,
        rounds=federation.announced.rounds,
        reason=federation.abort_reason,
        nodes=len(release.nodes) if opened and release else 0,
        users=len(release.members) if opened and release else 0,
        seconds=seconds,
        epsilon=loss_so_far(ledger),
        delta=ledger.plan.delta,
        traffic=replace(federation.traffic, seconds=dict(federation.traffic.seconds)),
        incidents=Counter(incident.code or UNUSED for incident in federation.incidents),
        standing={
            "joined": sum(seat < roster.seats for seat in roster.nonces),
            "resting": sum(roster.rests[seat] > 0 for seat in roster.nonces),
            "refused": len(roster.refused),
            "excluded": len(roster.excluded),
        },
        evaluated=evaluated,
    )


def round_line(report: RoundReport) -> str:
    """A round in one printable line."""
    if report.reason is None:
        outcome = f"opened with {report.nodes} nodes, {report.users} users, in {report.seconds:.1f} s"
    else:
        outcome = f"ABORTED, nothing was opened, in {report.seconds:.1f} s: {report.reason}"
    aborted = report.traffic.aborted_rounds
    parts = [
        f"round {report.round} of {report.rounds}: {outcome}",
        f"{aborted} of {report.round} rounds aborted so far" if aborted else "",
        _epsilon(report),
        _quality(report.evaluated),
    ]
    return escape("; ".join(part for part in parts if part))


def _epsilon(report: RoundReport) -> str:
    epsilon = report.epsilon()
    if math.isfinite(epsilon):
        return f"epsilon {epsilon:.3f} at delta {report.delta:g}"
    return "no epsilon is guaranteed"


def _quality(evaluated: RoundEvaluation | None) -> str:
    return "; ".join(
        f"{part} " + ", ".join(map(_metric, result.metrics))
        for part, result in (evaluated.results if evaluated is not None else {}).items()
    )


def _metric(metric: Metric) -> str:
    """A metric, and the interval of one that is noisy."""
    interval = "" if metric.noise is None else f" [{metric.lo:.4f}, {metric.hi:.4f}]"
    return f"{metric.name}@{metric.k} {metric.value:.4f}{interval}"
