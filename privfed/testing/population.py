"""The small made-up population that a method is checked on."""

import numpy as np
import pandas as pd

from privfed.data import Histories
from privfed.methods import ClientData

USERS, ITEMS = 24, 40
_GENRES = ("Comedy", "Drama", "Comedy|Drama", "War")


def client_data(seed: int = 0) -> ClientData:
    """Histories, views and ratings of a few users; nobody has taken every item and one user has a single item."""
    rng = np.random.default_rng(seed)
    popularity = np.arange(ITEMS, 0, -1) ** 2.0
    popularity /= popularity.sum()
    owners, items, viewed = [], [], []
    for user in range(USERS):
        count = 1 if user == 0 else int(rng.integers(4, 12))
        taken = rng.choice(ITEMS, count + 4, replace=False, p=popularity)
        owners += [user] * count
        items += taken[:count].tolist()
        viewed += [(user, item) for item in taken[count:].tolist()]
    positives = Histories.from_pairs(np.array(owners), np.array(items), USERS, ITEMS)
    viewers, views = np.array(viewed).T
    ratings = rng.integers(1, 6, len(positives)).astype(np.float32)
    return ClientData(
        positives, positives, {"view": Histories.from_pairs(viewers, views, USERS, ITEMS)}, ratings=ratings
    )


def item_info() -> pd.DataFrame:
    """Public descriptions of the items."""
    genres = [_GENRES[item % len(_GENRES)] for item in range(ITEMS)]
    titles = [f"Item {item} ({1980 + item})" for item in range(ITEMS)]
    return pd.DataFrame({"title": titles, "genres": genres})
