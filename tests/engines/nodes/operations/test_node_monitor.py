"""What a node's metrics and health say is what its ledgers, its policy and its replies say."""

import json
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from privfed.engines.nodes.codec import Packet
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
POLICY = Policy(
    allow_simulation=True, max_epsilon=5000.0, max_epsilon_per_run=600.0, max_delta=0.5, own_noise_suffices=False,
    mechanisms=("distributed_gaussian",),
)  # fmt: skip
SIGNATURE = bytes(64)


class Recorder:
    """A node that keeps its requests and replies."""

    def __init__(self, monitor: NodeMonitor) -> None:
        self.monitor, self.requests, self.replies = monitor, [], []

    def handle(self, stage: str, request: bytes) -> bytes:
        self.requests.append(request)
        self.replies.append(self.monitor.handle(stage, request))
        return self.replies[-1]


class Refusing(Node):
    """A node that answers every request with one code."""

    def __init__(self, node: Node, code: str | None) -> None:
        self.__dict__ |= vars(node)
        self.code = code

    def handle(self, stage: str, request: bytes) -> bytes:
        return Packet({"refused": "no", "code": self.code} if self.code else {"refused": None}).encode() + SIGNATURE


@pytest.fixture
def watched(federation: Callable[..., Any], count_server: Callable[[], Any]) -> Any:
    """Two rounds of four nodes that are watched."""
    f = federation("feddae", PLAN, policy=POLICY)
    f.recorders = {number: Recorder(NodeMonitor(node)) for number, node in f.nodes.items()}
    f.counting, f.running = count_server(), f.remote(InProcess(f.recorders))
    for t in range(2):
        assert f.running.run(f.counting, t)
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
        assert found["privfed_node_max_epsilon_sum"] == 5000
        assert found["privfed_node_max_epsilon"] == 600
        assert found["privfed_node_active_runs"] == 1
        assert not [name for name in found if "refusals" in name]
        assert recorder.monitor.health().healthy


def test_every_metric_of_a_node_is_used(watched: Any) -> None:
    monitor = watched.recorders[100].monitor
    monitor.handle("train.share", b"")
    assert {metric.name for metric in NODE_METRICS} == {name for name, _ in parsed(monitor.metrics())}


def test_runs_add_up(watched: Any) -> None:
    monitor, first = watched.recorders[100].monitor, watched.running.announced.run
    before = samples(monitor)["privfed_node_epsilon_sum"]
    second = watched.remote(InProcess(watched.recorders))
    assert second.run(watched.counting, 0)
    found = samples(monitor)
    assert found[f"privfed_node_epsilon{{{first}}}"] == before
    assert found["privfed_node_active_runs"] == 2
    assert found["privfed_node_epsilon_sum"] == pytest.approx(
        before + found[f"privfed_node_epsilon{{{second.announced.run}}}"], rel=1e-12
    )


@pytest.mark.parametrize(
    "stage", ["train.share", "train.nothing", 'a"} 1\nprivfed_node_active_runs 7\n', "\x1b[2J", ""]
)
def test_whatever_a_peer_sends_is_counted_under_names_that_it_does_not_choose(watched: Any, stage: str) -> None:
    monitor = watched.recorders[100].monitor
    monitor.handle(stage, b"\x1b" * 100)
    found, known = samples(monitor), stage if stage in node_probe.STAGES else OTHER
    refused = [name for name in found if name.startswith(f"privfed_node_requests_total{{{known},bad_")]
    assert [found[name] for name in refused] == [1]
    assert found["privfed_node_active_runs"] == 1
    assert monitor.health().healthy


@pytest.mark.parametrize("code", [*RefusalCode, "a new one", '"} 1\n'])
def test_refusals_are_counted_by_code(watched: Any, code: str) -> None:
    monitor = NodeMonitor(Refusing(watched.nodes[100], str(code)))
    monitor.handle("train.input", b"")
    known = code if code in list(RefusalCode) else "refused"
    assert samples(monitor)[f"privfed_node_refusals_total{{{known}}}"] == 1
    assert samples(monitor)[f"privfed_node_requests_total{{train.input,{known}}}"] == 1


@pytest.mark.parametrize("reply", [b"", SIGNATURE, b"PFN1" + SIGNATURE])
def test_a_reply_that_is_none_is_counted_as_one_that_failed(reply: bytes) -> None:
    assert node_probe.outcome(reply) == RefusalCode.BAD_MESSAGE


