"""`privfed audit-mechanism` audits a function of a file or a module, and answers with its exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

MECHANISMS = """
import numpy as np

EXAMPLE = np.eye(3)


def unclipped(rows, generator):
    return np.nan_to_num(rows).sum(axis=0) + generator.normal(size=rows.shape[1])


def constant(rows, generator):
    return generator.normal(size=3)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shop_mechanisms.py"
    path.write_text(MECHANISMS)
    return str(path)


def test_a_violation_is_the_exit_code(cli: Callable, file: str) -> None:
    answer = cli("audit-mechanism", f"{file}:unclipped", "--claim", "epsilon=2,delta=1e-5", "--width", "2", code=1)
    assert "VIOLATION: influence." in answer.out
    assert "Not seen by this audit:" in answer.out


def test_what_keeps_its_claim_is_a_success_with_a_document(cli: Callable, file: str) -> None:
    answer = cli(
        "audit-mechanism", f"{file}:constant", "--claim", "epsilon=1", "--inputs", "EXAMPLE", "--finite", "--json"
    )
    assert json.loads(answer.out)["violated"] is False


@pytest.mark.parametrize(
    ("function", "claim", "sentence"),
    [
        ("nothing", "epsilon=1", "give MODULE:FUNCTION"),
        ("absent.py:release", "epsilon=1", "there is no file absent.py"),
        ("no_such_module_here:release", "epsilon=1", "give an importable module"),
        ("math:release", "epsilon=1", "math has no release"),
        ("math:sqrt", "delta=1", "pass epsilon"),
    ],
)
def test_bad_input_is_one_sentence(refused: Callable, function: str, claim: str, sentence: str) -> None:
    assert sentence in refused("audit-mechanism", function, "--claim", claim)


def test_a_file_that_cannot_be_run_is_one_sentence(refused: Callable, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import numpy as np\nnp.no_such_name\n")
    assert "raised AttributeError" in refused("audit-mechanism", f"{tmp_path / 'broken.py'}:f", "--claim", "epsilon=1")
