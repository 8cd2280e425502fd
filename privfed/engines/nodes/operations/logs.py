r"""Log lines that no peer can forge: one record is one line, as JSON or as text for terminals.

    {"time": "2026-01-31T12:00:00.000Z", "level": "warning", "logger": "privfed.nodes", "message": "...", "code": ...}
    2026-01-31T12:00:00.000Z WARNING privfed.nodes: ... [code=policy stage=train.announce]

Whatever a message, a field or an exception holds, control characters (escape, line ends, C1), marks that reverse the
direction of writing, separators and invisible letters appear as `\x1b` or `\u202e` and never as themselves. In a text
line, the lines of a traceback begin with a bar, as no record does.
"""

import json
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

FIELDS = ("event", "run", "organisation", "node", "stage", "round", "code", "seconds", "bytes")
"""What a record may carry in `extra`, beside its message."""

LogFormat = Literal["json", "text"]

_MAX_MESSAGE, _MAX_TRACE = 4000, 16_000
_BAR = "    | "


def escape(text: str, longest: int = _MAX_MESSAGE) -> str:
    """Text in which every character that is not printable is spelled out; at most `longest` of them are shown."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:longest])
    return shown if len(text) <= longest else f"{shown} ({len(text) - longest} more characters)"


class TextStream(Protocol):
    """Where lines are written."""

    def write(self, text: str, /) -> object:
        """Takes a text."""
        ...

    def flush(self) -> object:
        """Passes on what was written."""
        ...


class _LineFormatter(logging.Formatter):
    """What both kinds of lines are made of."""

    def parts(self, record: logging.LogRecord) -> dict[str, object]:
        """Time, level, logger and message, then the fields that the record carries."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"
        head = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        given = {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
        return {**head, **given}

    def trace(self, record: logging.LogRecord) -> str:
        """The traceback, as much of its beginning as a line should hold; empty where there is none."""
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        return self.formatException(record.exc_info)[:_MAX_TRACE]


class JsonFormatter(_LineFormatter):
    """One JSON object in ASCII for every record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        parts = {
            key: value if isinstance(value, int | float) and math.isfinite(value) else escape(str(value))
            for key, value in self.parts(record).items()
        }
        if trace := self.trace(record):
            parts["exception"] = trace
        # json leaves DEL, the one control character above 0x1f in ASCII, as it is.
        return json.dumps(parts).replace("\x7f", "\\u007f")


class TextFormatter(_LineFormatter):
    """One line for people for every record; a traceback follows behind bars."""

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines, without the last end."""
        parts = self.parts(record)
        at, level, logger, message = (escape(str(parts.pop(key))) for key in ("time", "level", "logger", "message"))
        fields = " ".join(f"{key}={escape(str(value))}" for key, value in parts.items())
        line = f"{at} {level.upper()} {logger}: {message}{f' [{fields}]' if fields else ''}"
        trace = [_BAR + escape(one) for one in self.trace(record).split("\n") if one]
        return "\n".join([line, *trace])


@contextmanager
def logging_to(stream: TextStream, kind: LogFormat, logger: str = "", level: int = logging.INFO) -> Iterator[None]:
    """Write the records of a logger, and of all below it, to a stream.

    Args:
        stream: such as standard error.
        kind: of the lines.
        logger: name; empty for all loggers.
        level: smallest level that is written.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    written = logging.getLogger(logger)
    before = written.level
    written.addHandler(handler)
    written.setLevel(level)
    try:
        yield
    finally:
        written.removeHandler(handler)
        written.setLevel(before)
