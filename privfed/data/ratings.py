"""Ratings read as behaviours: a high rating stands for a purchase, a lower one for an examination.

The preparation of MovieLens in Yang, Pan, Yang and Ming, "Discrete Federated Multi-behavior Recommendation for
Privacy-Preserving Heterogeneous One-Class Collaborative Filtering" (slides): ratings of 4 or more are
purchases, the rest examinations; items with fewer than 20 purchases and users with fewer than 5 go. What comes
out is a stand-in: a pair has one rating, so an "examined" pair is one that can never be a purchase, which no
log of views has.
"""

import numpy as np

from privfed.data.errors import DataError
from privfed.data.interactions import Interactions, build


def behaviours_from_ratings(
    interactions: Interactions,
    *,
    threshold: float = 4.0,
    at_least: str = "buy",
    below: str = "view",
    min_per_user: int = 5,
    min_per_item: int = 20,
) -> Interactions:
    """The same rows with a behaviour in the place of what the rating says, rare users and items left out.

    Items with fewer than `min_per_item` rows of the behaviour `at_least` and users with fewer than
    `min_per_user` go, with all their rows, and again until nothing changes. The catalogue shrinks to the
    items kept; ratings, times, attributes and titles stay. The card's `users_below_minimum` counts the users
    that went.

    Args:
        interactions: A data set with ratings and without behaviours.
        threshold: The lowest rating that counts as `at_least`.
        at_least: Behaviour of ratings from the threshold on, the one to recommend.
        below: Behaviour of lower ratings.
        min_per_user: Fewest rows of `at_least` that a user keeps.
        min_per_item: Fewest rows of `at_least` that an item keeps.

    Raises:
        DataError: There are no ratings, there are behaviours already, the two behaviours have one name, or
            nothing is left.
    """
    if interactions.rating is None or interactions.behaviour is not None:
        has = "has no ratings" if interactions.rating is None else "says view, cart or buy already"
        raise DataError(f"{interactions.name} {has}: behaviours are made of ratings, where there are no others")
    if at_least == below:
        raise DataError(f"both behaviours are called {at_least!r}: give the one below the threshold another name")
    high = interactions.rating >= threshold
    user, item = interactions.user, interactions.item
    kept = np.ones(len(interactions), dtype=bool)
    while True:
        counted = kept & high
        enough = (np.bincount(user[counted], minlength=interactions.n_users) >= min_per_user)[user]
        enough &= (np.bincount(item[counted], minlength=interactions.n_items) >= min_per_item)[item]
        if not (kept & ~enough).any():
            break
        kept &= enough
    if not kept.any():
        raise DataError(
            f"{interactions.name} has no {min_per_item} ratings of {threshold:g} or more for any item by users with "
            f"{min_per_user} such ratings: lower min_per_item, min_per_user or threshold"
        )
    attributes, info, card = interactions.attributes, interactions.item_info, interactions.card
    derived = build(
        f"{interactions.name}-behaviours",
        interactions.user_ids[user[kept]],
        interactions.item_ids[item[kept]],
        timestamp=None if interactions.timestamp is None else interactions.timestamp[kept],
        order=None if interactions.order is None else interactions.order[kept],
        rating=interactions.rating[kept],
        behaviour=np.where(high[kept], at_least, below),
        split=None if interactions.split is None else interactions.split[kept],
        attributes=None if attributes is None else attributes.set_axis(interactions.user_ids, axis=0),
        item_info=None if info is None else info.set_axis(interactions.item_ids, axis=0),
        duplicates="keep",
        synthetic=card.synthetic,
        terms=card.terms,
    )
    gone = {
        "rows_read": card.rows_read,
        "duplicates_dropped": card.duplicates_dropped,
        "users_below_minimum": card.users_below_minimum + interactions.n_users - derived.n_users,
    }
    return Interactions(**(vars(derived) | {"card": derived.card.model_copy(update=gone)}))
