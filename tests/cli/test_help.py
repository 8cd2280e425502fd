"""`--help` is quick and teaches; the version is there; `privfed` alone shows the help."""

import subprocess
import sys
from collections.abc import Callable

import pytest

import privfed

COMMANDS = (
    ("audit",),
    ("report",),
    ("compare",),
    ("run",),
    ("attack",),
    ("recommend",),
    ("export",),
    ("serve",),
    ("audit-mechanism",),
    ("methods",),
    ("methods", "show"),
    ("budget", "laplace"),
    ("budget", "gaussian"),
    ("data", "list"),
    ("data", "fetch"),
    ("data", "show"),
    *(("dossier", word) for word in ("make", "sign", "verify")),
    *(("federation", word) for word in ("keys", "sign", "verify", "rotate", "revoke", "install")),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(cli: Callable, words: tuple[str, ...]) -> None:
    text = " ".join(cli(*words, "--help").out.split())
    assert f"Example: privfed {' '.join(words)}" in text
    for option in ("--json", "--quiet"):
        assert option in text


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_only_commands_that_can_train_on_an_accelerator_take_a_device(cli: Callable, words: tuple[str, ...]) -> None:
    text = " ".join(cli(*words, "--help").out.split())
    assert ("--device" in text) == (words in {("audit",), ("run",), ("recommend",)})
    if "--device" in text:
        assert "[default: (cpu)]" in text


def test_help_loads_few_modules_and_none_of_the_heavy_libraries() -> None:
    """What starting costs, counted: seconds belong to whoever else is busy."""
    code = (
        "import sys; from privfed.cli import main\n"
        "try: main()\n"
        "finally: print(len(sys.modules), {'torch', 'pandas', 'pydantic'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, "run", "--help"], capture_output=True, text=True, check=True)
    modules, heavy = done.stderr.strip().split(" ", 1)
    assert heavy == "set()"
    assert int(modules) < 400


@pytest.mark.parametrize("words", [("methods",), ("methods", "show", "gpfedrec"), ("methods", "--json")], ids=" ".join)
def test_methods_are_listed_without_importing_any(heavy_of: Callable, words: tuple[str, ...]) -> None:
    assert heavy_of(*words) == []


def test_version(cli: Callable) -> None:
    assert cli("--version").out == f"privfed {privfed.__version__}\n"


def test_without_a_command_the_help_is_shown(cli: Callable) -> None:
    answer = cli(code=2)
    assert "recommend" in answer.out
    assert answer.err == ""


def test_an_unknown_command_or_option_is_one_sentence(refused: Callable) -> None:
    assert "'adit'. Did you mean 'audit'?" in refused("adit")
    assert refused("data", "inspect") == "No such command 'inspect': choose one of list, fetch, show"
    assert refused("nodes").startswith("No such command 'nodes': choose one of audit, report, compare, run, ")
    assert refused("attack") == "Missing argument 'RUN_DIR'; see 'privfed attack --help'"
    assert refused("methods", "--nonsense") == "No such option: --nonsense; see 'privfed methods --help'"
    assert "no method is named" in refused("run")
