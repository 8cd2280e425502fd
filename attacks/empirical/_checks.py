"""Argument checks shared by the estimators of epsilon."""

import numpy as np
from jaxtyping import Num


def check_claim_delta(delta: float) -> None:
    """Raises a ValueError unless delta is at least 0 and below 1."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta}; pass a value of at least 0 and below 1.")


def check_gaussian_delta(delta: float) -> None:
    """Raises a ValueError unless delta lies between 0 and 1."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; pass a value between 0 and 1: Gaussian noise has no finite epsilon at 0.")


def check_scores(name: str, scores: Num[np.ndarray, "..."]) -> None:
    """Raises a ValueError unless there is at least one score, all in one dimension and finite."""
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise ValueError(f"{name} has shape {scores.shape}; pass at least one finite score in one dimension.")
