"""`privfed dossier`: made, signed and verified from a terminal; exit codes 1 and 2, and one sentence for bad input."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dossier.conftest import write_run


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("source") / "run", "none")


@pytest.fixture
def dossier(cli: Callable, source: Path, tmp_path: Path) -> Path:
    cli("dossier", "make", source, "--out", tmp_path / "dossier", "--no-pdf")
    for name in ("engineer", "officer"):
        cli("federation", "keys", tmp_path / name)
    return tmp_path / "dossier"


@pytest.fixture
def keys(tmp_path: Path) -> list[str]:
    return [f"--key={role}={tmp_path / role / 'identity.pub'}" for role in ("engineer", "officer")]


def test_made_signed_and_verified(cli: Callable, dossier: Path, keys: list[str], tmp_path: Path) -> None:
    assert "the engineer has not signed" in cli("dossier", "verify", dossier, *keys, code=1).out
    for role in ("engineer", "officer"):
        said = cli("dossier", "sign", dossier, "--role", role, "--key", tmp_path / role / "identity.key").out
        assert f"is signed by the {role} until " in said
    assert "is what the engineer and the officer signed" in cli("dossier", "verify", dossier, *keys).out
    assert "for want of a key: the officer" in cli("dossier", "verify", dossier, keys[0]).out
    assert cli("dossier", "verify", dossier, *keys, "--json").document["verified"] is True
    (dossier / "answers.json").write_text("{}")
    out = cli("dossier", "verify", dossier, *keys, code=1).out
    assert out.strip() == "Not verified: answers.json was changed."
    assert cli("dossier", "verify", dossier, *keys, "--json", code=1).document["problems"] == [
        "answers.json was changed"
    ]


def test_what_it_says_of_an_unprotected_run(cli: Callable, source: Path, tmp_path: Path) -> None:
    out = cli("dossier", "make", source, "--out", tmp_path / "one", "--no-pdf").out
    assert out.startswith("Nothing is guaranteed to anybody: epsilon is infinite, because ")
    assert "with bad news" in out
    assert "no PDF was made, as asked" in out


def test_the_same_for_machines(cli: Callable, source: Path, tmp_path: Path) -> None:
    document = cli("dossier", "make", source, "--out", tmp_path / "two", "--no-pdf", "--json").document
    assert document["first"].startswith("Nothing is guaranteed")
    assert document["pdf"] is None
    assert 0 < document["registry_filled"] < document["registry_fields"]


def test_bad_input_is_one_sentence(
    cli: Callable, refused: Callable, dossier: Path, keys: list[str], source: Path, tmp_path: Path
) -> None:
    assert "is not empty" in refused("dossier", "make", source, "--out", dossier)
    assert "is not there" in refused("dossier", "make", tmp_path / "nowhere", "--out", tmp_path / "x")
    assert "number above 0" in refused("dossier", "make", source, "--out", tmp_path / "x", "--budget", -1)
    key = tmp_path / "officer" / "identity.key"
    assert "the role 'boss' is not known" in refused("dossier", "sign", dossier, "--role", "boss", "--key", key)
    assert "no signing key" in refused(
        "dossier", "sign", dossier, "--role", "officer", "--key", tmp_path / "officer" / "identity.pub"
    )
    assert "days were given" in refused("dossier", "sign", dossier, "--role", "officer", "--key", key, "--days", 0)
    assert "no key was given" in refused("dossier", "verify", dossier)
    assert "write a role once" in refused("dossier", "verify", dossier, keys[0], keys[0])
    assert "is no public key" in refused("dossier", "verify", dossier, "--key", "officer=abc")
    assert "two people sign" in refused(
        "dossier", "verify", dossier, keys[0], keys[0].replace("=engineer=", "=officer=")
    )
    manifest = dossier / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"files": {"../../etc/passwd": "0" * 64}}))
    assert "is no name of a file of a dossier" in refused("dossier", "verify", dossier, *keys)
    manifest.write_text("{")
    assert "is damaged" in refused("dossier", "verify", dossier, *keys)
    manifest.unlink()
    assert "holds no dossier" in refused("dossier", "verify", dossier, *keys)
