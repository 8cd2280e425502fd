"""Levels inside levels: lifting, collapsing, and the pull of parameter averaging."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.fair.subspaces import Subspace, SubspaceError, collapse, lift

PROPERTY = settings(max_examples=50, deadline=None)
KINDS = ("balanced", "signed", "roast")


@st.composite
def pairs(draw):
    """A smaller and a larger level of one table."""
    kind, width = draw(st.sampled_from(KINDS)), draw(st.sampled_from([1, 2, 3, 4]))
    rows, levels, seed = draw(st.integers(16, 40)), draw(st.integers(1, 4)), draw(st.integers(0, 2**32))
    small = draw(st.integers(0, levels))
    big = draw(st.integers(0, small))
    return Subspace(rows, width, small, levels, seed, kind), Subspace(rows, width, big, levels, seed, kind)


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@given(pairs())
@PROPERTY
def test_slots_nest(pair):
    small, big = pair
    e = torch.arange(small.rows * small.width)
    if big.level:
        assert small.slots(e).equal(big.slots(e) % small.size)
    signs, others = small.signs(e), big.signs(e)
    assert signs is None or others is None or signs.equal(others)


@given(pairs())
@PROPERTY
def test_lifting_leaves_the_table_as_it_is(pair):
    small, big = pair
    psi = normal(2, 3, small.size)
    lifted = lift(psi, small, big)
    assert lifted.shape == (2, 3, big.size)
    assert big.recover(lifted).equal(small.recover(psi))
    words = torch.arange(small.size, dtype=torch.int32)
    assert big.recover(lift(words, small, big)).equal(small.recover(words))


@given(pairs())
@PROPERTY
def test_collapsing_is_reducing_at_once(pair):
    small, big = pair
    theta = normal(2, 3, small.rows, small.width)
    torch.testing.assert_close(collapse(big.reduce(theta), big, small), small.reduce(theta), rtol=1e-12, atol=1e-12)


@given(pairs())
@PROPERTY
def test_collapsing_what_was_lifted_gives_it_back_where_slots_are_not_empty(pair):
    small, big = pair
    psi, filled = normal(small.size), small.counts() > 0
    back = collapse(lift(psi, small, big), big, small)
    torch.testing.assert_close(back[filled], psi[filled], rtol=1e-12, atol=1e-12)


@given(pairs())
@PROPERTY
def test_projecting_on_the_larger_space_first_changes_nothing(pair):
    small, big = pair
    theta = normal(small.rows, small.width)
    torch.testing.assert_close(small.project(big.project(theta)), small.project(theta), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(big.project(small.project(theta)), small.project(theta), rtol=1e-12, atol=1e-12)


@given(pairs())
@PROPERTY
def test_lifting_keeps_the_norm_of_the_table(pair):
    small, big = pair
    psi = normal(small.size)
    lifted = (big.counts() * lift(psi, small, big) ** 2).sum()
    assert float(lifted) == pytest.approx(float((small.counts() * psi**2).sum()), rel=1e-12)


def test_a_plain_mean_of_slots_is_not_the_reduction():
    small, big = (Subspace(40, 4, g, 3, 5, "signed") for g in (3, 2))
    theta = normal(40, 4)
    plain = big.reduce(theta).view(-1, small.size).mean(0)
    assert float((plain - small.reduce(theta)).abs().max()) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_parameter_averaging_is_delta_averaging_and_a_proximal_term_the_server_computes(kind):
    """theta+ = sum_g S_g (W_g R_g theta + d_g) = theta + sum_g S_g d_g - sum_g W_g (theta - P_g theta)."""
    tiers = [Subspace(40, 4, g, 4, 5, kind) for g in (0, 2, 3)]
    theta, shares = normal(40, 4), (0.5, 0.2, 0.3)
    deltas = [normal(s.size, seed=i + 1) for i, s in enumerate(tiers)]
    averaged = sum(s.recover(w * s.reduce(theta) + d) for s, w, d in zip(tiers, shares, deltas, strict=True))
    moved = theta + sum(s.recover(d) for s, d in zip(tiers, deltas, strict=True))
    pulled = moved - sum(w * (theta - s.project(theta)) for s, w in zip(tiers, shares, strict=True))
    torch.testing.assert_close(averaged, pulled, rtol=0, atol=1e-14)


def test_what_does_not_nest_is_refused(unchecked):
    small, big = (Subspace(40, 4, g, 4, 5) for g in (3, 1))
    for other in (Subspace(40, 4, 1, 4, 6), Subspace(40, 4, 1, 3, 5), Subspace(40, 4, 1, 4, 5, "signed")):
        with pytest.raises(SubspaceError, match="only levels of one table nest"):
            lift(torch.zeros(small.size), small, other)
        with pytest.raises(SubspaceError, match="only levels of one table nest"):
            collapse(torch.zeros(other.size), other, small)
    with pytest.raises(SubspaceError, match="the deeper level is the smaller subspace"):
        lift(torch.zeros(big.size), big, small)
    with pytest.raises(SubspaceError, match="20 slots"):
        lift(torch.zeros(21), small, big)
    with pytest.raises(SubspaceError, match="80 slots"):
        collapse(torch.zeros(81), big, small)


def test_a_chunk_of_a_row_may_be_written_either_way():
    small, big = Subspace(40, 4, 3, 4, 5, "roast", 4), Subspace(40, 4, 1, 4, 5, "roast", remember=False)
    psi = normal(small.size)
    assert big.recover(lift(psi, small, big)).equal(small.recover(psi))
