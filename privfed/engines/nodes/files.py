"""Files that are there whole or not at all, whatever moment a process dies in, and that their owner alone may read."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privfed.engines.nodes.errors import StateError

_LOCK = "lock"


def write_file(path: Path, data: bytes, *, public: bool = False) -> None:
    """Replace `path` by `data`; returns once the disk has both the bytes and the name.

    Args:
        path: whose folder exists.
        data: all of it.
        public: whether other accounts may read it, as far as the process's umask allows.

    Raises:
        StateError: the disk is full, or the folder cannot be written.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644 if public else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StateError(
            f"{path} cannot be written ({error.strerror}); make room or mend the folder, then go on"
        ) from error


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        StateError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(f"{path} cannot be read ({error.strerror}); mend the folder, then go on") from error


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone; one that is there stays as it is.

    Raises:
        StateError: it cannot be made.
    """
    try:
        for missing in reversed([above for above in path.parents if not above.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StateError(f"{path} cannot be made ({error.strerror}); mend the folder, then go on") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock: one message at a time, whichever process or thread serves it.

    Raises:
        StateError: the folder cannot be made or written.
    """
    make_folder(folder)
    try:
        file = os.fdopen(private(folder / _LOCK, os.O_RDWR | os.O_CREAT), "ab")
    except OSError as error:
        raise StateError(f"{folder} cannot be written ({error.strerror}); mend the folder, then go on") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def private(path: Path, flags: int) -> int:
    """A descriptor of a file that is its owner's alone where it is new."""
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut, where the system offers it."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
