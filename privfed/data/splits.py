"""Train, validation and test: leave-one-out by time, a seeded ratio, or a published split.

Leave-one-out (He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1) holds out each user's
newest interaction for test; here the second newest is for validation. Many users have several interactions at
their newest timestamp (415 of 943 on MovieLens-100K), so the rule for equal times decides what is tested and
is part of the spec.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.data.errors import DataError
from privfed.data.histories import Histories
from privfed.data.interactions import Interactions

_TRAIN, _VALID, _TEST = range(3)
_LEAST_FOR_HOLDOUT = 3


class SplitSpec(BaseModel):
    """How to split.

    Attributes:
        kind: "leave_one_out" (newest is test, second newest validation), "ratio" (random, per user) or
            "published" (the `split` column of the data set).
        ties: Which of two rows of a user with equal time is newer: "later_row_is_newer" in the file, or
            "earlier_row_is_newer" as in the released code of PFedRec and GPFedRec.
        valid_fraction: Share of each user's rows for validation (ratio only), rounded half up.
        test_fraction: Share of each user's rows for test (ratio only), rounded half up.
        seed: Seed of the random choice (ratio only).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["leave_one_out", "ratio", "published"] = "leave_one_out"
    ties: Literal["later_row_is_newer", "earlier_row_is_newer"] = "later_row_is_newer"
    valid_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _leave_some_for_training(self) -> "SplitSpec":
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError(
                f"valid_fraction + test_fraction is {self.valid_fraction + self.test_fraction:g}, which "
                "leaves nothing for training: make the sum smaller than 1"
            )
        return self


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of a data set, each with the same users and the same catalogue.

    Attributes:
        spec: How it was made.
        train: Training items of each user, oldest first where time is known.
        valid: Validation items of each user, possibly none.
        test: Test items of each user, possibly none.
        users_without_holdout: Users with no test item: they train and are left out of evaluation.
        source: Name of the data set.
    """

    spec: SplitSpec
    train: Histories
    valid: Histories
    test: Histories
    users_without_holdout: int
    source: str = "the data set"

    @cached_property
    def seen(self) -> Histories:
        """Every item of each user, of any part."""
        return self.train.union(self.valid).union(self.test)

    @cached_property
    def leaked(self) -> int:
        """Held-out entries whose user has the same item in training too (only where duplicates were kept)."""
        train = self.train.owners * self.train.n_items + self.train.items
        held = [part.owners * part.n_items + part.items for part in (self.valid, self.test)]
        return int(np.isin(np.concatenate(held), train).sum())

    def describe(self) -> str:
        """One sentence: the rule, ties, the sizes, and who is not evaluated."""
        rule = {
            "leave_one_out": "leave-one-out by time (each user's newest interaction is test, the second "
            f"newest is validation; of two at the same time the {self.spec.ties.split('_')[0]} row of the "
            "file is newer)",
            "ratio": f"a random split per user (test {self.spec.test_fraction:g}, validation "
            f"{self.spec.valid_fraction:g}, seed {self.spec.seed})",
            "published": "the split it was published with",
        }[self.spec.kind]
        sizes = f"{len(self.train):,} train, {len(self.valid):,} validation, {len(self.test):,} test interactions"
        left_out = f"{self.users_without_holdout:,} of {self.train.n_users:,} users have no test item and only train"
        leak = f", and {self.leaked:,} held-out entries repeat a training pair (leaky)" if self.leaked else ""
        return f"{self.source} under {rule}: {sizes}; {left_out}{leak}."


def split(interactions: Interactions, spec: SplitSpec) -> Split:
    """Split a data set.

    Users with fewer than 3 interactions stay in training under leave-one-out; a ratio leaves each user at
    least one training item. Without a timestamp or an `order` column leave-one-out is refused: there is no
    newest interaction.

    Raises:
        DataError: The data set lacks the time, the published split or the single behaviour that the spec
            needs.
    """
    if interactions.behaviour is not None and len(interactions.behaviour.categories) > 1:
        kinds = ", ".join(interactions.behaviour.categories)
        raise DataError(
            f"{interactions.name} mixes behaviours ({kinds}): choose the one to recommend before splitting, "
            f"for example interactions.only({interactions.behaviour.categories[0]!r})"
        )
    rows = _chronological(interactions, earlier_is_newer=spec.ties == "earlier_row_is_newer")
    user, item = interactions.user[rows], interactions.item[rows]
    if spec.kind == "published":
        part = _published(interactions)[rows]
    elif spec.kind == "ratio":
        part = _ratio(user, interactions.n_users, spec)
    elif interactions.time is None:
        raise DataError(
            f"{interactions.name} has neither timestamps nor an order column, so none of its interactions is "
            'the newest: choose the ratio split (kind="ratio") or supply an order column'
        )
    else:
        part = _leave_one_out(user, interactions.n_users)
    train, valid, test = (
        Histories.from_pairs(user[part == p], item[part == p], interactions.n_users, interactions.n_items)
        for p in (_TRAIN, _VALID, _TEST)
    )
    return Split(spec, train, valid, test, int((test.counts == 0).sum()), interactions.name)


def _chronological(interactions: Interactions, *, earlier_is_newer: bool) -> Int64[np.ndarray, "interactions"]:
    """Row numbers grouped by user, oldest first within each; file order where no time is known."""
    rows = np.arange(len(interactions))
    if interactions.time is None:
        return np.argsort(interactions.user, kind="stable")
    return np.lexsort((-rows if earlier_is_newer else rows, interactions.time, interactions.user))


def _from_last(user: Int64[np.ndarray, "interactions"], n_users: int) -> tuple[np.ndarray, np.ndarray]:
    """Of rows grouped by user: how far each is from its user's last one, and how many its user has."""
    counts = np.bincount(user, minlength=n_users)
    return np.cumsum(counts)[user] - 1 - np.arange(len(user)), counts[user]


def _leave_one_out(user: Int64[np.ndarray, "interactions"], n_users: int) -> Int64[np.ndarray, "interactions"]:
    age, count = _from_last(user, n_users)
    return np.where(count < _LEAST_FOR_HOLDOUT, _TRAIN, np.select([age == 0, age == 1], [_TEST, _VALID], _TRAIN))


def _ratio(user: Int64[np.ndarray, "interactions"], n_users: int, spec: SplitSpec) -> Int64[np.ndarray, "interactions"]:
    shuffled = np.lexsort((np.random.default_rng(spec.seed).random(len(user)), user))
    rank, count = _from_last(user, n_users)
    tested = np.minimum(np.floor(spec.test_fraction * count + 0.5), count - 1)
    validated = np.minimum(np.floor(spec.valid_fraction * count + 0.5), count - 1 - tested)
    part = np.empty(len(user), dtype=np.int64)
    part[shuffled] = np.select([rank < tested, rank < tested + validated], [_TEST, _VALID], _TRAIN)
    return part


def _published(interactions: Interactions) -> Int64[np.ndarray, "interactions"]:
    if interactions.split is None:
        raise DataError(
            f"{interactions.name} was published without a split: supply a split column of train, valid and "
            'test, or choose kind="leave_one_out" or kind="ratio"'
        )
    return interactions.split.codes.astype(np.int64)
