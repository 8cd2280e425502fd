"""`load`: a data set by name or from a folder, archive or file."""

import os
from collections.abc import Mapping
from pathlib import Path

from privfed.data.catalogue import Located, dataset_of, fetch, find, ways_out
from privfed.data.downloads import Progress
from privfed.data.errors import DataError
from privfed.data.funnel import generate_funnel
from privfed.data.interactions import Duplicates, Interactions
from privfed.data.options import BuildOptions
from privfed.data.ratings import behaviours_from_ratings
from privfed.data.sources.read_files import read
from privfed.data.synthetic import generate
from privfed.data.synthetic_spec import FUNNELS, SPECS


def load(
    name_or_path: str | os.PathLike[str],
    *,
    path: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    duplicates: Duplicates = "drop",
    min_per_user: int = 1,
    offline: bool = False,
    progress: Progress | None = None,
) -> Interactions:
    """A data set, by name or from a folder, archive or file.

    Args:
        name_or_path: A name of the catalogue or of something in `PRIVFED_DATA`, or a path.
        path: Where the named data set lies, instead of looking for it.
        columns: Role (user, item, timestamp, order, rating, behaviour, split) -> column, for tables and
            atomic files.
        duplicates: "drop" keeps the earliest of the rows with equal user and item; "keep" keeps them all.
        min_per_user: Leave out users with fewer rows than this.
        offline: Never download.
        progress: Called with one line for each step of a download, and for what a person should know about the data;
            without it the latter are warnings.

    Raises:
        DataError: It is not to be had, or its content is unfit; the sentence says what to do.
    """
    name = os.fspath(name_or_path)
    dataset = dataset_of(name)
    if dataset is not None and dataset.synthetic:
        if path is not None or columns is not None:
            message = f"{name} is generated and not read: leave path and columns out"
            raise DataError(message, command_line=f"{name} is generated and has no columns to name: leave them out")
        if name in FUNNELS:
            return generate_funnel(FUNNELS[name], duplicates=duplicates, min_per_user=min_per_user)
        return generate(SPECS[name], duplicates=duplicates, min_per_user=min_per_user)
    if path is None and dataset is None and Path(name).exists():
        located = Located(_stem(Path(name)), Path(name), "the path given")
    elif found := find(name, path):
        located = found
    elif offline:
        raise DataError(f"{name} is not on this machine and downloads are off: {ways_out(name)}")
    else:
        located = fetch(name, progress)
    options: BuildOptions = {
        "name": located.name if dataset is None else dataset.sought,
        "duplicates": duplicates,
        "min_per_user": min_per_user,
    }
    if dataset is not None:
        options["terms"] = dataset.terms
    interactions = read(located.path or Path(name), columns, **options)
    interactions.reading.announce(progress)
    return interactions if dataset is None or dataset.ratings_of is None else behaviours_from_ratings(interactions)


def _stem(path: Path) -> str:
    resolved = path.resolve()
    return resolved.name if resolved.is_dir() else Path(resolved.name.removesuffix(".gz")).stem
