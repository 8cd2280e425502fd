"""The rows of other packages' mechanisms name each other apart and can be made."""

import dataclasses
import importlib

import pytest

from attacks.mechanism import Claim
from benchmarks.privacy.third_party import DISTRIBUTIONS, ROWS, examples, python


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.adapter for row in ROWS} == set(DISTRIBUTIONS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_makes_a_mechanism_that_takes_its_example(row) -> None:
    pytest.importorskip(DISTRIBUTIONS[row.adapter])
    numpy, torch = importlib.import_module("numpy"), importlib.import_module("torch")
    names = {row.adapter: importlib.import_module(f"attacks.mechanism.adapters.{row.adapter}")}
    names |= {"Claim": Claim, "replace": dataclasses.replace}
    generator = torch.Generator() if row.adapter in {"opacus", "opake"} else numpy.random.default_rng(0)
    assert eval(row.claim, names).epsilon > 0
    assert len(eval(row.release, names)(examples(row), generator))


def test_a_package_without_an_environment_is_left_out(tmp_path) -> None:
    assert python("flower", None) is not None
    assert python("nvflare", None) is None
    assert python("nvflare", tmp_path) is None
