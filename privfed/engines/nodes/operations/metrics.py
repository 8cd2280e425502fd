"""Counters and gauges of one process, and the text in which Prometheus reads them (exposition format 0.0.4).

A metric declares its labels and what values they may have. Anything else is counted under `other`, so that nothing
that a peer chooses becomes a label, and the number of series is bounded whatever peers do.
"""

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

OTHER = "other"
"""Label value of everything that a metric does not name."""

MAX_SERIES = 512
"""Series of one metric; whatever would begin another one is counted under `other`."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """One label of a metric.

    Attributes:
        name: of the label.
        values: that are known beforehand, or a pattern that all of them match.
    """

    name: str
    values: frozenset[str] | re.Pattern[str]

    def bounded(self, value: str) -> str:
        """The value, or `other` where it is none of the label's."""
        if isinstance(self.values, frozenset):
            return value if value in self.values else OTHER
        return value if self.values.fullmatch(value) else OTHER


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One counter or gauge, with a series for each combination of labels.

    Attributes:
        name: with its unit, as Prometheus has it.
        kind: a counter only rises while the process lives; a gauge goes up and down.
        help: one sentence.
        labels: in order.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.name, *(label.name for label in self.labels)):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot name a metric or a label: use lower-case letters, digits and _")


class Registry:
    """The metrics of a process; threads may change and read them at once.

    Args:
        metrics: all that there are, in the order of the text.
    """

    def __init__(self, metrics: Sequence[MetricFamily]) -> None:
        self._series: dict[MetricFamily, dict[Labels, float]] = {metric: {} for metric in metrics}
        self._lock = threading.Lock()

    def add(self, metric: MetricFamily, amount: float, *labels: str) -> None:
        """Let a metric rise."""
        with self._lock:
            series, key = self._located(metric, labels)
            series[key] = series.get(key, 0.0) + amount

    def set(self, metric: MetricFamily, value: float, *labels: str) -> None:
        """Give a metric a value."""
        with self._lock:
            series, key = self._located(metric, labels)
            series[key] = value

    def replace(self, metric: MetricFamily, values: Mapping[Labels, float]) -> None:
        """Give all series of a metric their values; those that are not named end."""
        with self._lock:
            self._series[metric].clear()
            for labels, value in values.items():
                series, key = self._located(metric, labels)
                series[key] = value

    def value(self, metric: MetricFamily, *labels: str) -> float | None:
        """One series; None where it has no value yet."""
        with self._lock:
            return self._series[metric].get(labels)

    def text(self) -> str:
        """All metrics that have a value, in the exposition format."""
        with self._lock:
            kept = {metric: dict(series) for metric, series in self._series.items() if series}
        return "".join(f"{line}\n" for metric, series in kept.items() for line in _lines(metric, series))

    def _located(self, metric: MetricFamily, labels: Labels) -> tuple[dict[Labels, float], Labels]:
        series = self._series[metric]
        key = tuple(label.bounded(value) for label, value in zip(metric.labels, labels, strict=True))
        if key in series or len(series) < MAX_SERIES:
            return series, key
        return series, (OTHER,) * len(key)


def _lines(metric: MetricFamily, series: Mapping[Labels, float]) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped_help(metric.help)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for key, value in sorted(series.items()):
        pairs = [f'{label.name}="{text.translate(_ESCAPES)}"' for label, text in zip(metric.labels, key, strict=True)]
        yield f"{metric.name}{'{' + ','.join(pairs) + '}' if pairs else ''} {_number(value)}"


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def metrics_table(metrics: Sequence[MetricFamily]) -> str:
    """The metrics as rows of a Markdown table, for `docs/guides/operating.md`."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(label.name for label in metric.labels)} | {metric.help} |"
        for metric in metrics
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])
