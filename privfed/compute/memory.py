"""The memory that a process may still take, and refusals of what would not fit, before anything is allocated."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Folder, files of the limit and of what is used, and the line of `memory.stat` about pages of files."""


class MemoryLimitError(ValueError):
    """The run does not fit the memory it was given, or that there is."""


def available_bytes() -> int | None:
    """Bytes that this process may still take, by the system and by its container; None where neither says."""
    found = [left for cgroup in _CGROUPS if (left := _left(*cgroup)) is not None]
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


def _left(folder: Path, limit: str, used: str, pages: str) -> int | None:
    """What a container leaves: copies of files in memory count as used there, and make way for whoever needs it."""
    try:
        most, taken = (folder / limit).read_text().strip(), int((folder / used).read_text())
        freed = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(int(most) - taken + int(freed.get(pages, 0)), 0) if most.isdigit() else None
    except (OSError, ValueError):
        return None
