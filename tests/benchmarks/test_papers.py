"""The index of the papers' results says nothing that a file does not show."""

import re
from collections import Counter
from typing import Any

import pytest

from benchmarks import harness, paper_tables
from benchmarks.tables import DOCS
from privfed.methods.registry import method

PAPERS = [paper_tables.paper(name) for name in paper_tables.PAPERS]
RESULTS = [(known["paper"], one) for known in PAPERS for one in known["results"]]
FIGURE = re.compile(r"\b0?\.\d{2,}|\d+ points|\d+ % (?:more|less|above|below|better|worse)|(?<!\d)\.\d{2,}")
"""A figure as qualities, ratios and differences have it; settings, such as a variance of .2, have fewer digits."""
KEYS = {"id", "name", "shows", "data", "metrics", "status", "reason", "files", "found", "scale", "numbers"}


def faults(one: dict[str, Any]) -> list[str]:
    """What is wrong with the status of a result."""
    missing = [name for name in one["files"] if not (harness.RESULTS / f"{name}.json").exists()]
    found = [f"there is no benchmarks/results/{name}.json" for name in missing]
    if one["status"] not in paper_tables.STATUSES:
        found.append(f"unknown status {one['status']}")
    if one["status"] in ("run whole", "in part") and not one["files"]:
        found.append("a result that was run names the file of its runs")
    if one["status"] in ("open", "impossible") and one["files"]:
        found.append("a result that was not run names no file")
    if one["status"] in ("in part", "impossible") and not one["reason"]:
        found.append("what is missing has a reason")
    return found


@pytest.mark.parametrize(("paper", "one"), RESULTS, ids=[f"{paper} {one['id']}" for paper, one in RESULTS])
def test_a_status_stands_on_files_or_reasons(paper: str, one: dict[str, Any]) -> None:
    assert set(one) == KEYS
    assert faults(one) == []
    assert set(one["numbers"]) <= set(one["data"]), paper
    measured = {metric for rows in one["numbers"].values() for row in rows.values() for metric in row}
    assert all(metric in one["metrics"] for metric in measured) or {*one["metrics"]} & {"MB", "seconds"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"status": "run whole", "files": []}, "file of its runs"),
        ({"status": "run whole", "files": ["nowhere"]}, "nowhere"),
        ({"status": "impossible", "reason": "", "files": []}, "reason"),
        ({"status": "open", "files": ["imia"]}, "no file"),
        ({"status": "done"}, "unknown status"),
    ],
)
def test_a_status_without_them_is_refused(changes: dict[str, Any], word: str) -> None:
    sound = {"status": "in part", "reason": "one seed", "files": ["imia"]}
    assert faults(sound) == []
    assert any(word in fault for fault in faults(sound | changes))


def judged(known: dict[str, Any]) -> list[str]:
    """All that a person says of what was found; measured figures stand in generated tables alone."""
    claims = [claim["why"] for claim in known["claims"]]
    return [*claims, *(text for one in known["results"] for text in (one["found"], one["reason"]))]


@pytest.mark.parametrize("known", PAPERS, ids=lambda known: known["paper"])
def test_what_a_person_says_of_results_holds_no_measured_figure(known: dict[str, Any]) -> None:
    said = [text for text in judged(known) if FIGURE.search(text)]
    assert said == []


def test_a_measured_figure_is_found() -> None:
    assert all(FIGURE.search(text) for text in ("by .006 NDCG", "7 points above", "AUC 0.99", "12 % more"))
    assert not any(FIGURE.search(text) for text in ("variances .2 and 1, width 16", "seeds 0 to 2", "20 % left out"))


def test_results_have_names_of_their_own() -> None:
    names = Counter((paper, one["id"]) for paper, one in RESULTS)
    assert max(names.values()) == 1
    assert len(RESULTS) == 54


@pytest.mark.parametrize("known", PAPERS, ids=lambda known: known["paper"])
def test_data_sets_and_methods_of_a_paper(known: dict[str, Any]) -> None:
    data = {one["name"] for one in known["data"]}
    assert {name for one in known["results"] for name in one["data"]} <= data
    assert all(one["reason"] for one in known["data"] if one["status"] in ("in part", "impossible"))
    assert all(one["here"] for one in known["data"] if one["status"] != "impossible")
    for one in known["methods"]:
        assert method(one["method"])


