"""What a node's metrics and health say is what its ledger, its policy and its replies say."""

import json
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from privfed.engines.nodes.errors import RefusalCode
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.operations import NodeMonitor, node_probe
from privfed.engines.nodes.operations.health import HealthCode
from privfed.engines.nodes.operations.metrics import OTHER
from privfed.engines.nodes.operations.node_monitor import NODE_METRICS
from privfed.engines.nodes.policy import Policy
from tests.engines.nodes.operations.test_metrics import parsed

PLAN = "distributed-gaussian:noise_multiplier=1.0,clip_norm=10.0,n_min_honest=45"
POLICY = Policy(allow_simulation=True, max_epsilon=500.0, max_delta=0.5, mechanisms=("distributed_gaussian",))


class Recorder:
    """A node that keeps its replies."""

    def __init__(self, monitor: NodeMonitor) -> None:
        self.monitor, self.requests, self.replies = monitor, [], []

    def handle(self, stage: str, request: bytes) -> bytes:
        self.requests.append(request)
        self.replies.append(self.monitor.handle(stage, request))
        return self.replies[-1]


@pytest.fixture
def watched(federation: Callable[..., Any], count_server: Callable[[], Any]) -> Any:
    """Two rounds of four nodes that are watched."""
    f = federation("feddae", PLAN, policy=POLICY)
    f.recorders = {number: Recorder(NodeMonitor(node)) for number, node in f.nodes.items()}
    f.server, f.running = count_server(), f.remote(InProcess(f.recorders))
    for t in range(2):
        assert f.running.run(f.server, t)
    return f


def samples(monitor: NodeMonitor) -> dict[str, float]:
    """Metrics with their labels in short: `name{a,b}`."""
    return {
        name + (f"{{{','.join(value for _, value in labels)}}}" if labels else ""): value
        for (name, labels), value in parsed(monitor.metrics()).items()
    }


def test_metrics_are_those_of_the_replies_and_the_ledger(watched: Any) -> None:
    run = watched.running.announced.run
    for number, recorder in watched.recorders.items():
        found, ledger = samples(recorder.monitor), watched.nodes[number].ledger
        assert sum(v for k, v in found.items() if k.startswith("privfed_node_requests")) == len(recorder.requests)
        assert found["privfed_node_requests_total{train.announce,answered}"] == 1
        assert found["privfed_node_requests_total{train.input,answered}"] == 2
        assert found["privfed_node_received_bytes_total"] == sum(map(len, recorder.requests))
        assert found["privfed_node_sent_bytes_total"] == sum(map(len, recorder.replies))
        assert found[f"privfed_node_rounds{{{run}}}"] == 2
        assert found[f"privfed_node_ledger_entries{{{run}}}"] == len(ledger.entries) == 2
        assert found[f"privfed_node_epsilon{{{run}}}"] == pytest.approx(ledger.guarantee().epsilon, rel=1e-12)
        assert found["privfed_node_epsilon_sum"] == found[f"privfed_node_epsilon{{{run}}}"]
        assert 0 < found["privfed_node_epsilon_sum"] < math.inf
        assert found["privfed_node_max_epsilon_sum"] == 500
        assert found["privfed_node_active_runs"] == 1
        assert not [name for name in found if "refusals" in name]
        assert recorder.monitor.health().healthy


def test_every_metric_of_a_node_is_used_or_left_out_for_a_reason(watched: Any) -> None:
    monitor = watched.recorders[100].monitor
    monitor.handle("train.share", b"")
    named = {name for name, _ in parsed(monitor.metrics())}
    assert {metric.name for metric in NODE_METRICS} - named == {"privfed_node_max_epsilon"}


def test_an_earlier_run_stays_in_the_sum(watched: Any) -> None:
    monitor, first = watched.recorders[100].monitor, watched.running.announced.run
    before = samples(monitor)["privfed_node_epsilon_sum"]
    second = watched.remote(InProcess(watched.recorders))
    assert second.run(watched.server, 0)
    found = samples(monitor)
    assert found[f"privfed_node_epsilon{{{first}}}"] == pytest.approx(before, rel=1e-9)
    assert found["privfed_node_epsilon_sum"] == pytest.approx(
        before + found[f"privfed_node_epsilon{{{second.announced.run}}}"], rel=1e-9
    )


