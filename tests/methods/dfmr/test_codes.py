"""Codes: bits in and out, scores and best items against the naive ones, and a file that is whole or refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from privfed.data import Histories
from privfed.methods.dfmr.codes import WIDEST, CodesError, ItemCodes, pack, scores, top, unpack

WIDTHS = st.sampled_from([1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100])


def signs(rng, rows, d):
    return rng.choice(np.array([-1, 1], dtype=np.int8), (rows, d))


def naive_top(inner, k, hidden):
    """A sort by falling score, then rising item."""
    items, best = [], []
    for row, barred in zip(inner, hidden, strict=True):
        left = [i for i in sorted(range(len(row)), key=lambda i: (-row[i], i)) if not barred[i]][:k]
        items.append(left + [-1] * (k - len(left)))
        best.append([row[i] for i in left])
    return items, best


@given(st.integers(0, 2**32), st.integers(0, 20), WIDTHS)
@settings(max_examples=50, deadline=None)
def test_unpacking_gives_back_what_was_packed_in_an_eighth_of_the_bytes(seed, rows, d):
    codes = signs(np.random.default_rng(seed), rows, d)
    packed = pack(codes)
    assert packed.nbytes == rows * ((d + 7) // 8)
    assert (unpack(packed, d) == codes).all()
    assert unpack(packed, d).dtype == np.int8


def test_sign_f_is_bit_f_counted_from_the_lowest():
    codes = np.array([[1, -1, -1, -1, -1, -1, -1, -1, 1, 1]], dtype=np.int8)
    assert pack(codes).tolist() == [[1, 3]]


@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(0, 150), WIDTHS)
@settings(max_examples=50, deadline=None)
def test_scores_are_inner_products(seed, users, items, d):
    rng = np.random.default_rng(seed)
    u, v = signs(rng, users, d), signs(rng, items, d)
    found = scores(pack(u), pack(v), d)
    assert found.dtype == np.int16
    assert (found == u.astype(np.int64) @ v.T.astype(np.int64)).all()


@given(st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 200), WIDTHS, st.integers(1, 30), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_the_best_items_are_those_of_a_sort(seed, users, items, d, k, share):
    rng = np.random.default_rng(seed)
    u, v = signs(rng, users, d), signs(rng, items, d)
    hidden = rng.random((users, items)) < share
    lists = Histories.from_pairs(*hidden.nonzero(), users, items)
    wanted, best = naive_top(u.astype(int) @ v.T.astype(int), k, hidden)
    for exclude in (hidden, lists):
        found, inner = top(pack(u), pack(v), d, k, exclude)
        assert found.dtype == np.int64
        assert inner.dtype == np.int32
        assert found.tolist() == wanted
        assert [row[row >= -d].tolist() for row in inner] == best
        assert (inner[found < 0] == -d - 1).all()
    everything, _ = naive_top(u.astype(int) @ v.T.astype(int), k, np.zeros_like(hidden))
    assert top(pack(u), pack(v), d, k)[0].tolist() == everything


def test_equal_scores_go_to_the_smaller_item():
    codes = pack(np.ones((150, 3), dtype=np.int8))
    found, inner = top(codes[:2], codes, 3, 4, Histories(np.array([0, 2, 2]), np.array([1, 0]), 150))
    assert found.tolist() == [[2, 3, 4, 5], [0, 1, 2, 3]]
    assert (inner == 3).all()
    worst = pack(-np.ones((150, 3), dtype=np.int8))
    found, inner = top(codes[:1], worst, 3, 2)
    assert (found.tolist(), inner.tolist()) == ([[0, 1]], [[-3, -3]])


def test_the_widest_codes_still_score_exactly():
    rng = np.random.default_rng(0)
    u, v = signs(rng, 2, WIDEST), signs(rng, 3, WIDEST)
    v[0], v[1] = u[0], -u[0]
    exact = u.astype(int) @ v.T.astype(int)
    assert (scores(pack(u), pack(v), WIDEST) == exact).all()
    found, inner = top(pack(u), pack(v), WIDEST, 3, np.array([[False, True, False], [True, True, True]]))
    assert found.tolist() == [[0, 2, -1], [-1, -1, -1]]
    assert inner[0, :2].tolist() == exact[0, [0, 2]].tolist()


# A catalogue and its file


@pytest.mark.parametrize("ids", [None, [f"item {i}: \N{SNOWMAN}" for i in range(40)]])
def test_a_saved_catalogue_loads_to_the_same_recommendations(tmp_path, ids):
    rng = np.random.default_rng(1)
    items, users = ItemCodes.from_signs(signs(rng, 40, 20), ids), pack(signs(rng, 5, 20))
    items.save(tmp_path / "items.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["items.safetensors"]
    found = ItemCodes.load(tmp_path / "items.safetensors")
    assert (found.packed == items.packed).all()
    assert (found.d, found.ids, len(found)) == (20, items.ids, 40)
    for mine, theirs in zip(found.recommend(users, 6), top(users, items.packed, 20, 6), strict=True):
        assert (mine == theirs).all()


def test_a_catalogue_of_13465_items_takes_an_eighth_of_a_byte_a_sign():
    assert ItemCodes.from_signs(np.ones((13465, 32), dtype=np.int8)).nbytes == 53860


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path, codes = tmp_path / "items", ItemCodes.from_signs(np.ones((3, 4), dtype=np.int8))
    codes.save(path)
    before = path.read_bytes()

    def broken(tensors, place, about):
        place.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr("privfed.methods.dfmr.codes.save_file", broken)
    with pytest.raises(OSError, match="no space"):
        ItemCodes.from_signs(-np.ones((3, 4), dtype=np.int8)).save(path)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named_in_one_sentence(tmp_path):
    (tmp_path / "items.partial").mkdir()
    with pytest.raises(CodesError, match=r"cannot be written to .*items"):
        ItemCodes.from_signs(np.ones((3, 4), dtype=np.int8)).save(tmp_path / "items")


def spoiled(tmp_path, damage):
    path = tmp_path / "items"
    codes = ItemCodes.from_signs(np.ones((3, 4), dtype=np.int8), ["a", "b", "c"])
    codes.save(path)
    about = {"format": "privfed item codes 1", "d": "4"}
    match damage:
        case "missing":
            path.unlink()
        case "cut short":
            path.write_bytes(path.read_bytes()[:-2])
        case "another file":
            path.write_text("{}")
        case "another format":
            save_file({"codes": codes.packed}, path, {"d": "4"})
        case "no codes":
            save_file({"other": codes.packed}, path, about)
        case "no width":
            save_file({"codes": codes.packed}, path, {"format": about["format"]})
        case "width":
            save_file({"codes": codes.packed}, path, about | {"d": "9"})
        case "dtype":
            save_file({"codes": codes.packed.astype(np.int64)}, path, about)
        case "padding":
            save_file({"codes": codes.packed | 16}, path, about)
        case "ids":
            save_file({"codes": codes.packed}, path, about | {"ids": '["a"]'})
    return path


@pytest.mark.parametrize(
    "damage",
    [
        "missing",
        "cut short",
        "another file",
        "another format",
        "no codes",
        "no width",
        "width",
        "dtype",
        "padding",
        "ids",
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, damage):
    path = spoiled(tmp_path, damage)
    with pytest.raises(CodesError, match=r"cannot be read \(.+\): give a file that ItemCodes.save wrote") as refusal:
        ItemCodes.load(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused_with_a_way_out():
    good = np.ones((3, 9), dtype=np.int8)
    with pytest.raises(CodesError, match="other values than -1 and"):
        pack(good * 0)
    for wrong in (np.ones((3, 0), dtype=np.int8), np.ones((1, WIDEST + 1), dtype=np.int8)):
        with pytest.raises(CodesError, match=f"use 1 to {WIDEST}"):
            pack(wrong)
    with pytest.raises(CodesError, match="2 bytes a row, but 8 signs take 1"):
        unpack(pack(good), 8)
    with pytest.raises(CodesError, match="2 bytes a row, but 17 signs take 3"):
        scores(pack(good), pack(good), 17)
    with pytest.raises(CodesError, match="at least 1"):
        top(pack(good), pack(good), 9, 0)
    for exclude in (np.zeros((3, 4), dtype=bool), Histories(np.zeros(4, dtype=np.int64), np.empty(0, np.int64), 4)):
        with pytest.raises(CodesError, match="covers 3 users x 4 items, but there are codes of 3 x 3"):
            top(pack(good), pack(good), 9, 2, exclude)
    with pytest.raises(CodesError, match="2 ids were given for 3 items"):
        ItemCodes.from_signs(good, ["a", "b"])
