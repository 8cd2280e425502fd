"""Data sets by name: where they are looked for, how they are fetched, and on what terms they may be used.

Nothing real ships with this package. `ml-100k` is looked for in this order: an explicit path; the folder that
the environment variable `PRIVFED_DATA` names; an installed `recbole` or `hopwise`, whose wheels carry it
(they are located, never imported); the cache. If it is in none of these, `fetch` gets the RecBole wheel with
pip, or else the archive of GroupLens. What comes from a package, the cache or the network is checked by
SHA-256.
"""

import importlib.util
import os
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from privfed.data.downloads import Download, Progress, cache_folder, sha256
from privfed.data.errors import DataError
from privfed.data.sources import layouts, movielens_terms
from privfed.data.synthetic_spec import FUNNELS, SPECS, TERMS

ENVIRONMENT = "PRIVFED_DATA"

_ATOMIC_100K = Path("dataset_example", "ml-100k")
_ATOMIC_100K_SHA256 = "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"


@dataclass(frozen=True)
class Dataset:
    """A data set with a name.

    Attributes:
        name: Its name.
        summary: What it is, in one line.
        terms: Terms of use.
        files: Files that mark a folder as holding it.
        downloads: What can be fetched to have it, in the order in which it is tried.
        packages: Python packages whose folder holds it, if installed.
        ratings_of: The named data set whose ratings are read as its behaviours; files, downloads and packages are its.
    """

    name: str
    summary: str
    terms: str
    files: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
    packages: tuple[str, ...] = ()
    ratings_of: str | None = None

    @property
    def sought(self) -> str:
        """The name under which it lies in a folder."""
        return self.ratings_of or self.name

    @property
    def synthetic(self) -> bool:
        """Whether it is generated."""
        return self.name in SPECS or self.name in FUNNELS


@dataclass(frozen=True)
class Located:
    """Location of a data set.

    Attributes:
        name: Its name.
        path: Folder, file or archive to read; None for a generated data set.
        route: Where it came from, in words.
    """

    name: str
    path: Path | None
    route: str


_ML_100K = Dataset(
    "ml-100k",
    "MovieLens-100K: 943 users, 1,682 movies, 100,000 timed ratings; gender, age, occupation",
    movielens_terms.TERMS,
    files=("u.data", "ml-100k.inter"),
    downloads=(
        Download(
            filename="recbole-1.2.1-py3-none-any.whl",
            source="recbole==1.2.1",
            megabytes=2.1,
            sha256="9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
        ),
        Download(
            filename="ml-100k.zip",
            source="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
            megabytes=4.9,
            sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
            member="ml-100k/u.data",
        ),
    ),
    packages=("recbole", "hopwise"),
)

_DATASETS = {
    dataset.name: dataset
    for dataset in (
        _ML_100K,
        Dataset(
            "ml-1m",
            "MovieLens-1M: 6,040 users, 3,883 movies (3,706 rated), 1,000,209 timed ratings; gender, age, occupation",
            movielens_terms.TERMS,
            files=("ratings.dat", "ml-1m.inter"),
            downloads=(
                Download(
                    filename="ml-1m.zip",
                    source="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
                    megabytes=5.9,
                    sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
                ),
            ),
        ),
        replace(
            _ML_100K,
            name="ml-100k-behaviours",
            summary="MovieLens-100K, ratings of 4 or more as buy and lower ones as view; users with 5 and movies with "
            "20 buys or more: 937 users, 621 movies",
            ratings_of="ml-100k",
        ),
        *(
            Dataset(
                name,
                f"generated from a seed: {spec.n_users:,} users, {spec.n_items:,} items; always there",
                TERMS,
            )
            for name, spec in SPECS.items()
        ),
        *(
            Dataset(
                name,
                f"generated views, carts and buys: {spec.n_users:,} users, {spec.n_items:,} items; always there",
                TERMS,
            )
            for name, spec in FUNNELS.items()
        ),
    )
}


