"""`MetricVector`: one device's metrics as a vector of norm at most 1, and what a noisy sum of such vectors says.

With b = 1 for a person who has a held-out item (0 else, and then the whole vector is 0), metrics m_j in [0, 1] and
shares e_t of the recommendations that fall into each tenth of the catalogue, a device sends

    (w b,  w_1 b (m_1 - 1/2),  ...,  w_d b (m_d - 1/2),  w_e b e_1, ..., w_e b e_10).

Metrics are centred because the norm counts and not the difference of two people: a coordinate in [-1/2, 1/2] may be
sent at twice the weight of one in [0, 1]. The squared norm is at most w^2 + sum_j w_j^2 / 4 + w_e^2 (shares add up to
1, so their squares add up to at most 1), which the weights make 1: a person in or out moves the sum by 1 and no more.

From sums with noise of standard deviation s on every coordinate, with N = S_0 / w people,

    m_j = 1/2 + S_j / (w_j N),   with noise of standard deviation  s / N sqrt(1 / w_j^2 + (m_j - 1/2)^2 / w^2)

to first order. How people vary is not released: the variance of values in [0, 1] of mean m is at most m (1 - m)
(Bhatia and Davis 2000), and so intervals are wider than those of exact metrics.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from privfed.evaluation.beyond_accuracy import TENTHS
from privfed.evaluation.protocol import Protocol
from privfed.evaluation.result import BeyondAccuracy, EvaluationResult, Metric, MetricName

_COUNT, _FIRST, _OTHER, _EXPOSURE, _OF_POPULARITY = 0.35, 4.0, 1.0, 1.0, 0.3
"""Parts of the squared norm: of the count, and, of what is left, in proportion: the main metric, any other, exposure;
the same metric of popularity gets so much of its own."""
_COUNT_OF_CHOICE = 0.1
_WITHIN = 1 - 2.0**-20
"""What float32 sums of squares leave below 1."""
_FEW = 3.0
"""Standard deviations that the number of people must be above its noise, for ratios to mean anything."""
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class MetricVector:
    """Layout of the vector.

    Attributes:
        protocol: how devices measure.
        compared: whether the metrics of popularity, and exposure by tenths of popularity, are part of it: where the
            method publishes an order of all items.
    """

    protocol: Protocol
    compared: bool

    @property
    def keys(self) -> tuple[tuple[MetricName, int], ...]:
        """Metrics, the main one first: NDCG and HR at every cut-off."""
        names: tuple[MetricName, ...] = ("ndcg", "hr")
        return tuple((name, cut) for cut in self.protocol.k for name in names)

    @property
    def metrics(self) -> int:
        """Number of metrics, those of popularity included."""
        return len(self.keys) * (2 if self.compared else 1)

    @property
    def size(self) -> int:
        """Coordinates."""
        return 1 + self.metrics + (TENTHS if self.compared else 0)

    @property
    def weights(self) -> Float64[np.ndarray, " size"]:
        """Factors of all coordinates."""
        own = np.array([_FIRST] + [_OTHER] * (len(self.keys) - 1))
        parts = np.concatenate([own, _OF_POPULARITY * own, [_EXPOSURE]]) if self.compared else own
        parts = (1 - _COUNT) * parts / parts.sum()
        exposure = [math.sqrt(parts[-1])] * (TENTHS if self.compared else 0)
        weights: np.ndarray = np.concatenate(
            [[math.sqrt(_COUNT)], 2 * np.sqrt(parts[: self.metrics]), exposure], dtype=np.float64
        )
        return weights * _WITHIN

    def vectors(
        self,
        metrics: Float64[np.ndarray, "metrics people"],
        exposure: Float64[np.ndarray, "tenths people"],
    ) -> Float64[np.ndarray, "people size"]:
        """What devices send; whatever they measured, no vector is longer than 1.

        Args:
            metrics: by `keys`, then those of popularity; NaN for a person without a held-out item.
            exposure: share of the recommendations in each tenth of the catalogue; unused where nothing is compared.
        """
        measured: Bool[np.ndarray, " people"] = np.isfinite(metrics).all(0)
        parts = [np.clip(metrics, 0, 1) - 0.5, *([exposure] if self.compared else [])]
        return _weighted(parts, measured, self.weights)

    def result(
        self, sums: Sequence[float] | Float64[np.ndarray, " size"], deviation: float, *, mu: float, population: float
    ) -> EvaluationResult:
        """Metrics with their intervals.

        Args:
            sums: noisy sums of the vectors.
            deviation: standard deviation of the noise on every coordinate.
            mu: what the release cost.
            population: number of people in the sum, as far as it is public.
        """
        scaled = np.asarray(sums, dtype=np.float64) / self.weights
        noise = deviation / self.weights
        people = max(float(scaled[0]), 1.0)  # not cut at the population: that would bias every ratio
        lost = scaled[0] < _FEW * noise[0]
        found = centred_metrics(scaled, noise, people, [*self.keys, *(self.keys if self.compared else ())])
        own, popular = found[: len(self.keys)], found[len(self.keys) :]
        exposure = tuple((scaled[1 + self.metrics :] / people).tolist())
        return EvaluationResult(
            metrics=own,
            popularity=popular if self.compared else None,
            n_users=round(min(people, population)),
            tie_fraction=0.0,
            part="test",
            protocol=self.protocol,
            warning=(
                f"The noise on the number of people, {noise[0]:.3g}, leaves nothing of the metrics: raise "
                "evaluation.mu, or measure more people."
                if lost
                else None
            ),
            mu=mu,
            beyond=(
                BeyondAccuracy(k=self.protocol.k[0], exposure=exposure, exposure_noise=float(noise[-1] / people))
                if self.compared
                else None
            ),
        )


@dataclass(frozen=True, slots=True)
class ChoiceVector:
    """The main metric of several candidates on one device, from whose noisy sum the best one is chosen.

    All sums are released with Gaussian noise and charged in full, so that their maximum is post-processing: noisy
    values of all candidates come with the choice, for no more than it costs.

    Attributes:
        candidates: number of candidates.
        k: cut-off of the NDCG that they are compared by.
    """

    candidates: int
    k: int

    @property
    def weights(self) -> Float64[np.ndarray, " size"]:
        """Factors of the count of people and of every candidate."""
        own = 2 * math.sqrt((1 - _COUNT_OF_CHOICE) / self.candidates)
        weights: np.ndarray = np.array([math.sqrt(_COUNT_OF_CHOICE)] + [own] * self.candidates) * _WITHIN
        return weights

    def vectors(self, metrics: Float64[np.ndarray, "candidates people"]) -> Float64[np.ndarray, "people size"]:
        """What devices send, of norm at most 1; NaN for a person without a held-out item."""
        return _weighted([np.clip(metrics, 0, 1) - 0.5], np.isfinite(metrics).all(0), self.weights)

    def values(self, sums: Float64[np.ndarray, " size"], deviation: float) -> tuple[Metric, ...]:
        """The metric of every candidate, with its interval."""
        scaled, noise = sums / self.weights, deviation / self.weights
        people = max(float(scaled[0]), 1.0)  # not cut at the population: that would bias every ratio
        return centred_metrics(scaled, noise, people, [("ndcg", self.k)] * self.candidates)


def _weighted(
    parts: Sequence[Float64[np.ndarray, "_ people"]],
    measured: Bool[np.ndarray, " people"],
    weights: Float64[np.ndarray, " size"],
) -> Float64[np.ndarray, "people size"]:
    """Vectors that begin with a count of 1, or zeros for those who measured nothing."""
    vectors: np.ndarray = np.concatenate([np.ones((1, len(measured))), *parts]).T * weights
    return np.where(measured[:, None], vectors, 0.0)


def centred_metrics(
    scaled: Float64[np.ndarray, " size"],
    noise: Float64[np.ndarray, " size"],
    people: float,
    keys: Sequence[tuple[MetricName, int]],
) -> tuple[Metric, ...]:
    """Metrics of the coordinates after the first, which counts people, less the weights of both."""
    found = []
    for place, (name, k) in enumerate(keys, start=1):
        centred = scaled[place] / people
        value, spread = 0.5 + centred, math.hypot(noise[place], centred * noise[0]) / people
        margin = _Z * math.hypot(spread, math.sqrt(max(0.25 - centred**2, 0.0) / people))
        # Nothing is cut to [0, 1]: means of cut values would be biased, and a cut interval need not hold its value.
        lo, hi = value - margin, value + margin
        found.append(Metric(name=name, k=k, value=value, lo=lo, hi=hi, n_users=round(people), noise=spread))
    return tuple(found)


def difference(result: EvaluationResult) -> Metric | None:
    """The main metric less that of popularity, both noisy, with its interval; None where that was not released.

    The two are of the same people, whose differences d have E d^2 <= E |d| <= E m + E p, and likewise for 1 - m and
    1 - p; their noises are independent but for the count's.
    """
    if result.popularity is None or result.metrics[0].noise is None:
        return None
    ours, theirs = result.metrics[0], result.popularity[0]
    value, both = ours.value - theirs.value, ours.value + theirs.value
    variance = max(min(both, 2 - both) - value**2, 0.0)
    noise = math.hypot(ours.noise or 0.0, theirs.noise or 0.0)
    margin = _Z * math.hypot(noise, math.sqrt(variance / max(result.n_users, 1)))
    return ours.model_copy(update={"value": value, "lo": value - margin, "hi": value + margin, "noise": noise})
