"""Types hold at the trust boundary: what comes off the wire is never of a type that hides what it is."""

import ast
from pathlib import Path

import pytest

import privfed.engines.nodes

FILES = sorted(Path(privfed.engines.nodes.__file__).parent.glob("*.py"))


def uses_of_any(source: str) -> list[int]:
    """Lines that name `Any`, whether imported or reached through `typing`."""
    nodes = ast.walk(ast.parse(source))
    return [
        node.lineno
        for node in nodes
        if (isinstance(node, ast.Name) and node.id == "Any")
        or (isinstance(node, ast.Attribute) and node.attr == "Any")
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "Any" for alias in node.names))
    ]


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 15


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_type_of_a_node_or_its_server_is_any(file: Path) -> None:
    assert uses_of_any(file.read_text()) == []


@pytest.mark.parametrize(
    "source", ["from typing import Any", "import typing\nx: typing.Any = 1", "def f(x: dict[str, Any]) -> None: ..."]
)
def test_any_is_found(source: str) -> None:
    assert uses_of_any(source)
