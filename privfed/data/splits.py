"""Train, validation and test: by time (leave-one-out or shares), a seeded ratio, or a published split.

Leave-one-out (He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1) holds out each user's
newest interaction for test; here the second newest is for validation. Many users have several interactions at
their newest timestamp (415 of 943 on MovieLens-100K), so the rule for equal times decides what is tested and
is part of the spec.

Where rows say view, cart or buy, one behaviour is the target and the kinds above apply to its rows alone. What
a user did besides is kept as `Split.auxiliary`, cut to the training prefix. Of it, pairs that are training
pairs too are removed and no others: to remove pairs of held-out rows would tell a model that whatever was
examined and is still there is never a positive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float32, Int64

from privfed.data.donors import Donors, chosen_donors
from privfed.data.errors import DataError
from privfed.data.histories import Histories
from privfed.data.interactions import Interactions
from privfed.data.split_spec import SplitSpec

_TRAIN, _VALID, _TEST = range(3)
_LEAST_FOR_HOLDOUT = 3
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PartRatings:
    """The rating of every entry of a split, aligned with the `items` of the part of the same name.

    Attributes:
        train: Ratings of the training items.
        valid: Ratings of the validation items.
        test: Ratings of the test items.
    """

    train: Float32[np.ndarray, "train"]
    valid: Float32[np.ndarray, "valid"]
    test: Float32[np.ndarray, "test"]


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
        auxiliary: Behaviour -> what each user did besides the target in the training prefix, oldest first
            where time is known, without the user's training pairs; empty where there is one behaviour.
        ratings: What the target's rows were rated, part by part; None where the data set has no ratings.
        attributes: One row per user (gender, age, age_group, occupation where known), or None. For audits only: no
            server and no client is given it.
        item_info: Public descriptions of the items, one row per item code; None where the data set has none.
        catalogue_derived: Whether the catalogue was read off the interactions.
        donors: People who opened their history, who are none of the users; None without any.
        arrived: How many of its training items each user has at every refresh; None where nothing arrives.

    Raises:
        DataError: A part has another number of ratings than of items, or there are not as many rows of attributes as
            users.
    """

    spec: SplitSpec
    train: Histories
    valid: Histories
    test: Histories
    users_without_holdout: int
    source: str = "the data set"
    auxiliary: Mapping[str, Histories] = field(default_factory=dict)
    ratings: PartRatings | None = None
    attributes: pd.DataFrame | None = None
    item_info: pd.DataFrame | None = None
    catalogue_derived: bool = False
    donors: Donors | None = None
    arrived: Int64[np.ndarray, "users refreshes"] | None = None

    def __post_init__(self) -> None:
        if self.attributes is not None and len(self.attributes) != self.train.n_users:
            raise DataError(
                f"{self.source} has {self.train.n_users} users and attributes of {len(self.attributes)}: give one row "
                "for each user, or attributes=None where users were left out"
            )
        if self.arrived is not None and (self.arrived[:, -1] != self.train.counts).any():
            raise DataError(
                f"{self.source} says which training items arrive when and the training part was changed since: give "
                "the arrivals of that part, or arrived=None"
            )
        if self.ratings is None:
            return
        for part in ("train", "valid", "test"):
            items, rated = len(getattr(self, part)), len(getattr(self.ratings, part))
            if items != rated:
                raise DataError(
                    f"the {part} part of {self.source} has {items} items and {rated} ratings: give one rating for each "
                    "item, or ratings=None where a part was changed"
                )

    @cached_property
    def seen(self) -> Histories:
        """Every item of each user, of any part (of the target alone)."""
        return self.train.union(self.valid).union(self.test)

    def rows_of(self, codes: Int64[np.ndarray, "n"], ids: pd.Index) -> Int64[np.ndarray, "n"]:
        """Rows of users in the parts, by their codes in the data set, of which `ids` says the original ids.

        Raises:
            DataError: One of them is a donor.
        """
        return codes if self.donors is None else self.donors.rows_of(codes, ids)

    def subset(self, users: Int64[np.ndarray, "n"]) -> "Split":
        """The same catalogue with these users alone, and without their ratings, attributes, donors and arrivals."""
        train, valid, test = (rows.subset(users) for rows in (self.train, self.valid, self.test))
        return replace(
            self,
            train=train,
            valid=valid,
            test=test,
            users_without_holdout=int((test.counts == 0).sum()),
            auxiliary={name: rows.subset(users) for name, rows in self.auxiliary.items()},
            ratings=None,
            attributes=None,
            donors=None,
            arrived=None,
        )

    def without(self, users: Int64[np.ndarray, "donors"]) -> "Split":
        """The split of everybody else, with the training items of `users` (ascending) kept as those of donors."""
        stays = np.ones(self.train.n_users, dtype=bool)
        stays[users] = False
        rest = np.flatnonzero(stays)
        cut = {name: getattr(self, name).subset(rest) for name in ("train", "valid", "test")}
        ratings = self.ratings
        if ratings is not None:
            ratings = PartRatings(**{n: getattr(ratings, n)[stays[getattr(self, n).owners]] for n in cut})
        return replace(
            self,
            **cut,
            users_without_holdout=int((cut["test"].counts == 0).sum()),
            auxiliary={name: histories.subset(rest) for name, histories in self.auxiliary.items()},
            ratings=ratings,
            attributes=None if self.attributes is None else self.attributes.iloc[rest],
            donors=Donors(users, self.train.subset(users)),
            arrived=None if self.arrived is None else self.arrived[rest],
        )

    @cached_property
    def untrained(self) -> int:
        """Test entries of items that nobody has in training: no method that learns from interactions can rank them."""
        return int((self.train.popularity()[self.test.items] == 0).sum())

    @cached_property
    def leaked(self) -> int:
        """Held-out entries whose user has the same item in training too (only where duplicates were kept)."""
        train = self.train.owners * self.train.n_items + self.train.items
        held = [part.owners * part.n_items + part.items for part in (self.valid, self.test)]
        return int(np.isin(np.concatenate(held), train).sum())

    def describe(self) -> str:
        """One sentence: the rule, ties, the sizes, who is not evaluated, target and auxiliaries."""
        ties = f"of two at the same time the {self.spec.ties.split('_')[0]} row of the file is newer"
        rule = {
            "leave_one_out": "leave-one-out by time (each user's newest interaction is test, the second "
            f"newest is validation; {ties})",
            "user_time": f"a split of each user by time (test the newest {self.spec.test_fraction:g}, validation "
            f"the {self.spec.valid_fraction:g} before; {ties})",
            "ratio": f"a random split per user (test {self.spec.test_fraction:g}, validation "
            f"{self.spec.valid_fraction:g}, seed {self.spec.seed})",
            "published": "the split it was published with"
            + (
                f" (validation {self.spec.valid_fraction:g} of each user's published training rows, at random, "
                f"seed {self.spec.seed})"
                if self.spec.valid_from_train
                else ""
            ),
        }[self.spec.kind]
        sizes = f"{len(self.train):,} train, {len(self.valid):,} validation, {len(self.test):,} test interactions"
        left_out = f"{self.users_without_holdout:,} of {self.train.n_users:,} users have no test item and only train"
        leak = f", and {self.leaked:,} held-out entries repeat a training pair (leaky)" if self.leaked else ""
        opened = "" if self.donors is None else f"; {len(self.donors.users):,} donors opened their history and left"
        return f"{self.source} under {rule}: {sizes}; {left_out}{leak}{self._behaviours()}{opened}."

    def _behaviours(self) -> str:
        if not self.auxiliary:
            return "" if self.spec.target is None else f"; the target is {self.spec.target}"
        sizes = ", ".join(f"{name} {len(rows):,}" for name, rows in self.auxiliary.items())
        prefix = {
            "leave_one_out": "not newer than the user's last training row",
            "user_time": "not newer than the user's last training row",
            "ratio": "of any time, those of held-out pairs included",
            "published": "of the training part",
        }[self.spec.kind]
        return f"; the target is {self.spec.target}, beside it {sizes} (rows {prefix}, training pairs taken out)"


