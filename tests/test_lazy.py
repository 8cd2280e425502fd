"""Packages that load what they offer when it is asked for: the same names, in whatever order modules are imported."""

from importlib import import_module
from types import ModuleType

import pytest

from privfed.lazy import _LazyPackage

NAMES = ("data", "evaluation", "experiment", "federation", "guards", "methods", "privacy")


@pytest.mark.parametrize("name", NAMES)
def test_a_package_offers_all_that_it_lists_and_no_module(name: str) -> None:
    package = import_module(f"privfed.{name}")
    assert isinstance(package, _LazyPackage)
    assert package.__all__
    assert not [one for one in package.__all__ if isinstance(getattr(package, one), ModuleType)]
    assert set(package.__all__) <= set(dir(package))


def test_a_submodule_does_not_hide_what_has_its_name() -> None:
    assert isinstance(import_module("privfed.methods.method"), ModuleType)
    assert import_module("privfed.methods").method("popularity").name == "popularity"


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"module 'privfed.data' has no attribute 'nosuch'"):
        _ = import_module("privfed.data").nosuch
