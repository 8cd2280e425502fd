"""Multinomial logistic regression with an L2 penalty, by L-BFGS.

For n users with rows x, classes y and K classes it minimises

    J(W, b) = -(1/n) sum_u log softmax(W^T x_u + b)_{y_u} + (strength / 2) ||W||^2,

which is convex and has one minimum for every strength > 0 (intercepts b are free, up to one number added to all).
With two classes it is the usual logistic regression with half the penalty: W = (-w/2, w/2). Rows are centred by the
training mean and divided by one number, the root mean square length of the centred training rows, so that a strength
means the same for uploads of any size. Other users' rows do not enter. (Liu & Nocedal, 1989, for L-BFGS.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.optimize import minimize

_MAX_STEPS = 500
_TOLERANCE = 1e-5
"""Largest gradient entry at which the minimisation stops."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """A fitted model.

    Attributes:
        mean: Mean that is subtracted from every row.
        scale: Number that every row is divided by.
        weights: Weights of centred and scaled rows.
        intercepts: Intercept of each class.
        prior: Share of each class in training.
    """

    mean: Float64[np.ndarray, "columns"]
    scale: float
    weights: Float64[np.ndarray, "columns classes"]
    intercepts: Float64[np.ndarray, "classes"]
    prior: Float64[np.ndarray, "classes"]

    def log_odds(self, rows: Float64[np.ndarray, "users columns"]) -> Float64[np.ndarray, "users classes"]:
        """Logarithm of each class's probability over that of all other classes together."""
        logits = ((rows - self.mean) / self.scale) @ self.weights + self.intercepts
        # others[u, k, j] is the logit of class j, or -inf for j = k, so the reduction is over all classes but k.
        own_class = np.eye(logits.shape[1], dtype=bool)
        others = np.where(own_class, -np.inf, logits[:, None, :])
        odds: Float64[np.ndarray, "users classes"] = logits - np.logaddexp.reduce(others, axis=2)
        return odds

    def log_probabilities(self, rows: Float64[np.ndarray, "users columns"]) -> Float64[np.ndarray, "users classes"]:
        """Logarithm of each class's probability."""
        return _log_softmax(((rows - self.mean) / self.scale) @ self.weights + self.intercepts)

    def guesses(self, rows: Float64[np.ndarray, "users columns"]) -> Int64[np.ndarray, "users"]:
        """Class whose probability most exceeds its share in training, the best prediction for balanced accuracy."""
        guesses: np.ndarray = (self.log_probabilities(rows) - np.log(self.prior)).argmax(axis=1)
        return guesses


def fit_path(
    rows: Float64[np.ndarray, "users columns"],
    labels: Int64[np.ndarray, "users"],
    strengths: Sequence[float],
) -> list[Classifier]:
    """One classifier per strength; each fit starts from the result of the one before.

    Args:
        rows: Training rows.
        labels: Classes of the rows, 0 to K - 1, each at least once.
        strengths: Penalties above 0; descending ones are fitted fastest.
    """
    mean = rows.mean(axis=0)
    centred = rows - mean
    scale = float(np.sqrt(np.square(centred).sum(axis=1).mean())) or 1.0
    centred /= scale
    n_users, n_columns = rows.shape
    counts = np.bincount(labels)
    truth = np.eye(len(counts))[labels]
    # Weights [columns, classes] with the intercepts as the last row, starting from the class shares.
    parameters = np.zeros((n_columns + 1, len(counts)))
    parameters[-1] = np.log(counts / n_users)

    def objective(flat: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
        weights, intercepts = flat[: -len(counts)].reshape(n_columns, -1), flat[-len(counts) :]
        log_p = _log_softmax(centred @ weights + intercepts)
        error = (np.exp(log_p) - truth) / n_users
        gradient = np.concatenate([(centred.T @ error + strength * weights).ravel(), error.sum(axis=0)])
        return float(strength / 2 * np.square(weights).sum() - (log_p * truth).sum() / n_users), gradient

    fitted = []
    for strength in strengths:
        result = minimize(
            objective,
            parameters.ravel(),
            args=(strength,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _MAX_STEPS, "gtol": _TOLERANCE, "ftol": 0.0},
        )
        parameters = result.x.reshape(parameters.shape)
        fitted.append(Classifier(mean, scale, parameters[:-1].copy(), parameters[-1].copy(), counts / n_users))
    return fitted


def _log_softmax(logits: Float64[np.ndarray, "users classes"]) -> Float64[np.ndarray, "users classes"]:
    log_p: Float64[np.ndarray, "users classes"] = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return log_p
