"""What a folder says, and from where; what it does not say is nowhere made up, and what was edited is refused."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Citation, Datum, Evidence
from privfed.dossier.gathering import gather
from privfed.privacy.closed_forms import gaussian_epsilon
from tests.dossier.conftest import change, write_audit, write_node, write_run

AUDITED = "private-gram:gaussian"


def data_of(evidence: Evidence) -> list[Datum]:
    """Every datum of the record."""
    found: list[Datum] = []
    for value in vars(evidence).values():
        found += [one for one in (value if isinstance(value, tuple) else [value]) if isinstance(one, Datum)]
    return found


@pytest.mark.parametrize(
    ("kind", "setting"), [("attacked", None), ("audit", AUDITED), ("audit", "gpfedrec:none"), ("node", None)]
)
def test_every_value_names_a_file_that_is_there_with_its_digest(
    kept: Callable[[str], Path], kind: str, setting: str | None
) -> None:
    evidence = gather(kept(kind), setting)
    data = data_of(evidence)
    assert len(data) >= 6
    for one in data:
        source = one.source
        assert isinstance(source, Citation)
        assert source.key
        if source.copied:
            assert evidence.files[source.file].sha256 == source.sha256
        else:
            assert source.file.startswith("ledger")
            assert source.file not in evidence.files


def test_mu_of_a_run_says_what_its_guarantee_says(kept: Callable[[str], Path]) -> None:
    evidence = gather(kept("run"))
    assert evidence.mu is not None
    assert evidence.mu.value == pytest.approx(0.5)
    claim = evidence.guarantee.value
    assert gaussian_epsilon(evidence.mu.value, claim.delta) == pytest.approx(claim.epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "why"), [("laplace", "Gaussian releases without sampling alone"), ("unprotected", "nothing bounds")]
)
def test_other_noise_has_no_mu_and_the_reason_is_there(kept: Callable[[str], Path], kind: str, why: str) -> None:
    evidence = gather(kept(kind))
    assert evidence.mu is None
    assert why in evidence.mu_missing


def test_an_audit_takes_mu_from_its_ledger_and_quality_beside_popularity(kept: Callable[[str], Path]) -> None:
    evidence = gather(kept("audit"), AUDITED)
    assert evidence.mu is not None
    assert evidence.mu.value == pytest.approx(0.5)
    assert evidence.main is not None
    assert evidence.main.value.popularity is not None
    assert evidence.strongest is None


def test_the_attack_that_speaks_was_chosen_on_others_than_it_is_measured_on(kept: Callable[[str], Path]) -> None:
    strongest = gather(kept("attacked")).strongest
    assert strongest is not None
    assert strongest.source.key.endswith(".sample_split")


def test_a_node_is_what_its_ledger_says_and_no_secret_is_read(kept: Callable[[str], Path]) -> None:
    evidence = gather(kept("node"))
    assert evidence.method is None
    assert evidence.ledger is not None
    assert evidence.ledger.value.entries == 1
    assert set(evidence.files) == {"node.toml", "state/book.json"}
    assert evidence.policy is not None
    assert evidence.policy.value["max_epsilon"] == 8.0


def test_a_claim_better_than_its_ledger_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    change(run / "guarantee.json", epsilon=0.1)
    with pytest.raises(DossierError, match=r"claims epsilon = 0\.1 .* no dossier says more than the ledger"):
        gather(run)
    change(run / "guarantee.json", epsilon=50.0)
    assert gather(run).guarantee.value.epsilon == 50.0
    change(run / "guarantee.json", unit="interaction")
    with pytest.raises(DossierError, match="for one interaction"):
        gather(run)


def test_an_edited_ledger_is_refused_and_a_cut_one_is_left_as_it_is(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds=2)
    ledger = run / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b'{"previous":"')
    assert gather(run).ledger is not None
    assert ledger.read_bytes().endswith(b'{"previous":"')
    ledger.write_bytes(b"\n".join(whole.split(b"\n")[:2]) + b"\n")
    gather(run)
    ledger.write_bytes(whole.replace(b'"round":1', b'"round":7'))
    with pytest.raises(DossierError, match="was edited"):
        gather(run)


def test_the_ledger_of_a_shorter_run_is_refused(tmp_path: Path) -> None:
    long, short = write_run(tmp_path / "long", rounds=2), write_run(tmp_path / "short")
    for name in ("ledger.jsonl", "guarantee.json"):
        (long / name).write_bytes((short / name).read_bytes())
    with pytest.raises(DossierError, match="belongs to another run"):
        gather(long)


@pytest.mark.parametrize("name", ["evaluation.json", "attacks.json"])
def test_files_of_another_run_are_refused(tmp_path: Path, name: str) -> None:
    one = write_run(tmp_path / "one", attacked=True)
    other = write_run(tmp_path / "other", "local-laplace:epsilon0=1,clip_norm=1", attacked=True)
    (one / name).write_bytes((other / name).read_bytes())
    with pytest.raises(DossierError, match=r"of another run|about another plan"):
        gather(one)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("config.json", "{", "is damaged"),
        ("config.json", "[]", "holds no record"),
        ("config.json", '{"format": 1, "format": 1}', "stands twice"),
        ("guarantee.json", '{"epsilon": NaN}', "NaN is no number"),
        ("guarantee.json", '{"epsilon": 1}', "of another version"),
        ("ledger.jsonl", "", "is empty"),
        ("ledger.jsonl", "[" * 5000 + "\n", "ledger.jsonl"),
        ("evaluation.json", "{}", "of another version"),
        ("attacks.json", '{"attacks": 3}', "of another version"),
    ],
)
def test_a_damaged_run_is_one_sentence(tmp_path: Path, name: str, text: str, told: str) -> None:
    run = write_run(tmp_path / "run")
    (run / name).write_text(text)
    with pytest.raises(DossierError, match=told):
        gather(run)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "evaluation.json").rename(tmp_path / "elsewhere.json")
    (run / "evaluation.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(DossierError, match="is a link"):
        gather(run)
    (run / "evaluation.json").unlink()
    os.mkfifo(run / "evaluation.json")
    with pytest.raises(DossierError, match="no plain file"):
        gather(run)


def test_folders_that_are_none(tmp_path: Path, kept: Callable[[str], Path]) -> None:
    with pytest.raises(DossierError, match="is not there"):
        gather(tmp_path / "nowhere")
    with pytest.raises(DossierError, match="holds no run, audit or node"):
        gather(tmp_path)
    with pytest.raises(DossierError, match="leave --setting out"):
        gather(kept("run"), "x")
    run = write_run(tmp_path / "unfinished")
    (run / "guarantee.json").unlink()
    with pytest.raises(DossierError, match="is not finished"):
        gather(run)


def test_a_setting_has_to_be_chosen_where_there_are_several(kept: Callable[[str], Path]) -> None:
    with pytest.raises(DossierError, match=r"audits 2 settings .* private-gram:gaussian"):
        gather(kept("audit"))
    with pytest.raises(DossierError, match="has no setting 'x'"):
        gather(kept("audit"), "x")


def test_a_node_with_several_runs_or_a_ledger_that_lost_entries(tmp_path: Path) -> None:
    node = write_node(tmp_path / "node", runs=2)
    with pytest.raises(DossierError, match="ledgers of 2 runs"):
        gather(node)
    assert gather(node, "run-1").ledger is not None
    ledger = node / "ledger-run-1.jsonl"
    ledger.write_bytes(ledger.read_bytes().split(b"\n")[0] + b"\n")
    with pytest.raises(DossierError, match="has lost entries"):
        gather(node, "run-1")


def test_a_report_of_another_version_is_refused(tmp_path: Path) -> None:
    audit = write_audit(tmp_path / "audit")
    report = json.loads((audit / "report.json").read_text())
    (audit / "report.json").write_text(json.dumps(report | {"schema_version": 9}))
    with pytest.raises(DossierError, match="of another version"):
        gather(audit, AUDITED)


def test_infinity_stays_infinity(kept: Callable[[str], Path]) -> None:
    assert math.isinf(gather(kept("unprotected")).guarantee.value.epsilon)
