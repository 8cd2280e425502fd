"""Where the bytes come from: a folder (plain or gzipped files) or a zip archive, which a wheel is too."""

import gzip
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from privfed.data.errors import DataError


@dataclass(frozen=True)
class Files:
    """The files of one data set, named without `.gz`.

    Attributes:
        location: Where they are, for messages.
        names: Their names, sorted.
        fetch: Gives the content of one of `names`.
    """

    location: str
    names: tuple[str, ...]
    fetch: Callable[[str], bytes]

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            DataError: The file is missing, empty or unreadable.
        """
        if name not in self.names:
            there = ", ".join(self.names) or "nothing"
            raise DataError(f"{name} is missing in {self.location} (there is: {there}): add it or correct the path")
        try:
            content = self.fetch(name)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise DataError(f"{self.named(name)} cannot be read ({error}): fetch it again") from error
        if not content.strip():
            raise DataError(f"{self.named(name)} is empty: fetch it again or correct the path")
        return content

    def named(self, name: str) -> str:
        """Name of a file in messages."""
        return f"{self.location}/{name}"


def folder(path: Path) -> Files:
    """The files of a folder; for each name the plain file, or else the gzipped one."""
    paths = {entry.name.removesuffix(".gz"): entry for entry in sorted(path.iterdir(), reverse=True) if entry.is_file()}

    def fetch(name: str) -> bytes:
        content = paths[name].read_bytes()
        return gzip.decompress(content) if paths[name].suffix == ".gz" else content

    return Files(str(path), tuple(sorted(paths)), fetch)


def archive(path: Path, is_marker: Callable[[str], bool]) -> Files:
    """The files of a zip archive in the folder of its first marker (at the top, where there is none).

    Raises:
        DataError: The archive is damaged.
    """
    try:
        with zipfile.ZipFile(path) as revealed:
            members = [PurePosixPath(name) for name in revealed.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable zip archive ({error}): fetch it again") from error
    home = next((member.parent for member in members if is_marker(member.name)), PurePosixPath())

    def fetch(name: str) -> bytes:
        with zipfile.ZipFile(path) as revealed:
            return revealed.read(str(home / name))

    names = sorted(member.name for member in members if member.parent == home)
    return Files(f"{path}/{home}", tuple(names), fetch)
