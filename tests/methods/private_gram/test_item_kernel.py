"""A kernel of items from a file: cosines of embeddings, or a matrix as it is, and what is wrong with other files."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import privfed
from privfed.federation import Streams
from privfed.methods import PublicInfo
from privfed.methods.private_gram import PrivateGramConfig, PrivateGramServer
from privfed.methods.private_gram.model import item_kernel
from privfed.methods.private_gram.model.item_kernel import ItemKernel, ItemKernelError

ITEMS = 6


@pytest.fixture
def embeddings():
    rows = np.random.default_rng(0).normal(size=(ITEMS, 3))
    rows[4] = 0
    return rows


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_embeddings_are_compared_by_their_cosine(tmp_path, embeddings, ending):
    path = tmp_path / f"items.{ending}"
    np.save(path, embeddings) if ending == "npy" else np.savetxt(path, embeddings, delimiter=",")
    found = ItemKernel.read(path, ITEMS).between(np.array([0, 4]), np.array([1, 2, 0]))
    for row, one in enumerate((0, 4)):
        for column, other in enumerate((1, 2, 0)):
            lengths = np.linalg.norm(embeddings[one]) * np.linalg.norm(embeddings[other])
            wanted = embeddings[one] @ embeddings[other] / lengths if lengths else 0.0
            assert found[row, column] == pytest.approx(wanted)


def test_a_symmetric_matrix_is_a_kernel_scaled_to_a_diagonal_of_one(tmp_path, embeddings):
    np.save(tmp_path / "items.npy", 7 * embeddings @ embeddings.T)
    np.save(tmp_path / "rows.npy", embeddings)
    matrix, rows = (ItemKernel.read(tmp_path / f"{name}.npy", ITEMS) for name in ("items", "rows"))
    everything = np.arange(ITEMS)
    assert matrix.whole
    np.testing.assert_allclose(matrix.between(everything, everything), rows.between(everything, everything), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("items.npy", None, "cannot be read as a matrix of numbers"),
        ("items.csv", "1,2\nthree,4\n", "cannot be read as a matrix of numbers"),
        ("items.txt", "1,2\n", "ends in none of .npy, .npz, .csv"),
        ("items.csv", "1,2\n3,4\n", "holds 2 x 2 numbers, and the data have 6 items: give one row per item"),
        ("items.csv", "1,nan\n" * ITEMS, "not finite"),
        ("items.csv", "\n".join(",".join("-1" for _ in range(ITEMS)) for _ in range(ITEMS)), "negative diagonal"),
    ],
)
def test_a_file_without_a_kernel_is_refused_in_a_sentence(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ItemKernelError, match=message):
        ItemKernel.read(tmp_path / name, ITEMS)


def test_the_server_uses_it_as_content_of_its_own_or_beside_features(tmp_path, embeddings):
    np.save(tmp_path / "items.npy", embeddings)
    config = PrivateGramConfig(item_kernel=str(tmp_path / "items.npy"), beyond_head="content")
    server = PrivateGramServer(config, PublicInfo(50, ITEMS), Streams.from_seed(0))
    assert server.described
    with pytest.raises(ItemKernelError, match="7 items"):
        PrivateGramServer(config, PublicInfo(50, 7), Streams.from_seed(0))


@pytest.mark.parametrize("saved", ["one array", "sparse rows", "sparse kernel"])
def test_archives_hold_an_array_or_a_sparse_matrix(tmp_path, embeddings, saved):
    path, rows = tmp_path / "items.npz", np.where(np.abs(embeddings) > 0.5, embeddings, 0)
    if saved == "one array":
        np.savez(path, rows)
    else:
        sp.save_npz(path, sp.csr_array(rows if saved == "sparse rows" else rows @ rows.T))
    np.save(tmp_path / "items.npy", rows)
    everything = np.arange(ITEMS)
    found, wanted = (
        ItemKernel.read(tmp_path / f"items.{e}", ITEMS).between(everything, everything) for e in ("npz", "npy")
    )
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch, embeddings):
    monkeypatch.setattr(item_kernel, "_MOST", 17)
    np.save(tmp_path / "items.npy", embeddings)
    np.savez_compressed(tmp_path / "items.npz", np.zeros((ITEMS, 1000)))
    np.savetxt(tmp_path / "items.csv", embeddings, delimiter=",")
    for ending in ("npy", "npz", "csv"):
        with pytest.raises(ItemKernelError, match="no more than 17 are read"):
            ItemKernel.read(tmp_path / f"items.{ending}", ITEMS)


def test_columns_of_the_items_are_embeddings(tmp_path, embeddings):
    info = pd.DataFrame(embeddings, columns=["a", "b", "c"]).assign(title="x")
    info.loc[4, "a"] = np.nan
    np.save(tmp_path / "items.npy", embeddings)
    everything = np.arange(ITEMS)
    found = ItemKernel.from_columns(info, ["a", "b", "c"]).between(everything, everything)
    wanted = ItemKernel.read(tmp_path / "items.npy", ITEMS).between(everything, everything)
    np.testing.assert_allclose(found, wanted)
    with pytest.raises(ItemKernelError, match="no column 'd' \\(they have: a, b, c, title\\)"):
        ItemKernel.from_columns(info, ["a", "d"])
    with pytest.raises(ItemKernelError, match="'title' of the items holds no numbers"):
        ItemKernel.from_columns(info, ["title"])
    with pytest.raises(ItemKernelError, match="they have: none"):
        ItemKernel.from_columns(None, ["a"])


def test_a_frame_of_embeddings_helps_where_histories_alone_say_little():
    """Four groups of items that the columns tell apart; each person has items of two of them."""
    rng, people, items = np.random.default_rng(3), 400, 80
    group = np.arange(items) % 4
    likes = np.array([rng.choice(4, 2, replace=False) for _ in range(people)])
    pairs = [
        (user, item)
        for user in range(people)
        for item in rng.choice(np.flatnonzero(np.isin(group, likes[user])), 8, replace=False)
    ]
    ratings = pd.DataFrame(pairs, columns=["user", "item"])
    frame = pd.DataFrame(np.eye(4)[group] + 0.1 * rng.normal(size=(items, 4)), columns=list("abcd"))
    data = privfed.load(ratings, items=frame.assign(item=np.arange(items)))
    with_columns, without = (
        privfed.run("private-gram", data, epsilon=1, min_items=0, item_columns=columns, seed=1)
        for columns in (list("abcd"), [])
    )
    ndcg = [run.test.metric("ndcg", 10).value for run in (with_columns, without)]
    assert ndcg[0] > 1.15 * ndcg[1]
    with pytest.raises(ValueError, match="give one of them"):
        privfed.run("private-gram", data, epsilon=1, item_columns=["a"], item_kernel="items.npy")
