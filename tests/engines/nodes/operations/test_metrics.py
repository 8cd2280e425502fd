"""The registry writes what Prometheus reads, and no peer adds to its labels."""

import math
import re

import pytest

from privfed.engines.nodes.operations.metrics import MAX_SERIES, OTHER, Label, MetricFamily, Registry, metrics_table
from privfed.engines.nodes.operations.node_monitor import NODE_METRICS
from privfed.engines.nodes.operations.server_monitor import SERVER_METRICS

COUNT = MetricFamily("privfed_test_total", "counter", "What is counted", (Label("stage", frozenset({"a", "b"})),))
GAUGE = MetricFamily("privfed_test", "gauge", "What is measured")
ANY = MetricFamily("privfed_test_names", "gauge", "By name", (Label("name", re.compile(r"(?s).*")),))
HEX = MetricFamily("privfed_test_runs", "gauge", "By run", (Label("run", re.compile(r"[0-9a-f]+")),))
HOSTILE = ('a"b\\c\nd', "\x1b[2J", "\u202e", '"} 1\nprivfed_test 7', "")


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """An own reader of the exposition format, as its description says."""
    samples, typed = {}, {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed
            assert kind in {"counter", "gauge"}
            typed[name] = kind
            continue
        if line.startswith("# HELP "):
            continue
        found = re.fullmatch(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\["\\n])*",?)*)\})? (\S+)', line)
        assert found is not None, line
        name, inside, value = found.groups()
        assert name in typed
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\["\\n])*)"', inside or "")
        plain = tuple((k, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], v)) for k, v in pairs)
        assert (name, plain) not in samples
        samples[name, plain] = float(value)
    return samples


def test_text_is_read_back() -> None:
    registry = Registry((COUNT, GAUGE, ANY))
    registry.add(COUNT, 1, "a")
    registry.add(COUNT, 2.5, "a")
    registry.set(GAUGE, -0.125)
    for place, name in enumerate(HOSTILE):
        registry.set(ANY, place, name)
    samples = parsed(registry.text())
    assert samples.pop(("privfed_test_total", (("stage", "a"),))) == 3.5
    assert samples.pop(("privfed_test", ())) == -0.125
    assert samples == {("privfed_test_names", (("name", name),)): place for place, name in enumerate(HOSTILE)}


@pytest.mark.parametrize(
    ("value", "written"),
    [(3.0, "3"), (2.0**60, repr(2.0**60)), (0.1, "0.1"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, written: str) -> None:
    registry = Registry((GAUGE,))
    registry.set(GAUGE, value)
    assert registry.text().split("\n")[2] == f"privfed_test {written}"


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_that_a_metric_does_not_name_is_counted_as_other(value: str) -> None:
    registry = Registry((COUNT, HEX))
    registry.add(COUNT, 1, value)
    registry.set(HEX, 4, value)
    assert parsed(registry.text()) == {
        ("privfed_test_total", (("stage", OTHER),)): 1,
        ("privfed_test_runs", (("run", OTHER),)): 4,
    }


def test_series_are_bounded() -> None:
    registry = Registry((HEX,))
    for run in range(3 * MAX_SERIES):
        registry.add(HEX, 1, f"{run:x}")
    assert registry.value(HEX, "0") == 1
    assert registry.value(HEX, OTHER) == 2 * MAX_SERIES
    assert len(parsed(registry.text())) == MAX_SERIES + 1


def test_replaced_series_end() -> None:
    registry = Registry((HEX,))
    registry.set(HEX, 1, "aa")
    registry.replace(HEX, {("bb",): 2})
    assert parsed(registry.text()) == {("privfed_test_runs", (("run", "bb"),)): 2}


def test_a_metric_without_a_value_is_not_written() -> None:
    assert Registry((COUNT, GAUGE)).text() == ""


@pytest.mark.parametrize("name", ["", "Privfed", "a-b", "a b", "1a", 'a"'])
def test_names_are_words(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a metric"):
        MetricFamily(name, "gauge", "")
    with pytest.raises(ValueError, match="cannot name a metric"):
        MetricFamily("a", "gauge", "", (Label(name, frozenset()),))


@pytest.mark.parametrize("metrics", [NODE_METRICS, SERVER_METRICS], ids=["node", "server"])
def test_names_follow_the_conventions(metrics: tuple[MetricFamily, ...]) -> None:
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.name.startswith("privfed_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help
        assert "|" not in metric.help


def test_the_table_has_a_row_for_every_metric() -> None:
    assert metrics_table((COUNT, GAUGE)).split("\n")[2:] == [
        "| `privfed_test_total` | counter | stage | What is counted |",
        "| `privfed_test` | gauge |  | What is measured |",
    ]
