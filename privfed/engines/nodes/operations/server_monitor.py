"""Metrics and health of a server's run, as of the last round that ended."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from privfed import __version__
from privfed.engines.nodes.errors import RefusalCode
from privfed.engines.nodes.operations.health import Health, HealthCode, writable
from privfed.engines.nodes.operations.metrics import Label, MetricFamily, Registry
from privfed.engines.nodes.operations.node_monitor import INFO, UPTIME
from privfed.engines.nodes.operations.progress import UNUSED, RoundReport

STEPS = Label("stage", re.compile(r"train\.[a-z_]{1,32}"))
OUTCOME = Label("outcome", frozenset({"opened", "aborted"}))
INCIDENT = Label("code", frozenset({UNUSED, *(code.value for code in RefusalCode)}))
STANDING = Label("state", frozenset({"joined", "resting", "refused", "excluded"}))

ROUND = MetricFamily("privfed_server_round", "gauge", "Number of the last round that ended")
PLANNED = MetricFamily("privfed_server_planned_rounds", "gauge", "Rounds of the run")
ENDED = MetricFamily(
    "privfed_server_rounds_total", "counter", "Rounds that ended, by whether a sum was opened", (OUTCOME,)
)
AGE = MetricFamily("privfed_server_last_round_seconds", "gauge", "Time since the last round ended")
LASTED = MetricFamily("privfed_server_round_duration_seconds", "gauge", "Time that the last round took")
USERS = MetricFamily("privfed_server_round_users", "gauge", "Users in the last round's sum; 0 where it was aborted")
NODES = MetricFamily("privfed_server_nodes", "gauge", "Organisations; those that rest have joined, too", (STANDING,))
INCIDENTS = MetricFamily(
    "privfed_server_incidents_total", "counter", "Replies that were not used, and refusals", (INCIDENT,)
)
MISSING = MetricFamily("privfed_server_missing_replies_total", "counter", "Replies that did not come")
UP = MetricFamily("privfed_server_received_bytes_total", "counter", "Bytes of replies")
DOWN = MetricFamily("privfed_server_sent_bytes_total", "counter", "Bytes of requests")
STAGE_SECONDS = MetricFamily("privfed_server_seconds_total", "counter", "Time that exchanges took", (STEPS,))
LOSS = MetricFamily("privfed_server_epsilon", "gauge", "Privacy loss of the worst-off user so far; +Inf: no bound")

SERVER_METRICS = (
    INFO, UPTIME, ROUND, PLANNED, ENDED, AGE, LASTED, USERS, NODES, INCIDENTS, MISSING, UP, DOWN, STAGE_SECONDS, LOSS,
)  # fmt: skip


class ServerMonitor:
    """Takes the report of every round.

    Args:
        folder: of the run.
        rounds: of the run.
        clock: seconds that never go back.
    """

    def __init__(self, folder: Path, rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock, self._registry = folder, clock, Registry(SERVER_METRICS)
        self._started = self._ended = clock()
        self._report: RoundReport | None = None
        self._registry.set(ROUND, 0)
        self._registry.set(PLANNED, rounds)

    def update(self, report: RoundReport) -> None:
        """Take over a round that has ended."""
        registry, traffic = self._registry, report.traffic
        self._ended, self._report = self._clock(), report
        for metric, value in (
            (ROUND, report.round), (LASTED, report.seconds), (USERS, report.users), (MISSING, traffic.missing),
            (UP, traffic.up_bytes), (DOWN, traffic.down_bytes),
        ):  # fmt: skip
            registry.set(metric, value)
        registry.set(ENDED, report.round - traffic.aborted_rounds, "opened")
        registry.set(ENDED, traffic.aborted_rounds, "aborted")
        registry.replace(NODES, {(state,): count for state, count in report.standing.items()})
        registry.replace(INCIDENTS, {(code,): count for code, count in report.incidents.items()})
        registry.replace(STAGE_SECONDS, {(stage,): seconds for stage, seconds in traffic.seconds.items()})

    def health(self) -> Health:
        """Whether the run gets anywhere: its folder takes files, and not every round so far was aborted."""
        report = self._report
        ended, aborted = (0, 0) if report is None else (report.round, report.traffic.aborted_rounds)
        reason = None if not ended or aborted < ended else HealthCode.NO_ROUND_COMPLETED
        if self._folder.exists() and not writable(self._folder):
            reason = HealthCode.FOLDER_NOT_WRITABLE
        return Health("server", reason, {"round": ended, "aborted_rounds": aborted})

    def metrics(self) -> str:
        """All metrics."""
        now, report = self._clock(), self._report
        if report is not None:
            self._registry.set(LOSS, report.epsilon())
        self._registry.set(INFO, 1, __version__)
        self._registry.set(UPTIME, now - self._started)
        self._registry.set(AGE, now - self._ended)
        return self._registry.text()