def find(name: str, path: str | os.PathLike[str] | None = None) -> Located | None:
    """Location of a named data set on this machine, or None; the network is not touched.

    Args:
        name: A name of the catalogue, or of a folder or zip archive in `PRIVFED_DATA`.
        path: Look only here: the data set itself, or a folder that holds it under its name.

    Raises:
        DataError: The name is unknown, or `path` or `PRIVFED_DATA` leads nowhere.
    """
    dataset = dataset_of(name)
    if dataset is not None and dataset.synthetic:
        return Located(name, None, "generated")
    sought = dataset.sought if dataset else name
    if path is not None:
        place = Path(path).expanduser()
        return Located(name, _within(place, sought) or place, "the path given")
    if named := os.environ.get(ENVIRONMENT):
        root = Path(named).expanduser()
        if not root.is_dir():
            raise DataError(f"{ENVIRONMENT} is {named}, which is not a folder: correct or unset it")
        found = _within(root, sought) or (root if dataset and _holds(root, dataset.files) else None)
        if found:
            return Located(name, found, f"the folder in {ENVIRONMENT}")
    if dataset is None:
        close = get_close_matches(name, [*_DATASETS, *others()], n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise DataError(
            f"the data set {name!r} is not known: {meant}choose among {', '.join(_DATASETS)}, give the path of a "
            f"folder or file, or put it into the folder that {ENVIRONMENT} names"
        )
    for package in dataset.packages:
        if folder := _inside_package(package):
            return Located(name, folder, f"the installed package {package}")
    for download in dataset.downloads:
        if cached := download.cached():
            return Located(name, cached, "the cache")
    return None


def fetch(name: str, progress: Progress | None = None) -> Located:
    """Location of a named data set, after a download if need be.

    Args:
        name: A name of the catalogue.
        progress: Called with one line for each step.

    Raises:
        DataError: The name is unknown, or the data set is neither here nor to be had.
    """
    if found := find(name):
        return found
    failures = []
    for download in _DATASETS[name].downloads:
        try:
            return Located(name, download.fetch(progress or _say_nothing), "a fresh download")
        except DataError as failure:
            failures.append(str(failure))
    raise DataError(f"{name} is not on this machine and cannot be fetched ({'; '.join(failures)}): {ways_out(name)}")


def terms_once(name: str) -> str | None:
    """The terms of a named data set the first time they are needed on this machine, then None.

    A marker in the cache folder remembers it; where that cannot be written, the terms come every time.
    """
    dataset = dataset_of(name)
    if dataset is None or dataset.synthetic:
        return None
    marker = cache_folder() / f"terms-of-{dataset.sought}-shown"
    if marker.exists():
        return None
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError:
        return dataset.terms
    return dataset.terms


def list() -> tuple[Dataset, ...]:
    """The data sets that have a name, real ones first."""
    return tuple(_DATASETS.values())


def dataset_of(name: str) -> Dataset | None:
    """The data set of that name, or None."""
    return _DATASETS.get(name)


def others() -> tuple[str, ...]:
    """What lies in `PRIVFED_DATA` under a name that is not of the catalogue, and can be loaded by it."""
    named = os.environ.get(ENVIRONMENT)
    root = Path(named).expanduser() if named else None
    if root is None or not root.is_dir():
        return ()
    names = sorted(
        {path.name.removesuffix(".zip") for path in root.iterdir() if path.is_dir() or path.suffix == ".zip"}
    )
    return tuple(name for name in names if name not in _DATASETS and _within(root, name))


def ways_out(name: str) -> str:
    """What to do where a data set cannot be had."""
    dataset = dataset_of(name)
    folder = dataset.sought if dataset else name
    return (
        f"connect to the network, set {ENVIRONMENT} to a folder that holds {folder}/, give its path, "
        "or take generated data: 'synthetic'"
    )


def _within(root: Path, name: str) -> Path | None:
    """`root/name` or `root/name.zip`, where it is there and of a known layout."""
    for candidate in (root / name, root / f"{name}.zip"):
        if candidate.is_file() or (candidate.is_dir() and layouts.has_layout(candidate)):
            return candidate
    return None


def _holds(folder: Path, files: tuple[str, ...]) -> bool:
    return any((folder / f"{file}{ending}").is_file() for file in files for ending in ("", ".gz"))


def _inside_package(package: str) -> Path | None:
    """The folder of ml-100k inside an installed package, checked, without importing the package."""
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / _ATOMIC_100K
        marker = folder / "ml-100k.inter"
        if marker.is_file() and sha256(marker.read_bytes()) == _ATOMIC_100K_SHA256:
            return folder
    return None


def _say_nothing(_: str) -> None:
    """What progress goes to when nobody listens."""
