"""The tables of the page on bits are those of the files."""

import sys

import pytest


def test_the_tables_are_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("benchmarks")
    sys.modules.pop("bits_page", None)
    import bits_page

    text = bits_page.PAGE.read_text(encoding="utf-8")
    assert bits_page.written(text) == text
    noise = "\n".join(bits_page.float_noise())
    assert "0 of 20" in noise
