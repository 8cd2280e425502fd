"""Imports at run time keep to the contracts of imports, which read statements alone."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AUDITED = {"flwr", "nvflare", "pfl", "jax", "jax_privacy", "opake"}
"""Packages of others that one room each may know."""
ALLOWED = (
    "attacks/mechanism/adapters/",
    "privfed/engines/flower/",
    "privfed/guard/flower.py",
    "privfed/guard/nvflare.py",
)
IMPORTERS = {"import_module", "__import__", "package"}


def imported(source: str) -> set[str]:
    """Top-level packages that a file imports by name at run time."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    named = [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in IMPORTERS]
    first = [call.args[0] for call in named]
    return {str(name.value).partition(".")[0] for name in first if isinstance(name, ast.Constant)}


@pytest.mark.parametrize("room", ["privfed", "attacks", "secure_agg"])
def test_no_other_room_imports_what_it_must_not_know(room):
    found = {str(file.relative_to(ROOT)): imported(file.read_text("utf-8")) for file in (ROOT / room).rglob("*.py")}
    wrong = {name for name, packages in found.items() if packages & AUDITED and not name.startswith(ALLOWED)}
    assert not wrong
    own = {"privfed", "attacks", "secure_agg"} - {room}
    assert room == "privfed" or not {name for name, packages in found.items() if packages & own}


def test_an_import_by_name_is_seen():
    assert imported('import importlib\nimportlib.import_module("flwr.app")') == {"flwr"}
    adapter = (ROOT / "attacks/mechanism/adapters/flower.py").read_text("utf-8")
    assert "flwr" in imported(adapter)
