"""A small process that ends what this one has started, should this one end before it could: by kill -9, say.

It is told of processes over a pipe, and the end of the pipe is the end of this process, however it came about. Flower's
own processes begin sessions of their own, so whoever descends from what was started is looked for in /proc; where there
is none, process groups have to do. This file is also the small process's program, so it imports nothing of privfed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

Family = Mapping[int, str]
"""Processes by number, with the moment each began: a number alone may be another process's later."""


class Supervisor:
    """Knows processes that lead groups of their own, and kills them and theirs when this process is gone.

    Attributes:
        process: its own.
    """

    def __init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - this interpreter, with this file
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def watch(self, leader: int) -> None:
        """Take on a process."""
        self._tell(f"+{leader}")

    def forget(self, leader: int) -> None:
        """Let go of a process that has ended."""
        self._tell(f"-{leader}")

    def close(self) -> None:
        """Kill what is left, and end."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()


def family(leaders: Iterable[int]) -> Family:
    """These processes and all that descend from them, as far as /proc shows them."""
    parents, began = dict[int, int](), dict[int, str]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = entry.read_text().rsplit(")", 1)[1].split()
            parents[int(entry.parent.name)], began[int(entry.parent.name)] = int(fields[1]), fields[19]
    found = set(leaders) & began.keys()
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: began[pid] for pid in found}


def alive(known: Family) -> list[int]:
    """Which of these processes still run."""
    found = []
    for pid, began in known.items():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            if fields[19] == began and fields[0] not in "ZX":
                found.append(pid)
    return found


def kill(leaders: Iterable[int], known: Family) -> None:
    """Kill the groups of these leaders, which are not reaped, and whatever is left of a family."""
    for leader in leaders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
    for pid in alive(known):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _mind() -> None:
    leaders = set[int]()
    for line in sys.stdin:
        (leaders.add if line[0] == "+" else leaders.discard)(int(line[1:]))
    kill(leaders, family(leaders))


if __name__ == "__main__":
    _mind()
