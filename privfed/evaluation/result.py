"""Measured ranking quality, with its interval and the protocol it was measured under."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from privfed.evaluation.protocol import Protocol

MetricName = Literal["hr", "ndcg", "recall", "mrr"]


class Metric(BaseModel):
    """One metric at one cut-off: the mean over users with its 95 % bootstrap interval by user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: MetricName
    k: int
    value: float
    lo: float
    hi: float
    n_users: int


class EvaluationResult(BaseModel):
    """All metrics of one evaluation.

    Attributes:
        metrics: HR, NDCG, Recall and MRR at each cut-off.
        popularity: The same for ranking by popularity on the same users and candidates, if popularity was
        given.
        n_users: Users evaluated (those with a held-out item).
        tie_fraction: Share of users for whom the tie rule decides whether a held-out item makes a cut: it
            shares its score with other candidates, some of which fit above the cut and some not.
        part: Which held-out part was ranked.
        protocol: How.
        warning: One sentence where ties decide too much to trust the numbers, else None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metrics: tuple[Metric, ...]
    popularity: tuple[Metric, ...] | None
    n_users: int
    tie_fraction: float
    part: Literal["valid", "test"]
    protocol: Protocol
    warning: str | None

    def metric(self, name: MetricName, k: int) -> Metric:
        """The metric of this name and cut-off.

        Raises:
            ValueError: If it was not measured.
        """
        for metric in self.metrics:
            if (metric.name, metric.k) == (name, k):
                return metric
        measured = ", ".join(f"{metric.name}@{metric.k}" for metric in self.metrics)
        raise ValueError(f"{name}@{k} was not measured; choose one of {measured}, or set k in the protocol.")
