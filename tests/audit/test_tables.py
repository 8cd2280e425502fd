"""runs.csv as a spreadsheet or pandas would read it."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from privfed.audit.report.records import AuditReport, ReportError
from privfed.audit.report.tables import runs_table, write_runs


def test_one_row_per_run_with_inf_as_a_word(report: AuditReport, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    write_runs(report, path)
    table = pd.read_csv(path, keep_default_na=False, dtype=str)
    assert len(table) == len(report.runs) == 12
    assert set(table["eps"]) == {"inf", "68.3"}
    assert set(table["dataset"]) == {"ml-100k"}
    assert list(table.columns[:7]) == ["method", "dataset", "setting", "seed", "rounds", "hr@10", "ndcg@10"]
    popularity = table[table["method"] == "popularity"].iloc[0]
    assert popularity["auc"] == ""
    assert popularity["attack"] == ""


def test_the_worst_attack_of_a_run_is_taken_behind_its_mechanism(report: AuditReport) -> None:
    table = runs_table(report).set_index(["method", "setting", "seed"])
    row = table.loc[("gpfedrec", "local_laplace", 1)]
    assert row["tap"] == "wire"
    assert row["auc"] == pytest.approx(0.504)
    assert row["attack_rounds"] == "10 20 30 40"
    run = next(r for r in report.runs if r.run_id == "gpfedrec-local_laplace-1")
    assert row["auc"] == max(a.auc.value for a in run.attacks if a.tap == "wire" and a.attack != "popularity")


def test_measurements_have_columns_of_their_own(full_report: AuditReport, report: AuditReport) -> None:
    table = runs_table(full_report).set_index("setting")
    row = table.loc["local_laplace"]
    assert (row["eps_lb"], row["eps_lb_unit"]) == (pytest.approx(0.064), "user")
    assert row["eps_hat"] == pytest.approx(0.78)
    assert row["auc_inclusion"] == pytest.approx(0.5098)
    assert 0.99 < row["auc_ceiling"] <= 1
    assert table.loc["none"]["eps_lb_unit"].tolist()[-1] == "interaction"
    assert runs_table(report)["eps_lb"].isna().all()


def test_a_metric_that_one_run_lacks_is_empty(make: SimpleNamespace) -> None:
    one, other = make.run("gpfedrec", "none", 0), make.run("gpfedrec", "none", 1)
    other = other.model_copy(update={"utility": other.utility[:1]})
    table = runs_table(make.report([one, other]))
    assert table["ndcg@10"].isna().tolist() == [False, True]


def test_an_unwritable_path_is_named(report: AuditReport, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"choose a folder that exists"):
        write_runs(report, tmp_path / "no" / "runs.csv")
