"""`ClientData`: what the users that a process hosts know, for the clients of a method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float32, Int64

from privfed.data import DataError, Histories, Split
from privfed.federation import MEMORY, PrivateState, Start, Storage

VIEW = "view"


class BehaviourError(ValueError):
    """A behaviour that the data do not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Numbers of the whole population, known to a process that hosts some of its users.

    Attributes:
        users: numbers of its own users in the population, ascending.
        positives: training items of everybody, own users or not.
    """

    users: Int64[np.ndarray, " hosted"]
    positives: Histories

    @property
    def activity(self) -> Int64[np.ndarray, " population"]:
        """Training items of every user of the population; private, so only a simulation looks at them."""
        return self.positives.counts


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """Private data of the users that a process hosts, numbered from 0.

    Attributes:
        positives: training items of every user.
        excluded: items never drawn as negatives. The honest choice is the training items; the published code
            also leaves out the held-out ones, which no client can know.
        auxiliary: other behaviours in the training prefix (view, cart, ...), by name.
        answering: examinations that may train, where inclusion bits decide which; None where all may.
        fake_items: items whose rows are sent as padding; None without padding.
        ratings: what each user rated its training items, aligned with `positives.items`; None where the data have no
            ratings.
        arrived: how many of its items, oldest first, a user has at every refresh of a year; None where nothing arrives.
        population: everybody, where the process hosts a part of a simulation's users only; None where it hosts all.
        storage: where the users' private state is kept.

    Raises:
        DataError: there is not one rating for each training item.
    """

    positives: Histories
    excluded: Histories
    auxiliary: Mapping[str, Histories] = field(default_factory=dict)
    answering: Histories | None = None
    fake_items: Histories | None = None
    ratings: Float32[np.ndarray, "interactions"] | None = None
    arrived: Int64[np.ndarray, "users refreshes"] | None = None
    population: Population | None = None
    storage: Storage = MEMORY

    def __post_init__(self) -> None:
        if self.ratings is not None and len(self.ratings) != len(self.positives):
            raise DataError(
                f"{len(self.ratings)} ratings stand beside {len(self.positives)} training items: give one rating for "
                "each, or none at all"
            )

    @classmethod
    def from_split(cls, split: Split, negatives: str) -> "ClientData":
        """`negatives="train"` excludes training items only; `"all"` also the held-out ones (as published)."""
        excluded = split.train if negatives == "train" else split.seen
        return cls(
            split.train,
            excluded,
            split.auxiliary,
            ratings=None if split.ratings is None else split.ratings.train,
            arrived=split.arrived,
        )

    def hosting(self, users: Int64[np.ndarray, " hosted"]) -> "ClientData":
        """The data of a process that hosts `users` only and numbers them from 0.

        Args:
            users: ascending.
        """
        ratings = None
        if self.ratings is not None:
            ratings = self.ratings[np.isin(self.positives.owners, users)]
        return ClientData(
            self.positives.subset(users),
            self.excluded.subset(users),
            {name: histories.subset(users) for name, histories in self.auxiliary.items()},
            None if self.answering is None else self.answering.subset(users),
            None if self.fake_items is None else self.fake_items.subset(users),
            ratings,
            None if self.arrived is None else self.arrived[users],
            Population(users, self.positives),
            self.storage,
        )

    def private_state(self, start: Start) -> PrivateState:
        """Private tensors of every hosted user, kept where `storage` says."""
        return self.storage.keep("users", self.n_users, start)

    @property
    def n_users(self) -> int:
        """Number of users that the process hosts."""
        return self.positives.n_users

    @property
    def everybody(self) -> Population:
        """The population that the users belong to."""
        return self.population or Population(np.arange(self.n_users), self.positives)

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.positives.n_items

    def examined(self, which: Sequence[str] | None = None) -> Histories:
        """Items that each user examined without buying them.

        Args:
            which: behaviours that count; None takes `view` where there is one, else all there are.

        Raises:
            BehaviourError: a behaviour that the data lack.
        """
        if self.answering is not None:
            return self.answering
        if which is None:
            which = (VIEW,) if VIEW in self.auxiliary else tuple(self.auxiliary)
        missing = [name for name in which if name not in self.auxiliary]
        if missing:
            has = ", ".join(self.auxiliary) or "none besides the one to recommend"
            raise BehaviourError(f"examinations {missing[0]!r} are not in the data: choose among those it has ({has})")
        joined = Histories.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), self.n_users, self.n_items)
        for name in which:
            joined = joined.union(self.auxiliary[name])
        return joined

    def with_padding(self, kept: Histories, fake_items: Histories, *, public_target: bool) -> "ClientData":
        """The same users when only `kept` of their private items answer and rows of `fake_items` are sent besides.

        Where the target itself is private, negatives come from the fake items alone: any other row would stand out.
        """
        if public_target:
            return replace(self, answering=kept, fake_items=fake_items)
        ratings = None if self.ratings is None else self.ratings[self.positives.find(kept)]
        excluded = self.excluded.union(fake_items.complement())
        return replace(self, positives=kept, excluded=excluded, fake_items=fake_items, ratings=ratings)
