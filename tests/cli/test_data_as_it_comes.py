"""One's own data on the command line: what is shown of them, what is said of mistakes, and lists for every user."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli.recommendation_lists import top
from privfed.data import SplitSpec, load, split


def test_show_says_what_was_taken_for_what(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,10,4,100\n2,20,3,200\n2,10,3,300\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n10,A,x|y\n20,B,x\n30,C,\n")
    (tmp_path / "tags.csv").write_text("userId,movieId,tag\n1,10,fun\n")
    text = cli("data", "show", tmp_path).out
    assert "Recognised: ratings.csv: user = userId, item = movieId, timestamp = timestamp, rating = rating" in text
    assert "Recognised: movies.csv: items, title, genres; 2 of 2 items described" in text
    assert "Ignored: tags.csv: no part of this layout" in text
    assert "3 of 3 (title 3, genres 2)" in text
    assert "10 (A, x|y)" in text
    shown = cli("data", "show", tmp_path, "--json").document["overview"]
    assert shown["items"] == {"total": 3, "any": 3, "fields": {"title": 3, "genres": 2}}
    assert shown["ignored"] == ["tags.csv: no part of this layout"]


def test_the_first_table_of_the_page_on_data_loads(cli: Callable, tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "data.md"
    rows = re.findall(r"^ *```\n(.*?)^ *```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)[0]
    (tmp_path / "shop.csv").write_text(re.sub(r"^ +", "", rows, flags=re.MULTILINE))
    shown = cli("data", "show", tmp_path / "shop.csv", "--json").document
    assert (shown["users"], shown["items"], shown["interactions"], shown["has_timestamps"]) == (2, 2, 2, True)


def test_what_is_not_described_is_said_once(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("user,item\n1,5\n2,6\n")
    (tmp_path / "items.csv").write_text("item,title\nx,A\ny,B\n")
    answer = cli("data", "show", tmp_path / "shop.csv")
    assert answer.err.count("none of the 2 items in use is described in items.csv") == 1
    assert cli("data", "show", tmp_path / "shop.csv", "--quiet").err == ""


def test_errors_speak_the_language_of_the_command_line(refused: Callable, table: Callable) -> None:
    file = table("1,2,3\n", header="who,what,timestamp\n")
    told = refused("data", "show", file)
    assert "say which one it is, for example --user-column who" in told
    assert "columns=" not in told
    assert "did you mean 'what'?" in refused("data", "show", file, "--user-column", "who", "--item-column", "whta")
    assert "did you mean 'ml-100k'?" in refused("data", "fetch", "ml100k")
    assert "did you mean 'synthetic-small'?" in refused("data", "show", "synthetic-smal")
    assert "leave them out" in refused("data", "show", "synthetic-small", "--user-column", "who")
    mixed = table("1,2,buy\n1,3,view\n", header="user,item,behaviour\n")
    assert "--set split.target=buy" in refused("data", "show", mixed, "--set", "split.kind=ratio")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_lists_for_everybody_are_those_of_each(cli: Callable, trained: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "sub" / f"lists.{suffix}"
    answer = cli("recommend", trained, "--all", "-k", 5, "--out", out, "--json").document
    read = {"parquet": pd.read_parquet, "csv": pd.read_csv, "jsonl": lambda path: pd.read_json(path, lines=True)}
    frame = read[suffix](out)
    assert list(frame.columns) == ["user", "rank", "item", "score", "title"]
    assert (answer["users"], answer["rows"], len(frame)) == (120, 600, 600)
    assert frame["rank"].tolist() == [1, 2, 3, 4, 5] * 120
    data = load("synthetic-small")
    assert frame["user"].unique().tolist() == data.user_ids.tolist()
    one = cli("recommend", trained, "--user", 7, "-k", 5, "--json").document["items"]
    mine = frame[frame["user"] == 7]
    assert [str(item) for item in mine["item"]] == [row["item"] for row in one]
    assert mine["title"].tolist() == [row["title"] for row in one]
    assert mine["score"].tolist() == pytest.approx([row["score"] for row in one], rel=1e-5)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_lists_leave_out_what_users_trained_on(cli: Callable, trained: Path, tmp_path: Path) -> None:
    data = load("synthetic-small")
    cli("recommend", trained, "--all", "-k", 10_000, "--out", tmp_path / "all.parquet")
    frame = pd.read_parquet(tmp_path / "all.parquet")
    train = split(data, SplitSpec()).train
    assert len(frame) == data.n_users * data.n_items - len(train)
    listed = set(zip(frame["user"], frame["item"], strict=True))
    own = zip(data.user_ids[train.owners], data.item_ids[train.items], strict=True)
    assert not listed & set(own)


def test_lists_for_the_users_of_a_file(cli: Callable, refused: Callable, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("user\n9\n3\n9\n")
    out = tmp_path / "some.csv"
    cli("recommend", trained, "--users", tmp_path / "users.txt", "-k", 2, "--out", out)
    assert pd.read_csv(out)["user"].tolist() == [9, 9, 3, 3]
    (tmp_path / "users.txt").write_text("9\n999\n")
    told = refused("recommend", trained, "--users", tmp_path / "users.txt", "--out", out)
    assert "has no user '999', which" in told


def test_lists_that_cannot_be_made(refused: Callable, trained: Path, tmp_path: Path) -> None:
    assert "say who to recommend to" in refused("recommend", trained)
    assert "--user and --all given" in refused("recommend", trained, "--user", 1, "--all")
    assert "say where they go, with --out" in refused("recommend", trained, "--all")
    assert "--out goes with --all" in refused("recommend", trained, "--user", 1, "--out", tmp_path / "a.csv")
    out = tmp_path / "lists.xls"
    assert "does not end in .parquet, .csv or .jsonl" in refused("recommend", trained, "--all", "--out", out)
    assert "there is no file" in refused("recommend", trained, "--users", tmp_path / "no", "--out", tmp_path / "a.csv")


def test_the_best_of_each_row_with_ties_in_the_order_of_items() -> None:
    rng = np.random.default_rng(0)
    for k in (1, 3, 7):
        scores = rng.integers(0, 4, (50, 7)).astype(np.float64)
        scores[rng.random(scores.shape) < 0.3] = -np.inf
        items, found = top(scores, k)
        for row, (chosen, values) in enumerate(zip(items, found, strict=True)):
            order = sorted(range(7), key=lambda item: (-scores[row, item], item))[:k]
            expected = [item if np.isfinite(scores[row, item]) else -1 for item in order]
            assert chosen.tolist() == expected
            assert values.tolist() == [scores[row, item] for item in order]


def test_an_item_file_without_titles_can_be_recommended_from(cli: Callable, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{user},{item},{time}" for user in range(12) for time, item in enumerate(rng.permutation(20)[:8])]
    (tmp_path / "shop.csv").write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    (tmp_path / "items.csv").write_text("item,genres\n" + "\n".join(f"{n}.0,g{n % 3}" for n in range(20)) + "\n")
    run = tmp_path / "run"
    cli("run", "popularity", "--data", tmp_path / "shop.csv", "--rounds", 1, "--out", run)
    assert cli("recommend", run, "--user", 3, "-k", 2, "--json").document["items"][0]["title"] is None
    cli("recommend", run, "--all", "-k", 2, "--out", tmp_path / "lists.jsonl")
    first = json.loads((tmp_path / "lists.jsonl").read_text().splitlines()[0])
    assert list(first) == ["user", "rank", "item", "score"]
