"""`privfed attack` and `privfed recommend` on a finished run."""

import json
from collections.abc import Callable
from pathlib import Path

from privfed.data import SplitSpec, load, split


def test_attack(cli: Callable, trained: Path) -> None:
    found = cli("attack", trained, "--json").document
    assert json.loads((trained / "attacks.json").read_text()) == found
    assert found["synthetic"] is True
    best = max(found["attacks"], key=lambda row: row["auc"]["value"])
    assert best["auc"]["value"] > 0.9
    text = cli("attack", trained).out
    assert "AUC (synthetic)" in text
    assert "rank-1 sign" in text
    assert "4 rounds, 1 to 4" in text


FUNNEL = ("--data", "synthetic-funnel-small", "--set", "split.kind=leave_one_out", "--set", "split.target=buy")


def test_attack_on_the_rows_that_are_sent(cli: Callable, tmp_path: Path) -> None:
    covered, whole = tmp_path / "covered", tmp_path / "whole"
    plan = "shared-sum:padding.kind=fake_items,padding.rho=0.5,padding.drawn=uniform"
    cli("run", "dfmr", *FUNNEL, "--rounds", 2, "--out", covered, "--privacy", plan, "-q")
    found = cli("attack", covered, "--json").document
    assert json.loads((covered / "attacks.json").read_text()) == found
    assert {row["tap"] for row in found["attacks"]} == {"support", "scores"}
    leak = found["support"]
    assert leak["claim"]["epsilon"] == "inf"
    assert leak["count_exact"]["value"] == 1
    assert abs(leak["posterior"]["value"] - leak["posterior_expected"]) < 0.01
    assert any(code["gain"]["lo"] > 0 for code in leak["codes"])
    text = " ".join(cli("attack", covered).out.split())
    assert "Which rows a client sends: examined vs padding" in text
    assert "What the rows sent give away: uniform fake items (rho = 0.5) (synthetic)" in text
    assert "is read off correctly for 100% of people, and is off by 0.0 on average" in text
    assert "The aggregators see which rows each client sends" in text
    cli("run", "dfmr", *FUNNEL, "--rounds", 2, "--out", whole, "--privacy", "shared-sum", "-q")
    unseen = cli("attack", whole, "--json").document
    assert {row["tap"] for row in unseen["attacks"]} == {"scores"}
    assert unseen["support"]["seen_by"] is None
    assert "Nobody sees which rows a single client sends" in " ".join(cli("attack", whole).out.split())


def test_attack_without_taps(cli: Callable, refused: Callable, tmp_path: Path) -> None:
    out = tmp_path / "r"
    cli(
        "run",
        "fedmf",
        "--data",
        "synthetic-small",
        "--rounds",
        1,
        "--out",
        out,
        "--set",
        "taps.places=[]",
        "-q",
    )
    assert "holds no tapped uploads" in refused("attack", out)


def test_a_run_that_has_reached_no_checkpoint(refused: Callable, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((trained / "config.json").read_bytes())
    assert "has no checkpoint yet" in refused("recommend", tmp_path, "--user", 1)
    assert "has no checkpoint yet" in refused("attack", tmp_path)


def test_recommend(cli: Callable, trained: Path) -> None:
    data = load("synthetic-small")
    parts = split(data, SplitSpec())
    user = 7
    found = cli("recommend", trained, "--user", data.user_ids[user], "-k", 150, "--json").document
    items = [data.item_ids.get_loc(int(row["item"])) for row in found["items"]]
    assert not set(items) & set(parts.train.items_of(user).tolist())
    marks = {row["item"]: row["held_out"] for row in found["items"] if row["held_out"]}
    held = {
        str(data.item_ids[part.items_of(user)[0]]): name
        for name, part in (("test", parts.test), ("validation", parts.valid))
    }
    assert marks.items() <= held.items()
    scores = [row["score"] for row in found["items"]]
    assert scores == sorted(scores, reverse=True)
    assert found["items"][0]["title"] == data.item_info["title"].iloc[items[0]]


def test_everything_that_is_left_can_be_recommended(cli: Callable, trained: Path) -> None:
    found = cli("recommend", trained, "--user", 1, "-k", 10_000, "--json").document
    data = load("synthetic-small")
    trained_on = len(split(data, SplitSpec()).train.items_of(0))
    assert len(found["items"]) == data.n_items - trained_on
    assert {row["held_out"] for row in found["items"]} == {None, "test", "validation"}


def test_recommend_for_people(cli: Callable, refused: Callable, trained: Path) -> None:
    text = cli("recommend", trained, "--user", 1, "-k", 3).out
    assert "fedmf after 4 rounds for user 1 (synthetic)" in text
    assert "has no user '999'" in refused("recommend", trained, "--user", 999)
    assert "-k" in refused("recommend", trained, "--user", 1, "-k", 0)
