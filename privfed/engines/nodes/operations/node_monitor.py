"""Metrics and health of a node: a `Handler` that counts what passes through it, and is otherwise the node."""

import logging
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from privfed import __version__
from privfed.engines.nodes.errors import RefusalCode, StateError
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.operations import node_probe
from privfed.engines.nodes.operations.health import Health, HealthCode, writable
from privfed.engines.nodes.operations.metrics import Label, MetricFamily, Registry
from privfed.engines.nodes.operations.node_probe import ANSWERED, STAGES, RunAccount

_log = logging.getLogger("privfed.nodes")

MAX_RUNS = 32
"""Runs with series of their own: those that are active, then the latest."""

_INTERNAL = frozenset({RefusalCode.REFUSED, RefusalCode.NODE_FAILED})

STAGE = Label("stage", STAGES)
CODE = Label("code", frozenset({ANSWERED, *(code.value for code in RefusalCode)}))
RUN = Label("run", re.compile(r"[0-9a-f]{8,64}"))

INFO = MetricFamily(
    "privfed_build_info", "gauge", "1, with the version that runs", (Label("version", re.compile(r".+")),)
)
UPTIME = MetricFamily("privfed_uptime_seconds", "gauge", "Time since the process began to serve")
REQUESTS = MetricFamily("privfed_node_requests_total", "counter", "Requests, by how they were answered", (STAGE, CODE))
REFUSALS = MetricFamily("privfed_node_refusals_total", "counter", "Requests that were refused", (CODE,))
RECEIVED = MetricFamily("privfed_node_received_bytes_total", "counter", "Bytes of requests")
SENT = MetricFamily("privfed_node_sent_bytes_total", "counter", "Bytes of replies")
SECONDS = MetricFamily("privfed_node_seconds_total", "counter", "Time in which requests were answered", (STAGE,))
LAST = MetricFamily("privfed_node_last_request_seconds", "gauge", "Time since the last request of the server")
RUNS = MetricFamily("privfed_node_active_runs", "gauge", "Runs that the node takes part in")
ROUNDS = MetricFamily("privfed_node_rounds", "gauge", "Rounds in which anything left the node", (RUN,))
ENTRIES = MetricFamily("privfed_node_ledger_entries", "gauge", "Queries in the ledger of an active run", (RUN,))
EPSILON = MetricFamily(
    "privfed_node_epsilon", "gauge", "Privacy loss of the worst-off user so far; +Inf: no bound", (RUN,)
)
ALLOWED = MetricFamily("privfed_node_max_epsilon", "gauge", "What the policy allows a single run, where it bounds it")
EPSILON_SUM = MetricFamily("privfed_node_epsilon_sum", "gauge", "Sum of the epsilons of all runs")
ALLOWED_SUM = MetricFamily(
    "privfed_node_max_epsilon_sum", "gauge", "What the policy allows all runs, where it bounds them"
)

NODE_METRICS = (
    INFO, UPTIME, REQUESTS, REFUSALS, RECEIVED, SENT, SECONDS, LAST, RUNS, ROUNDS, ENTRIES, EPSILON, ALLOWED,
    EPSILON_SUM, ALLOWED_SUM,
)  # fmt: skip


class NodeMonitor:
    """Answers as a node does, and counts.

    Args:
        node: whose requests are counted.
        clock: seconds that never go back.
    """

    def __init__(self, node: Node, clock: Callable[[], float] = time.monotonic) -> None:
        self._node, self._clock = node, clock
        self._registry = Registry(NODE_METRICS)
        self._started = clock()
        self._last: float | None = None
        self._failure = node_probe.failure(node)
        self._scraping = threading.Lock()

    def handle(self, stage: str, request: bytes) -> bytes:
        """The node's own answer."""
        began = self._clock()
        reply = self._node.handle(stage, request)
        self._last = self._clock()
        code, known = node_probe.outcome(reply), STAGE.bounded(stage)
        self._registry.add(REQUESTS, 1, known, code)
        self._registry.add(RECEIVED, len(request))
        self._registry.add(SENT, len(reply))
        self._registry.add(SECONDS, self._last - began, known)
        if code != ANSWERED:
            self._registry.add(REFUSALS, 1, code)
        _log.debug(
            "%s: %s", known, code,
            extra={"event": "request", "stage": known, "code": code, "seconds": round(self._last - began, 3)},
        )  # fmt: skip
        self._look(code)
        return reply

    def health(self) -> Health:
        """Whether the node can do its work: its folder takes files, and it believes its own records."""
        reason = self._failure if writable(self._node.folder) else HealthCode.FOLDER_NOT_WRITABLE
        return Health("node", reason, {"active_runs": node_probe.active_runs(self._node)})

    def metrics(self) -> str:
        """All metrics."""
        with self._scraping:
            now, registry = self._clock(), self._registry
            registry.set(INFO, 1, __version__)
            registry.set(UPTIME, now - self._started)
            if self._last is not None:
                registry.set(LAST, now - self._last)
            with suppress(StateError):
                self._report(node_probe.accounts(self._node))
            return registry.text()

    def _look(self, code: str) -> None:
        """Whether the node still believes its records; refusals of what others did make nobody read a ledger."""
        if code == RefusalCode.ROLLED_BACK:
            self._failure = HealthCode.ROLLED_BACK
        elif self._failure is not HealthCode.ROLLED_BACK and (
            code in _INTERNAL or (self._failure is not None and code == ANSWERED)
        ):
            self._failure = node_probe.failure(self._node)

    def _report(self, accounts: list[RunAccount]) -> None:
        registry, (per_run, in_all) = self._registry, node_probe.limits(self._node)
        active, shown = [one for one in accounts if one.entries is not None], accounts[-MAX_RUNS:]
        registry.set(RUNS, len(active))
        registry.replace(ROUNDS, {(one.run,): one.rounds for one in shown})
        registry.replace(ENTRIES, {(one.run,): one.entries for one in shown if one.entries is not None})
        registry.replace(EPSILON, {(one.run,): one.epsilon for one in shown})
        registry.set(EPSILON_SUM, math.fsum(one.epsilon for one in accounts))
        for metric, bound in ((ALLOWED, per_run), (ALLOWED_SUM, in_all)):
            if bound is not None:
                registry.set(metric, bound)
