"""What a handler may never do, whatever it is given, and the counts of what it did."""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import harness

MOST_BYTES = 64 * 2**20
"""Memory that one message may take beyond its own size."""
MOST_BYTES_OF_A_ROUND = 256 * 2**20
"""Memory that a whole round of server and nodes may take: accounting at the end of a run takes the most of it."""
LONGEST_LINE = 2000
FORGED = "\n2026-01-01 all is well"
"""A line that a peer would like to have in the log."""
_RESET_PEAK = Path("/proc/self/clear_refs")


@dataclass
class Findings:
    """What was tried and what was found.

    Attributes:
        counts: messages by handler, federation, mutation and outcome.
        found: the first case of every defect, by a short name.
        rounds: of servers, by how they ended.
        times: how often every defect was seen.
        most_bytes: that a node took for a single message beyond its size.
        most_seconds: of processor time that a node took for a single message.
    """

    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    found: dict[str, str] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    most_bytes: int = 0
    most_seconds: float = 0.0

    @property
    def messages(self) -> int:
        """How many were tried."""
        return sum(self.counts.values())

    def defect(self, name: str, case: str) -> None:
        """Note a defect; only its first case is kept."""
        full, name = name, re.sub(r"\d+", "N", name)[:200]
        self.times[name] += 1
        if name not in self.found:
            self.found[name] = f"after {self.messages} messages: {full}: {case}"


class Watch(logging.Handler):
    """Reads what handlers write to their log.

    Attributes:
        wrong: sentences on lines that no log may hold.
    """

    def __init__(self, secret: str) -> None:
        super().__init__(logging.DEBUG)
        self._secret = secret
        self.wrong: list[str] = []
        self.failed: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Check a line."""
        line = record.getMessage()
        if not (line.isascii() and line.isprintable()):
            self.wrong.append(f"a log line with control characters: {line!r}")
        if len(line) > LONGEST_LINE:
            self.wrong.append(f"a log line of {len(line)} characters: {line[:100]!r}")
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            self.failed.append(text)
            if any(mark in text for mark in ("\x1b", "\0", FORGED)):
                self.wrong.append(f"a traceback with control characters or lines that a peer wrote: {text[-300:]!r}")

    def taken(self) -> tuple[list[str], list[str]]:
        """What was found since the last time: wrong lines, and tracebacks."""
        found = self.wrong, self.failed
        self.wrong, self.failed = [], []
        return found


@contextmanager
def watched(secret: str) -> Iterator[Watch]:
    """Read the log for a while, and keep it off the terminal."""
    log, watch = logging.getLogger("privfed"), Watch(secret)
    before = log.level, log.propagate
    log.addHandler(watch)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield watch
    finally:
        log.removeHandler(watch)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def measured(findings: Findings, size: int, allowed: int, case: Callable[[], str]) -> Iterator[None]:
    """Hold one message of so many bytes, or one round, to its memory."""
    _RESET_PEAK.write_text("5")
    held, started = harness.memory("VmRSS"), time.process_time()
    yield
    took = harness.memory("VmHWM") - held - size
    if allowed == MOST_BYTES:
        findings.most_bytes = max(findings.most_bytes, took)
        findings.most_seconds = max(findings.most_seconds, time.process_time() - started)
    if took > allowed:
        findings.defect("a message takes more memory than allowed", f"{took} bytes beyond {size}: {case()}")
