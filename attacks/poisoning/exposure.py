"""Exposure: how many people are recommended a target item."""

import numpy as np
from jaxtyping import Bool, Float, Int64


def exposure(
    scores: Float[np.ndarray, "users items"],
    had: Bool[np.ndarray, "users items"],
    targets: Int64[np.ndarray, " k"],
    length: int = 10,
) -> float:
    """Share of (person, target) pairs in which the target is in the person's list; pairs of owners do not count.

    Args:
        scores: with which each person's items are ranked; a tie counts against the target.
        had: items that a person has already, which are not recommended.
        targets: promoted items.
        length: of a list.

    Raises:
        ValueError: everybody has every target.
    """
    open_to = ~had[:, targets]
    if not open_to.any():
        raise ValueError("everybody has every target already, so none can be exposed; choose other targets")
    ranked = np.where(had, -np.inf, scores)
    above = np.stack([(ranked >= ranked[:, [target]]).sum(axis=1) - 1 for target in targets], axis=1)
    return float((above < length)[open_to].mean())
