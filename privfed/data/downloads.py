"""Downloads that are checked before they count: fetched aside, verified by SHA-256, then renamed."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import platformdirs

from privfed.data.errors import DataError

Progress: TypeAlias = Callable[[str], None]

_SECONDS_WITHOUT_ANSWER = 15
_SECONDS_IN_ALL = 300


def cache_folder() -> Path:
    """Folder of downloads: the user's cache folder for `privfed`, as the operating system names it."""
    return platformdirs.user_cache_path("privfed")


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Download:
    """One file to fetch.

    Attributes:
        filename: Its name, in the cache too.
        source: An https address, or what pip is to download (`name==version`, wheel only, no dependencies).
        megabytes: Its size.
        sha256: What its SHA-256 must be, or that of `member`.
        member: For an archive that may be repacked: the member that is checked instead of the whole.
    """

    filename: str
    source: str
    megabytes: float
    sha256: str
    member: str | None = None

    @property
    def from_pip(self) -> bool:
        """Whether pip fetches it."""
        return not self.source.startswith("https://")

    def cached(self) -> Path | None:
        """The verified copy in the cache, or None."""
        path = cache_folder() / self.filename
        return path if path.is_file() and self.is_right(path) else None

    def is_right(self, path: Path) -> bool:
        """Whether the content is what it must be."""
        try:
            if self.member is None:
                return sha256(path.read_bytes()) == self.sha256
            with zipfile.ZipFile(path) as archive:
                return sha256(archive.read(self.member)) == self.sha256
        except (OSError, KeyError, zipfile.BadZipFile):
            return False

    def fetch(self, progress: Progress) -> Path:
        """Put a verified copy into the cache; a partly written file never has its name.

        Raises:
            DataError: It cannot be fetched, is not what it must be, or the cache cannot be written.
        """
        where = "the package index" if self.from_pip else self.source
        progress(f"fetching {self.filename} ({self.megabytes} MB) from {where}")
        cache = cache_folder()
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                arrived = Path(scratch) / self.filename
                self._get(arrived)
                right = self.is_right(arrived)
                if right:
                    arrived.replace(cache / self.filename)
        except subprocess.CalledProcessError as error:
            told = [line.removeprefix("ERROR: ") for line in error.stderr.splitlines() if line.startswith("ERROR: ")]
            raise DataError(f"pip could not download {self.source} ({(told or ['no reason given'])[-1]})") from error
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise DataError(f"{self.filename} could not be fetched from {where} into {cache} ({reason})") from error
        if not right:
            raise DataError(f"{self.filename} from {where} failed its SHA-256 check and was discarded")
        progress(f"{self.filename} is in {cache}, checked")
        return cache / self.filename

    def _get(self, target: Path) -> None:
        if not self.from_pip:
            import pooch

            pooch.HTTPDownloader(timeout=_SECONDS_WITHOUT_ANSWER)(self.source, str(target), None)
            return
        asked = ["download", self.source, "--no-deps", "--only-binary=:all:", f"--dest={target.parent}"]
        quietly = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=1"]
        subprocess.run(  # noqa: S603 (a fixed command: this interpreter's pip and a pinned requirement)
            [sys.executable, "-m", "pip", *asked, *quietly, f"--timeout={_SECONDS_WITHOUT_ANSWER}"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_SECONDS_IN_ALL,
        )
