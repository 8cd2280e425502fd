"""The table of lies is whole: every entry has its test, every test of this folder an entry."""

from importlib import import_module
from pathlib import Path

from tests.engines.nodes.hostile.lies import LIES

FOLDER = Path(__file__).parent


def cases() -> list[str]:
    """Tests of this folder, with the case in brackets, as pytest names them."""
    found = []
    for file in sorted(FOLDER.glob("test_*.py")):
        if file.name == Path(__file__).name:
            continue
        module = import_module(f"tests.engines.nodes.hostile.{file.stem}")
        for name, function in vars(module).items():
            if name.startswith("test_") and function.__module__ == module.__name__:
                marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
                chosen = [f"[{case}]" for mark in marks for case in mark.kwargs.get("ids") or mark.args[1]]
                found += [f"{file.name}::{name}{case}" for case in chosen or [""]]
    return found


def test_every_lie_has_its_test_and_every_test_its_lie() -> None:
    listed = [lie.test for lie in LIES]
    assert sorted(listed) == sorted(cases())
    assert len(set(listed)) == len(listed)


def test_there_are_at_least_sixty_lies_and_each_says_who_what_and_what_comes_of_it() -> None:
    assert len(LIES) >= 60
    liars = {"server", "server, masked sums", "server, two servers", "helper", "node", "stranger", "replay or backup"}
    assert {lie.liar for lie in LIES} == liars
    assert all(text.strip() and text.isascii() and "|" not in text for lie in LIES for text in lie)
    assert len({(lie.liar, lie.lie) for lie in LIES}) >= len(LIES) - 2
