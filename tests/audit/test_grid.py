"""One cell of the grid: what a run is put through beside its training, and what its record says of it."""

import sys
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import pytest

from privfed.audit import grid
from privfed.audit.config import AuditConfig
from privfed.audit.epsilon import mechanism
from privfed.audit.grid import ExtraAudits, as_run, not_run, run_audit, run_id
from privfed.audit.report.compare import difference
from privfed.audit.report.records import Interval, Run
from privfed.data import load
from privfed.experiment import Experiment
from privfed.methods.registry import entries
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.mechanisms.registry import examples
from privfed.setup.config import AuditTapConfig, ExperimentConfig

NOISED = "central-gaussian:noise_multiplier=2,clip_norm=1"


EXAMPLES = examples()


def audit_of(method: str, plan: PrivacyPlan, **taps: Any) -> ExperimentConfig:
    """Two rounds of a method."""
    config = AuditConfig(
        data="synthetic-small",
        methods=({"name": method},),
        plans=(plan,),
        rounds=2,
        taps=AuditTapConfig(users=30, **taps),
    )
    return config.cells()[1]


def audited(words: str, more: ExtraAudits, **taps: Any) -> Run:
    """The record of two rounds of FedMF."""
    experiment = Experiment.on(audit_of("fedmf", PrivacyPlan.parse(words), **taps), load("synthetic-small"))
    return as_run(experiment, experiment.run(parts=("test",)), "cell", more)


@pytest.fixture(scope="module")
def noised() -> Run:
    return audited(NOISED, ExtraAudits(attributes=True, canaries=10))


def test_the_record_holds_the_events_that_epsilon_was_computed_from(noised: Run) -> None:
    (line,) = noised.ledger
    assert line.times == 2
    assert line.event == "gaussian: noise multiplier 2"
    plain = audited("none", ExtraAudits(), inclusion=0.0)
    assert [line.event for line in plain.ledger] == [f"no bound: {plain.guarantee.reason_if_inf}"]


def test_epsilon_is_measured_from_bits_the_mechanism_and_canaries(noised: Run) -> None:
    units = {row.unit for row in noised.empirical}
    assert units == {"interaction", "upload", "user"}
    uploads = {row.audited: row for row in noised.empirical if row.unit == "upload"}
    assert {"one upload in a sum", "one upload in a sum over nodes"} < uploads.keys()
    upload = uploads["one upload in a sum"]
    assert 0.7 * upload.accounted < upload.value <= upload.accounted
    assert all(row.consistent for row in noised.empirical if row.kind == "lower bound")
    assert noised.inclusion > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", EXAMPLES)
@pytest.mark.parametrize("method", [name for name in entries() if name != "popularity"])
def test_every_method_is_audited_behind_every_plan_that_it_accepts(method: str, words: str) -> None:
    """Honest runs: nothing ends with an error, and no check accuses anybody."""
    try:
        config = audit_of(method, PrivacyPlan(mechanism=EXAMPLES[words]))
        experiment = Experiment.on(config, load("synthetic-small"))
    except PlanError as refused:
        pytest.skip(str(refused))
    run = as_run(experiment, experiment.run(parts=("test",)), "cell", ExtraAudits(attributes=True, canaries=10))
    assert all(check.passed for check in run.checks), [check.detail for check in run.checks if not check.passed]
    assert all(row.consistent for row in run.empirical)


def test_the_same_audit_gives_the_same_json_twice(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mechanism, "DRAWS", 200)
    config = AuditConfig(
        data="synthetic-small",
        methods=({"name": "fedmf"},),
        plans=(PrivacyPlan.parse("local-laplace:epsilon0=8,clip_norm=1"),),
        rounds=2,
        canaries=20,
        taps=AuditTapConfig(users=30),
    )
    once, again = (
        run_audit(config, load("synthetic-small"), tmp_path / folder, workers=1).model_dump(mode="json")
        for folder in ("once", "again")
    )
    assert {row["estimator"] for run in once["runs"] for row in run["empirical"] if row["worst_case"]}
    for report in (once, again):
        del report["created"], report["aggregates"]
        for run in report["runs"]:
            del run["wall"], run["peak_rss_bytes"]
    assert once == again


