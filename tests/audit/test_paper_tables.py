"""Tables for papers: CSV that pandas reads back, and LaTeX that stands as it is."""

import io
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.audit.report.latex import booktabs, escape
from privfed.audit.report.paper_tables import paper_tables, write_tables
from privfed.audit.report.records import AuditReport

SPECIAL = r"(?<!\\)[&%$#_~^<>]"


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_escaped_text_has_no_character_that_latex_reads(text: str) -> None:
    written = escape(text)
    for command in (
        r"\textbackslash{}",
        r"\textasciitilde{}",
        r"\textasciicircum{}",
        r"\textless{}",
        r"\textgreater{}",
        r"$\infty$",
        r"$\geq$",
        r"$\varepsilon$",
        r"$-$",
    ):
        written = written.replace(command, "")
    written = written.replace("~", "") if "\N{NO-BREAK SPACE}" in text else written
    assert not re.search(SPECIAL, written)
    assert not re.search(r"\\(?![&%$#_{}])", written)
    assert "\n" not in written


def test_a_table_in_latex() -> None:
    source = booktabs(["Method", "NDCG@10"], [["A_b & c", "0.5"]], texts=1, caption="50 % of it.", label="t")
    assert source.splitlines() == [
        r"\begin{table}",
        r"  \centering",
        r"  \caption{50 \% of it.}",
        r"  \label{tab:t}",
        r"  \begin{tabular}{lr}",
        r"    \toprule",
        r"    Method & NDCG@10 \\",
        r"    \midrule",
        r"    A\_b \& c & 0.5 \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def test_every_table_is_written_twice(full_report: AuditReport, tmp_path: Path) -> None:
    paths = write_tables(full_report, tmp_path / "tables")
    slugs = ["utility", "guarantees", "attacks", "attacks_all", "inclusion", "measured", "tenths", "attributes", "cost"]
    assert [path.name for path in paths] == [f"{slug}{suffix}" for slug in slugs for suffix in (".csv", ".tex")]


def test_a_small_audit_has_no_empty_tables(report: AuditReport) -> None:
    assert [table.slug for table in paper_tables(report)] == ["utility", "guarantees", "attacks", "attacks_all", "cost"]


def test_numbers_in_csv_are_those_of_the_report(full_report: AuditReport) -> None:
    tables = {table.slug: pd.read_csv(io.StringIO(table.as_csv())) for table in paper_tables(full_report)}
    cell = full_report.aggregates[-1]
    ndcg = next(row for row in cell.utility if row.name == "ndcg")
    last = tables["utility"].iloc[-1]
    assert last["NDCG@10"] == pytest.approx(ndcg.users.value)
    assert (last["NDCG@10 lo"], last["NDCG@10 hi"]) == pytest.approx((ndcg.users.lo, ndcg.users.hi))
    assert tables["guarantees"]["epsilon"].tolist() == [float("inf"), float("inf"), 68.3]
    assert len(tables["attacks_all"]) == sum(len(c.attacks) for c in full_report.aggregates)
    assert len(tables["measured"]) == sum(len(c.empirical) for c in full_report.aggregates)
    assert tables["inclusion"]["beaten"].tolist() == [False] * 3


@pytest.mark.parametrize("which", ["full_report", "large_report"])
def test_every_line_of_a_latex_table_has_as_many_cells(which: str, request: pytest.FixtureRequest) -> None:
    for table in paper_tables(request.getfixturevalue(which)):
        source = table.as_latex()
        columns = len(re.search(r"tabular}{([lr]+)}", source)[1])
        lines = [line for line in source.splitlines() if line.endswith(r"\\")]
        assert len(lines) == len(table.rows) + 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {columns - 1}
