"""Choosing among attacks on some people and measuring the choice on others.

An adversary tries many models and many ways to read what comes back. The highest of many noisy numbers lies above the
truth, so the choice is made on people whose histories the adversary knows.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from attacks.views.types import PerUser, UserMask

Attack = TypeVar("Attack")


def best_on(auc: Mapping[Attack, PerUser], known: UserMask) -> tuple[Attack, bool]:
    """The attack that separates best on known people, and whether its scores are to be read in reverse.

    Args:
        auc: Per-user AUC of every attack; NaN where a user was not measured.
        known: People to choose on.

    Raises:
        ValueError: If no attack was measured on any of them.
    """
    means = {name: np.nanmean(values[known]) for name, values in auc.items() if np.isfinite(values[known]).any()}
    if not means:
        raise ValueError("No attack was measured on anybody to choose by; measure at least one on a known person.")
    best = max(means, key=lambda name: abs(means[name] - 0.5))
    return best, bool(means[best] < 0.5)
