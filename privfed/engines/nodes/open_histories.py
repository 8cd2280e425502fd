"""Histories that people opened to the server, in a file of their own: who they are, and what each of them did.

    user,item
    7,120
    7,44
    203,9

Users and items have the numbers of the federation, and a user's items come oldest first where time is known. Whoever
is in it is a donor: named to every node, and in no sum. No node sends a history: the file comes from the people.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int64

from privfed.data import Donors, Histories
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.files import read_file
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.printable import printable
from privfed.setup.config import ExperimentConfig

_HEADER, _MOST_DIGITS = "user,item", 12


def read_open_histories(path: Path, population: int, items: int) -> Donors:
    """The donors in a file.

    Args:
        path: of the file.
        population: users of the federation.
        items: size of the catalogue.

    Raises:
        NodesError: the file holds anything else, nobody, or the same pair twice; the sentence names the line.
        StateError: it cannot be read.
    """
    header, *lines = read_file(path).decode(errors="replace").splitlines() or [""]
    if header.strip() != _HEADER or not lines:
        raise NodesError(f"{path} begins with {printable(header, 40)!r}: give {_HEADER!r}, then a pair in every line")
    pairs = np.array([_pair(path, number, line, population, items) for number, line in enumerate(lines, 2)], np.int64)
    if len(np.unique(pairs, axis=0)) < len(pairs):
        raise NodesError(f"{path} has the same pair of user and item twice: give each once")
    users, owners = np.unique(pairs[:, 0], return_inverse=True)
    return Donors(users, Histories.from_pairs(owners.reshape(-1), pairs[:, 1], len(users), items))


def require_open_histories(config: ExperimentConfig, data: NodeData) -> None:
    """Refuse a run whose donors are others than those whose histories the server has.

    Raises:
        NodesError: they are.
    """
    named, opened = config.split.donors, data.parts.donors
    have: Int64[np.ndarray, " donors"] = np.empty(0, np.int64) if opened is None else opened.users
    if isinstance(named, float) or sorted(named or (), key=lambda name: (len(name), name)) != list(map(str, have)):
        raise NodesError(
            f"split.donors names {_number(named)} and the server has the open histories of {len(have)}: name those of "
            "the file, by their numbers in the federation, or give the file of those who are named"
        )


def _number(named: float | tuple[str, ...] | None) -> str:
    return f"a share of {named:g}" if isinstance(named, float) else f"{len(named or ())} people"


def _pair(path: Path, number: int, line: str, population: int, items: int) -> tuple[int, int]:
    words = [word.strip() for word in line.split(",")]
    if len(words) == 2 and all(word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS for word in words):
        user, item = map(int, words)
        if user < population and item < items:
            return user, item
    raise NodesError(
        f"{path}, line {number}, is {printable(line, 40)!r}: give a user below {population} and an item below {items}"
    )
