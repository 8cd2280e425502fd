"""What users are, as classes to tell apart: gender, age and occupation, for attacks that try to guess them.

No method and no server ever sees these. They accompany a data set (`Interactions.attributes`, `Split.attributes`),
one row per user code, and only an audit reads them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Int64

from privfed.data.errors import DataError

Attribute = Literal["gender", "age 35", "age group", "occupation"]
ATTRIBUTES: tuple[Attribute, ...] = get_args(Attribute)

UNKNOWN = -1
"""Code of a user whose attribute is not known."""

_COLUMN: dict[Attribute, str] = {"age 35": "age", "age group": "age_group"}
_THRESHOLD_AGE = 35


@dataclass(frozen=True, eq=False)
class UserClasses:
    """One attribute of every user as a class.

    Attributes:
        attribute: "gender", "age" or "occupation".
        names: Name of each class.
        codes: Class of each user, or `UNKNOWN`.
    """

    attribute: str
    names: tuple[str, ...]
    codes: Int64[np.ndarray, "users"]

    @property
    def words(self) -> str:
        """The attribute's values, in words."""
        if len(self.names) == 2:
            return f"{self.names[0]} or {self.names[1]}"
        return f"{len(self.names)} {'age groups' if self.attribute == 'age' else f'{self.attribute}s'}"

    def among(self, users: Int64[np.ndarray, "n"], min_users: int) -> "UserClasses":
        """The same of some users, in the order given, with classes of `min_users` or more; others are unknown."""
        codes = self.codes[users]
        sizes = np.bincount(codes[codes != UNKNOWN], minlength=len(self.names))
        kept = np.flatnonzero(sizes >= min_users)
        number = np.full(len(self.names) + 1, UNKNOWN)
        number[kept] = np.arange(len(kept))
        return UserClasses(self.attribute, tuple(self.names[k] for k in kept), number[codes])


def user_classes(people: pd.DataFrame | None, attribute: Attribute, source: str = "the data set") -> UserClasses:
    """An attribute of every user as a class.

    Args:
        people: One row per user code, as `Interactions.attributes` has them.
        attribute: "age 35" tells users of 35 and over from younger ones, "age group" the brackets of MovieLens-1M.
        source: What messages call the data set.

    Raises:
        DataError: The data set says nothing about its users, or not this.
    """
    if people is None:
        raise DataError(
            f"{source} says nothing about its users, so there is no attribute to guess: choose a data set with "
            "gender, age or occupation, such as ml-100k, ml-1m or synthetic"
        )
    column = _COLUMN.get(attribute, attribute)
    if column not in people.columns or people[column].isna().all():
        known = ", ".join(str(name) for name in people.columns if not people[name].isna().all()) or "nothing"
        raise DataError(f"{source} does not say the {column} of its users (it says {known}): leave {attribute!r} out")
    values = people[column]
    if attribute == "age 35":
        codes = np.where(values.isna(), UNKNOWN, values >= _THRESHOLD_AGE).astype(np.int64)
        return UserClasses("age", ("under 35", "35 or older"), codes)
    coded = values.astype("category").cat.remove_unused_categories()
    names = tuple(str(name) for name in coded.cat.categories)
    return UserClasses("age" if attribute == "age group" else attribute, names, coded.cat.codes.to_numpy(np.int64))