def test_attributes_are_guessed_where_somebody_sees_uploads(noised: Run) -> None:
    assert {row.tap for row in noised.attributes} == {None, "raw"}
    assert {row.attribute for row in noised.attributes} >= {"gender"}


def test_canaries_of_single_uploads_are_read_on_the_wire() -> None:
    single = audited("local-laplace:epsilon0=8,clip_norm=1", ExtraAudits(canaries=20), inclusion=0.0)
    assert not single.not_run
    assert "user" not in {row.unit for row in single.empirical}
    (row,) = [row for row in single.empirical if row.audited == "uploads of canaries"]
    assert (row.value, row.tap, row.consistent) == (0, "wire", True)
    assert row.accounted == pytest.approx(8, abs=1e-3)
    assert row.largest_deniable > 100


def test_what_could_not_be_done_is_said() -> None:
    few = audited("local-laplace:epsilon0=8,clip_norm=1", ExtraAudits(canaries=5), inclusion=0.0)
    (reason,) = few.not_run
    assert reason.what.startswith("canaries for fedmf")


def test_every_tap_has_the_inclusion_game_and_only_covered_ones_a_ceiling(noised: Run) -> None:
    by_coin = [row for row in noised.attacks if row.membership == "randomised"]
    assert {row.tap for row in by_coin} == {"raw", "sum", "model", "scores"}
    assert all((row.ceiling is not None) == (row.tap in ("sum", "model")) for row in by_coin)


def test_an_audit_says_what_it_leaves_out_and_nothing_that_it_does() -> None:
    little = AuditConfig.for_method("fedmf", canaries=0)
    much = AuditConfig.for_method(
        "fedmf", attributes=True, canaries=10, taps=AuditTapConfig(training_oracles=True, shadows=2)
    )
    left_out = {reason.what for reason in not_run(little)} - {reason.what for reason in not_run(much)}
    assert left_out == {
        "attacks that repeat local training",
        "shadow-model attacks (RMIA, LiRA)",
        "attribute inference",
        "the epsilon of whole people, by canaries",
    }


def test_a_cell_is_kept_only_for_the_same_further_work() -> None:
    cell = AuditConfig.for_method("fedmf").cells()[1]
    assert run_id(cell, "data") == run_id(cell, "data", ExtraAudits())
    assert run_id(cell, "data") != run_id(cell, "data", ExtraAudits(canaries=10))


def test_quality_above_popularity_is_paired_by_user() -> None:
    config = AuditConfig(
        data="synthetic-small",
        methods=({"name": "fedmf"},),
        plans=(PrivacyPlan.parse("none"),),
        rounds=2,
        taps=AuditTapConfig(users=30),
    )
    data = load("synthetic-small")
    popular, other = (Experiment.on(cell, data) for cell in config.cells())
    runs = [as_run(one, one.run(), "cell") for one in (popular, other)]
    rows = [next(row for row in run.utility if (row.part, row.name) == ("test", "ndcg")) for run in runs]
    gain = rows[1].gain
    assert rows[0].gain is None
    assert gain is not None
    assert gain.value == pytest.approx(rows[1].value - rows[0].value)
    apart = difference(*(Interval(value=row.value, lo=row.lo, hi=row.hi) for row in rows))
    assert gain.lo < gain.value < gain.hi
    assert gain.hi - gain.lo < 1.1 * (apart.hi - apart.lo)
    assert [row.gain for row in runs[1].utility if row.part == "valid"] == [None] * len(
        [row for row in runs[1].utility if row.part == "valid"]
    )


def test_processes_do_not_import_the_callers_script() -> None:
    """A script need not have `if __name__ == "__main__"`: without this every process would begin the audit again."""
    main = sys.modules["__main__"]
    before = main.__spec__, getattr(main, "__file__", None)
    with grid._without_main():
        prepared = spawn.get_preparation_data("worker")
    assert [key for key in prepared if key.startswith("init_main")] == []
    assert (main.__spec__, getattr(main, "__file__", None)) == before
