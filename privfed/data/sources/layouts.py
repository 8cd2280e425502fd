"""Which layout a folder has, told by the names of its files; nothing is opened."""

from pathlib import Path, PurePosixPath

from privfed.data.sources.files import SPLIT_NAMES, Files, folder
from privfed.data.split_spec import PARTS

MOVIELENS_100K = "u.data"
MOVIELENS_1M = "ratings.dat"
BEHAVIOUR_FILES = "trn_buy"
ADJACENCY_LISTS = "train.txt"
LISTENED = "user_artists.dat"
TAGGED = "user_taggedartists.dat"
TAGGED_IN_PARTS = "user_taggedartists.part1.dat"
LENSKIT = "schema.json"
TABLES = "interactions.parquet"
ATOMIC = ".inter"
"""How the files of RecBole end."""

TEXT = (".csv", ".tsv", ".dat")
ARROW = (".feather", ".arrow", ".ipc")
PARQUET = ".parquet"
RECORDS = (".jsonl", ".ndjson", ".json")

_MARKERS = (
    MOVIELENS_100K, MOVIELENS_1M, BEHAVIOUR_FILES, ADJACENCY_LISTS, LISTENED, TAGGED, TAGGED_IN_PARTS, LENSKIT, TABLES,
)  # fmt: skip
_BEHAVIOURS = {"pv": "view"}


def is_marker(name: str) -> bool:
    """Whether a file of this name (without `.gz`) tells which layout its folder has."""
    return name in _MARKERS or name.endswith(ATOMIC)


def is_table(name: str) -> bool:
    """Whether a file of this name (without `.gz`) can be a table."""
    table = PurePosixPath(name)
    return table.suffix.lower() in (*TEXT, PARQUET, *ARROW, *RECORDS) and table.name not in ("meta.json", LENSKIT)


def has_layout(path: Path) -> bool:
    """Whether a folder holds files that can be a data set."""
    return fits(folder(path))


def fits(files: Files) -> bool:
    """Whether these files can be a data set."""
    return any(is_marker(name) or is_table(name) for name in files.names if "/" not in name) or bool(
        folders_of_behaviours(files)
    )


def folders_of_behaviours(files: Files) -> list[tuple[str, str, str]]:
    """File, behaviour and part of each file in folders of behaviours; nothing where fewer than two have `train.txt`."""
    split = [(name, *name.removesuffix(".txt").split("/")) for name in files.names if name.endswith(".txt")]
    found = [
        (part[0], _BEHAVIOURS.get(part[1], part[1]), SPLIT_NAMES[part[2]])
        for part in split
        if len(part) == 3 and part[2] in SPLIT_NAMES
    ]
    # Of a pair in two parts the row of the training part has to stay, so that part comes first.
    found.sort(key=lambda file: (PARTS.index(file[2]), file[1]))
    return found if sum(name.endswith("/train.txt") for name, _, _ in found) > 1 else []
