"""The rating task: held-out ratings predicted one by one, with means that need no model as baselines.

With e the prediction less the rating, over all held-out ratings MSE = mean e^2, RMSE = sqrt(MSE), MAE = mean |e|;
`user_mse`, `user_rmse` and `user_mae` are the same for each user alone, then averaged over users, so that a user
with many ratings weighs no more than one with few (Herlocker, Konstan, Terveen and Riedl, "Evaluating Collaborative
Filtering Recommender Systems", ACM TOIS 22(1), 2004). Intervals resample users, with all their ratings.

Beside every result stand three constants. The global mean and the item mean are of training ratings: sums and
counts over all users, which a server could publish without looking at anybody's rating, and which it would need
exactly; nothing is guaranteed for them here. The user mean is of the user's own training ratings and could be
computed on the device. An item or a user without training ratings gets the global mean.
"""

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from attacks.metrics import interval
from privfed.data import Histories, Split
from privfed.evaluation.errors import EvaluationError
from privfed.evaluation.ranked_items import padded
from privfed.evaluation.result import Metric, MetricName

GLOBAL_MEAN, ITEM_MEAN, USER_MEAN = "global mean", "item mean", "user mean"

_NAMES: tuple[MetricName, ...] = ("mse", "rmse", "mae", "user_mse", "user_rmse", "user_mae")


class PredictedRatings:
    """Measures predicted ratings, user by user.

    A user's statistics are the sums of its squared and absolute errors, and how many ratings they are of.

    Args:
        split: With ratings.
        held_out: Held-out items of every user, those that do not count left out.
        ratings: Their ratings, aligned with `held_out.items`.

    Raises:
        EvaluationError: If the training part has no rating.
    """

    statistics = 3

    def __init__(self, split: Split, held_out: Histories, ratings: Float32[np.ndarray, "held_out"]) -> None:
        if split.ratings is None or not len(split.train):
            raise EvaluationError(f"{split.source} has no training ratings to predict from; split it another way.")
        self._held_out, self._ratings = held_out, ratings.astype(np.float64)
        train, known = split.train, split.ratings.train.astype(np.float64)
        overall = float(known.mean())
        by_item = _means(train.items, known, train.n_items, overall)
        by_user = _means(train.owners, known, train.n_users, overall)
        predictions = {
            GLOBAL_MEAN: np.full(len(held_out), overall),
            ITEM_MEAN: by_item[held_out.items],
            USER_MEAN: by_user[held_out.owners],
        }
        self._beside = {name: self._errors(values) for name, values in predictions.items()}

    def candidates(self, users: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n c"]:
        """Items whose ratings are to be predicted: the held-out ones."""
        return padded(self._held_out, users)

    def measure(
        self,
        users: Int64[np.ndarray, "n"],
        items: Int64[np.ndarray, "n c"] | None,  # noqa: ARG002 (the other task needs them)
        scores: Float32[np.ndarray, "n c"],
    ) -> Float64[np.ndarray, "statistics n"]:
        """Statistics of users who all have a held-out rating, from predictions for :meth:`candidates`."""
        counts = self._held_out.counts[users]
        real = np.arange(scores.shape[1]) < counts[:, None]
        row, column = np.nonzero(real)
        error = scores[row, column] - self._ratings[self._held_out.indptr[users][row] + column]
        return _sums(row, error, len(users))

    def summary(
        self,
        values: Float64[np.ndarray, "statistics users"],
        users: Int64[np.ndarray, "users"],
        weights: Float64[np.ndarray, "resamples users"],
    ) -> dict[str, Any]:
        """Errors, those of the means, and the warning of a result."""
        metrics = _metrics(values, weights)
        beside = {name: _metrics(errors[:, users], weights) for name, errors in self._beside.items()}
        own, constant = (found[_NAMES.index("rmse")].value for found in (metrics, beside[GLOBAL_MEAN]))
        warning = (
            f"The RMSE of {own:.4g} is above the {constant:.4g} of predicting the mean of all training ratings for "
            "everything; the model has not learned yet, or its scores are no ratings."
            if own > constant
            else None
        )
        return {"metrics": metrics, "popularity": None, "baselines": beside, "tie_fraction": 0.0, "warning": warning}

    def _errors(self, predicted: Float64[np.ndarray, "held_out"]) -> Float64[np.ndarray, "statistics users"]:
        return _sums(self._held_out.owners, predicted - self._ratings, self._held_out.n_users)


def _means(
    of: Int64[np.ndarray, "ratings"], ratings: Float64[np.ndarray, "ratings"], size: int, otherwise: float
) -> Float64[np.ndarray, "size"]:
    counts = np.bincount(of, minlength=size)
    return np.where(counts > 0, np.bincount(of, ratings, minlength=size) / np.maximum(counts, 1), otherwise)


def _sums(
    owner: Int64[np.ndarray, "errors"], error: Float64[np.ndarray, "errors"], n_users: int
) -> Float64[np.ndarray, "statistics users"]:
    """Squared errors, absolute errors and their number, by user."""
    terms = (error**2, np.abs(error), np.ones(len(error)))
    return np.stack([np.bincount(owner, term, minlength=n_users) for term in terms])


def _metrics(
    values: Float64[np.ndarray, "statistics users"], weights: Float64[np.ndarray, "resamples users"]
) -> tuple[Metric, ...]:
    everybody = np.ones((1, values.shape[1]))
    measured = _summed_up(values, everybody)[0]
    low, high = interval(measured, _summed_up(values, weights), values.shape[1], (0.0, np.inf))
    return tuple(
        Metric(name=name, k=0, value=value, lo=lo, hi=hi, n_users=values.shape[1])
        for name, value, lo, hi in zip(_NAMES, measured.tolist(), low.tolist(), high.tolist(), strict=True)
    )


def _summed_up(
    values: Float64[np.ndarray, "statistics users"], weights: Float64[np.ndarray, "resamples users"]
) -> Float64[np.ndarray, "resamples metrics"]:
    """Every metric, each user counted as often as its weight says."""
    squared, absolute, count = values
    mse, mae = weights @ squared / (weights @ count), weights @ absolute / (weights @ count)
    own = np.stack([squared / count, np.sqrt(squared / count), absolute / count])
    by_user = weights @ own.T / weights.sum(axis=1, keepdims=True)
    return np.column_stack([mse, np.sqrt(mse), mae, by_user])