def test_the_index_has_a_row_for_every_result() -> None:
    page = (DOCS / "results/papers.md").read_text(encoding="utf-8")
    for known in PAPERS:
        rows = re.findall(rf"^\| \[{known['name']}\]\(papers/{known['paper']}\.md\) \| ([^|]+) \|", page, re.MULTILINE)
        assert rows == [one["name"] for one in known["results"]]


def test_a_measured_row_stands_beside_the_paper_s(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        {
            "result": "table-6", "data": "MovieLens-100K", "row": "noise 0", "protocol": protocol, "seed": seed,
            "metrics": {"HR@10": value + seed / 100, "NDCG@10": 0.4},
        }
        for protocol, value in (("published", 0.7), ("honest", 0.1))
        for seed in range(3)
    ]  # fmt: skip
    monkeypatch.setattr(paper_tables, "_runs", lambda _: runs)
    lines = "\n".join(paper_tables.numbers("gpfedrec"))
    assert "| 72.85 / 43.77 | 71.00 +-1.00 / 40.00 +-.00 (3) | 11.00 +-1.00 / 40.00 +-.00 (3) |  |" in lines
    assert "| noise .5 | 69.35 / 39.89 |  |  | not run yet |" in lines
    assert "Table 3" not in lines


def test_rows_and_numbers_of_a_result_are_counted_from_its_runs() -> None:
    known = {"data": [{"name": "A", "status": "in part"}, {"name": "B", "status": "impossible"}]}
    numbers = {"A": {"one": {"HR@10": 50.0}, "two": {"HR@10": [0.0, 1.0]}, "three": {"HR@10": 40.0}}, "B": {"one": {}}}
    one = {"id": "t", "metrics": ["HR@10"], "scale": 100, "numbers": numbers}

    def run(row: str, seed: int, value: float, data: str = "A") -> dict[str, Any]:
        return {"result": "t", "data": data, "row": row, "seed": seed, "metrics": {"HR@10": value}}

    whole = [run("one", seed, 0.45 + seed / 1000) for seed in range(3)]
    assert paper_tables.rows_run(known, one, []) == (0, 0)
    assert paper_tables.rows_run(known, one, whole) == (1, 3)
    assert paper_tables.rows_run(known, one, [*whole, run("two", 0, 0.1), run("else", 0, 0.1)]) == (1, 3)
    in_its_place = [run("one", seed, 0.9, "A (another in its place)") for seed in range(3)]
    assert paper_tables.rows_run(known, one, in_its_place) == (1, 3)
    assert paper_tables.numbers_met(one, in_its_place) == (0, 0)
    assert paper_tables.numbers_met(one, whole) == (1, 1)
    # A mean of 44 is more than a tenth below 50; nothing is within a tenth of a printed zero.
    assert paper_tables.numbers_met(one, [run("one", 0, 0.44), run("three", 0, 0.44), run("two", 0, 0.1)]) == (1, 2)


@pytest.mark.parametrize("known", PAPERS, ids=lambda known: known["paper"])
def test_what_is_called_whole_has_every_row(known: dict[str, Any]) -> None:
    runs = paper_tables.published_runs(known["paper"])
    for one in known["results"]:
        if one["status"] == "run whole":
            done, wanted = paper_tables.rows_run(known, one, [run for run in runs if run["result"] == one["id"]])
            assert done == wanted, one["id"]
    # A system was run whole on a data set only where the first result with it, its main table, was.
    main = {
        data["name"]: next((one for one in known["results"] if data["name"] in one["data"]), None)
        for data in known["data"]
    }
    whole = [data["name"] for data in known["data"] if data["status"] == "run whole"]
    assert all(main[name] is not None and main[name]["status"] == "run whole" for name in whole)


