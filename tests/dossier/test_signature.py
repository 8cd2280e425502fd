"""A dossier is what it was when it was signed, by whom it says, until the day it says; all else is told by name."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from privfed.dossier.errors import DossierError
from privfed.dossier.manifest import MANIFEST, read_manifest, write_manifest
from privfed.dossier.signature import problems_of, sign
from secure_agg.primitives.keys import Identity

ENGINEER, OFFICER = (Identity.from_private(bytes([number]) * 32) for number in (1, 2))
KEYS = {"engineer": ENGINEER.public, "officer": OFFICER.public}
MADE = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = MADE + timedelta(days=10)


@pytest.fixture
def dossier(tmp_path: Path) -> Path:
    folder = tmp_path / "dossier"
    (folder / "evidence").mkdir(parents=True)
    (folder / "index.html").write_text("the page")
    (folder / "evidence" / "guarantee.json").write_text("{}")
    write_manifest(folder, about="a run", version="0", now=MADE)
    return folder


@pytest.fixture
def signed(dossier: Path) -> Path:
    sign(dossier, "engineer", ENGINEER, days=30, now=MADE)
    sign(dossier, "officer", OFFICER, days=30, now=MADE)
    return dossier


def change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_two_signatures_verify_until_they_expire(signed: Path) -> None:
    assert problems_of(signed, KEYS, NOW) == []
    assert problems_of(signed, {"officer": OFFICER.public}, NOW) == []
    late = problems_of(signed, KEYS, MADE + timedelta(days=30))
    assert late == [f"the signature of the {role} expired 2026-03-31" for role in KEYS]


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda f: (f / "index.html").write_text("another"), "index.html was changed"),
        (lambda f: (f / "index.html").unlink(), "index.html is missing"),
        (lambda f: (f / "evidence" / "more.json").write_text("{}"), "evidence/more.json was added"),
        (lambda f: (f / "signatures" / "third.json").write_text("{}"), "signatures/third.json was added"),
        (lambda f: (f / "signatures" / "officer.json").unlink(), "the officer has not signed"),
        (lambda f: (f / "signatures" / "officer.json").write_text("{"), "the officer cannot be read"),
        (lambda f: change(f / "signatures" / "officer.json", expires="2030-01-01T00:00:00Z"), "not one of this key"),
        (lambda f: change(f / "signatures" / "officer.json", role="engineer"), "was made as engineer"),
        (
            lambda f: (f / "signatures" / "engineer.json").replace(f / "signatures" / "officer.json"),
            "the signature of the officer was made as engineer",
        ),
        (lambda f: write_manifest(f, about="another", version="0", now=MADE) and None, "signed another manifest"),
    ],
)
def test_whatever_was_done_to_it_is_named(signed: Path, harm: Callable[[Path], object], told: str) -> None:
    harm(signed)
    assert any(told in problem for problem in problems_of(signed, KEYS, NOW))


def test_swapped_files_and_links_are_named(signed: Path, tmp_path: Path) -> None:
    first, second = signed / "index.html", signed / "evidence" / "guarantee.json"
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert problems_of(signed, KEYS, NOW) == ["evidence/guarantee.json was changed", "index.html was changed"]
    outside = tmp_path / "outside"
    outside.write_bytes(one)
    first.unlink()
    first.symlink_to(outside)
    second.write_bytes(two)
    (problem,) = problems_of(signed, KEYS, NOW)
    assert "index.html is a link" in problem


def test_a_linked_folder_is_not_looked_behind(signed: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    (signed / "evidence").rename(moved)
    (signed / "evidence").symlink_to(moved)
    assert problems_of(signed, KEYS, NOW) == ["evidence/guarantee.json is missing", "evidence was added"]


def test_however_deep_a_folder_is(signed: Path) -> None:
    signed.joinpath(*["a"] * 200).mkdir(parents=True)
    assert problems_of(signed, KEYS, NOW) == ["a/a/a/a/a was added"]


def test_a_clock_before_the_signature_is_named(signed: Path) -> None:
    problems = problems_of(signed, KEYS, MADE - timedelta(hours=1))
    assert sum("later than the clock" in problem for problem in problems) == 3


def test_a_key_of_somebody_else_and_one_key_for_both(signed: Path) -> None:
    other = Identity.from_private(bytes(32)).public
    assert problems_of(signed, {"officer": other}, NOW) == [
        "the signature of the officer is of another key than the given one"
    ]
    with pytest.raises(DossierError, match="two people sign"):
        problems_of(signed, {"engineer": other, "officer": other}, NOW)
    with pytest.raises(DossierError, match="no key was given"):
        problems_of(signed, {}, NOW)


def test_nobody_signs_in_two_roles(dossier: Path) -> None:
    sign(dossier, "engineer", ENGINEER, now=NOW)
    sign(dossier, "engineer", OFFICER, now=NOW)
    with pytest.raises(DossierError, match="has signed as engineer"):
        sign(dossier, "officer", OFFICER, now=NOW)
    sign(dossier, "officer", ENGINEER, now=NOW)


def test_what_was_harmed_or_makes_no_sense_is_not_signed(dossier: Path) -> None:
    with pytest.raises(DossierError, match="0 days were given"):
        sign(dossier, "engineer", ENGINEER, days=0)
    with pytest.raises(DossierError, match="set the clock"):
        sign(dossier, "engineer", ENGINEER, now=MADE - timedelta(days=1))
    (dossier / "index.html").write_text("another")
    with pytest.raises(DossierError, match=r"index\.html was changed"):
        sign(dossier, "engineer", ENGINEER, now=NOW)
    assert not (dossier / "signatures").exists()


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("name", "told"),
    [(name, "is no name of a file") for name in ("../a", "/etc/passwd", "a/../b", ".hidden", "a\\b", "", "a//b", "a\0")]
    + [(name, "is no name of a file") for name in (MANIFEST, "signatures/engineer.json")],
)
def test_a_manifest_names_files_below_it_only(dossier: Path, name: str, told: str) -> None:
    change(dossier / MANIFEST, files={name: DIGEST})
    with pytest.raises(DossierError, match=told):
        read_manifest(dossier)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"files": {"a": 1}, "files": {}}', "the key 'files' stands twice"),
        ("{", "is damaged"),
        ("[" * 100_000, "nested too deeply"),
        ('{"created": NaN}', "NaN is no number"),
        ("[]", "holds no record"),
        ('{"format": "privfed-dossier/9"}', "of another version"),
    ],
)
def test_a_damaged_manifest_is_one_sentence(dossier: Path, text: str, told: str) -> None:
    (dossier / MANIFEST).write_text(text)
    with pytest.raises(DossierError, match=told):
        read_manifest(dossier)


def test_a_pipe_in_the_place_of_a_file_does_not_hang(signed: Path) -> None:
    (signed / "index.html").unlink()
    os.mkfifo(signed / "index.html")
    (problem,) = problems_of(signed, KEYS, NOW)
    assert "no plain file" in problem


def test_folders_without_a_dossier(tmp_path: Path) -> None:
    with pytest.raises(DossierError, match="holds no dossier"):
        read_manifest(tmp_path)
    with pytest.raises(DossierError, match="is not there"):
        read_manifest(tmp_path / "nowhere")
