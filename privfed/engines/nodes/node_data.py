"""The users that a node hosts and what they know, in one file that no server ever sees.

Users keep the numbers that the federation knows them by, so histories are laid out over the whole population, and rows
of users who live elsewhere are empty: eight bytes for each. Private tensors are as tall as the node's own users
(`privfed.federation.hosted_clients`). Whatever a method draws for a user is drawn for that number, wherever the user
lives; that is why a federation over nodes repeats a simulation to the bit. In a run with donors, who take no part, all
others are numbered anew (`NodeData.without`), as a simulation numbers them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int64
from pydantic import BaseModel, Field

from privfed.data import Donors, Histories, PartRatings, Split, SplitSpec
from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import MessageError, NodesError, StateError
from privfed.engines.nodes.files import make_folder, read_file, write_file

FILE = "users.pfn"
_PARTS, _DONORS = ("train", "valid", "test"), "donors"


class _SavedUsers(BaseModel):
    """The small values of the file of users."""

    spec: SplitSpec
    source: str
    without_holdout: int = Field(ge=0)
    items: int = Field(ge=0)
    auxiliary: tuple[str, ...]
    rated: bool
    item_info: str | None
    donors: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NodeData:
    """What one party knows of the population.

    Attributes:
        users: numbers of the users that it hosts, ascending.
        parts: train, validation and test, over the whole population; empty rows for everybody else, except where the
            problem declares training items public.
    """

    users: Int64[np.ndarray, " users"]
    parts: Split

    def __post_init__(self) -> None:
        max_clients = self.parts.train.n_users
        if len(self.users) and (self.users[0] < 0 or self.users[-1] >= max_clients or (np.diff(self.users) <= 0).any()):
            raise NodesError(f"a node's users must be ascending numbers from 0 to {max_clients - 1}; mend the list")

    @classmethod
    def from_split(cls, parts: Split, users: Int64[np.ndarray, " users"], *, public: bool = False) -> "NodeData":
        """The share of `users` in data of a whole population.

        Args:
            parts: of everybody, donors too: a node's users keep their numbers, whoever opens a history.
            users: ascending.
            public: whether everybody's training items are public (`Method.public_target`).

        Raises:
            NodesError: donors were taken out.
        """
        if parts.donors is not None:
            raise NodesError("users of a node keep their numbers, and donors were taken out of the data: split without")
        hosted = np.zeros(parts.train.n_users, dtype=bool)
        hosted[users] = True
        cut = {name: _rows_of(getattr(parts, name), hosted) for name in ("valid", "test")}
        train = parts.train if public else _rows_of(parts.train, hosted)
        ratings = None
        if parts.ratings is not None and not public:
            ratings = PartRatings(
                **{name: getattr(parts.ratings, name)[hosted[getattr(parts, name).owners]] for name in _PARTS}
            )
        return cls(
            users,
            Split(
                parts.spec,
                train,
                cut["valid"],
                cut["test"],
                parts.users_without_holdout,
                parts.source,
                {name: _rows_of(of, hosted) for name, of in parts.auxiliary.items()},
                ratings,
            ),
        )

    @classmethod
    def for_server(cls, parts: Split, *, public: bool = False) -> "NodeData":
        """What the server knows: sizes, descriptions of items, and training items that are public or opened."""
        nobody = cls.from_split(replace(parts, donors=None), np.empty(0, np.int64), public=public)
        blank = nobody.parts
        return cls(
            nobody.users,
            Split(
                blank.spec,
                blank.train,
                blank.valid,
                blank.test,
                blank.users_without_holdout,
                blank.source,
                blank.auxiliary,
                item_info=parts.item_info,
                donors=parts.donors,
            ),
        )

    def without(self, donors: Int64[np.ndarray, " donors"]) -> "NodeData":
        """The same in a run in which these users take no part, whose other users are numbered anew.

        Nothing that a donor did is in it.
        """
        if not len(donors):
            return self
        blank = Histories.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), len(donors), self.items)
        parts = replace(self.parts.without(donors), donors=Donors(donors, blank))
        return NodeData(renumbered(self.users, donors), parts)

    def with_donors(self, donors: Donors) -> "NodeData":
        """What a server knows once these people have opened their history.

        Raises:
            NodesError: it has open histories already.
        """
        if self.parts.donors is not None:
            raise NodesError("the server's data hold open histories already: give them once")
        return NodeData(self.users, replace(self.parts.without(donors.users), donors=donors))

    @property
    def population(self) -> int:
        """Users of the whole federation, donors among them."""
        donors = self.parts.donors
        return self.parts.train.n_users + (0 if donors is None else len(donors.users))

    @property
    def items(self) -> int:
        """Size of the catalogue."""
        return self.parts.train.n_items

    def save(self, folder: Path) -> None:
        """Write the file into `folder`, which is made where it is missing; both for their owner alone.

        Raises:
            StateError: it cannot be written.
        """
        make_folder(folder)
        parts, arrays = self.parts, dict[str, Array]()
        for name, histories in self._histories().items():
            arrays |= {f"{name}.counts": histories.counts, f"{name}.items": histories.items}
        if parts.ratings is not None:
            arrays |= {f"ratings.{name}": getattr(parts.ratings, name) for name in _PARTS}
        if parts.donors is not None:
            arrays["donors.users"] = parts.donors.users
        saved = _SavedUsers(
            spec=parts.spec,
            source=parts.source,
            without_holdout=int(parts.users_without_holdout),
            items=self.items,
            auxiliary=tuple(parts.auxiliary),
            rated=parts.ratings is not None,
            item_info=None if parts.item_info is None else parts.item_info.to_json(orient="split"),
            donors=parts.donors is not None,
        )
        write_file(folder / FILE, Packet(saved.model_dump(mode="json"), {"users": self.users, **arrays}).encode())

    @classmethod
    def load(cls, folder: Path) -> "NodeData":
        """Read the file in `folder`.

        Raises:
            StateError: it is missing or damaged.
        """
        try:
            packet = Packet.decode(read_file(folder / FILE))
            saved = _SavedUsers.model_validate(packet.fields)
            names = (*_PARTS, *(f"also.{name}" for name in saved.auxiliary), *([_DONORS] if saved.donors else []))
            histories = {name: _read(packet, name, saved.items) for name in names}
            donors = None
            if saved.donors:
                donors = Donors(packet.array("donors.users", "int64", (None,)).copy(), histories[_DONORS])
            ratings = None
            if saved.rated:
                ratings = PartRatings(
                    **{name: packet.array(f"ratings.{name}", "float32", (None,)).copy() for name in _PARTS}
                )
            return cls(
                packet.array("users", "int64", (None,)).copy(),
                Split(
                    saved.spec,
                    histories["train"],
                    histories["valid"],
                    histories["test"],
                    saved.without_holdout,
                    saved.source,
                    {name: histories[f"also.{name}"] for name in saved.auxiliary},
                    ratings,
                    item_info=_described(saved.item_info),
                    donors=donors,
                ),
            )
        except (MessageError, TypeError, ValueError) as error:
            raise StateError(f"{folder / FILE} holds no users of a node ({error}); write it again") from error

    def _histories(self) -> Mapping[str, Histories]:
        named = {name: getattr(self.parts, name) for name in _PARTS}
        opened = {} if self.parts.donors is None else {_DONORS: self.parts.donors.histories}
        return named | {f"also.{name}": of for name, of in self.parts.auxiliary.items()} | opened


def renumbered(users: Int64[np.ndarray, " users"], donors: Int64[np.ndarray, " donors"]) -> Int64[np.ndarray, " rest"]:
    """Numbers in a run of those of a federation's users (ascending) who are none of its donors (ascending)."""
    rest = np.setdiff1d(users, donors, assume_unique=True)
    numbers: Int64[np.ndarray, " rest"] = rest - np.searchsorted(donors, rest)
    return numbers


def _rows_of(histories: Histories, hosted: Bool[np.ndarray, " population"]) -> Histories:
    kept = hosted[histories.owners]
    return Histories.from_pairs(histories.owners[kept], histories.items[kept], histories.n_users, histories.n_items)


def _read(packet: Packet, name: str, n_items: int) -> Histories:
    counts = packet.array(f"{name}.counts", "int64", (None,))
    items = packet.array(f"{name}.items", "int64", (None,)).copy()
    return Histories(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), items, n_items)


def _described(text: str | None) -> pd.DataFrame | None:
    if text is None:
        return None
    table = json.loads(text)
    return pd.DataFrame(table["data"], index=table["index"], columns=table["columns"])