def test_a_figure_by_cut_off_has_a_row_for_every_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {f"{metric}@{k}": k / 100 for metric in ("NDCG", "precision", "recall", "HR") for k in (5, 20)}
    shared = {"result": "cut-offs-jd", "data": "JD", "row": "DCF", "protocol": "published"}
    runs = [shared | {"seed": seed, "metrics": metrics} for seed in range(3)]
    monkeypatch.setattr(paper_tables, "_runs", lambda _: runs)
    lines = paper_tables.numbers("dfmr")
    assert "| data | row | metric | at 5 | at 20 |" in lines
    assert [line for line in lines if "| DCF |" in line] == [
        f"| JD | DCF | {metric} | .0500 +-.0000 (3) | .2000 +-.0000 (3) |" for metric in ("NDCG", "precision", "recall")
    ]


def test_of_one_seed_the_interval_over_people_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"result": "table-6", "data": "MovieLens-100K", "row": "noise 0", "protocol": "published", "seed": 0}
    measured = {
        "metrics": {"HR@10": 0.7, "NDCG@10": 0.4},
        "intervals": {"hr@10": [0.67, 0.73], "ndcg@10": [0.38, 0.42]},
    }
    monkeypatch.setattr(paper_tables, "_runs", lambda _: [run | measured])
    lines = "\n".join(paper_tables.numbers("gpfedrec"))
    assert "| 70.00 [67.00, 73.00] / 40.00 [38.00, 42.00] |" in lines


def test_a_data_set_of_which_nothing_was_run_takes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"result": "table-3", "data": "MovieLens-100K", "row": "FedMF", "protocol": "published", "seed": 0}
    monkeypatch.setattr(paper_tables, "_runs", lambda _: [run | {"metrics": {"HR@10": 0.7, "NDCG@10": 0.4}}])
    lines = [line for line in paper_tables.numbers("gpfedrec") if line.startswith("| HetRec2011 |")]
    assert len(lines) == 1
    assert lines[0].endswith("| the data set is in none of the sources that privfed can load |")


@pytest.mark.parametrize("name", paper_tables.PAPERS)
def test_whatever_was_run_is_shown(name: str) -> None:
    known = {one["id"]: one for one in paper_tables.paper(name)["results"]}
    for run in harness.results(f"paper_{name}").values():
        if not run.get("failed"):
            names = {
                metric.partition("@")[0] if "@" not in shown else metric
                for metric in run["metrics"]
                for shown in known[run["result"]]["metrics"]
            }
            assert names & set(known[run["result"]]["metrics"]), (run["result"], run["row"])


def seeds_of(name: str, result: str) -> Counter[tuple[str, str]]:
    """Seeds of every row of a result, popularity aside, which needs one."""
    rows = harness.results(f"paper_{name}").values() if paper_tables.sources(name) else ()
    wanted = (row for row in rows if row["result"] == result and row["row"] != paper_tables.POPULARITY)
    return Counter((row["data"], row["row"]) for row in wanted)


@pytest.mark.parametrize(("paper", "one"), RESULTS, ids=[f"{paper} {one['id']}" for paper, one in RESULTS])
def test_a_result_that_was_run_whole_has_three_seeds_of_every_row(paper: str, one: dict[str, Any]) -> None:
    if one["status"] == "run whole":
        assert all(seeds >= 3 for seeds in seeds_of(paper, one["id"]).values())


def test_where_another_data_set_stands_in_the_rows_of_the_paper_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"result": "quality-ml10m", "data": "ML10M (films in its place)", "row": "DCF", "protocol": "published"}
    monkeypatch.setattr(paper_tables, "_runs", lambda _: [run | {"seed": 0, "metrics": {"NDCG@5": 0.1}}])
    rows = [line for line in paper_tables.numbers("dfmr") if line.startswith("| ML10M |")]
    assert len(rows) == 7
    assert all(row.endswith("| MovieLens-100K in its place |") for row in rows)


@pytest.mark.parametrize("paper", paper_tables.PAPERS)
def test_the_mechanisms_of_a_paper_are_told_apart_and_promise_no_more_than_they_keep(paper: str) -> None:
    rows = [line.split(" | ") for line in paper_tables.mechanisms(paper) if line.startswith("| ")][1:]
    names = [row[0] for row in rows if not row[0].startswith("|---")]
    assert len(names) == len(set(zip(names, (row[1] for row in rows), strict=True)))
    assert {row[1] for row in rows} <= {"none", "epsilon 8", "epsilon 1"}
