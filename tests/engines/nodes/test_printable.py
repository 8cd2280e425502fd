"""No text of a peer forges a line of a log, moves a cursor, or reads as another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.engines.nodes.printable import printable


@given(st.text(max_size=300), st.integers(3, 100))
def test_any_text_is_one_short_line_of_printable_ascii(text: str, longest: int) -> None:
    shown = printable(text, longest)
    assert len(shown) <= longest
    assert shown.isascii()
    assert not shown or shown.isprintable()


@given(st.text(max_size=20), st.text(max_size=20))
def test_unequal_texts_that_are_not_cut_stay_unequal(one: str, another: str) -> None:
    assert (printable(one, 500) == printable(another, 500)) == (one == another)


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("it refuses: no such run", "it refuses: no such run"),
        ("no\n2026-01-01 INFO all is well", r"no\n2026-01-01 INFO all is well"),
        ("\x1b[2Jgone\x07\x9b0m", r"\x1b[2Jgone\x07\x9b0m"),
        ("abc\u202etxt.exe\u2066\u2028", r"abc\u202etxt.exe\u2066\u2028"),
        ("p\u0430yp\u0430l \ud800\0", r"p\u0430yp\u0430l \ud800\x00"),
        (r"\n", r"\\n"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 197 + "..."),
        ("\n" * 101, r"\n" * 98 + "\\..."),
    ],
)
def test_what_a_peer_sends_as_it_is_shown(given_text: str, shown: str) -> None:
    assert printable(given_text) == shown
