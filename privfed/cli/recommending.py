"""From scores on one device to a list that a person can read."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from privfed.cli.failures import CommandError
from privfed.data import Interactions, Split


@dataclass(frozen=True, slots=True)
class Recommended:
    """One item of the list.

    Attributes:
        item: original id.
        title: where the data set has one.
        score: of the user's own model; comparable within the list only.
        held_out: the held-out part that the item is in, if any.
    """

    item: str
    title: str | None
    score: float
    held_out: Literal["validation", "test"] | None


def user_code(interactions: Interactions, user: str) -> int:
    """The code of an original user id.

    Raises:
        CommandError: the data set has no such user.
    """
    known = interactions.user_ids.astype(str)
    code = int(known.get_indexer(pd.Index([user]))[0])
    if code < 0:
        raise CommandError(
            f"{interactions.name} has no user {user!r}: its {len(known):,} ids run from {known[0]} to {known[-1]}"
        )
    return code


def best(
    scores: Float[Tensor, " items"], interactions: Interactions, parts: Split, user: int, k: int
) -> list[Recommended]:
    """The `k` best-scored items that the user did not train on, best first; equal scores in the order of ids.

    Raises:
        CommandError: the model's scores are not finite.
    """
    values = scores.double().numpy()
    if not np.isfinite(values).all():
        raise CommandError("the trained model gives scores that are not finite: it diverged, so train again")
    order = np.argsort(-values, kind="stable")
    order = order[~np.isin(order, parts.train.of(user))][:k]
    valid, test = set(parts.valid.of(user).tolist()), set(parts.test.of(user).tolist())
    titles = None if interactions.item_info is None else interactions.item_info["title"]

    def described(item: int) -> Recommended:
        title = None if titles is None or pd.isna(titles.iloc[item]) else str(titles.iloc[item])
        part: Literal["validation", "test"] | None = "test" if item in test else "validation" if item in valid else None
        return Recommended(str(interactions.item_ids[item]), title, float(values[item]), part)

    return [described(item) for item in order.tolist()]
