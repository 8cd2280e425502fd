"""No room asks which class a mechanism or a kind of padding is of: they ask what it does."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import privfed.privacy.plan
from privfed import privacy
from privfed.privacy import Mechanism, Padding

ROOT = Path(privfed.__file__).parent
# A plan's module knows every mechanism and kind of padding.
CLASSES = {member.__name__ for family in (Mechanism, Padding) for member in family.members.values()}
KINDS = {kind for family in (Mechanism, Padding) for kind in family.members}
SPELLED = CLASSES | {f"{quote}{kind}{quote}" for kind in KINDS for quote in "'\""}


def _names(node: ast.AST | None) -> set[str]:
    """Names and attributes anywhere below a node."""
    below = [] if node is None else ast.walk(node)
    return {n.id if isinstance(n, ast.Name) else n.attr for n in below if isinstance(n, ast.Name | ast.Attribute)}


def _words(node: ast.AST) -> set[object]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}


def branches(source: str) -> Iterator[tuple[int, str]]:
    """Lines that decide by a mechanism's class or kind, and how."""
    if not any(word in source for word in SPELLED):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, of]) if _names(of) & CLASSES:
                yield node.lineno, "isinstance"
            case ast.MatchClass(cls=of) if _names(of) & CLASSES:
                yield node.lineno, "match"
            case ast.MatchValue(value=ast.Constant(value=word)) if word in KINDS:
                yield node.lineno, "match"
            case ast.Compare() if "kind" in _names(node) and _words(node) & KINDS:
                yield node.lineno, "kind"
            case ast.Compare() if _names(node) & {"type", "__class__"} and _names(node) & CLASSES:
                yield node.lineno, "type"
            case ast.Dict(keys=keys) if any(key is not None and _names(key) & CLASSES for key in keys):
                yield node.lineno, "dictionary"
            case ast.Dict(keys=keys) if any(key is not None and _words(key) & KINDS for key in keys):
                yield node.lineno, "dictionary"


@pytest.mark.parametrize(
    "source",
    [
        "if isinstance(mechanism, SecureSum | SharedSum): pass",
        "x = isinstance(plan.mechanism, secure_sum.SecureSum)",
        "match m:\n    case LocalLaplace() if True: pass",
        "match m.kind:\n    case 'local_laplace': pass",
        "x = plan.mechanism.kind == 'central_gaussian'",
        "x = mechanism.kind in ('secure_sum', 'distributed_gaussian')",
        "x = type(mechanism) is CentralGaussian",
        "x = {FakeItems: 1, FullSupport: 2}[type(padding)]",
        "x = {'fake_items': 1}[padding.kind]",
    ],
)
def test_a_branch_of_any_form_is_seen(source: str) -> None:
    assert list(branches(source))


@pytest.mark.parametrize(
    "source",
    ["x = sampling.kind == 'poisson'", "x = isinstance(found, MeasuredPair)", "mechanism = SecureSum(clip_norm=1)"],
)
def test_nothing_else_is(source: str) -> None:
    assert not list(branches(source))


def test_nobody_branches_on_a_mechanism() -> None:
    """The guards do not either, so that a mechanism of a third party runs behind them."""
    sources = [path for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "privacy")]
    assert len(sources) > 300
    found = [f"{p.relative_to(ROOT)}:{line} ({how})" for p in sources for line, how in branches(p.read_text())]
    assert not found, found


def test_the_privacy_room_needs_no_torch() -> None:
    modules = [path.relative_to(ROOT.parent).with_suffix("") for path in sorted((ROOT / "privacy").rglob("*.py"))]
    imports = "; ".join(f"import {'.'.join(module.parts).removesuffix('.__init__')}" for module in modules)
    code = f"import sys; {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_the_front_door_of_the_room_is_small() -> None:
    assert len(privacy.__all__) <= 20
