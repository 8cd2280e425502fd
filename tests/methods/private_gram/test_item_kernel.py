"""A kernel of items from a file: cosines of embeddings, or a matrix as it is, and what is wrong with other files."""

import numpy as np
import pytest

from privfed.federation import Streams
from privfed.methods import PublicInfo
from privfed.methods.private_gram import PrivateGramConfig, PrivateGramServer
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
        ("items.txt", "1,2\n", "neither in .npy nor in .csv"),
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
