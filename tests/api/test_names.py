"""The front door is light, has ten names, and its documentation runs."""

import ast
import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import privfed

ROOT = Path(privfed.__file__).parent
MODULES = sorted(path.stem for path in (ROOT / "api").glob("*.py") if path.stem != "__init__")


def test_every_name_is_there_and_its_type_is_stated() -> None:
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    stated = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    stated |= {target.id for node in stub.body if isinstance(node, ast.Assign) for target in node.targets}
    assert (stated - {None}) | {"__version__"} == set(privfed.__all__)
    assert all(callable(getattr(privfed, name)) for name in privfed.__all__ if name != "__version__")
    assert len(privfed.__all__) <= 10
    assert set(dir(privfed)) == set(privfed.__all__)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="privfed has no 'recomend': it has Report, Run"):
        privfed.recomend  # noqa: B018


def loaded_after(program: str) -> set[str]:
    """Modules that a program has loaded at its end."""
    printed = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(printed.stdout.splitlines()[-1].split())


def test_importing_loads_nothing_heavy() -> None:
    modules = loaded_after("import privfed")
    assert not modules & {"torch", "pandas", "numpy", "pydantic", "scipy", "altair"}
    ours = {name for name in modules if name.startswith("privfed")}
    assert ours == {"privfed", "privfed.audit"}


def test_a_budget_needs_no_torch() -> None:
    assert "torch" not in loaded_after("import privfed\nprivfed.budget(epsilon=8, users=943)")


def test_the_package_of_audits_may_be_called_whatever_was_imported_first() -> None:
    program = "import privfed.audit.grid, privfed\nassert callable(privfed.audit)\nassert privfed.audit.grid.run_audit"
    assert "privfed.api" not in loaded_after(program)


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_the_docstrings_run(module: str) -> None:
    tried = doctest.testmod(import_module(f"privfed.api.{module}"), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried.failed == 0
