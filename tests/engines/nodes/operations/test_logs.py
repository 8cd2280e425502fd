"""No text of a peer makes a second log line, moves a cursor, or turns the direction of writing."""

import io
import json
import logging
import re
import sys
from typing import Any
from unittest import mock

import pytest

from privfed.engines.nodes.operations.logs import FIELDS, escape, logging_to

HOSTILE = {
    "newline": "x\n2026-01-31T12:00:00.000Z INFO privfed.nodes: all is well",
    "return": "x\r2026-01-31T12:00:00.000Z INFO privfed.nodes: all is well",
    "other line ends": "x\v\f\x1c\x1d\x1e\x85\u2028\u2029y",
    "escape": "\x1b[2J\x1b]0;title\x07",
    "c1": "\x9b2J\x9dtitle\x9c",
    "bidi": "\u202ea\u2066b\u2069\u200f\u061c",
    "invisible": "a\u200bb\ufeffc\u00add\U000e0041",
    "nul and del": "\x00\x7f\x08",
    "surrogate": "\ud800",
    "json": '", "level": "info", "message": "all is well"}\n{"time": "',
    "long": "\n" * 100_000,
}
FORBIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0041]"
)


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def failing(text: str) -> None:
    raise RuntimeError(text)


def written(kind: Any, text: str, *, fail: bool = False) -> str:
    """What one record with this text everywhere comes to."""
    stream, logger = io.StringIO(), logging.getLogger("privfed.test_logs")
    # What pytest captures travels with the report, and pytest-xdist cannot send half a surrogate pair.
    with logging_to(stream, kind, logger.name), mock.patch.object(logger, "propagate", new=False):
        try:
            failing(text)
        except RuntimeError:
            trace = sys.exc_info() if fail else None
        logger.warning("node says: %s", text, exc_info=trace, extra=dict.fromkeys(FIELDS, text))
    return stream.getvalue()


@pytest.mark.parametrize("fail", [False, True], ids=["plain", "with a traceback"])
def test_a_json_record_is_one_line_of_ascii(hostile: str, fail: bool) -> None:
    line = written("json", hostile, fail=fail)
    assert line.endswith("\n")
    assert line.isascii()
    assert not FORBIDDEN.search(line[:-1])
    record = json.loads(line)
    assert record["level"] == "warning"
    assert record["message"].startswith("node says: ")
    assert record["logger"] == "privfed.test_logs"
    assert {record[name] for name in FIELDS} == {escape(hostile)}
    assert ("exception" in record) == fail
    assert len(line) < 600_000


def test_a_text_record_is_one_line(hostile: str) -> None:
    line = written("text", hostile)
    assert line.endswith("\n")
    assert not FORBIDDEN.search(line[:-1])
    assert " WARNING privfed.test_logs: node says: " in line


def test_lines_of_a_traceback_look_like_no_record(hostile: str) -> None:
    first, *trace, last = written("text", hostile, fail=True).split("\n")
    assert last == ""
    assert trace
    assert all(line.startswith("    | ") for line in trace)
    assert not FORBIDDEN.search("".join([first, *trace]))


def test_what_is_printable_stays() -> None:
    assert escape("naïve Größe 100 % C:\\x 日本") == "naïve Größe 100 % C:\\x 日本"
    assert escape("a\tb\x1b") == "a\\tb\\x1b"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert escape("abcdef", 4) == "abcd (2 more characters)"


def test_times_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("privfed", logging.INFO, "", 0, "done", (), None)
    record.created = 1_769_860_800.25
    stream = io.StringIO()
    with logging_to(stream, "json", "privfed"):
        logging.getLogger("privfed").handle(record)
    assert json.loads(stream.getvalue())["time"] == "2026-01-31T12:00:00.250Z"


def test_numbers_stay_numbers_and_missing_fields_are_left_out() -> None:
    stream, logger = io.StringIO(), logging.getLogger("privfed.test_logs")
    with logging_to(stream, "json", logger.name):
        logger.info("done", extra={"round": 3, "seconds": float("nan"), "event": "round", "secret": "s"})
    record = json.loads(stream.getvalue())
    assert record["round"] == 3
    assert record["seconds"] == "nan"
    assert set(record) == {"time", "level", "logger", "message", "round", "seconds", "event"}


def test_the_logger_is_as_before_afterwards() -> None:
    logger = logging.getLogger("privfed.test_logs")
    before = (logger.level, list(logger.handlers))
    with logging_to(io.StringIO(), "text", logger.name):
        assert logger.handlers != before[1]
    assert (logger.level, list(logger.handlers)) == before
