"""`read`: a data set from files of whatever layout."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from privfed.data.errors import DataError
from privfed.data.interactions import Interactions
from privfed.data.options import BuildOptions
from privfed.data.reading import Reading
from privfed.data.sources import (
    adjacency_lists,
    behaviour_files,
    behaviour_folders,
    hetrec_lastfm,
    layouts,
    lenskit,
    movielens_1m,
    movielens_100k,
    recbole_atomic,
    tables,
    text,
)
from privfed.data.sources.files import Files, archive, folder

_ARCHIVES = (".zip", ".whl")
_OTHER_ARCHIVES = (".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")
_FIXED = {
    layouts.MOVIELENS_100K: movielens_100k.read,
    layouts.MOVIELENS_1M: movielens_1m.read,
    layouts.BEHAVIOUR_FILES: behaviour_files.read,
    layouts.ADJACENCY_LISTS: adjacency_lists.read,
    layouts.LISTENED: hetrec_lastfm.read_listened,
    layouts.TAGGED: hetrec_lastfm.read_tagged,
    layouts.TAGGED_IN_PARTS: hetrec_lastfm.read_tagged,
    layouts.LENSKIT: lenskit.read,
}
_SHOWN = 10


def read(path: Path, columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]) -> Interactions:
    """Read a data set from a folder, a zip archive or a file, whatever the layout.

    Args:
        path: A folder or archive that holds one of the known layouts, or the file that marks one; or a table.
        columns: Role -> column, for layouts with named columns.
        options: For `build`.

    Raises:
        DataError: There is nothing at the path, its layout is not known, or its content is unfit.
    """
    if not path.exists():
        raise DataError(f"there is nothing at {path}: correct the path")
    if path.is_dir():
        return _with_reading(_unwrapped(path), columns, options)
    if path.suffix.lower() in _ARCHIVES:
        return _with_reading(archive(path, layouts.is_marker, layouts.is_table), columns, options)
    if {suffix.lower() for suffix in path.suffixes[-2:]} & set(_OTHER_ARCHIVES):
        raise DataError(f"{path} is an archive of a kind that is not read: unpack it and give the path of the folder")
    name, beside = path.name.removesuffix(".gz"), folder(path.parent)
    if layouts.is_marker(name) and not _is_table_in_dat(beside, [name]):
        others = {other for other in beside.names if layouts.is_marker(other)} - {name}
        return _read_layout(beside.without(others), columns, options)
    if layouts.is_table(name):
        return tables.read(beside, [name], columns, **options)
    raise DataError(
        f"{path} is of no known layout: give a csv, tsv, parquet or JSON-lines file with named columns, "
        f"{', '.join(_FIXED)}, a RecBole .inter file, or a folder or zip archive that holds one"
    )


def _unwrapped(path: Path) -> Files:
    """The files of a folder, or of the one folder in it that holds a data set where itself does not."""
    files = folder(path)
    if layouts.fits(files):
        return files
    inner = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and layouts.has_layout(entry)]
    if len(inner) > 1:
        names = ", ".join(entry.name for entry in inner[:_SHOWN])
        raise DataError(f"{path} holds several data sets in folders of their own: give the path of one of {names}")
    return folder(inner[0]) if inner else files


def _with_reading(files: Files, columns: Mapping[str, str] | None, options: BuildOptions) -> Interactions:
    """The data set, with what was made of each file of its folder or archive."""
    data = _read_layout(files, columns, options)
    told = " ".join(data.reading.recognised + data.reading.ignored)
    used = tuple(f"{name}: read" for name in sorted(files.used) if name not in told and name in files.names)
    unused = [name for name in files.names if name not in files.used and name not in told]
    rest = (f"{len(unused) - _SHOWN} more files",) if len(unused) > _SHOWN else ()
    ignored = tuple(f"{name}: no part of this layout" for name in unused[:_SHOWN]) + rest
    return replace(data, reading=data.reading + Reading(recognised=used[:_SHOWN], ignored=ignored))


def _read_layout(files: Files, columns: Mapping[str, str] | None, options: BuildOptions) -> Interactions:
    markers = [name for name in files.names if layouts.is_marker(name)]
    if _is_table_in_dat(files, markers):
        markers.remove(layouts.MOVIELENS_1M)
    if atomic := recbole_atomic.parts(markers):
        return recbole_atomic.read(files, atomic, columns, **options)
    if not markers:
        return _read_unmarked(files, columns, options)
    if len(markers) != 1:
        raise DataError(
            f"{files.location} holds {', '.join(markers)} side by side, which does not tell one data set: give the "
            "path of the one that is meant"
        )
    marker = markers[0]
    if marker == layouts.TABLES:
        return tables.read(files, [marker], columns, **options)
    return _FIXED[marker](_without_columns(files, marker, columns), **options)


def _read_unmarked(files: Files, columns: Mapping[str, str] | None, options: BuildOptions) -> Interactions:
    """Folders of behaviours, or tables; the interactions are told by the name or by the header."""
    if layouts.folders_of_behaviours(files):
        return behaviour_folders.read(_without_columns(files, "train.txt", columns), **options)
    names = tables.mains(files)
    if not names:
        raise DataError(
            f"{files.location} holds {files.listed()}, which does not tell one data set: call the table of "
            "interactions interactions.csv (or .parquet), or see the layouts in docs/data.md"
        )
    if len(names) > 1 and not tables.is_split(names):
        raise DataError(
            f"{files.location} holds {', '.join(names[:_SHOWN])}, any of which may be the interactions: give the path "
            "of the one that is meant, or call it interactions.csv (or .parquet)"
        )
    return tables.read(files, names, columns, **options)


def _without_columns(files: Files, name: str, columns: Mapping[str, str] | None) -> Files:
    if columns is not None:
        fixed = f"{files.named(name)} has a fixed layout"
        role = next(iter(columns))
        raise DataError(f"{fixed}: leave columns out", command_line=f"{fixed}: leave the column of the {role} out")
    return files


def _is_table_in_dat(files: Files, markers: list[str]) -> bool:
    """Whether `ratings.dat` is a table with a header, not the release of MovieLens-1M."""
    return layouts.MOVIELENS_1M in markers and "::" not in text.first_line(files, layouts.MOVIELENS_1M)
