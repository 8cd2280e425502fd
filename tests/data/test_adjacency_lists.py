"""Adjacency lists: published parts, ids as they are, empty lines, and what is refused."""

import gzip
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, SplitSpec, load, split
from privfed.data.sources import adjacency_lists
from privfed.data.sources.files import Files

FILES = {"train.txt": "0 5 2\n3\n7 1 2 5\n", "test.txt": "0 1\n3 \n7 9\n9 4\n", "valid.txt": "7 0\n"}


def write(folder, files, *, zipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        else:
            (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_ids_and_parts_are_kept(tmp_path, zipped):
    folder = write(tmp_path / "lists", FILES, zipped=zipped)
    data = load(folder)
    assert data.name == "lists"
    assert data.user_ids.tolist() == [0, 7, 9]
    assert data.item_ids.tolist() == list(range(10))
    assert (data.timestamp, data.rating, data.card.distinct_items) == (None, None, 6)
    parts = split(data, SplitSpec(kind="published"))
    assert [parts.train.items_of(u).tolist() for u in range(3)] == [[5, 2], [1, 2, 5], []]
    assert [parts.valid.items_of(u).tolist() for u in range(3)] == [[], [0], []]
    assert [parts.test.items_of(u).tolist() for u in range(3)] == [[1], [9], [4]]
    assert load(folder / f"train.txt{'.gz' if zipped else ''}").card.sha256 == data.card.sha256


def test_a_zip_archive_and_a_name_work_too(tmp_path, monkeypatch):
    folder = write(tmp_path / "lists", FILES)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        for name in FILES:
            archive.write(folder / name, f"inner/{name}")
    assert load(tmp_path / "packed.zip").card.sha256 == load(folder).card.sha256
    monkeypatch.setenv("PRIVFED_DATA", str(tmp_path))
    assert load("lists").card == load(folder).card


def test_the_catalogue_may_be_given_and_terms_with_it(tmp_path):
    said = json.dumps({"catalog": {"items": 16}, "terms": "mine"})
    data = load(write(tmp_path / "a", FILES | {"meta.json": said}))
    assert (data.n_items, data.card.terms) == (16, "mine")
    with pytest.raises(DataError, match=r"test\.txt, line 3: item 9 is not among the 9 items"):
        load(write(tmp_path / "b", FILES | {"meta.json": json.dumps({"catalog": {"items": 9}})}))


def test_of_an_item_in_two_parts_the_training_row_stays(tmp_path):
    data = load(write(tmp_path, {"train.txt": "1 2 3\n1 4\n", "test.txt": "1 3 5\n"}))
    parts = split(data, SplitSpec(kind="published"))
    assert (parts.train.items.tolist(), parts.test.items.tolist()) == ([2, 3, 4], [5])
    assert data.card.duplicates_dropped == 1


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.integers(0, 50), st.lists(st.integers(0, 99), max_size=6, unique=True), min_size=1))
def test_what_is_written_is_read(lists):
    content = "\r\n".join(f"{user}\t{' '.join(map(str, items))}" for user, items in lists.items()).encode()
    files = Files("memory", ("test.txt", "train.txt"), lambda name: content if name == "train.txt" else b"51 100")
    data = adjacency_lists.read(files, name="toy")
    expected = [(user, item) for user, items in lists.items() for item in items] + [(51, 100)]
    assert list(zip(data.user_ids[data.user], data.item_ids[data.item], strict=True)) == expected
    assert data.n_items == 101
    assert np.flatnonzero(data.split == "test").tolist() == [len(expected) - 1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.txt": "0 1\n"}, r"test\.txt is missing in"),
        ({"test.txt": "0 1\n", "train.txt": "\n"}, r"train\.txt is empty"),
        (
            {"train.txt": "0 1\n0 x\n", "test.txt": "0 2\n"},
            r"train\.txt, line 2 is malformed \('0 x'\): expected a user",
        ),
        ({"train.txt": "0 1\n", "test.txt": "0 -2\n"}, r"test\.txt, line 1 is malformed"),
        ({"train.txt": "0 1\n\n1 2\n", "test.txt": "0 2\n"}, r"train\.txt, line 2 is malformed \(''\)"),
        ({"train.txt": "0 1,2\n", "test.txt": "0 2\n"}, r"line 1 is malformed \('0 1,2'\)"),
        ({"train.txt": "0 1\r1 2\r", "test.txt": "0 2\n"}, r"train\.txt, line 1 is malformed"),
        (
            {"train.txt": "0 1\n", "test.txt": "0 2\n1 3 999999999999\n"},
            r"test\.txt, line 2: item 999999999999 would make a catalogue of 1,000,000,000,000 items",
        ),
        ({"train.txt": "0\n1\n", "test.txt": "0\n"}, "hold users and no items"),
    ],
)
def test_bad_files_are_answered_with_one_sentence(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        load(write(tmp_path, files))
