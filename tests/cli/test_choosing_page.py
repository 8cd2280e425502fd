"""What docs/guides/choosing_a_mechanism.md says about plans and methods is what the library does."""

import re
import shlex
from pathlib import Path

import pytest

from privfed import methods
from privfed.cli.compatibility import EXAMPLES, refusal
from privfed.privacy import PrivacyPlan

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "choosing_a_mechanism.md").read_text()
NAMES = set(methods.methods())


def named(cell: str) -> set[str]:
    return set(re.findall(r"[\w-]+", cell)) & NAMES


@pytest.mark.parametrize(
    "line",
    re.findall(r"^\| (`none`.*|`clip`, .*|`local-laplace`, .*|`secure.*|`central.*|`inter.*) \|$", PAGE, re.MULTILINE),
)
def test_methods_run_where_the_page_says(line: str) -> None:
    mechanisms, runs, refused, _ = line.split(" | ")
    for words in re.findall(r"`([\w-]+)`", mechanisms):
        reasons = {name: refusal(methods.method(name), EXAMPLES[words]) for name in NAMES}
        assert not [name for name in named(runs) if reasons[name]]
        assert not [name for name in named(refused) if not reasons[name]]


def test_the_plans_of_the_page_are_plans() -> None:
    command = re.search(r"privfed audit .*?(?=\nprivfed)", PAGE, re.DOTALL)[0]
    parts = shlex.split(command.replace("\\\n", " "))
    plans = [PrivacyPlan.parse(parts[at + 1]) for at, part in enumerate(parts) if part == "--privacy"]
    assert [plan.mechanism.trust for plan in plans] == ["none", "central", "distributed"]


@pytest.mark.parametrize(("people", "z"), [(943, (0.80, 4.98, 9.96)), (10_000, (0.89, 5.67, 11.3))])
def test_the_noise_of_the_page_is_what_the_budget_says(cli, people: int, z: tuple[float, ...]) -> None:
    assert " | ".join(f"{value:.3g}" if value > 10 else f"{value:.2f}" for value in z) in PAGE
    for trust, said in zip(("central", "distributed", "local"), z, strict=True):
        words = ("--clients", people, "--rounds", 100, "--rate", 0.1, "--epsilon", 8, "--trust", trust)
        found = re.search(r"z = ([\d.]+)", cli("budget", "gaussian", *words, "--quiet").out)[1]
        assert float(found) == pytest.approx(said, rel=0.006)