def default_fields(interactions: Interactions) -> dict[str, Any]:
    """How held-out items are chosen where nobody says: by time, else as published, else at random.

    Of a published split without a validation part one is taken from the training part.
    """
    if interactions.time is not None:
        return {"kind": "leave_one_out"}
    if interactions.split is None:
        return {"kind": "ratio"}
    return {"kind": "published", "valid_from_train": not bool((interactions.split.codes == _VALID).any())}


def fitted(spec: SplitSpec, interactions: Interactions) -> SplitSpec:
    """The same split, as these data have it by default where its kind was not given."""
    given = spec.model_dump(exclude_unset=True)
    return spec if "kind" in given else SplitSpec.model_validate(default_fields(interactions) | given)


def split(interactions: Interactions, spec: SplitSpec) -> Split:
    """Split a data set.

    Users with fewer than 3 interactions stay in training under leave-one-out; a ratio and a split by time
    leave each user at least one training item. Without a timestamp or an `order` column the two kinds that
    go by time are refused: there is no newest interaction.

    Of the auxiliary behaviours the training prefix is kept: rows not newer than the user's last training row
    (by time; none for a user who trains on nothing), rows whose published part is train (others are left
    out), or, under a ratio, which claims no order in time, every row.

    Raises:
        DataError: The data set lacks the time or the published split that the spec needs; it has several
            behaviours and none was chosen; it has not the one that was; or donors cannot be those of the spec.
    """
    wanted = _wanted(interactions, spec.target)
    rows = _chronological(interactions, earlier_is_newer=spec.ties == "earlier_row_is_newer")
    chosen = rows[wanted[rows]]
    part = _parts(interactions, spec, chosen)
    by_part = [chosen[part == p] for p in (_TRAIN, _VALID, _TEST)]
    train, valid, test = (_histories(interactions, rows_of) for rows_of in by_part)
    rating = interactions.rating
    everybody = Split(
        spec,
        train,
        valid,
        test,
        users_without_holdout=int((test.counts == 0).sum()),
        source=interactions.name,
        auxiliary=_auxiliary(interactions, spec, rows, rows[~wanted[rows]], by_part[0]),
        ratings=None if rating is None else PartRatings(*(rating[rows_of] for rows_of in by_part)),
        attributes=interactions.attributes,
        item_info=interactions.item_info,
        catalogue_derived=interactions.card.catalogue_derived,
        arrived=None if spec.arrivals is None else arrived(interactions, by_part[0], spec.arrivals),
    )
    donors = chosen_donors(spec.donors, interactions.user_ids, spec.seed, interactions.name)
    return everybody.without(donors) if len(donors) else everybody


