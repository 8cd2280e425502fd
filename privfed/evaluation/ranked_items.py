"""The ranking task: a user's held-out items among candidates, with popularity as a baseline."""

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Real

from attacks.metrics import SHARES, interval
from privfed.data import Histories, Split
from privfed.evaluation.beyond_accuracy import beyond_accuracy, recommended
from privfed.evaluation.candidates import sampled_items
from privfed.evaluation.errors import EvaluationError
from privfed.evaluation.protocol import Protocol
from privfed.evaluation.ranking import positions, ties_decide, user_metrics
from privfed.evaluation.result import BeyondAccuracy, Metric, MetricName, ranking_metrics

TIE_WARNING = 0.01
"""Share of users above which a result warns that ties decide."""


class RankedItems:
    """Measures rankings, user by user.

    A user's statistics are its metrics (every name at every cut-off), those of popularity, whether ties decide, and,
    where the whole catalogue is ranked for the test part, the items that the first cut-off shows.

    Args:
        split: Train, validation and test items of every user.
        protocol: How to rank.
        part: Which held-out part is ranked.
        held_out: Its items, those that do not count left out.
        trained: True for the items that take part; None for all.
        popularity: Interactions per item in training, or None.

    Raises:
        EvaluationError: If the catalogue is too small for the sampled candidates.
    """

    def __init__(
        self,
        split: Split,
        protocol: Protocol,
        part: Literal["valid", "test"],
        held_out: Histories,
        trained: Bool[np.ndarray, "items"] | None,
        popularity: Real[np.ndarray, "items"] | None,
    ) -> None:
        self._split, self._protocol, self._part = split, protocol, part
        self._held_out, self._trained, self._popularity = held_out, trained, popularity
        self._keys = [(name, cut) for cut in protocol.k for name in ranking_metrics(protocol)]
        self._sampled = self._draw() if protocol.candidates == "sampled" else None
        # The validation part chooses rounds, often in each of them, and what it shows beyond accuracy is never read.
        whole = self._sampled is None and part == "test"
        self._shown = min(protocol.k[0], split.train.n_items) if whole else 0
        self.statistics = 2 * len(self._keys) + 1 + self._shown

    def row(self, name: MetricName, k: int) -> int:
        """Row of a metric among a user's statistics.

        Raises:
            EvaluationError: If it is not measured.
        """
        if (name, k) not in self._keys:
            measured = ", ".join(f"{one}@{cut}" for one, cut in self._keys)
            raise EvaluationError(f"{name}@{k} is not measured; measured are {measured}.")
        return self._keys.index((name, k))

    @property
    def metrics(self) -> int:
        """Number of metrics."""
        return len(self._keys)

    @property
    def lists(self) -> slice:
        """Rows of the shown items among a user's statistics; none under sampled candidates."""
        return slice(self.statistics - self._shown, self.statistics)

    def candidates(self, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n c"] | None:
        """Items to score: the held-out ones, then the sampled ones; None for the whole catalogue."""
        if self._sampled is None:
            return None
        return np.concatenate([padded(self._held_out, users), self._sampled[users]], axis=1)

    def measure(
        self,
        users: Int64[np.ndarray, "n"],
        items: Int64[np.ndarray, "n c"] | None,
        scores: Float32[np.ndarray, "n c"],
    ) -> Float64[np.ndarray, "statistics n"]:
        """Statistics of users who all have a held-out item; `items` are theirs of :meth:`candidates`."""
        if items is None:
            items = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
            relevant = self._held_out.mask(users)
            hidden = self._split.train.mask(users)
            if self._part == "test" and self._protocol.when_testing == "valid_left_out":
                hidden |= self._split.valid.mask(users)
            if self._trained is not None:
                hidden |= ~self._trained
            ranked = relevant | ~hidden
        else:
            counts = self._held_out.counts
            place = np.arange(items.shape[1])
            relevant = place < counts[users, None]
            ranked = relevant | (place >= counts.max())
        own, decided = self._ranked(scores, items, relevant, ranked, users)
        popular = np.full_like(own, np.nan)
        if self._popularity is not None:
            popular, _ = self._ranked(self._popularity[items].astype(np.float32), items, relevant, ranked, users)
        lists = recommended(scores, ranked, self._shown) if self._shown else np.empty((0, len(users)))
        return np.concatenate([own, popular, decided[None], lists])

    def summary(
        self,
        values: Float64[np.ndarray, "statistics users"],
        users: Int64[np.ndarray, "users"],
        weights: Float64[np.ndarray, "resamples users"],
    ) -> dict[str, Any]:
        """Metrics, popularity, ties and warning of a result."""
        n_keys = len(self._keys)
        own, popular, decided, shown = np.split(values, [n_keys, 2 * n_keys, 2 * n_keys + 1])
        tie_fraction = float(decided.mean())
        warning = (
            f"Equal scores decide for {tie_fraction:.1%} of users whether a held-out item makes a cut, so "
            f"the numbers depend on the tie rule ({self._protocol.ties}); look for saturated or untrained "
            "scores; codes of d bits have d + 1 scores to give."
            if tie_fraction > TIE_WARNING
            else None
        )
        return {
            "metrics": self._means(own, weights),
            "popularity": None if self._popularity is None else self._means(popular, weights),
            "tie_fraction": tie_fraction,
            "warning": warning,
            "beyond": self._beyond(shown, own, users, weights) if self._shown else None,
        }

    def _beyond(
        self,
        shown: Float64[np.ndarray, "k users"],
        own: Float64[np.ndarray, "metrics users"],
        users: Int64[np.ndarray, "users"],
        weights: Float64[np.ndarray, "resamples users"],
    ) -> BeyondAccuracy:
        k = self._protocol.k[0]
        main, lists = own[self.row("ndcg", k)], shown.astype(np.int64)
        return beyond_accuracy(lists, main, users, self._split.train, self._held_out, weights, k)

    def _draw(self) -> Int64[np.ndarray, "users n_sampled"]:
        """Sampled items of every user with a held-out item in either part, so that both parts draw alike."""
        split, protocol = self._split, self._protocol
        users = np.flatnonzero(split.valid.counts + split.test.counts)
        seen = split.seen.subset(users)
        if self._trained is not None:
            kept, code = self._trained[seen.items], np.cumsum(self._trained) - 1
            n_trained = int(self._trained.sum())
            seen = Histories.from_pairs(seen.owners[kept], code[seen.items[kept]], seen.n_users, n_trained)
        drawn = sampled_items(seen, protocol.n_sampled, self._part, protocol.seed)
        sampled = np.zeros((split.train.n_users, protocol.n_sampled), dtype=np.int64)
        sampled[users] = drawn if self._trained is None else np.flatnonzero(self._trained)[drawn]
        return sampled

    def _ranked(
        self,
        scores: Float32[np.ndarray, "n c"],
        items: Int64[np.ndarray, "n c"],
        relevant: Bool[np.ndarray, "n c"],
        ranked: Bool[np.ndarray, "n c"],
        users: Int64[np.ndarray, "n"],
    ) -> tuple[Float64[np.ndarray, "metrics n"], Bool[np.ndarray, "n"]]:
        """Metrics of each user, and whether ties decide them."""
        protocol, k = self._protocol, self._protocol.k
        found = positions(
            scores,
            items,
            relevant,
            ranked,
            users,
            pessimistic=protocol.ties == "pessimistic",
            seed=protocol.seed,
            deepest=max(k),
        )
        metrics = user_metrics(found, len(users), k)
        return np.stack([metrics[key] for key in self._keys]), ties_decide(found, len(users), k)

    def _means(
        self, values: Float64[np.ndarray, "metrics users"], weights: Float64[np.ndarray, "resamples users"]
    ) -> tuple[Metric, ...]:
        means = values.mean(axis=1)
        low, high = interval(means, weights @ values.T / values.shape[1], values.shape[1], SHARES)
        return tuple(
            Metric(name=name, k=cut, value=value, lo=lo, hi=hi, n_users=values.shape[1])
            for (name, cut), value, lo, hi in zip(self._keys, means.tolist(), low.tolist(), high.tolist(), strict=True)
        )


def padded(held_out: Histories, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n most"]:
    """Held-out items, one row per user: as many as any user has, a user with fewer repeating its first one."""
    counts = held_out.counts
    column = np.arange(counts.max())
    column = np.where(column < counts[users, None], column, 0)
    items: np.ndarray = held_out.items[np.minimum(held_out.indptr[users, None] + column, len(held_out) - 1)]
    return items
