"""The evaluator: scores go in chunk by chunk, metrics with intervals and their protocol come out."""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Real

from attacks.bootstrap import percentile_interval, user_weights
from privfed.data import Split
from privfed.evaluation.candidates import sampled_items
from privfed.evaluation.errors import EvaluationError
from privfed.evaluation.protocol import Protocol
from privfed.evaluation.ranking import positions, ties_decide, user_metrics
from privfed.evaluation.result import EvaluationResult, Metric, MetricName

TIE_WARNING = 0.01
"""Share of users above which a result warns that ties decide."""

_NAMES: tuple[MetricName, ...] = ("hr", "ndcg", "recall", "mrr")


class Evaluator:
    """Ranks the held-out items of one part of a split.

    Scores may come in chunks of users in any order; the result does not depend on either. One evaluator
    serves every round of a run (:meth:`reset` between rounds), so that all rounds are ranked against the same
    candidates.

    Args:
        split: Train, validation and test items of every user.
        protocol: How to evaluate.
        part: Which held-out part is ranked.
        popularity: Interactions per item in training. If given, ranking by it is evaluated on the same users
            and candidates and stands beside the result.

    Raises:
        EvaluationError: If the part is neither, no user has a held-out item, the popularity covers another
            catalogue, or the catalogue is too small for the sampled candidates.
    """

    def __init__(
        self,
        split: Split,
        protocol: Protocol,
        part: Literal["valid", "test"] = "test",
        popularity: Real[np.ndarray, "items"] | None = None,
    ) -> None:
        if part not in ("valid", "test"):
            raise EvaluationError(f"part is {part!r}; evaluate 'valid' or 'test'.")
        if popularity is not None and len(popularity) != split.train.n_items:
            raise EvaluationError(
                f"popularity covers {len(popularity)} items but the catalogue has {split.train.n_items}; "
                "pass split.train.popularity()."
            )
        self.split = split
        self.protocol = protocol
        self.part: Literal["valid", "test"] = part
        self.popularity = popularity
        self._held_out = split.valid if part == "valid" else split.test
        if not len(self._held_out):
            raise EvaluationError(
                f"No user has a held-out item in the {part} part of the split; give more interactions per "
                "user or split by ratio."
            )
        self._sampled = self._draw() if protocol.candidates == "sampled" else None
        self._keys = [(name, cut) for cut in protocol.k for name in _NAMES]
        self.reset()

    @property
    def users(self) -> Int64[np.ndarray, "evaluated"]:
        """Users with a held-out item, ascending; only they need scores."""
        return np.flatnonzero(self._held_out.counts)

    def reset(self) -> None:
        """Forget all scores added so far; candidates stay as they are."""
        shape = (len(self._keys), self._held_out.n_users)
        self._values: Float64[np.ndarray, "metrics users"] = np.full(shape, np.nan)
        self._popular: Float64[np.ndarray, "metrics users"] = np.full(shape, np.nan)
        self._decided: Bool[np.ndarray, users] = np.zeros(self._held_out.n_users, dtype=bool)

    def candidates(self, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n c"] | None:
        """Items to score for each user, or None for the whole catalogue.

        The first columns are the user's held-out items: one under leave-one-out; otherwise as many as any
        user has, where a user with fewer repeats its first one and the repeats are ignored. The rest are the
        sampled items. Rows of users without a held-out item hold item 0 and are ignored by :meth:`add`.

        Raises:
            EvaluationError: If a user id is out of range.
        """
        self._check_users(users)
        if self._sampled is None:
            return None
        counts = self._held_out.counts
        column = np.arange(counts.max())
        column = np.where(column < counts[users, None], column, 0)
        last = len(self._held_out) - 1
        held_out = self._held_out.items[np.minimum(self._held_out.indptr[users, None] + column, last)]
        items = np.concatenate([held_out, self._sampled[users]], axis=1)
        return np.where(counts[users, None] > 0, items, 0)

    def add(self, users: Int64[np.ndarray, "n"], scores: Float32[np.ndarray, "n c"]) -> None:
        """Rank a chunk of users.

        Args:
            users: User ids, each at most once between two resets. Those without a held-out item are skipped.
            scores: One score per candidate of :meth:`candidates`, or per item of the catalogue; higher is
            better.

        Raises:
            EvaluationError: If the shape is wrong, a score is NaN or infinite, a user id is out of range or
                comes twice.
        """
        self._check_users(users)
        items = self.candidates(users)
        width = self.split.train.n_items if items is None else items.shape[1]
        if scores.shape != (len(users), width):
            raise EvaluationError(
                f"Scores have shape {scores.shape} for {len(users)} users; pass one row per user and one "
                f"column per candidate, {(len(users), width)}."
            )
        if not np.isfinite(scores).all():
            raise EvaluationError(
                f"{int((~np.isfinite(scores)).sum())} of {scores.size} scores are NaN or infinite; the model "
                "has diverged (lower its learning rate), or masked items by -inf, which the evaluator does "
                "itself."
            )
        if len(np.unique(users)) < len(users) or np.isfinite(self._values[0, users]).any():
            raise EvaluationError("A user was added twice; add each user once, and call reset() before a new round.")
        kept = self._held_out.counts[users] > 0
        users, scores = users[kept], scores[kept]
        if items is None:
            items = np.broadcast_to(np.arange(width), scores.shape)
            relevant = self._held_out.mask(users)
            hidden = self.split.train.mask(users)
            if self.part == "test":
                hidden |= self.split.valid.mask(users)
            ranked = relevant | ~hidden
        else:
            items = items[kept]
            counts = self._held_out.counts
            place = np.arange(width)
            relevant = place < counts[users, None]
            ranked = relevant | (place >= counts.max())
        self._rank(scores, items, relevant, ranked, users)

    def result(self, bootstrap: int = 1000, *, seed: int = 0) -> EvaluationResult:
        """Means over the users added so far, with 95 % intervals.

        Args:
            bootstrap: Resamples of users.
            seed: Seed of the bootstrap.

        Raises:
            EvaluationError: If no user with a held-out item was added.
        """
        evaluated = np.isfinite(self._values[0])
        n_users = int(evaluated.sum())
        if not n_users:
            raise EvaluationError("No scores were added; call add() with users that have held-out items first.")
        weights = user_weights(n_users, bootstrap, seed)
        tie_fraction = float(self._decided[evaluated].mean())
        warning = (
            f"Equal scores decide for {tie_fraction:.1%} of users whether a held-out item makes a cut, so "
            f"the numbers depend on the tie rule ({self.protocol.ties}); look for saturated or untrained "
            "scores; codes of d bits have d + 1 scores to give."
            if tie_fraction > TIE_WARNING
            else None
        )
        return EvaluationResult(
            metrics=self._summary(self._values[:, evaluated], weights),
            popularity=None if self.popularity is None else self._summary(self._popular[:, evaluated], weights),
            n_users=n_users,
            tie_fraction=tie_fraction,
            part=self.part,
            protocol=self.protocol,
            warning=warning,
        )

    def _draw(self) -> Int64[np.ndarray, "users n_sampled"]:
        """Sampled items of every user with a held-out item in either part, so that both parts draw alike."""
        split = self.split
        users = np.flatnonzero(split.valid.counts + split.test.counts)
        sampled = np.zeros((split.train.n_users, self.protocol.n_sampled), dtype=np.int64)
        sampled[users] = sampled_items(split.seen.subset(users), self.protocol.n_sampled, self.part, self.protocol.seed)
        return sampled

    def _rank(
        self,
        scores: Float32[np.ndarray, "n c"],
        items: Int64[np.ndarray, "n c"],
        relevant: Bool[np.ndarray, "n c"],
        ranked: Bool[np.ndarray, "n c"],
        users: Int64[np.ndarray, "n"],
    ) -> None:
        pessimistic, seed, k = self.protocol.ties == "pessimistic", self.protocol.seed, self.protocol.k
        found = positions(scores, items, relevant, ranked, users, pessimistic=pessimistic, seed=seed)
        metrics = user_metrics(found, len(users), k)
        self._values[:, users] = np.stack([metrics[key] for key in self._keys])
        self._decided[users] = ties_decide(found, len(users), k)
        if self.popularity is not None:
            by_popularity = self.popularity[items].astype(np.float32)
            found = positions(by_popularity, items, relevant, ranked, users, pessimistic=pessimistic, seed=seed)
            metrics = user_metrics(found, len(users), k)
            self._popular[:, users] = np.stack([metrics[key] for key in self._keys])

    def _summary(
        self, values: Float64[np.ndarray, "metrics users"], weights: Float64[np.ndarray, "resamples users"]
    ) -> tuple[Metric, ...]:
        low, high = percentile_interval(weights @ values.T / values.shape[1])
        return tuple(
            Metric(name=name, k=cut, value=value, lo=lo, hi=hi, n_users=values.shape[1])
            for (name, cut), value, lo, hi in zip(
                self._keys, values.mean(axis=1).tolist(), low.tolist(), high.tolist(), strict=True
            )
        )

    def _check_users(self, users: Int64[np.ndarray, "n"]) -> None:
        if len(users) and not (users.min() >= 0 and users.max() < self._held_out.n_users):
            raise EvaluationError(
                f"User ids run from {users.min()} to {users.max()} but the split has "
                f"{self._held_out.n_users} users, numbered 0 to {self._held_out.n_users - 1}."
            )
