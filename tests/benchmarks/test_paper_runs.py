"""The queue of the papers' runs: its cells are rows of the index, it resumes, and it stays in its budget."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import harness, paper_tables
from benchmarks.quality import paper_runs
from benchmarks.quality.paper_cells import PAPERS, Cell, Data
from benchmarks.quality.paper_runs import Run, SkippedCellError, affordable, config_of, possible
from privfed.data import SplitSpec
from privfed.evaluation import HONEST

SMALL = Data("Small", "synthetic-small", SplitSpec())


def cell(row: str, name: str, result: str = "table-3", value: float = 1.0) -> Cell:
    return Cell("gpfedrec", result, SMALL, row, {"name": name}, "honest", HONEST, rounds=2, value=value)


CELLS = (
    cell("popularity", "popularity"),
    cell("FedMF", "fedmf", value=2.0),
    cell("FedMF again", "fedmf", "table-5"),
    cell("nobody's", "no-such-method"),
)


@pytest.mark.parametrize("name", list(PAPERS))
def test_a_cell_is_a_row_of_the_index(name: str) -> None:
    known = paper_tables.paper(name)
    results, data = {one["id"]: one for one in known["results"]}, {one["name"] for one in known["data"]}
    cells = list(PAPERS[name]())
    assert len({one.key(0) for one in cells}) == len(cells) > 20
    for one in cells:
        assert one.paper == name
        assert results[one.result]["status"] != "impossible"
        assert one.data.name in data
        assert one.by in paper_tables.PROTOCOLS


@pytest.mark.parametrize("name", list(PAPERS))
def test_most_rows_of_a_table_have_a_cell(name: str) -> None:
    cells = {(one.result, one.row) for one in PAPERS[name]()}
    for one in paper_tables.paper(name)["results"]:
        printed = {row for rows in one["numbers"].values() for row in rows}
        of_result = {row for result, row in cells if result == one["id"]}
        if len(of_result) > 1 and printed:
            assert len(printed & of_result) >= len(printed) / 2, (one["id"], printed - of_result)


def test_what_cannot_be_run_is_named_and_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [Run(one, seed) for one in CELLS for seed in (0, 1)]
    assert {run.cell.row for run in possible(wanted)} == {"popularity", "FedMF", "FedMF again"}
    assert capsys.readouterr().out.count("no-such-method is not registered") == 1
    with pytest.raises(SkippedCellError, match="does not take these settings"):
        config_of(Run(Cell("x", "y", SMALL, "z", {"name": "fedmf", "wings": 2}, "honest", HONEST), 0))


def test_a_budget_buys_what_is_worth_most() -> None:
    wanted = [Run(one, 0) for one in CELLS[:3]]
    prices = {"popularity": 1.0, "FedMF": 5.0, "FedMF again": 9.0}
    chosen = [run.cell.row for run, _ in affordable(wanted, lambda run: prices[run.cell.row], 6.0)]
    assert chosen == ["FedMF", "popularity"]


def test_a_queue_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = list[str]()
    measure = paper_runs.measured

    def counted(run: Run, command: str) -> dict[str, object]:
        trained.append(run.key)
        return measure(run, command)

    def listed() -> Iterator[Cell]:
        yield from CELLS

    monkeypatch.setattr(paper_runs, "PAPERS", {"gpfedrec": listed})
    monkeypatch.setattr(paper_runs, "measured", counted)
    for _ in range(2):
        paper_runs.main(["--seeds", "1", "--out", str(tmp_path)])
        assert trained == [CELLS[1].key(0), CELLS[0].key(0)]
    rows = harness.results("paper_gpfedrec", tmp_path)
    one, again = rows[CELLS[1].key(0)], rows[CELLS[2].key(0)]
    assert again == one | {"result": "table-5", "row": "FedMF again"}
    assert one["rounds"] == 2
    assert one["commit"]
    assert set(one["metrics"]) > {"HR@10", "NDCG@20", "Recall@20"}


def test_a_run_that_is_refused_keeps_its_reason() -> None:
    settings = {"name": "fair", "variant": "fedhm", "scheme": "64x", "rank": "released", "dim": 2}
    refused = Cell("fair", "table-4", SMALL, "FedHM 64x", settings, "honest", HONEST, rounds=1)
    row = paper_runs.measured(Run(refused, 0), "command")
    assert row["metrics"] == {}
    assert "use 1 to 2, a weaker compression" in row["failed"]


def test_the_index_adds_up_what_the_runs_that_are_missing_would_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(row: str, seed: int) -> dict[str, object]:
        return {"result": "table-3", "data": "Small", "row": row, "seed": seed}

    one = {"id": "table-3", "files": ["paper_gpfedrec"]}
    listed = [replace(cell(name, name), by="published") for name in ("popularity", "fedmf", "fedncf", "pfedrec")]
    fedmf, fedncf = listed[1:3]
    files = {"paper_gpfedrec": {fedmf.key(0): {"cpu_s": 3600.0}}, "paper_costs": {fedncf.cost_key: 30.0}}
    monkeypatch.setattr(paper_tables, "LISTED", {"gpfedrec": lambda: listed})
    monkeypatch.setattr(paper_tables, "results", files.__getitem__)
    runs = [ran("popularity", 0), ran("fedmf", 0), ran("fedncf", 1)]
    # FedMF as its other seed, FedNCF as timed, and PFedRec, which was never timed, as their mean.
    assert paper_tables.hours_left("gpfedrec", one, runs) == f"{2 * 1 + 2 * 0.5 + 3 * 0.75:.1f} h"
    assert (
        paper_tables.hours_left(
            "gpfedrec",
            one,
            [ran(name, seed) for name in ("popularity", "fedmf", "fedncf", "pfedrec") for seed in range(3)],
        )
        == ""
    )
    monkeypatch.setattr(paper_tables, "LISTED", {"gpfedrec": lambda: [listed[3]]})
    assert paper_tables.hours_left("gpfedrec", one, []) == "not timed"
    assert paper_tables.hours_left("gpfedrec", {"id": "table-3", "files": ["of its own"]}, []) == ""
