"""Where the bytes come from: a folder (plain or gzipped files) or a zip archive, which a wheel is too."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from privfed.data.errors import DataError

MAX_BYTES = 8 * 2**30
"""Largest size of one file after decompression."""

SPLIT_NAMES = {
    "train": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "dev": "valid",
    "test": "test",
}
"""What files of the parts of a split are called -> the part."""

_ENDS = (".gz", "")
_MAX_RATIO = 250
_SUSPICIOUS_BYTES = 2**26
_CHUNK = 2**24
_SHOWN = 12


@dataclass(frozen=True)
class Files:
    """The files of one data set, named without `.gz`; those one folder down as `folder/name`.

    Attributes:
        location: Where they are, for messages.
        names: Their names, sorted.
        fetch: Gives the content of one of `names`.
        used: Names read so far.
        _latest: The file that was read last, as its header, its encoding and its rows are looked at one by one.
    """

    location: str
    names: tuple[str, ...]
    fetch: Callable[[str], bytes]
    used: set[str] = field(default_factory=set)
    _latest: dict[str, bytes] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            DataError: The file is missing, empty, unreadable or unpacks to more than it may.
        """
        if name not in self.names:
            raise DataError(
                f"{name} is missing in {self.location} (there is: {self.listed()}): add it or correct the path"
            )
        self.used.add(name)
        if name in self._latest:
            return self._latest[name]
        self._latest.clear()
        try:
            content = self.fetch(name)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise DataError(f"{self.named(name)} cannot be read ({error}): fetch it again") from error
        if not content.strip():
            raise DataError(f"{self.named(name)} is empty: fetch it again or correct the path")
        self._latest[name] = content
        return content

    def named(self, name: str) -> str:
        """Name of a file in messages."""
        return f"{self.location}/{name}"

    def listed(self) -> str:
        """The first names, for messages."""
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return ", ".join(self.names[:_SHOWN]) + more if self.names else "nothing"

    def without(self, names: Iterable[str]) -> "Files":
        """The same place, some files unseen."""
        left_out = set(names)
        return Files(self.location, tuple(name for name in self.names if name not in left_out), self.fetch, self.used)


def folder(path: Path) -> Files:
    """The files of a folder and the parts of a split in its folders; the plain file, or else the gzipped one."""
    entries = sorted(path.iterdir(), reverse=True)
    # A folder of one's own may hold anything: of what is below only the names of one layout are looked for.
    below = [entry / f"{part}.txt{end}" for entry in entries if entry.is_dir() for part in SPLIT_NAMES for end in _ENDS]
    paths = {
        entry.relative_to(path).as_posix().removesuffix(".gz"): entry for entry in [*below, *entries] if entry.is_file()
    }

    def fetch(name: str) -> bytes:
        if paths[name].suffix != ".gz":
            return paths[name].read_bytes()
        with gzip.open(paths[name]) as stream:
            return _bounded(stream.read, str(paths[name]), paths[name].stat().st_size)

    return Files(str(path), tuple(sorted(paths)), fetch)


def archive(path: Path, is_marker: Callable[[str], bool], is_table: Callable[[str], bool]) -> Files:
    """The files of a zip archive in the folder of its first marker, else of its uppermost table, else at the top.

    Members with a path that leads out of the archive, and what macOS adds to archives, are not seen.

    Raises:
        DataError: The archive is damaged.
    """
    try:
        with zipfile.ZipFile(path) as revealed:
            sizes = {info.filename: info for info in revealed.infolist() if _is_plain(info.filename)}
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise DataError(f"{path} is not a readable zip archive ({error}): fetch it again") from error
    members = [PurePosixPath(name) for name in sizes]
    home = _home(members, is_marker, is_table)
    inside = {
        member.relative_to(home).as_posix().removesuffix(".gz"): str(member)
        for member in sorted(members, reverse=True)
        if member.is_relative_to(home) and len(member.relative_to(home).parts) <= 2
    }

    def fetch(name: str) -> bytes:
        info, place = sizes[inside[name]], f"{path}/{inside[name]}"
        with zipfile.ZipFile(path) as revealed, revealed.open(info) as stream:
            content = _bounded(stream.read, place, info.compress_size)
        if not info.filename.endswith(".gz"):
            return content
        with gzip.open(io.BytesIO(content)) as unpacked:
            return _bounded(unpacked.read, place, len(content))

    where = str(path) if home == PurePosixPath() else f"{path}/{home}"
    return Files(where, tuple(sorted(inside)), fetch)


def _is_plain(name: str) -> bool:
    member = PurePosixPath(name)
    strange = member.is_absolute() or ".." in member.parts or "__MACOSX" in member.parts or "\\" in name
    return not (strange or name.endswith("/") or member.name.startswith("._"))


def _home(
    members: list[PurePosixPath], is_marker: Callable[[str], bool], is_table: Callable[[str], bool]
) -> PurePosixPath:
    """The folder of an archive in which the data set lies."""
    marked = [member for member in members if is_marker(member.name.removesuffix(".gz"))]
    if marked:
        # One folder for each behaviour, each with the same marker, lies in the folder above them.
        alike = {member.parent for member in marked if member.name == marked[0].name}
        above = {parent.parent for parent in alike}
        return above.pop() if len(alike) > 1 and len(above) == 1 else marked[0].parent
    tables = [member.parent for member in members if is_table(member.name.removesuffix(".gz"))]
    return min(tables, key=lambda parent: len(parent.parts), default=PurePosixPath())


def _bounded(read: Callable[[int], bytes], place: str, packed: int) -> bytes:
    """Everything in a stream, given up before it fills the memory.

    Raises:
        DataError: It is larger than one file may be, or than honest data of its packed size can be.
    """
    limit = min(MAX_BYTES, max(_SUSPICIOUS_BYTES, _MAX_RATIO * packed))
    content = bytearray()
    while chunk := read(_CHUNK):
        content += chunk
        if len(content) > limit:
            raise DataError(
                f"{place} unpacks to more than {limit // 2**20:,} MiB from {packed:,} bytes and was given up: if it is "
                "what it should be, unpack it and give the path of the folder"
            )
    return bytes(content)