def test_a_run_without_a_guarantee_is_infinite(federation: Callable[..., Any], count_server: Callable[[], Any]) -> None:
    f = federation()
    monitors = {number: NodeMonitor(node) for number, node in f.nodes.items()}
    assert f.remote(InProcess(monitors)).run(count_server(), 0)
    assert samples(monitors[100])["privfed_node_epsilon_sum"] == math.inf


def test_times_are_those_of_the_clock(federation: Callable[..., Any]) -> None:
    times = iter(range(100, 1000, 10))
    monitor = NodeMonitor(federation().nodes[100], clock=lambda: float(next(times)))
    assert "privfed_node_last_request_seconds" not in samples(monitor)
    monitor.handle("train.share", b"")
    found = samples(monitor)
    assert found["privfed_node_seconds_total{train.share}"] == 10
    assert found["privfed_node_last_request_seconds"] == 10
    assert found["privfed_uptime_seconds"] == 40


def test_a_node_that_refuses_its_ledger_is_not_healthy_until_it_is_mended(watched: Any) -> None:
    (ledger,) = (watched.folder / "node100").rglob("ledger*.jsonl")
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.splitlines(keepends=True)[0])
    node = watched.node(100)
    monitor = NodeMonitor(node)
    assert monitor.health().reason is HealthCode.LEDGER_REFUSED
    ledger.write_bytes(whole)
    monitor._node = Refusing(node, None)
    monitor.handle("train.settle", b"")
    assert monitor.health().healthy


def test_an_answer_in_one_run_does_not_heal_another(watched: Any) -> None:
    (ledger,) = (watched.folder / "node100").rglob("ledger*.jsonl")
    ledger.unlink()
    monitor = NodeMonitor(Refusing(watched.node(100), None))
    monitor.handle("train.settle", b"")
    assert monitor.health().reason is HealthCode.LEDGER_REFUSED


@pytest.mark.parametrize(
    ("code", "looks"), [(RefusalCode.REFUSED, True), (RefusalCode.NODE_FAILED, True), (RefusalCode.BAD_MESSAGE, False)]
)
def test_a_ledger_that_goes_bad_is_seen_by_the_nodes_own_refusals_only(watched: Any, code: str, looks: bool) -> None:
    monitor = NodeMonitor(Refusing(watched.node(100), code))
    assert monitor.health().healthy
    monitor._node.node = watched.node(100)
    (ledger,) = (watched.folder / "node100").rglob("ledger*.jsonl")
    ledger.unlink()
    monitor.handle("train.input", b"")
    assert monitor.health().healthy is not looks


def test_a_folder_that_was_restored_from_a_copy_stays_unhealthy(watched: Any) -> None:
    monitor = NodeMonitor(Refusing(watched.nodes[100], RefusalCode.ROLLED_BACK))
    monitor.handle("train.input", b"")
    monitor._node = Refusing(watched.nodes[100], None)
    monitor.handle("train.input", b"")
    assert monitor.health().reason is HealthCode.ROLLED_BACK


def test_a_node_whose_records_are_damaged_is_not_healthy(watched: Any) -> None:
    (book,) = (watched.folder / "node100").rglob("book.json")
    book.write_text("{")
    monitor = NodeMonitor(watched.nodes[100])
    assert monitor.health().reason is HealthCode.STATE_REFUSED
    assert "privfed_uptime_seconds" in monitor.metrics()


def test_a_folder_that_takes_no_file_is_not_healthy(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("privfed.engines.nodes.operations.health.tempfile.TemporaryFile", full)
    assert watched.recorders[100].monitor.health().reason is HealthCode.FOLDER_NOT_WRITABLE


def test_health_leaves_no_file_and_names_no_path(watched: Any) -> None:
    folder, monitor = watched.folder / "node100", watched.recorders[100].monitor
    before = sorted(path.name for path in folder.rglob("*"))
    document = json.dumps(monitor.health().document())
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert document == '{"status": "ok", "role": "node", "active_runs": 1}'


def test_a_request_is_an_event_in_the_log(watched: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "privfed.nodes")
    watched.recorders[100].monitor.handle("train.share", b"")
    (event,) = [record for record in caplog.records if getattr(record, "event", None) == "request"]
    assert vars(event)["stage"] == "train.share"
    assert vars(event)["code"] in list(RefusalCode)


def test_the_stages_are_those_that_nodes_answer(federation: Callable[..., Any]) -> None:
    assert frozenset(federation().nodes[100]._handlers) == node_probe.STAGES
