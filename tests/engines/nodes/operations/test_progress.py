"""One line a round, honest about aborted ones; and the server's metrics and health, which say the same."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privfed.engines.nodes.channel import MessageTraffic
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.operations import RoundReport, ServerMonitor, round_line
from privfed.engines.nodes.operations.health import HealthCode
from privfed.engines.nodes.operations.server_monitor import SERVER_METRICS
from tests.engines.nodes.operations.test_metrics import parsed

OPENED = RoundReport(
    round=3, rounds=10, reason=None, nodes=3, users=45, seconds=1.24, epsilon=lambda: 0.8132, delta=1e-5,
    traffic=MessageTraffic(exchanges=9, up_bytes=700, down_bytes=900, seconds={"train.input": 2.5}, missing=1),
    incidents={"policy": 2}, standing={"joined": 4, "resting": 1, "refused": 1, "excluded": 0},
)  # fmt: skip
ABORTED = replace(
    OPENED, round=4, reason="1 of 3 nodes answered", nodes=0, users=0, traffic=MessageTraffic(aborted_rounds=1)
)


class Silence:
    """Nodes that fall silent from some exchange on."""

    def __init__(self, inner: InProcess, after: int) -> None:
        self.inner, self.left = inner, after

    def nodes(self) -> Any:
        return self.inner.nodes()

    def exchange(self, stage: str, requests: Any, timeout: float) -> Any:
        self.left -= 1
        return self.inner.exchange(stage, requests, timeout) if self.left >= 0 else {}


def test_an_opened_round() -> None:
    assert round_line(OPENED) == (
        "round 3 of 10: opened with 3 nodes, 45 users, in 1.2 s; epsilon 0.813 at delta 1e-05"
    )


def test_an_aborted_round_says_so_and_why() -> None:
    assert round_line(ABORTED) == (
        "round 4 of 10: ABORTED, nothing was opened, in 1.2 s: 1 of 3 nodes answered; 1 of 4 rounds aborted so far; "
        "epsilon 0.813 at delta 1e-05"
    )


@pytest.mark.parametrize("epsilon", [math.inf, math.nan])
def test_no_guarantee_is_said(epsilon: float) -> None:
    assert round_line(replace(OPENED, epsilon=lambda: epsilon)).endswith("; no epsilon is guaranteed")


def test_a_reason_forges_no_line() -> None:
    line = round_line(replace(ABORTED, reason="\x1b[2K\rround 4 of 10: opened\n\u202e"))
    assert line.isprintable()


def test_reports_are_those_of_the_run(federation: Callable[..., Any]) -> None:
    f, reports = federation(rounds=3), []
    transport = Silence(InProcess(f.nodes), after=10_000)

    def progress(report: RoundReport) -> None:
        reports.append(report)
        transport.left = 1 if report.round == 1 else 10_000

    result = f.train(transport, progress=progress)
    assert [report.round for report in reports] == [1, 2, 3]
    assert [report.reason is None for report in reports] == [True, False, True]
    assert [(report.nodes, report.users) for report in reports] == [(4, 45), (0, 0), (4, 45)]
    assert [report.traffic.aborted_rounds for report in reports] == [0, 1, 1]
    assert reports[-1].traffic.up_bytes <= result.traffic.up_bytes
    assert reports[0].traffic.up_bytes < reports[-1].traffic.up_bytes
    assert all(report.standing["joined"] == 4 for report in reports)
    assert reports[-1].epsilon() == math.inf
    assert [line[:20] for line in map(round_line, reports)] == [
        "round 1 of 3: opened", "round 2 of 3: ABORTE", "round 3 of 3: opened",
    ]  # fmt: skip


def test_incidents_are_counted_by_code(federation: Callable[..., Any]) -> None:
    f, reports = federation("popularity", rounds=1), []
    f.nodes[103].policy = f.nodes[103].policy.model_copy(update={"methods": ("feddae",)})
    f.nodes[103]._joining._policy = f.nodes[103].policy
    f.train(progress=reports.append)
    assert dict(reports[0].incidents) == {"policy": 1}
    assert dict(reports[0].standing) == {"joined": 3, "resting": 0, "refused": 1, "excluded": 0}


def server_samples(monitor: ServerMonitor) -> dict[tuple[str, str], float]:
    return {
        (name, ",".join(value for _, value in labels)): v for (name, labels), v in parsed(monitor.metrics()).items()
    }


def test_metrics_of_a_server_are_those_of_the_last_report(tmp_path: Path) -> None:
    times = iter([0.0, 5.0, 7.0, 100.0])
    monitor = ServerMonitor(tmp_path, 10, clock=lambda: next(times))
    monitor.update(replace(OPENED, traffic=replace(OPENED.traffic, aborted_rounds=1)))
    found = server_samples(monitor)
    assert found[("privfed_server_round", "")] == 3
    assert found[("privfed_server_planned_rounds", "")] == 10
    assert found[("privfed_server_rounds_total", "opened")] == 2
    assert found[("privfed_server_rounds_total", "aborted")] == 1
    assert found[("privfed_server_nodes", "resting")] == 1
    assert found[("privfed_server_incidents_total", "policy")] == 2
    assert found[("privfed_server_received_bytes_total", "")] == 700
    assert found[("privfed_server_seconds_total", "train.input")] == 2.5
    assert found[("privfed_server_epsilon", "")] == 0.8132
    assert found[("privfed_server_last_round_seconds", "")] == 2
    assert found[("privfed_uptime_seconds", "")] == 7
    assert {name for name, _ in found} == {metric.name for metric in SERVER_METRICS}


def test_a_server_that_opened_nothing_is_not_healthy(tmp_path: Path) -> None:
    monitor = ServerMonitor(tmp_path / "not yet", 10)
    assert monitor.health().healthy
    monitor.update(replace(ABORTED, round=1))
    assert monitor.health().reason is HealthCode.NO_ROUND_COMPLETED
    monitor.update(replace(OPENED, round=2, traffic=MessageTraffic(aborted_rounds=1)))
    assert monitor.health().healthy


def test_a_server_whose_folder_takes_no_file_is_not_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = ServerMonitor(tmp_path, 10)
    monkeypatch.setattr("privfed.engines.nodes.operations.server_monitor.writable", lambda folder: False)
    assert monitor.health().reason is HealthCode.FOLDER_NOT_WRITABLE
