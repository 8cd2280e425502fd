"""Low rank (FedHM) against a full decomposition, and columns (HeteroFL) against slices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.fair.subspaces import Columns, LowRankTables, SubspaceError

PROPERTY = settings(max_examples=50, deadline=None)


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@given(st.integers(1, 40), st.integers(1, 6), st.data())
@PROPERTY
def test_the_factors_are_those_of_the_truncated_decomposition(rows, width, data):
    shape = LowRankTables(rows, width, data.draw(st.integers(1, min(rows, width))))
    W = normal(2, rows, width, seed=data.draw(st.integers(0, 99)))
    B, C = shape.reduce(W)
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    k = shape.rank
    best = U[..., :k] * S[..., None, :k] @ Vh[..., :k, :]
    torch.testing.assert_close(shape.recover(B, C), best, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(B.square().sum(-2), S[..., :k], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(C.square().sum(-1), S[..., :k], rtol=1e-6, atol=1e-6)
    assert B[0].numel() + C[0].numel() == shape.size


def test_a_table_of_that_rank_comes_back():
    B, C = normal(50, 2), normal(2, 8, seed=1)
    torch.testing.assert_close(LowRankTables(50, 8, 2).project(B @ C), B @ C, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(LowRankTables(50, 8, 4).project(B @ C), B @ C, rtol=1e-6, atol=1e-6)


def test_a_table_of_zeros_stays_one():
    B, C = LowRankTables(5, 4, 2).reduce(torch.zeros(5, 4))
    assert B.dtype == C.dtype == torch.float32
    assert not B.any()
    assert not C.any()


def test_factors_do_not_depend_on_the_sign_a_solver_happened_to_take():
    shape, W = LowRankTables(30, 5, 3), normal(30, 5)
    B, C = shape.reduce(W)
    assert (C.gather(1, C.abs().argmax(1, keepdim=True)) > 0).all()
    again = shape.reduce(-W)
    torch.testing.assert_close(again[1], C, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(again[0], -B, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("compression", "width", "released"), [(1, 8, 7), (2, 4, 3), (4, 2, 1)])
def test_ranks_of_a_tall_table(compression, width, released):
    """The released rule is one short of the paper's on Goodreads' tables."""
    assert LowRankTables.compressed(359_014, 8, compression).rank == width
    assert LowRankTables.compressed(359_014, 8, compression, "released").rank == released


def test_the_released_rule_leaves_nothing_at_8x_and_the_paper_s_one_column():
    assert LowRankTables.compressed(359_014, 8, 8).rank == LowRankTables.compressed(359_014, 8, 64).rank == 1
    with pytest.raises(SubspaceError, match="rank 0 was asked for"):
        LowRankTables.compressed(359_014, 8, 8, "released")


@given(st.integers(1, 9), st.integers(1, 8), st.data())
@PROPERTY
def test_columns_are_slices_and_zeros(rows, width, data):
    part = Columns(rows, width, data.draw(st.integers(1, width)))
    W = normal(2, 3, rows, width)
    assert part.reduce(W).equal(W[..., : part.kept])
    assert part.reduce(W)[0, 0].numel() == part.size
    expected = W.clone()
    expected[..., part.kept :] = 0
    assert part.project(W).equal(expected)
    assert part.reduce(part.project(W)).equal(part.reduce(W))
    assert float(part.recover(part.reduce(W)).norm()) == pytest.approx(float(part.reduce(W).norm()), rel=1e-12)


def test_ones_tell_who_held_what():
    holders = sum(Columns(2, 4, kept).recover(torch.ones(2, kept)) for kept in (1, 2, 2, 4))
    assert holders[0].tolist() == [4, 3, 1, 1]


def test_columns_of_words_stay_words():
    words = torch.tensor([[2**31 - 1, -5]], dtype=torch.int32)
    assert Columns(1, 3, 2).recover(words).tolist() == [[2**31 - 1, -5, 0]]


def test_a_compressed_width():
    assert [Columns.compressed(10, 8, c).kept for c in (1, 2, 3, 4, 8, 16)] == [8, 4, 2, 2, 1, 1]


@pytest.mark.parametrize("kept", [0, 9])
def test_columns_and_ranks_that_are_not_there_are_refused(kept):
    with pytest.raises(SubspaceError, match="keep 1 to 8"):
        Columns(10, 8, kept)
    with pytest.raises(SubspaceError, match="use 1 to 8"):
        LowRankTables(10, 8, kept)


def test_a_compression_below_one_is_refused():
    for shape in (Columns, LowRankTables):
        with pytest.raises(SubspaceError, match="use 1 or more"):
            shape.compressed(10, 8, 0)