def arrived(
    interactions: Interactions, rows: Int64[np.ndarray, "trained"], refreshes: int
) -> Int64[np.ndarray, "users refreshes"]:
    """How many of these rows each user has at every refresh, each of which brings as many rows, by time.

    Raises:
        DataError: No time is known.
    """
    if interactions.time is None:
        raise DataError(f"{interactions.name} has no timestamps, so nothing arrives by time: leave split.arrivals out")
    time = interactions.time[rows]
    until = np.sort(time)[np.ceil(np.arange(1, refreshes + 1) * len(rows) / refreshes).astype(np.int64) - 1]
    joins = np.bincount(
        interactions.user[rows] * refreshes + np.searchsorted(until, time), minlength=interactions.n_users * refreshes
    )
    return joins.reshape(-1, refreshes).cumsum(1)


def _wanted(interactions: Interactions, target: str | None) -> Bool[np.ndarray, "interactions"]:
    """True for the rows of the behaviour to recommend."""
    if target is not None:
        return interactions.rows_of(target)
    if len(kinds := list(interactions.behaviour_counts)) > 1:
        mixes = f"{interactions.name} mixes behaviours ({', '.join(kinds)}): choose the one to recommend"
        raise DataError(
            f'{mixes}, for example SplitSpec(target="{kinds[0]}")',
            command_line=f"{mixes} as split.target, for example --set split.target={kinds[0]}",
        )
    return np.ones(len(interactions), dtype=bool)


def _parts(
    interactions: Interactions, spec: SplitSpec, rows: Int64[np.ndarray, "targets"]
) -> Int64[np.ndarray, "targets"]:
    """The part of each row of the target; rows come grouped by user, oldest first."""
    user = interactions.user[rows]
    if spec.kind == "published":
        part: np.ndarray = _published(interactions)[rows]
        if spec.valid_from_train:
            _take_validation(part, user, interactions, spec)
        return part
    if spec.kind == "ratio":
        return _ratio(user, interactions.n_users, spec, spec.test_fraction)
    if interactions.time is None:
        timeless = f"{interactions.name} has neither timestamps nor an order column, so none of its interactions is "
        parts = {"published": "the split it was published with", "ratio": "the ratio split"}
        fit = [kind for kind in parts if kind == "ratio" or interactions.split is not None]
        python, command = (
            " or ".join(f"{parts[kind]} ({spelt.format(kind)})" for kind in fit)
            for spelt in ('kind="{}"', "--set split.kind={}")
        )
        raise DataError(
            f"{timeless}the newest: choose {python} or supply an order column",
            command_line=f"{timeless}the newest: choose {command} or supply an order column",
        )
    if spec.kind == "user_time":
        return _user_time(user, interactions.n_users, spec)
    return _leave_one_out(user, interactions.n_users)