@pytest.mark.parametrize(
    "stage", ["train.share", "train.nothing", 'a"} 1\nprivfed_node_active_runs 7\n', "\x1b[2J", ""]
)
def test_whatever_a_peer_sends_is_counted_under_names_that_it_does_not_choose(watched: Any, stage: str) -> None:
    monitor = watched.recorders[100].monitor
    before = samples(monitor)
    monitor.handle(stage, b"\x1b" * 100)
    found, known = samples(monitor), stage if stage in node_probe.STAGES else OTHER
    assert found[f"privfed_node_requests_total{{{known},bad_message}}"] == 1
    assert found["privfed_node_refusals_total{bad_message}"] == 1
    assert found["privfed_node_active_runs"] == before["privfed_node_active_runs"] == 1
    assert monitor.health().healthy


def test_a_run_without_a_guarantee_is_infinite(federation: Callable[..., Any], count_server: Callable[[], Any]) -> None:
    f = federation()
    monitors = {number: NodeMonitor(node) for number, node in f.nodes.items()}
    f.remote(InProcess(monitors)).run(count_server(), 0)
    assert samples(monitors[100])["privfed_node_epsilon_sum"] == math.inf


def test_times_are_those_of_the_clock(federation: Callable[..., Any]) -> None:
    node = federation().nodes[100]
    times = iter(range(100, 1000, 10))
    monitor = NodeMonitor(node, clock=lambda: float(next(times)))
    assert "privfed_node_last_request_seconds" not in samples(monitor)
    monitor.handle("train.share", b"")
    found = samples(monitor)
    assert found["privfed_node_seconds_total{train.share}"] == 10
    assert found["privfed_node_last_request_seconds"] == 10
    assert found["privfed_uptime_seconds"] == 40


def test_a_node_that_refuses_its_ledger_is_not_healthy(watched: Any) -> None:
    (ledger,) = (watched.folder / "node100").glob("ledger-*.jsonl")
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.splitlines(keepends=True)[0])
    monitor = NodeMonitor(Node(watched.folder / "node100", POLICY, watched.data[100]))
    assert monitor.health().reason is HealthCode.LEDGER_REFUSED
    ledger.write_bytes(whole)
    assert NodeMonitor(Node(watched.folder / "node100", POLICY, watched.data[100])).health().healthy


def test_a_node_whose_record_is_damaged_is_not_healthy(watched: Any) -> None:
    (watched.folder / "node100" / "state" / "record.json").write_text("{")
    monitor = NodeMonitor(watched.nodes[100])
    assert monitor.health().reason is HealthCode.STATE_REFUSED
    assert "privfed_node_epsilon_sum" in monitor.metrics()


def test_a_folder_that_takes_no_file_is_not_healthy(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("privfed.engines.nodes.operations.health.tempfile.TemporaryFile", full)
    health = watched.recorders[100].monitor.health()
    assert health.reason is HealthCode.FOLDER_NOT_WRITABLE


def test_health_leaves_no_file_and_names_no_path(watched: Any) -> None:
    folder, monitor = watched.folder / "node100", watched.recorders[100].monitor
    before = sorted(path.name for path in folder.rglob("*"))
    document = json.dumps(monitor.health().document())
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert str(watched.folder) not in document
    assert "node100" not in document


def test_a_request_is_an_event_in_the_log(watched: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "privfed.nodes")
    watched.recorders[100].monitor.handle("train.share", b"")
    (event,) = [record for record in caplog.records if getattr(record, "event", None) == "request"]
    assert (vars(event)["stage"], vars(event)["code"]) == ("train.share", RefusalCode.BAD_MESSAGE)


def test_the_stages_are_those_that_nodes_answer(federation: Callable[..., Any]) -> None:
    assert frozenset(federation().nodes[100]._handlers) == node_probe.STAGES
