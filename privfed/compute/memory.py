"""The memory that a process may still take, and refusals of what would not fit, before anything is allocated."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


class MemoryLimitError(ValueError):
    """The run does not fit the memory it was given, or that there is."""


def available_bytes() -> int | None:
    """Bytes that this process may still take, by the system and by its container; None where neither says."""
    found = [left for limit, used in _CGROUPS if (left := _left(limit, used)) is not None]
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines() if ":" in line)
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError, IndexError):
        pass
    return min(found, default=None)


def refuse_beyond_memory(needed: int, what: str, way_out: str) -> None:
    """Refuse what takes more memory than there is.

    Args:
        needed: bytes at the same time, at least.
        what: needs them, as a noun.
        way_out: what to do, as the end of a sentence.

    Raises:
        MemoryLimitError: there are fewer.
    """
    there = available_bytes()
    if there is not None and needed > there:
        raise MemoryLimitError(
            f"there is no memory for {what}, which needs {needed / 2**30:,.1f} GiB ({needed:,} bytes) at once where "
            f"{there / 2**30:,.1f} GiB ({there:,} bytes) are available: {way_out}"
        )


def _left(limit: Path, used: Path) -> int | None:
    """What a container leaves; page cache counts as used there, so the system may have a little more to give."""
    try:
        most, taken = limit.read_text().strip(), int(used.read_text())
    except (OSError, ValueError):
        return None
    return max(int(most) - taken, 0) if most.isdigit() else None
