"""Loaders, one file per official layout, and `read`, which tells the layouts apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from privfed.data.errors import DataError
from privfed.data.interactions import Interactions
from privfed.data.options import BuildOptions
from privfed.data.sources import (
    adjacency_lists,
    behaviour_files,
    hetrec_lastfm,
    movielens_1m,
    movielens_100k,
    recbole_atomic,
    table,
)
from privfed.data.sources.files import Files, archive, folder

_ARCHIVES = (".zip", ".whl")
_FIXED = {
    movielens_100k.MARKER: movielens_100k.read,
    movielens_1m.MARKER: movielens_1m.read,
    behaviour_files.MARKER: behaviour_files.read,
    adjacency_lists.MARKER: adjacency_lists.read,
    hetrec_lastfm.LISTENED: hetrec_lastfm.read_listened,
    hetrec_lastfm.TAGGED: hetrec_lastfm.read_tagged,
    hetrec_lastfm.TAGGED_IN_PARTS: hetrec_lastfm.read_tagged,
}
_MARKERS = (*_FIXED, table.MARKER)


def is_marker(name: str) -> bool:
    """Whether a file of this name (without `.gz`) tells which layout its folder has."""
    return name in _MARKERS or name.endswith(recbole_atomic.SUFFIX)


def has_layout(path: Path) -> bool:
    """Whether a folder holds a file that tells its layout."""
    return any(is_marker(name) for name in folder(path).names)


def read(path: Path, columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]) -> Interactions:
    """Read a data set from a folder, a zip archive or a file, whatever the layout.

    Args:
        path: A folder or archive that holds `u.data`, `ratings.dat`, `trn_buy`, `train.txt`,
            `user_artists.dat` or `user_taggedartists.dat`, a `.inter` file or `interactions.parquet`; one of these
            files; or a csv, tsv or parquet file.
        columns: Role -> column, for layouts with named columns.
        options: For `build`.

    Raises:
        DataError: There is nothing at the path, its layout is not known, or its content is unfit.
    """
    if not path.exists():
        raise DataError(f"there is nothing at {path}: correct the path")
    if path.is_dir():
        return _read_layout(folder(path), columns, options)
    if path.suffix.lower() in _ARCHIVES:
        return _read_layout(archive(path, is_marker), columns, options)
    name = path.name.removesuffix(".gz")
    if is_marker(name):
        beside = folder(path.parent)
        others = {other for other in beside.names if is_marker(other)} - {name}
        chosen = Files(beside.location, tuple(other for other in beside.names if other not in others), beside.fetch)
        return _read_layout(chosen, columns, options)
    if Path(name).suffix.lower() in (*table.SEPARATORS, ".parquet"):
        return table.read(folder(path.parent), name, columns, **options)
    raise DataError(
        f"{path} is of no known layout: give a csv, tsv or parquet file with named columns, {', '.join(_FIXED)}, "
        "a RecBole .inter file, or a folder or zip archive that holds one"
    )


def _read_layout(files: Files, columns: Mapping[str, str] | None, options: BuildOptions) -> Interactions:
    markers = [name for name in files.names if is_marker(name)]
    if len(markers) != 1:
        found = f"{', '.join(markers)} side by side" if markers else ", ".join(files.names) or "nothing"
        raise DataError(
            f"{files.location} holds {found}, which does not tell one data set: give the path of "
            f"{', '.join(_MARKERS)} or a RecBole .inter file, or a folder with exactly one of them"
        )
    marker = markers[0]
    if marker.endswith(recbole_atomic.SUFFIX):
        return recbole_atomic.read(files, marker, columns, **options)
    if marker == table.MARKER:
        return table.read_folder(files, columns, **options)
    if columns is not None:
        raise DataError(f"{files.named(marker)} has a fixed layout: leave columns out")
    return _FIXED[marker](files, **options)
