"""The users that a node hosts and what they know, in one file that no server ever sees.

Users keep the numbers that the federation knows them by, so histories are laid out over the whole population, and rows
of users who live elsewhere are empty: eight bytes for each. Private tensors are as tall as the node's own users
(`privfed.federation.hosted_clients`). Whatever a method draws for a user is drawn for that number, wherever the user
lives; that is why a federation over nodes repeats a simulation to the bit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int64
from pydantic import BaseModel, Field

from privfed.data import Histories, PartRatings, Split, SplitSpec
from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import MessageError, NodesError, StateError
from privfed.engines.nodes.files import make_folder, read_file, write_file

FILE = "users.pfn"
_PARTS = ("train", "valid", "test")


class _SavedUsers(BaseModel):
    """The small values of the file of users."""

    spec: SplitSpec
    source: str
    without_holdout: int = Field(ge=0)
    items: int = Field(ge=0)
    auxiliary: tuple[str, ...]
    rated: bool
    item_info: str | None


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
            parts: of everybody.
            users: ascending.
            public: whether everybody's training items are public (`Method.public_target`).
        """
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
        """What the server knows: sizes, public descriptions of items and, where these are public, training items."""
        nobody = cls.from_split(parts, np.empty(0, np.int64), public=public)
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
            ),
        )

    @property
    def population(self) -> int:
        """Users of the whole federation."""
        return self.parts.train.n_users

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
        saved = _SavedUsers(
            spec=parts.spec,
            source=parts.source,
            without_holdout=int(parts.users_without_holdout),
            items=self.items,
            auxiliary=tuple(parts.auxiliary),
            rated=parts.ratings is not None,
            item_info=None if parts.item_info is None else parts.item_info.to_json(orient="split"),
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
            names = (*_PARTS, *(f"also.{name}" for name in saved.auxiliary))
            histories = {name: _read(packet, name, saved.items) for name in names}
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
                ),
            )
        except (MessageError, TypeError, ValueError) as error:
            raise StateError(f"{folder / FILE} holds no users of a node ({error}); write it again") from error

    def _histories(self) -> Mapping[str, Histories]:
        named = {name: getattr(self.parts, name) for name in _PARTS}
        return named | {f"also.{name}": of for name, of in self.parts.auxiliary.items()}


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
