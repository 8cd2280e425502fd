"""The evaluator: scores go in chunk by chunk, metrics with intervals and their protocol come out."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, Real

from attacks.metrics import user_weights
from privfed.data import Histories, Split
from privfed.evaluation.errors import EvaluationError
from privfed.evaluation.predicted_ratings import PredictedRatings
from privfed.evaluation.protocol import Protocol
from privfed.evaluation.ranked_items import RankedItems
from privfed.evaluation.result import EvaluationResult, MetricName


class Evaluator:
    """Ranks the held-out items of one part of a split, or compares predicted with held-out ratings.

    Scores may come in chunks of users in any order; the result does not depend on either. One evaluator
    serves every round of a run (:meth:`reset` between rounds), so that all rounds are ranked against the same
    candidates.

    Args:
        split: Train, validation and test items of every user, with ratings where they are to be predicted.
        protocol: How to evaluate.
        part: Which held-out part is evaluated.
        popularity: Interactions per item in training. If given, ranking by it is evaluated on the same users
            and candidates and reported as a baseline.

    Raises:
        EvaluationError: If the part is neither, no user has a held-out item that counts, there are no ratings to
            predict, the popularity is of another catalogue or given for a rating task, or the catalogue is too
            small for the sampled candidates.
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
        held = split.valid if part == "valid" else split.test
        trained = split.train.popularity() > 0 if protocol.catalogue == "trained" else None
        counted = np.ones(len(held), dtype=bool) if trained is None else trained[held.items]
        self._held_out = Histories.from_pairs(held.owners[counted], held.items[counted], held.n_users, held.n_items)
        if protocol.task == "ranking":
            # Where duplicates were kept, a pair that is held out twice is one relevant item.
            self._held_out = self._held_out.union(self._held_out)
        if not len(self._held_out):
            that = "" if trained is None else " that somebody trained on"
            remedy = (
                "have one taken from the training part by split.valid_from_train"
                if part == "valid" and split.spec.kind == "published"
                else "give more interactions per user or split by ratio"
            )
            raise EvaluationError(f"No user has a held-out item{that} in the {part} part of the split; {remedy}.")
        self._task: RankedItems | PredictedRatings
        if protocol.task == "ranking":
            self._task = RankedItems(split, protocol, part, self._held_out, trained, popularity)
        else:
            if split.ratings is None:
                raise EvaluationError(
                    f"{split.source} has no ratings to predict; choose data with a rating column, or task='ranking'."
                )
            if popularity is not None:
                raise EvaluationError("popularity ranks items and predicts no ratings; leave it out.")
            ratings = split.ratings.valid if part == "valid" else split.ratings.test
            self._task = PredictedRatings(split, self._held_out, ratings[counted])
        self.reset()

    @property
    def users(self) -> Int64[np.ndarray, "evaluated"]:
        """Users with a held-out item, ascending; only they need scores."""
        return np.flatnonzero(self._held_out.counts)

    def reset(self) -> None:
        """Forget all scores added so far; candidates stay as they are."""
        shape = (self._task.statistics, self._held_out.n_users)
        self._values: Float64[np.ndarray, "statistics users"] = np.full(shape, np.nan)

    def candidates(self, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n c"] | None:
        """Items to score for each user, or None for the whole catalogue.

        The first columns are the user's held-out items: one under leave-one-out; otherwise as many as any
        user has, where a user with fewer repeats its first one and the repeats are ignored. The rest are the
        sampled items; where ratings are predicted there is no rest. Rows of users without a held-out item hold
        item 0 and are ignored by :meth:`add`.

        Raises:
            EvaluationError: If a user id is out of range.
        """
        self._check_users(users)
        items = self._task.candidates(users)
        return None if items is None else np.where(self._held_out.counts[users, None] > 0, items, 0)

    def add(self, users: Int64[np.ndarray, "n"], scores: Float32[np.ndarray, "n c"]) -> None:
        """Measure a chunk of users.

        Args:
            users: User ids, each at most once between two resets. Those without a held-out item are skipped.
            scores: One score per candidate of :meth:`candidates`, or per item of the catalogue; higher is
            better. Where ratings are predicted, the predictions.

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
        if kept.any():
            chosen = None if items is None else items[kept]
            self._values[:, users[kept]] = self._task.measure(users[kept], chosen, scores[kept])

    @property
    def measured(self) -> Float64[np.ndarray, "statistics users"]:
        """What was measured so far, NaN where a user was not added; for :meth:`include` of another evaluator."""
        return self._values

    def include(self, measured: Float64[np.ndarray, "statistics users"]) -> None:
        """Take in what an evaluator of the same split, protocol and part measured elsewhere."""
        self._values = np.where(np.isnan(self._values), measured, self._values)

    def result(self, bootstrap: int = 1000, *, seed: int = 0) -> EvaluationResult:
        """Metrics over the users added so far, with 95 % intervals.

        Args:
            bootstrap: Resamples of users.
            seed: Seed of the bootstrap.

        Raises:
            EvaluationError: If no user with a held-out item was added.
        """
        evaluated = np.flatnonzero(np.isfinite(self._values[0]))
        if not len(evaluated):
            raise EvaluationError("No scores were added; call add() with users that have held-out items first.")
        weights = user_weights(len(evaluated), bootstrap, seed)
        return EvaluationResult(
            **self._task.summary(self._values[:, evaluated], evaluated, weights),
            n_users=len(evaluated),
            part=self.part,
            protocol=self.protocol,
        )

    def rows(self, keys: Sequence[tuple[MetricName, int]], *, of_popularity: bool = False) -> list[int]:
        """Rows of these metrics of a ranking in `measured`, of the method or of popularity.

        Raises:
            EvaluationError: If ratings are predicted, or a metric is not measured.
        """
        ranked = self._ranked()
        first = ranked.metrics if of_popularity else 0
        return [first + ranked.row(name, k) for name, k in keys]

    def lists(self, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "k n"]:
        """The items that the first cut-off shows to these users, who were added, in no order.

        Raises:
            EvaluationError: If ratings are predicted.
        """
        found: np.ndarray = self._values[self._ranked().lists, :][:, users].astype(np.int64)
        return found

    def _ranked(self) -> RankedItems:
        if not isinstance(self._task, RankedItems):
            raise EvaluationError("This is about rankings and the evaluator compares ratings; use task='ranking'.")
        return self._task

    def by_user(self, name: MetricName, k: int) -> Float64[np.ndarray, "evaluated"]:
        """One metric of a ranking for every user added so far, ascending: to compare two methods user by user.

        Raises:
            EvaluationError: If ratings are predicted, or the metric was not measured at this cut-off.
        """
        values = self._values[self._ranked().row(name, k)]
        measured: np.ndarray = values[np.isfinite(values)]
        return measured

    def _check_users(self, users: Int64[np.ndarray, "n"]) -> None:
        if len(users) and not (users.min() >= 0 and users.max() < self._held_out.n_users):
            raise EvaluationError(
                f"User ids run from {users.min()} to {users.max()} but the split has "
                f"{self._held_out.n_users} users, numbered 0 to {self._held_out.n_users - 1}."
            )
