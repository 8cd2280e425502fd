"""A card knows whether the catalogue had a list of its own."""

import json
from pathlib import Path

import numpy as np
import pytest

from privfed.data import SplitSpec, load, split
from privfed.data.interactions import build

USERS, ITEMS = np.array([0, 0, 0, 1, 1, 1]), np.array([3, 5, 7, 3, 5, 9])


def test_a_catalogue_that_is_given_is_not_derived() -> None:
    assert not build("given", USERS, ITEMS, catalogue=10).card.catalogue_derived
    assert build("read off", USERS, ITEMS).card.catalogue_derived


def test_one_persons_unique_item_changes_a_derived_catalogue_and_not_a_given_one() -> None:
    most = USERS == 0
    assert len(build("read off", USERS, ITEMS).item_ids) != len(build("read off", USERS[most], ITEMS[most]).item_ids)
    assert len(build("given", USERS, ITEMS, catalogue=10).item_ids) == 10
    assert len(build("given", USERS[most], ITEMS[most], catalogue=10).item_ids) == 10


def test_the_split_takes_it_from_the_card() -> None:
    spec = SplitSpec(kind="ratio")
    assert split(build("read off", USERS, ITEMS), spec).catalogue_derived
    assert not split(build("given", USERS, ITEMS, catalogue=10), spec).catalogue_derived


def test_a_table_without_an_item_file_has_a_derived_catalogue(tmp_path: Path) -> None:
    rows = "\n".join(f"{user},{item}" for user, item in zip(USERS, ITEMS, strict=True))
    (tmp_path / "people.csv").write_text(f"user,item\n{rows}\n")
    assert load(str(tmp_path / "people.csv")).card.catalogue_derived


@pytest.mark.parametrize("described", [True, False])
def test_lists_of_items_by_user_need_the_size_of_the_catalogue(tmp_path: Path, described: bool) -> None:
    (tmp_path / "train.txt").write_text("0 3 5\n1 3 5\n")
    (tmp_path / "test.txt").write_text("0 7\n1 9\n")
    if described:
        (tmp_path / "meta.json").write_text(json.dumps({"catalog": {"items": 12}}))
    assert load(str(tmp_path)).card.catalogue_derived != described
