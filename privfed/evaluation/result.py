"""Measured quality, with its interval and the protocol it was measured under."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from privfed.evaluation.protocol import Protocol

MetricName = Literal[
    "hr", "ndcg", "recall", "mrr", "precision", "mse", "rmse", "mae", "user_mse", "user_rmse", "user_mae"
]


def ranking_metrics(protocol: Protocol) -> tuple[MetricName, ...]:
    """Names of the metrics that are measured at each cut-off of a ranking."""
    always: tuple[MetricName, ...] = ("hr", "ndcg", "recall", "mrr")
    return (*always, "precision") if protocol.precision else always


def without_absent(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """Fields to write, without those of these names that hold nothing: what was never measured leaves no trace."""
    return {name: value for name, value in fields.items() if name not in names or value is not None}


class Metric(BaseModel):
    """One metric with its 95 % bootstrap interval by user.

    Attributes:
        name: Of a ranking: hr, ndcg, recall, mrr or precision, means over users. Of predicted ratings: mse, rmse and
            mae over all held-out ratings, and with `user_` before it the mean over users of each user's own.
        k: Cut-off of a ranking; 0 for errors of ratings, which have none.
        value: What was measured.
        lo: Lower end of the interval.
        hi: Upper end.
        n_users: Users measured.
        noise: Standard deviation of the noise in `value`, which the interval then covers besides; None where it is
            exact. A noisy value and its interval are not cut to where the metric itself can lie.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: MetricName
    k: int
    value: float
    lo: float
    hi: float
    n_users: int
    noise: float | None = None

    @model_serializer(mode="wrap")
    def _of_what_there_is(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_absent(write(self), "noise")

    @property
    def slug(self) -> str:
        """Its name for files: "hr@10", or "rmse"."""
        return f"{self.name}@{self.k}" if self.k else self.name


class Ratio(BaseModel):
    """A number with its 95 % bootstrap interval by user.

    Attributes:
        value: What was measured.
        lo: Lower end of the interval.
        hi: Upper end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    value: float
    lo: float
    hi: float


class BeyondAccuracy(BaseModel):
    """What is recommended, whatever its accuracy, and for whom it is accurate.

    Attributes:
        k: Length of the lists that are looked at: the first cut-off.
        coverage: Share of the catalogue that is recommended to somebody; None where it was not released.
        popularity_lift: Mean training popularity of what is recommended over that of what is held out; None likewise.
        exposure: Share of all recommendations in each tenth of the catalogue, the most popular tenth first.
        exposure_noise: Standard deviation of the noise in each of these; None where they are exact.
        by_activity: NDCG at `k` for each tenth of the users by number of training items, the least active first;
            empty where it was not released.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    k: int
    coverage: float | None = None
    popularity_lift: Ratio | None = None
    exposure: tuple[float, ...]
    exposure_noise: float | None = None
    by_activity: tuple[Metric, ...] = ()


class PrivateChoice(BaseModel):
    """A choice among settings by noisy metrics on the validation part.

    Attributes:
        candidates: Settings of each candidate.
        values: NDCG of each at the first cut-off; that of the chosen one is a maximum of noisy numbers, so a little
            too high.
        chosen: Which one is kept.
        mu: What the choice cost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    candidates: tuple[dict[str, JsonValue], ...]
    values: tuple[Metric, ...]
    chosen: int
    mu: float


class EvaluationResult(BaseModel):
    """All metrics of one evaluation.

    Attributes:
        metrics: HR, NDCG, Recall and MRR at each cut-off, and Precision where the protocol asks for it; or the errors
            of predicted ratings.
        popularity: The same for ranking by popularity on the same users and candidates, if popularity was
        given.
        baselines: Of predicted ratings, the same errors for predicting means of training ratings, by the name of
            the mean; empty for a ranking.
        n_users: Users evaluated (those with a held-out item).
        tie_fraction: Share of users for whom the tie rule decides whether a held-out item makes a cut: it
            shares its score with other candidates, some of which fit above the cut and some not.
        part: Which held-out part was measured.
        protocol: How.
        warning: One sentence where the numbers are not to be trusted (ties decide too much; the predictions are
            worse than a constant), else None.
        beyond: What accuracy does not say; None where it was not measured (ratings, sampled candidates, the validation
            part, nodes).
        mu: What a noisy sum of everybody's metrics cost, which these were read off; None where metrics are exact.
        choice: The choice among settings before that; None where there was none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    metrics: tuple[Metric, ...]
    popularity: tuple[Metric, ...] | None
    baselines: Mapping[str, tuple[Metric, ...]] = Field(default_factory=dict)
    n_users: int
    tie_fraction: float
    part: Literal["valid", "test"]
    protocol: Protocol
    warning: str | None
    beyond: BeyondAccuracy | None = None
    mu: float | None = None
    choice: PrivateChoice | None = None

    @model_serializer(mode="wrap")
    def _of_what_there_is(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_absent(write(self), "beyond", "mu", "choice")

    @property
    def merit(self) -> float:
        """What rounds are chosen by, the higher the better: HR at the first cut-off, or the RMSE below zero."""
        return -self.metric("rmse").value if self.protocol.task == "rating" else self.metrics[0].value

    def metric(self, name: MetricName, k: int = 0) -> Metric:
        """The metric of this name and cut-off (0 for errors of ratings).

        Raises:
            ValueError: If it was not measured.
        """
        for metric in self.metrics:
            if (metric.name, metric.k) == (name, k):
                return metric
        measured = ", ".join(metric.slug for metric in self.metrics)
        asked = f"{name}@{k}" if k else name
        raise ValueError(f"{asked} was not measured; choose one of {measured}, or set task and k in the protocol.")


Part = Literal["valid", "test"]


@dataclass(frozen=True, slots=True)
class RoundEvaluation:
    """Utility after one round.

    Attributes:
        round: Counted from 0.
        results: By part of the data.
        by_user: Name, cut-off and values of the main ranking metric for every test user, ascending, to compare with
            another method user by user; None where ratings are predicted or the round was read from a file, which
            holds no value of a single user.
        gain: That metric less that of ranking by popularity, paired by user, of the round that would be reported when
            a checkpoint was written; None of others.
    """

    round: int
    results: dict[Part, EvaluationResult]
    by_user: "tuple[MetricName, int, Float64[np.ndarray, 'users']] | None" = field(
        default=None, compare=False, repr=False
    )
    gain: Ratio | None = field(default=None, compare=False)
