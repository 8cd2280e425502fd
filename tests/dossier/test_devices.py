"""A dossier of a run over people's own devices: what its server recorded, and nothing of a simulation."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from privfed.api.errors import UseError
from privfed.api.published_dossier import dossier_files
from privfed.dossier.budget import yearly_budget
from privfed.dossier.errors import DossierError
from privfed.dossier.gathering import gather
from privfed.dossier.making import Dossier, make
from privfed.dossier.questions import Answer, Unknown
from tests.dossier.conftest import change

Kept = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> Dossier:
    out = tmp_path_factory.mktemp("dossiers") / "dossier"
    return make(kept("devices"), out, budget=8.0, pdf=False, now=datetime(2026, 11, 27, tzinfo=UTC))


@pytest.fixture
def folder(kept: Kept, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept("devices"), tmp_path / "devices"))


def test_it_says_who_took_part_and_when_and_that_noise_is_nobody_s_to_repeat(made: Dossier) -> None:
    evidence = made.case.evidence
    assert evidence.name == "popularity over 900 of 1,000 devices of people, 870 or more in every sum"
    assert evidence.when.value == "2026-11-02"
    assert evidence.randomness is not None
    assert "operating system" in evidence.randomness.value
    assert [(one.name, one.current) for one in made.case.budget.past] == [("devices", True)]
    assert made.case.budget.left == pytest.approx(8 - evidence.guarantee.value.epsilon)


def test_no_page_calls_it_a_simulation_and_quality_is_not_known(made: Dossier) -> None:
    page = (made.folder / "index.html").read_text()
    assert "over people's devices" in page.replace("&#39;", "'")
    assert "simulation" not in page
    replies = {question.id: reply for question, reply in made.replies}
    assert isinstance(replies["nist-utility"], Unknown)
    assert isinstance(replies["dpia-necessity"], Unknown)
    assert isinstance(replies["nist-epsilon"], Answer)


def test_nobody_is_named_in_what_is_copied(made: Dossier) -> None:
    assert {path.name for path in (made.folder / "evidence").iterdir()} == {
        "devices.json", "guarantee.json", "budget-given.json"
    }  # fmt: skip


def test_it_is_served_with_its_own_run_only(made: Dossier, kept: Kept, folder: Path) -> None:
    digest, files = dossier_files(made.folder, kept("devices"))
    assert len(digest) == 64
    assert "index.html" in files
    change(folder / "devices.json", joined=899)
    with pytest.raises(UseError, match="is about another run"):
        dossier_files(made.folder, folder)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"format": 2}, "written in format 2"),
        ({"ended": None}, "was aborted and published nothing"),
        ({"run": "c" * 32}, "belongs to another run"),
        ({"people": 1001}, "belongs to another run"),
        ({"summed": []}, "belongs to another run"),
        ({"joined": "many"}, "damaged or of another version"),
        ({"config": {"who": 1}}, "no configuration that can be read"),
    ],
)
def test_a_record_that_is_not_the_run_s_is_refused(folder: Path, fields: dict[str, object], why: str) -> None:
    change(folder / "devices.json", **fields)
    with pytest.raises(DossierError, match=why):
        gather(folder)


def test_a_claim_below_the_ledger_and_a_setting_are_refused(folder: Path) -> None:
    with pytest.raises(DossierError, match="which has no setting"):
        gather(folder, "popularity")
    change(folder / "guarantee.json", epsilon=0.1)
    with pytest.raises(DossierError, match="no dossier says more than the ledger"):
        gather(folder)
    (folder / "guarantee.json").unlink()
    with pytest.raises(DossierError, match="was aborted"):
        gather(folder)


def test_a_run_that_was_aborted_counts_where_it_is_named(kept: Kept, folder: Path) -> None:
    folder = folder.rename(folder.with_name("aborted"))
    change(folder / "devices.json", ended=None, summed=[])
    evidence = gather(kept("devices"))
    budget = yearly_budget(evidence, [folder], "2026")
    assert {one.name: one.current for one in budget.past} == {"devices": True, "aborted": False}
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    (folder / "ledger.jsonl").write_text("\n".join([*lines, json.dumps({"damaged": True})]) + "\n")
    with pytest.raises(DossierError):
        yearly_budget(evidence, [folder], "2026")
