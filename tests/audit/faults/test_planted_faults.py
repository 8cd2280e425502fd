"""Every planted fault ends an audit with a contradiction that names the run and says what is wrong."""

from pathlib import Path
from unittest.mock import patch

import pytest
from auditing import audit, interactions
from registry import (
    ADAPTIVE,
    CENTRAL,
    DISTRIBUTED,
    FAKES,
    FAULTS,
    LAPLACE,
    LOCAL,
    PER_INTERACTION,
    RESPONSE,
    SAMPLED,
    TIERED,
    Fault,
)
from typer.testing import CliRunner

from privfed.audit import grid
from privfed.cli import app

HONEST = {
    "central": ("fedmf", CENTRAL),
    "many blocks": ("fedncf", CENTRAL),
    "many queries": ("private-gram", CENTRAL),
    "tiered": ("fedmf", TIERED),
    "measured": ("private-gram", CENTRAL),
    "measured in shares": ("private-gram", DISTRIBUTED),
    "sampled": ("fedmf", SAMPLED),
    "adaptive": ("fedmf", ADAPTIVE),
    "single uploads": ("gpfedrec", LAPLACE),
    "single Gaussian uploads": ("gpfedrec", LOCAL),
    "inside training": ("pfedrec", PER_INTERACTION),
    "in shares": ("fedmf", DISTRIBUTED),
    "fake items": ("fedmf", FAKES),
    "randomised response": ("fedmf", RESPONSE),
}


HONEST_OF_THE_GATE = {"central", "single uploads", "fake items", "inside training", "randomised response"}
OF_THE_GATE = 6
"""Faults, the first of the registry, that every run of the tests plants; the rest are `exhaustive` (`make faults`)."""


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_fault_replaces_is_still_there(name: str) -> None:
    with FAULTS[name].planted():
        pass


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number < OF_THE_GATE else pytest.mark.exhaustive)
        for number, name in enumerate(FAULTS)
    ],
)
def test_a_planted_fault_is_contradicted(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    with fault.planted():
        report = audit(fault, tmp_path)
    texts = [found.text for found in report.contradictions if found.method == fault.method]
    assert any(fault.says in text for text in texts), texts


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in HONEST_OF_THE_GATE else pytest.mark.exhaustive) for name in HONEST],
)
def test_the_same_runs_without_a_fault_are_not(name: str, tmp_path: Path) -> None:
    method, privacy = HONEST[name]
    measured = name.startswith("measured")
    report = audit(Fault(name, "nowhere", method, privacy, lambda _: None, "", measured=measured), tmp_path)
    assert report.contradictions == []
    assert all(check.passed for run in report.runs for check in run.checks)


def test_a_derived_catalogue_is_named_and_passes(tmp_path: Path) -> None:
    report = audit(Fault("derived", "data", "fedmf", CENTRAL, lambda _: None, "", derived=True), tmp_path)
    assert report.contradictions == []
    (run,) = [run for run in report.runs if run.method == "fedmf"]
    assert any(text.startswith("The catalogue (200 items) was derived") for text in run.guarantee.assumptions)
    assert any("there because of a single user" in check.detail for check in run.checks)


def test_the_command_fails_and_names_the_run(tmp_path: Path) -> None:
    fault = FAULTS["central noise left out in the engine"]
    interactions(False)
    words = ["audit", "--method", fault.method, "--data", "synthetic-small", "--privacy", fault.privacy]
    words += ["--rounds", "4", "--workers", "1", "--out", str(tmp_path / "audit")]
    with fault.planted(), patch.object(grid, "publish"):
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output
    said = " ".join(result.output.split())
    assert "FedMF, central Gaussian (z = 2, C = 1)" in said
    assert "no noise was added" in said
