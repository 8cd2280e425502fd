"""Public names are words of the field: none that `docs/reference/glossary.md` replaced, and no class name twice.

The packages are parsed and not imported, so that no accelerator, extra or entry point decides what is checked.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("privfed", "attacks", "secure_agg")
KINDS = ("module", "class", "function", "parameter", "field", "constant", "option")

ANYWHERE = {
    "ask": "query", "asks": "queries", "asked": "queried", "asking": "query",
    "halves": "parties", "coin": "inclusion bit", "coins": "inclusion bits", "toss": "randomise",
    "tossed": "randomised",
    "cover": "padding", "covers": "padding", "covered": "padded", "fakes": "fake items", "protection": "mechanism",
    "opened": "revealed", "recipe": "training oracle", "recipes": "training oracles", "facts": "public info",
    "pull": "proximal", "pulled": "proximal", "entangles": "cross-user dependence", "discloses": "side disclosures",
    "headroom": "overflow bound", "room": "overflow bound", "fewest": "min", "bare": "unprotected", "arm": "variant",
    "arms": "variants", "yardstick": "baseline", "yardsticks": "baselines", "beside": "baseline", "told": "results",
    "said": "results", "mine": "result", "lost": "aborted",
}  # fmt: skip
"""Words that no public name contains, and what to say instead."""

WHOLE = {
    "module": {"words", "minder", "lanes", "outbox", "starting", "lazily", "at_once"},
    "class": {
        "Account", "Anatomy", "Asked", "Attacked", "Chain", "Declared", "Evaluated", "Found", "Further", "Nothing",
        "Read", "Shown", "Spent", "Tally", "Told",
    },
    "function": {"of", "draw", "charge", "spend", "half"},
    "parameter": {"of", "at", "place", "own", "found", "half", "draw", "most", "least", "sized", "words"},
    "field": {"of", "at", "place", "own", "found", "half", "draw", "most", "least", "sized", "words"},
    "constant": {"MOST", "LEAST", "FOUND"},
    "option": {"--arm", "--cover", "--coins"},
}  # fmt: skip
"""Whole names that say nothing, by kind: `of` is `from_...` or a verb, `most` is `max_...`, a class is a noun."""

ALLOWED = {
    ("function", "draw", "privfed/audit"): "draws random directions or secrets",
    ("function", "words", "privfed/federation/streams.py"): "32-bit machine words of a key stream",
}
"""(kind, name, path or folder) -> why this is standard English there."""


class Name(NamedTuple):
    """A public name: its kind, the file below the root, and its line."""

    kind: str
    name: str
    path: str
    line: int


def public(name: str) -> bool:
    return not name.startswith("_")


def words(name: str) -> list[str]:
    """The words of a name, in lower case: `PlannedAsk`, `ask_each` and `--ask` all hold "ask"."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def targets(node: ast.stmt) -> list[str]:
    """Names that an assignment binds."""
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    assigned = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in assigned if isinstance(target, ast.Name)]


def names_of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, path: str) -> Iterator[Name]:
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if argument is not None:
            yield Name("parameter", argument.arg, path, argument.lineno)


def names_in(body: list[ast.stmt], path: str, *, in_class: bool = False) -> Iterator[Name]:
    """Public names that a module or a class defines; what a function keeps to itself is nobody's business."""
    for node in body:
        if isinstance(node, ast.ClassDef) and public(node.name):
            yield Name("class", node.name, path, node.lineno)
            yield from names_in(node.body, path, in_class=True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            public(node.name) or node.name == "__init__"
        ):
            yield Name("function", node.name, path, node.lineno)
            yield from names_of_function(node, path)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from (Name("field" if in_class else "constant", name, path, node.lineno) for name in targets(node))
        elif isinstance(node, ast.If | ast.Try):
            yield from names_in(node.body, path, in_class=in_class)


def options_in(tree: ast.Module, path: str) -> Iterator[Name]:
    """Options of commands: strings like `--rounds` that are handed to `typer.Option`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Option"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                    yield Name("option", argument.value, path, argument.lineno)


def every_name() -> list[Name]:
    found = []
    for file in (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))):
        path, tree = file.relative_to(ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))
        found.append(Name("module", file.stem if file.stem != "__init__" else file.parent.name, path, 1))
        found += [name for name in names_in(tree.body, path) if public(name.name)]
        found += options_in(tree, path)
    return found


NAMES = every_name()


def allowed(name: Name) -> bool:
    return any((name.kind, name.name) == (kind, text) and name.path.startswith(place) for kind, text, place in ALLOWED)


def offences(names: list[Name]) -> list[str]:
    """Where a forbidden name stands, and the word that is meant."""
    found = []
    for name in names:
        instead = [ANYWHERE[word] for word in words(name.name) if word in ANYWHERE]
        if (instead or name.name in WHOLE[name.kind]) and not allowed(name):
            meant = f": say {', '.join(instead)}" if instead else ": say what it holds or does"
            found.append(f"{name.path}:{name.line} {name.kind} {name.name}{meant}")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_no_public_name_is_of_our_own_making(kind: str) -> None:
    assert offences([name for name in NAMES if name.kind == kind]) == []


def test_no_class_name_stands_twice() -> None:
    places = defaultdict(list)
    for name in NAMES:
        if name.kind == "class":
            places[name.name].append(f"{name.path}:{name.line}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_exception_is_used() -> None:
    used = {(name.kind, name.name, place) for name in NAMES for _, _, place in ALLOWED if name.path.startswith(place)}
    assert set(ALLOWED) <= used


@pytest.mark.parametrize(
    "code",
    [
        "class PlannedAsk: ...",
        "class Shown: ...",
        "class Row:\n    coins: int = 0",
        "class Row:\n    @classmethod\n    def of(cls, one): ...",
        "def measure(*, at): ...",
        "def ask_each(): ...",
        "async def send(recipe): ...",
        "MOST = 3",
        "if True:\n    def lost_round(): ...",
        'x = typer.Option("--cover")',
    ],
)
def test_the_test_sees_every_kind_of_name(code: str) -> None:
    tree = ast.parse(code)
    assert offences([*names_in(tree.body, "made_up.py"), *options_in(tree, "made_up.py")])


def test_private_names_and_locals_are_left_alone() -> None:
    code = "def measure(rows):\n    told = rows\n    return told\ndef _ask(coin): ...\nclass _Found: ...\n_MOST = 1"
    tree = ast.parse(code)
    assert offences([name for name in names_in(tree.body, "made_up.py") if public(name.name)]) == []
