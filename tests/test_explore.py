"""Random exploration finds what fails and says so."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import settings

PROPERTY = """
from hypothesis import given, strategies as st

@given(st.integers(0, 10**6))
def test_small(n):
    assert n < {bound}
"""


@pytest.fixture
def exploring():
    spec = importlib.util.spec_from_file_location("explore", Path(__file__).with_name("explore.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(tmp_path, bound):
    path = tmp_path / "test_property.py"
    path.write_text(PROPERTY.format(bound=bound))
    return path


def test_a_property_that_fails_is_printed_with_its_example(exploring, tmp_path, capsys):
    assert not exploring.explore(written(tmp_path, 10), seed=3, seconds=120)
    told = capsys.readouterr().out
    assert "n=10," in told
    assert "fails under seed 3" in told


def test_a_property_that_holds_and_a_file_without_one_are_silent(exploring, tmp_path, capsys):
    assert exploring.explore(written(tmp_path, 10**7), seed=3, seconds=120)
    (tmp_path / "test_property.py").write_text("def test_plain():\n    assert False\n")
    assert exploring.explore(tmp_path / "test_property.py", seed=3, seconds=120)
    assert not capsys.readouterr().out


def test_every_property_test_is_explored(exploring):
    files = {path.name for path in exploring.property_tests()}
    assert {"test_accounting.py", "test_shamir.py"} <= files


def test_the_gate_tries_the_same_examples_every_time():
    gate = settings.get_profile("gate")
    assert gate.derandomize
    assert (gate.deadline, gate.database) == (None, None)
