"""A run as people read it: on the terminal, in a notebook, as tables."""

import html as escaping
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from privfed.api import attacks
from privfed.audit.report import formatting
from privfed.evaluation import EvaluationResult, Metric, RoundEvaluation
from privfed.privacy import Guarantee

if TYPE_CHECKING:
    from privfed.api.result import TrainedRun

_ERRORS = {"mse": "MSE", "rmse": "RMSE", "mae": "MAE"}
_ADDED_BY = {
    "central": "noise added by a trusted server",
    "distributed": "noise added in shares by the devices, inside a secure sum",
    "local": "noise added on each device, so that nobody else is trusted",
}


def metrics_frame(result: EvaluationResult, popularity: EvaluationResult | None) -> pd.DataFrame:
    """metric, k, value, low, high, popularity."""
    return pd.DataFrame(
        [
            (_name(metric), metric.k, metric.value, metric.lo, metric.hi, _baseline(result, popularity, number))
            for number, metric in enumerate(result.metrics)
        ],
        columns=["metric", "k", "value", "low", "high", "popularity"],
    )


def history_frame(history: Iterable[RoundEvaluation]) -> pd.DataFrame:
    """round, part, metric, k, value, low, high; rounds counted from 1."""
    return pd.DataFrame(
        [
            (one.round + 1, part, _name(metric), metric.k, metric.value, metric.lo, metric.hi)
            for one in history
            for part, result in one.results.items()
            for metric in result.metrics
        ],
        columns=["round", "part", "metric", "k", "value", "low", "high"],
    )


def text(run: "TrainedRun") -> str:
    """Quality, privacy and, where it was attacked, the attack, a line each."""
    return "\n".join([_title(run), *(f"{head:<8} {said}" for head, said in _lines(run))])


def html(run: "TrainedRun") -> str:
    """The same as a small table, with all metrics below."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{head}</th><td style='text-align:left'>{escaping.escape(said)}</td></tr>"
        for head, said in _lines(run)
    )
    table = run.metrics.to_html(index=False, float_format=lambda value: f"{value:.3f}", border=0)
    return (
        f"<div><b>{escaping.escape(_title(run))}</b><table>{rows}</table>"
        f"<details><summary>All metrics</summary>{table}</details></div>"
    )


def privacy(guarantee: Guarantee) -> str:
    """The guarantee in one sentence without its full stop."""
    if math.isinf(guarantee.epsilon):
        return f"no guarantee (epsilon is infinite): {guarantee.reason_if_inf}"
    unit = formatting.named(formatting.UNITS, guarantee.unit)
    unit = {"everything one person contributes": "everything one user contributed"}.get(unit, unit)
    added = _ADDED_BY.get(guarantee.trust, guarantee.trust)
    chosen = f" (by what each chose: {formatting.tiers(guarantee.tiers)})" if guarantee.tiers else ""
    return f"epsilon {guarantee.epsilon:.2f} at delta {guarantee.delta:.1e} for {unit}{chosen}; {added}"


def main_metric(result: EvaluationResult) -> int:
    """Position of NDCG at the shortest cut-off, or of the first metric."""
    names = [metric.name for metric in result.metrics]
    return names.index("ndcg") if "ndcg" in names else 0


def _title(run: "TrainedRun") -> str:
    card = run.data.card
    mark = ", synthetic data" if card.synthetic else ""
    return (
        f"{run.method} on {card.name} ({card.users:,} users, {card.items:,} items), "
        f"{formatting.count(run.rounds, 'round')}, seed {run.config.seed}{mark}"
    )


def _lines(run: "TrainedRun") -> list[tuple[str, str]]:
    row = run.metrics.iloc[main_metric(run.test)]
    label = f"{row['metric']}@{row['k']}" if row["k"] else str(row["metric"])
    against = _against_popularity(run, row["value"], row["popularity"])
    quality = f"{row['value']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]     {against}"
    if run.test.mu is not None and run.test.warning is not None:
        quality = f"not known. {run.test.warning}"
    rows = run._findings.rows if run.attacked else []
    return [
        (label, quality),
        ("Privacy", privacy(run.guarantee)),
        *([("Attack", attacks.sentence(rows, run.guarantee.trust))] if run.attacked else []),
    ]


def _against_popularity(run: "TrainedRun", value: float, popularity: float) -> str:
    """Popularity, and how far above or below it this is."""
    if run.config.protocol.task == "rating":
        return f"best of the means {popularity:.3f}"
    if not popularity:
        return f"popularity {popularity:.3f}"
    gap = value / popularity - 1
    return f"popularity {popularity:.3f}     {abs(gap):.0%} {'above' if gap >= 0 else 'below'}".replace("%", " %")


def _baseline(result: EvaluationResult, popularity: EvaluationResult | None, number: int) -> float:
    if popularity is not None:
        return popularity.metrics[number].value
    return min((_values(metrics)[number] for metrics in result.baselines.values()), default=math.nan)


def _values(metrics: Sequence[Metric]) -> list[float]:
    return [metric.value for metric in metrics]


def _name(metric: Metric) -> str:
    """For example NDCG, RMSE or RMSE by user."""
    if metric.k:
        return formatting.named(formatting.METRICS, metric.name)
    return _ERRORS[metric.name.removeprefix("user_")] + (" by user" if metric.name.startswith("user_") else "")
