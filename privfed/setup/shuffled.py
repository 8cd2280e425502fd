"""The control `shuffled`: histories whose items are renamed, for each user alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privfed.data import Histories, Split

_ENTRIES_PER_BLOCK = 4_000_000
_SHUFFLES = 0x5AFF1E


def shuffled_histories(parts: Split, seed: int) -> Split:
    """The same split with the items of every user renamed by a permutation of the catalogue of the user's own.

    Each permutation is drawn uniformly and renames all of a user: training, validation, test and other behaviours.
    Sizes, order, ratings and what overlaps what stay as they are. No item means the same to two users, so neither its
    popularity nor what goes with it can be learned, and an item that is held out is any of those that a user does not
    train on with the same probability: a ranking that knows no more than the training items of everybody finds it by
    chance alone.
    """
    kept = [parts.train, parts.valid, parts.test, *parts.auxiliary.values()]
    renamed = _renamed(np.random.default_rng([seed, _SHUFFLES]), kept)
    train, valid, test, *others = renamed
    return replace(
        parts, train=train, valid=valid, test=test, auxiliary=dict(zip(parts.auxiliary, others, strict=True))
    )


def _renamed(rng: np.random.Generator, several: Sequence[Histories]) -> list[Histories]:
    """Histories of the same users with the items of each user renamed alike."""
    n_users, n_items = several[0].n_users, several[0].n_items
    new = [np.empty_like(histories.items) for histories in several]
    step = max(1, _ENTRIES_PER_BLOCK // n_items)
    for first in range(0, n_users, step):
        last = min(n_users, first + step)
        # [users, items]: the order of random keys is a uniformly random permutation.
        names = rng.random((last - first, n_items)).argsort(axis=1)
        for histories, items in zip(several, new, strict=True):
            block = slice(histories.indptr[first], histories.indptr[last])
            items[block] = names[histories.owners[block] - first, histories.items[block]]
    return [replace(histories, items=items) for histories, items in zip(several, new, strict=True)]
