"""`privfed audit`: the report, its exit code, and what may share a folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privfed.audit import grid
from privfed.audit.report.records import AuditReport, Contradiction, read_report
from privfed.cli.audit import runs_sentence
from privfed.cli.audit_settings import audit_config
from privfed.cli.layers import read_setting

DATA = ("--data", "synthetic-small")
EXPERIMENT = """
data = "synthetic-small"
rounds = 2
methods = ["fedmf"]
plans = ["none", "local-laplace:epsilon0=1,clip_norm=1"]
"""


@pytest.fixture(scope="module")
def audited(call: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small audit from a file, in one worker: the folder `audit` and what it printed."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    answer = call("audit", folder / "experiment.toml", "--out", folder / "audit", "--workers", 1, "--json")
    assert answer.code == 0, answer.err
    (folder / "printed.json").write_text(answer.out)
    (folder / "told.txt").write_text(answer.err)
    return folder


def test_what_an_audit_writes_and_prints(audited: Path) -> None:
    report = read_report(audited / "audit" / "report.json")
    printed = json.loads((audited / "printed.json").read_text())
    assert (audited / "audit" / "index.html").read_text().startswith("<!")
    assert {cell["method"] for cell in printed["cells"]} == {"popularity", "fedmf"}
    assert printed["statements"] == [s.model_dump(mode="json") for s in report.statements]
    assert printed["contradictions"] == []
    assert printed["synthetic"] is True
    assert "fedmf, none, seed 0: round 2 of 2" in (audited / "told.txt").read_text()


@pytest.fixture
def quick(audited: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put the finished report in the place of a new audit, with the changes given."""

    def replace(**changes: object) -> None:
        report = read_report(audited / "audit" / "report.json")

        def run_audit(*_: object, **__: object) -> AuditReport:
            return report.model_copy(update=changes)

        monkeypatch.setattr(grid, "run_audit", run_audit)

    return replace


def test_words_for_people(cli: Callable, audited: Path, quick: Callable, tmp_path: Path) -> None:
    quick()
    out = cli("audit", audited / "experiment.toml", "--out", tmp_path / "a").out
    assert "fedmf, none (synthetic):\n- " in out
    assert "Utility, guarantee and leakage (synthetic)" in out
    assert f"The page: {tmp_path / 'a' / 'index.html'}" in out


def test_a_contradicted_claim_is_told_and_counts(cli: Callable, audited: Path, quick: Callable, tmp_path: Path) -> None:
    quick(contradictions=[Contradiction(rule="attack above its ceiling", text="A claim is contradicted.")])
    words = ("audit", audited / "experiment.toml", "--out", tmp_path / "a")
    assert "Contradicted: A claim is contradicted." in cli(*words, code=1).out
    assert cli(*words, "--json", code=1).document["contradictions"][0]["text"] == "A claim is contradicted."


def test_an_audit_goes_on_in_its_own_folder_only(
    cli: Callable, refused: Callable, audited: Path, quick: Callable, trained: Path
) -> None:
    quick()
    words = ("audit", audited / "experiment.toml", "--out", audited / "audit")
    cli(*words, "--quiet")
    assert "holds an audit with config.rounds = 2, not 3" in refused(*words, "--rounds", 3)
    assert "holds a run, not an audit" in refused("audit", *DATA, "--out", trained)
    assert "holds an audit, not a run" in refused("attack", audited / "audit")


def test_settings_reach_every_method_and_plan_that_has_them() -> None:
    config, source = audit_config(
        {"methods": ["fedmf", "gpfedrec"], "data": "synthetic-small"},
        {"seeds": 3, "protocol": "paper"},
        [
            read_setting(s)
            for s in (
                "method.lr=0.02",
                "method.reg=0.1",
                "privacy.delta=1e-6",
                "privacy.mechanism.epsilon0=2",
            )
        ],
    )
    assert config.methods == ({"name": "fedmf", "lr": 0.02}, {"name": "gpfedrec", "lr": 0.02, "reg": 0.1})
    assert {plan.delta for plan in config.plans} == {1e-6}
    assert config.plans[0].mechanism.kind == "unprotected"
    assert {getattr(plan.mechanism, "epsilon0", 2) for plan in config.plans} == {2}
    assert config.seeds == (0, 1, 2)
    assert config.protocol.candidates == "sampled"
    assert config.split.ties == "earlier_row_is_newer"
    assert source.chosen


def test_variants_are_methods_behind_plans_of_their_own() -> None:
    variants = [
        {"method": "fedmf", "privacy": "none"},
        {"method": {"name": "fedvae", "latent": 4}, "privacy": "central-gaussian:noise_multiplier=1,clip_norm=1"},
    ]
    config, _ = audit_config(
        {"variants": variants, "data": "synthetic-small", "rounds": 3}, {}, [read_setting("method.lr=0.5")]
    )
    assert [variant.key[0] for variant in config.grid()] == ["fedmf", "fedvae"]
    assert config.variants[0].method == {"name": "fedmf", "lr": 0.5}
    assert config.variants[1].method == {"name": "fedvae", "latent": 4}
    assert [cell.method_name for cell in config.cells()] == ["popularity", "fedmf", "fedvae"]
    assert [cell.rounds for cell in config.cells()] == [1, 3, 3]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"variants": [{"method": {"name": "fedmf", "lr": lr}, "privacy": "none"} for lr in (0.1, 0.2)]},
            "fedmf behind unprotected is there twice with different settings",
        ),
        ({"variants": [{"method": "fedmf"}]}, "each must be a table with method and privacy"),
        ({"variants": [{"method": "gpfedrec", "privacy": "none:release=total"}]}, "does not fit gpfedrec"),
        ({"variants": []}, "0 methods, 0 plans and 0 variants are no grid"),
        ({"variants": [{"method": "fedmf", "privacy": "none"}], "methods": ["fedmf"]}, "variants alone"),
    ],
)
def test_variants_that_cannot_be_run_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        audit_config(fields, {}, [])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--method", "gpfedrek"), "unknown method 'gpfedrek'"),
        (("--privacy", "local-laplace:epsilon0=1"), "clip_norm is missing"),
        (("--privacy", "none:release=total"), "does not fit gpfedrec"),
        (("--set", "method.lrr=1"), "method.lrr is not a known key"),
        (("--set", "privacy.mechanism.sigma=1"), "privacy.mechanism.sigma is not a known key"),
        (("--set", "plans=none"), "plans = 'none' is not allowed"),
        (("--set", "methods=[]"), "methods = "),
        (("--seeds", 0), "seeds = "),
        (("--rounds", 0), "rounds = 0 is not allowed"),
        (("--workers", 0), "--workers"),
        (("--data", "nowhere.csv"), "there is no file or folder nowhere.csv"),
        (("--set", "cells=3"), "cells is not a known key"),
    ],
)
def test_what_cannot_be_audited(refused: Callable, tmp_path: Path, words: tuple[object, ...], told: str) -> None:
    assert told in refused("audit", *DATA, "--out", tmp_path / "a", *words)
    assert not (tmp_path / "a").exists()


def test_an_interrupted_audit_says_how_to_go_on(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "run_audit", interrupted)
    answer = cli("audit", *DATA, "--out", tmp_path / "a", "--quiet", code=130)
    assert "give the same command again to go on" in answer.err


def test_an_audit_of_popularity_alone_says_so() -> None:
    config, _ = audit_config({"methods": ["popularity"], "data": "synthetic-small"}, {}, [])
    assert runs_sentence(config, 1) == "Runs: 1, of popularity alone, which every audit has as a row."
