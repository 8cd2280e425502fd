"""Where words go: results to standard output, signs of life to standard error, JSON for machines.

With `--json` standard output carries one JSON document and nothing else. With `--quiet` only the result is
printed.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from privfed.cli.tables import keep_numbers_whole

_WIDTH_OF_A_FILE = 110

Advance = Callable[[int, str], None]
"""(rounds done, what just happened) -> None."""


def _console(file: TextIO) -> Console:
    width = None if file.isatty() or "COLUMNS" in os.environ else _WIDTH_OF_A_FILE
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


@dataclass(frozen=True, slots=True)
class Screen:
    """What one command prints.

    Attributes:
        as_json: print a JSON document instead of words.
        quiet: print the result only.
    """

    as_json: bool
    quiet: bool
    out: Console = field(init=False)
    err: Console = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", _console(sys.stdout))
        object.__setattr__(self, "err", _console(sys.stderr))

    def result(self, *parts: RenderableType) -> None:
        """A result, for people."""
        if not self.as_json:
            for part in parts:
                if isinstance(part, Table):
                    keep_numbers_whole(part)
                self.out.print(part, soft_wrap=isinstance(part, str) and not self.out.is_terminal)

    def explain(self, *parts: RenderableType) -> None:
        """What helps to understand a result, for people who want it."""
        if not self.quiet:
            self.result(*parts)

    def note(self, text: str) -> None:
        """A sign of life on standard error."""
        if not self.quiet:
            self.err.print(text, soft_wrap=True)

    def document(self, content: object) -> None:
        """The result, for machines; `content` is what JSON can hold, without infinities."""
        if self.as_json:
            sys.stdout.write(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A sign of life on a terminal for as long as something takes that cannot say how far it is."""
        if self.quiet or not self.err.is_terminal:
            yield
            return
        with self.err.status(what):
            yield

    @contextmanager
    def progress(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        """A progress bar on a terminal; elsewhere a line for every text that is not empty."""
        bar = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[live]}"),
            console=self.err,
            transient=True,
            disable=self.quiet or not self.err.is_terminal,
        )
        with bar:
            task = bar.add_task(what, total=total, completed=done, live="")

            def advance(completed: int, text: str) -> None:
                if text:
                    bar.update(task, completed=completed, live=text)
                else:
                    bar.update(task, completed=completed)
                if text and not self.err.is_terminal:
                    self.note(f"{what} {completed}/{total}: {text}")

            yield advance
