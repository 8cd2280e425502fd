"""What the parties of a federation read, from tables: an organisation's own users, and the server's catalogue.

All parties number items as the catalogue lists them, and users as the federation file gives them out. Which user has
which number is the organisation's own choice, kept beside its data: whoever has a number keeps it when the table is
read again, because a run over nodes charges numbers.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int64

from privfed.data import Histories, Interactions, Split, SplitSpec, fitted, split
from privfed.data.frames import describe
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.files import write_file
from privfed.engines.nodes.node_data import NodeData

NUMBERS = "numbers.csv"
_USER, _NUMBER = "user", "number"


def read_catalogue(path: Path, expected: int) -> pd.DataFrame:
    """The items of a csv in the order of their numbers, indexed by id.

    Args:
        path: with a column of ids; whatever else it has describes items.
        expected: items of the federation file.

    Raises:
        NodesError: it cannot be read, names an item twice, or has another number of items.
    """
    try:
        frame = describe(pd.read_csv(path, dtype=str), "item", None, str(path)).frame
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise NodesError(f"{path} is no csv of items ({error}): give one with a column item") from error
    if not frame.index.is_unique:
        raise NodesError(f"{path} names the item {frame.index[frame.index.duplicated()][0]} twice: name it once")
    if len(frame) != expected:
        raise NodesError(f"{path} has {len(frame)} items, and the federation file {expected}: give its catalogue")
    return frame


def catalogue_alone(frame: pd.DataFrame, people: int, source: str) -> NodeData:
    """A catalogue and nobody's history."""
    none = np.empty(0, np.int64)
    nothing = Histories.from_pairs(none, none, people, len(frame))
    described = frame.reset_index(drop=True) if len(frame.columns) else None
    return NodeData(none, Split(SplitSpec(), nothing, nothing, nothing, people, source, item_info=described))


def numbered(ids: pd.Index, users: Int64[np.ndarray, " users"], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each user id of an organisation: the one it has, or the lowest that nobody has had yet.

    Args:
        ids: of the users in its table.
        users: numbers that the federation file gives the organisation, ascending.
        known: who has which number already; whoever left keeps it.

    Raises:
        NodesError: a number is not the organisation's, or there are too few.
    """
    foreign = np.setdiff1d(np.fromiter(known.values(), np.int64, len(known)), users)
    if len(foreign):
        raise NodesError(
            f"{NUMBERS} gives somebody the number {foreign[0]}, which the federation file does not give this "
            "organisation: bring back the file that was written, or begin with a new folder and key"
        )
    free = np.setdiff1d(users, np.fromiter(known.values(), np.int64, len(known)))
    new = [one for one in ids.astype(str) if one not in known]
    if len(new) > len(free):
        raise NodesError(
            f"{len(known) + len(new)} users were given, those who left included, and the federation file has "
            f"{len(users)} numbers for this organisation: have the operator give it more"
        )
    return {**known, **dict(zip(new, free.tolist(), strict=False))}


def own_users(
    interactions: Interactions,
    frame: pd.DataFrame,
    numbers: Mapping[str, int],
    federation: FederationFile,
    seat: int,
    target: str | None,
) -> NodeData:
    """The users of an organisation, at their numbers in the federation; whoever is not in its table has no history.

    Args:
        interactions: its table.
        frame: the catalogue.
        numbers: of its users, by id.
        federation: that it takes part in.
        seat: its seat there.
        target: behaviour to recommend; None where the table has one.

    Raises:
        NodesError: the table has an item that the catalogue has not.
        DataError: the table cannot be split.
    """
    items = pd.Index(frame.index.astype(str)).get_indexer(interactions.item_ids.astype(str))
    if (items < 0).any():
        unknown = interactions.item_ids[items < 0][0]
        raise NodesError(
            f"{interactions.name} has the item {unknown!r}, which the catalogue has not: leave its rows out, or have "
            "it added to the catalogue of all parties"
        )
    place = np.array([numbers[one] for one in interactions.user_ids.astype(str)], np.int64)
    everybody = replace(
        interactions,
        user=place[interactions.user],
        item=items[interactions.item].astype(np.int64),
        user_ids=pd.RangeIndex(federation.population),
        item_ids=frame.index,
        attributes=None,
        item_info=None,
    )
    spec = fitted(SplitSpec() if target is None else SplitSpec(target=target), everybody)
    return NodeData.from_split(split(everybody, spec), federation.users(seat))


def read_numbers(folder: Path) -> dict[str, int]:
    """Who has which number, as it was written into a party's folder; nobody where nothing was.

    Raises:
        NodesError: the file is damaged.
    """
    path = folder / NUMBERS
    if not path.exists():
        return {}
    try:
        table = pd.read_csv(path, dtype={_USER: str, _NUMBER: np.int64}, keep_default_na=False)
        numbers = dict(zip(table[_USER], table[_NUMBER].tolist(), strict=True))
    except (ValueError, KeyError) as error:
        raise NodesError(f"{path} does not say who has which number ({error}): bring it back") from error
    if len(set(numbers.values())) < len(table):
        raise NodesError(f"{path} gives two users one number, or one user two: bring it back")
    return numbers


def write_numbers(folder: Path, numbers: Mapping[str, int]) -> None:
    """Keep who has which number, for the owner of the folder alone.

    Raises:
        StateError: it cannot be written.
    """
    table = pd.DataFrame({_USER: list(numbers), _NUMBER: list(numbers.values())})
    write_file(folder / NUMBERS, table.to_csv(index=False).encode())