def _auxiliary(
    interactions: Interactions,
    spec: SplitSpec,
    rows: Int64[np.ndarray, "interactions"],
    others: Int64[np.ndarray, "others"],
    trained: Int64[np.ndarray, "trained"],
) -> dict[str, Histories]:
    """Of each behaviour but the target, the training prefix without training pairs.

    `rows` are all row numbers, grouped by user and oldest first; `others` and `trained` are those of other
    behaviours and of the training part, in the same order.
    """
    if interactions.behaviour is None or spec.target is None:
        return {}
    user = interactions.user
    if spec.kind == "published":
        others = others[_published(interactions)[others] == _TRAIN]
    elif spec.kind != "ratio":
        age = np.empty(len(rows), dtype=np.int64)
        age[rows] = np.arange(len(rows))
        last = np.full(interactions.n_users, -1)
        np.maximum.at(last, user[trained], age[trained])
        others = others[age[others] <= last[user[others]]]
    pair = user * interactions.n_items + interactions.item
    others = others[~np.isin(pair[others], pair[trained])]
    kind = interactions.behaviour.codes[others]
    return {
        name: _histories(interactions, others[kind == code])
        for code, name in enumerate(interactions.behaviour.categories)
        if name != spec.target
    }


def _histories(interactions: Interactions, rows: Int64[np.ndarray, "rows"]) -> Histories:
    return Histories.from_pairs(
        interactions.user[rows], interactions.item[rows], interactions.n_users, interactions.n_items
    )


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


def _ratio(
    user: Int64[np.ndarray, "interactions"], n_users: int, spec: SplitSpec, test_fraction: float
) -> Int64[np.ndarray, "interactions"]:
    shuffled = np.lexsort((np.random.default_rng(spec.seed).random(len(user)), user))
    rank, count = _from_last(user, n_users)
    tested = np.minimum(np.floor(test_fraction * count + 0.5), count - 1)
    validated = np.minimum(np.floor(spec.valid_fraction * count + 0.5), count - 1 - tested)
    part = np.empty(len(user), dtype=np.int64)
    part[shuffled] = np.select([rank < tested, rank < tested + validated], [_TEST, _VALID], _TRAIN)
    return part


def _user_time(
    user: Int64[np.ndarray, "interactions"], n_users: int, spec: SplitSpec
) -> Int64[np.ndarray, "interactions"]:
    """The first floor(share * k) of a user's k rows train (at least one), up to the next such bound validate."""
    from_last, count = _from_last(user, n_users)
    rank = count - 1 - from_last
    trained, held = (
        np.floor(share * count + _ROUNDING)
        for share in (1 - spec.valid_fraction - spec.test_fraction, 1 - spec.test_fraction)
    )
    part: np.ndarray = np.select([rank < np.maximum(trained, 1), rank < held], [_TRAIN, _VALID], _TEST)
    return part


def _published(interactions: Interactions) -> Int64[np.ndarray, "interactions"]:
    if interactions.split is None:
        without = f"{interactions.name} was published without a split: supply a split column of train, valid and test"
        raise DataError(
            f'{without}, or choose kind="leave_one_out" or kind="ratio"',
            command_line=f"{without}, or choose --set split.kind=leave_one_out or --set split.kind=ratio",
        )
    return interactions.split.codes.astype(np.int64)


def _take_validation(
    part: Int64[np.ndarray, "targets"], user: Int64[np.ndarray, "targets"], interactions: Interactions, spec: SplitSpec
) -> None:
    """Move a seeded share of each user's training rows to validation, in place; one row at least stays."""
    if (part == _VALID).any():
        raise DataError(
            f"{interactions.name} was published with a validation part, so none is taken from its training part: "
            "leave valid_from_train out"
        )
    train = np.flatnonzero(part == _TRAIN)
    part[train] = _ratio(user[train], interactions.n_users, spec, test_fraction=0.0)
