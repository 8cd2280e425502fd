"""Every benchmark and every example can be imported: what it takes from the packages exists under that name."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from benchmarks import harness

FILES = sorted(
    file
    for folder in ("benchmarks", "examples")
    for file in (harness.ROOT / folder).rglob("*.py")
    if not file.name.startswith("with_pfl")
)
"""All but the peer that runs where pfl is installed, and nothing else is."""
NEEDS_FLOWER = ("import flwr", "from flwr", "privfed.engines.flower", "benchmarks.peers.flower")


def test_there_are_benchmarks_and_examples() -> None:
    assert len(FILES) > 60


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(harness.ROOT).as_posix())
def test_it_can_be_imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = file.read_text(encoding="utf-8")
    if any(name in source for name in NEEDS_FLOWER) and importlib.util.find_spec("flwr") is None:
        pytest.skip("flwr is not installed")
    if "from . import" in source:
        monkeypatch.setattr(sys, "path", [str(file.parents[1]), *sys.path])
        assert importlib.import_module(f"{file.parent.name}.{file.stem}")
        return
    monkeypatch.setattr(sys, "path", [str(file.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"imported_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
