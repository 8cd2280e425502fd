"""Machine code that is kept on disk is used again while all its sources are as they were, and not after."""

import importlib
import sys

import pytest

CALLED = """
from typing import NamedTuple

import numpy as np

from privfed.compute.compiled import compiled

FACTOR = {factor}
TABLE = np.array([{factor}])
NUMBER = np.int64


class {name}(NamedTuple):
    {first}: int
    {second}: int


@compiled
def scaled(x):
    return {scaled}
"""
CALLER = """
import called
from called import FACTOR, TABLE, scaled
from privfed.compute.compiled import compiled


@compiled
def through_another(x):
    return by_way_of(x)


@compiled
def by_way_of(x):
    return scaled(x)


@compiled
def through_a_module(x):
    return called.scaled(x) + called.NUMBER(0)


@compiled
def by_a_constant(x):
    return x * FACTOR


@compiled
def by_a_table(x):
    return x * TABLE[0]


@compiled
def by_a_field(pair):
    return pair.low
"""
ONCE = {"factor": 2, "name": "Pair", "first": "low", "second": "high", "scaled": "2 * x"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a function of `CALLER` as a new process would, beside a version of `CALLED`; says what was compiled."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "caller.py").write_text(CALLER)

    def run(function, **changes):
        text = ONCE | changes
        (tmp_path / "called.py").write_text(CALLED.format(**text))
        for name in ("called", "caller"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        for kept in (tmp_path / "__pycache__").glob("*.pyc"):
            kept.unlink()
        called, caller = importlib.import_module("called"), importlib.import_module("caller")
        argument = getattr(called, text["name"])(3, 5) if function == "by_a_field" else 3
        found = getattr(caller, function)(argument)
        return found, sum(getattr(caller, function).stats.cache_misses.values())

    yield run
    for name in ("called", "caller"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("function", "before", "change", "after"),
    [
        ("through_another", 6, {"scaled": "7 * x"}, 21),
        ("through_a_module", 6, {"scaled": "7 * x"}, 21),
        ("by_a_constant", 6, {"factor": 5}, 15),
        ("by_a_table", 6, {"factor": 5}, 15),
        ("by_a_field", 3, {"first": "high", "second": "low"}, 5),
        ("by_a_field", 3, {"name": "Other"}, 3),
    ],
)
def test_code_is_kept_until_another_file_of_it_changes(run, function, before, change, after):
    assert run(function) == (before, 1)
    assert run(function) == (before, 0)
    assert run(function, **change) == (after, 1)
    assert run(function, **change) == (after, 0)
