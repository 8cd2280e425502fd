"""Predicted ratings, catalogues of what was trained on, and published splits, from the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = ("--data", "synthetic-small", "--rounds", 2, "--set", "split.kind=ratio")
RATING = ("--set", "protocol.task=rating")
PREDICTS = ("--set", "method.task=rating")


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """A published split of ten users; item 39 is in the test part alone."""
    folder = tmp_path / "lists"
    folder.mkdir()
    items = {user: [(3 * user + n) % 30 for n in range(9)] for user in range(10)}
    (folder / "train.txt").write_text("".join(f"{u} {' '.join(map(str, i[:7]))}\n" for u, i in items.items()))
    (folder / "test.txt").write_text("".join(f"{u} {i[7]} {i[8]} 39\n" for u, i in items.items()))
    return folder


def test_ratings_are_measured_beside_their_means(cli: Callable, tmp_path: Path) -> None:
    answer = cli("run", "fair", *DATA, *RATING, *PREDICTS, "--out", tmp_path / "r")
    text = " ".join(answer.out.replace("┃", " ").split())
    assert "Each user's held-out ratings are predicted as the model gives them" in text
    assert "Test ratings of 120 users after 2 rounds (synthetic)" in text
    assert "item mean (synthetic)" in text
    assert "RMSE by user" in text
    assert "popularity" not in text.split("What is guaranteed")[0]
    assert "of predicting the mean of all training ratings for everything" in text
    assert "valid RMSE" in answer.err
    lines = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert {line["metric"] for line in lines} == {"mse", "rmse", "mae", "user_mse", "user_rmse", "user_mae"}


def test_the_document_has_the_means(cli: Callable, tmp_path: Path) -> None:
    found = cli("run", "fair", *DATA, *RATING, *PREDICTS, "--out", tmp_path / "r", "--json").document
    assert found["popularity"] is None
    assert set(found["utility"]["test"]["baselines"]) == {"global mean", "item mean", "user mean"}
    assert found["utility"]["test"]["metrics"][1]["name"] == "rmse"


def test_ratings_are_refused_where_there_are_none_and_in_audits(refused: Callable, lists: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "r")
    told = refused("run", "fair", "--data", lists, "--set", "split.kind=published", *RATING, *PREDICTS, *out)
    assert "has no ratings" in told or "have none" in told
    assert "an audit compares rankings" in refused("audit", *DATA, *RATING, *out)
    assert "a rating is predicted, not ranked" in refused("run", "fedmf", *DATA, "--protocol", "paper", *RATING, *out)


def test_rankings_are_not_measured_as_ratings_nor_ratings_as_rankings(refused: Callable, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "r")
    assert "fedmf ranks items, and protocol.task is rating" in refused("run", "fedmf", *DATA, *RATING, *out)
    assert "fair predicts ratings, and protocol.task is ranking" in refused("run", "fair", *DATA, *PREDICTS, *out)
    assert "fair predicts ratings" in refused("audit", "--method", "fair", *DATA, *PREDICTS, *out)
    assert not (tmp_path / "r").exists()


def test_counts_that_a_plan_does_not_cover_are_refused_before_anything_is_written(
    refused: Callable, tmp_path: Path
) -> None:
    noise = ("--privacy", "central-gaussian:clip_norm=1,noise_multiplier=1")
    counts = ("--set", "method.aggregation=contributors")
    told = refused("run", "hetefedrec", *DATA, *noise, *counts, "--out", tmp_path / "r")
    assert "counts clients exactly" in told
    assert not (tmp_path / "r").exists()


def test_a_published_split_is_tuned_on_a_part_of_its_training_rows(cli: Callable, lists: Path, tmp_path: Path) -> None:
    published = ("--data", lists, "--set", "split.kind=published", "--rounds", 1)
    taken = ("--set", "split.valid_from_train=true", "--set", "protocol.catalogue=trained")
    answer = cli("run", "fedmf", *published, *taken, "--out", tmp_path / "r")
    text = " ".join(answer.out.split())
    assert "60 train, 10 validation, 30 test interactions" in text
    assert "among all items that somebody trained on and the user has not trained on" in text
    assert "valid HR@10" in answer.err


def test_the_way_out_is_named_where_there_is_no_validation_part(refused: Callable, lists: Path, tmp_path: Path) -> None:
    published = ("--data", lists, "--set", "split.kind=published", "--set", "protocol.select=best_valid")
    told = refused("run", "fedmf", *published, "--out", tmp_path / "r")
    assert "have one taken from the training part by split.valid_from_train" in told


def test_show_says_what_nobody_trains_on_and_the_scale_of_ratings(cli: Callable, lists: Path) -> None:
    split = ("--set", "split.kind=published")
    assert "Of the test items 33.3% are in nobody's training part" in " ".join(
        cli("data", "show", lists, *split).out.split()
    )
    found = cli("data", "show", lists, *split, "--json").document
    assert (found["untrained"], found["ratings"]) == (10, None)
    small = cli("data", "show", "synthetic-small", "--json").document
    assert small["ratings"] == {"lowest": 1.0, "highest": 5.0}
