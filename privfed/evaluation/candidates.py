"""Sampled candidates: items a user never interacted with, drawn once per user.

Twice `n_sampled` distinct items are drawn for each user; validation ranks against the first n_sampled and test
against the others, so that choosing a round by validation cannot tune to the test candidates (as in the
released code of PFedRec and GPFedRec).
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64

from privfed.data import Histories
from privfed.evaluation.errors import EvaluationError


def sampled_items(
    seen: Histories, n_sampled: int, part: Literal["valid", "test"], seed: int
) -> Int64[np.ndarray, "users n_sampled"]:
    """Uniform draw without replacement, per user, from the items outside `seen`.

    Items that turn out seen or already drawn are drawn again until none is left, which is uniform over
    ordered draws of distinct unseen items.

    Args:
        seen: Items of each user in any split.
        n_sampled: Items per user and part.
        part: Which part to return.
        seed: Seed of the draw; the two parts of one seed never share an item.

    Raises:
        EvaluationError: If some user has fewer than twice `n_sampled` unseen items.
    """
    fewest = seen.n_items - int(seen.counts.max(initial=0))
    if fewest < 2 * n_sampled:
        raise EvaluationError(
            f"A user has only {fewest} items it never interacted with, but validation and test need "
            f"{2 * n_sampled} distinct ones; lower n_sampled or use candidates='full'."
        )
    rng = np.random.default_rng(seed)
    taken = np.sort(seen.owners * seen.n_items + seen.items)
    drawn = rng.integers(seen.n_items, size=(seen.n_users, 2 * n_sampled))
    redo = np.arange(seen.n_users)
    while len(redo):
        wrong = _seen_or_repeated(drawn[redo], redo, taken, seen.n_items)
        rows, places = np.nonzero(wrong)
        drawn[redo[rows], places] = rng.integers(seen.n_items, size=len(rows))
        redo = redo[wrong.any(axis=1)]
    return drawn[:, :n_sampled] if part == "valid" else drawn[:, n_sampled:]


def _seen_or_repeated(
    drawn: Int64[np.ndarray, "rows draws"],
    users: Int64[np.ndarray, "rows"],
    taken: Int64[np.ndarray, "entries"],
    n_items: int,
) -> Bool[np.ndarray, "rows draws"]:
    """Draws that hit an item of the user, or one that stands earlier in the same row."""
    key = users[:, None] * n_items + drawn
    at = np.searchsorted(taken, key)
    wrong: Bool[np.ndarray, "rows draws"] = np.append(taken, -1)[at] == key
    order = drawn.argsort(axis=1, kind="stable")
    ordered = np.take_along_axis(drawn, order, axis=1)
    rows, places = np.nonzero(ordered[:, 1:] == ordered[:, :-1])
    wrong[rows, order[rows, places + 1]] = True
    return wrong
