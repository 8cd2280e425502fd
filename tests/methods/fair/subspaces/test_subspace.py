"""One level of a table against a dense matrix S, the algebra of its reduce and recover, and pinned hashes."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.fair.subspaces import Subspace, SubspaceError
from privfed.methods.fair.subspaces.mixing import keys, mix, permute
from secure_agg.encoding import Ring

KINDS = ("balanced", "signed", "roast")
GOODREADS = (359_014, 8)
PROPERTY = settings(max_examples=50, deadline=None)


@st.composite
def subspaces(draw, least=0):
    """Small tables, divisible or not, of every kind and level."""
    kind, levels = draw(st.sampled_from(KINDS)), draw(st.integers(max(1, least), 4))
    width = draw(st.sampled_from([1, 2, 3, 4, 6]))
    rows = draw(st.integers(16, 40)) if kind == "roast" else draw(st.integers(1, 40))
    chunk = draw(st.sampled_from([0, *(c for c in range(1, width + 1) if width % c == 0)])) if kind == "roast" else 0
    seed, level = draw(st.integers(-3, 2**40)), draw(st.integers(least, levels))
    return Subspace(rows, width, level, levels, seed, kind, chunk, draw(st.booleans()))


def elements(s):
    return torch.arange(s.rows * s.width)


def dense(s):
    """S, entry by entry."""
    S, e = torch.zeros(s.rows * s.width, s.size, dtype=torch.float64), elements(s)
    signs = s.signs(e)
    S[e, s.slots(e)] = torch.ones(len(e), dtype=torch.float64) if signs is None else signs.double()
    return S


def table(s, *batch, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(*batch, s.rows, s.width)))


def values(s, *batch, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(*batch, s.size)))


def naive_mix(x, key, bits):
    """In Python's unbounded integers."""
    for odd, plus in key:
        x = (x * odd + plus) % 2**bits
        x ^= x >> max(1, bits // 2)
    return x


def naive_permute(x, key, size):
    bits = max(1, (size - 1).bit_length())
    x = naive_mix(x, key, bits)
    while x >= size:
        x = naive_mix(x, key, bits)
    return x


@given(st.integers(0, 2**31 - 1), st.integers(), st.integers(1, 31))
@PROPERTY
def test_mixing_is_what_unbounded_integers_give(x, seed, bits):
    key = keys(seed, "test")
    x %= 2**bits
    assert mix(torch.tensor([x]), key, bits).tolist() == [naive_mix(x, key, bits)]


@given(st.integers(1, 300), st.integers())
@PROPERTY
def test_permuting_is_a_bijection_that_leaves_its_argument_alone(size, seed):
    key, x = keys(seed, "test"), torch.arange(size)
    found = permute(x, key, size)
    assert found.sort().values.equal(torch.arange(size))
    assert x.equal(torch.arange(size))
    assert found.tolist() == [naive_permute(i, key, size) for i in range(size)]


def test_purposes_and_seeds_have_their_own_keys():
    found = {keys(seed, purpose) for seed in range(50) for purpose in ("balanced", "sign")}
    assert len(found) == 100
    assert keys(1, "balanced") == keys(1, "balanced")
    assert all(odd % 2 for key in found for odd, _ in key)


def test_pinned_keys_and_mixing():
    key = keys(2023, "balanced")
    assert key == (
        (1706173303, 139823003), (1198768047, 1883763676), (479019037, 1660744578), (921002195, 254955058),
    )  # fmt: skip
    assert mix(torch.tensor([0, 1, 2, 2**31 - 1]), key).tolist() == [1167336289, 1297370649, 422838707, 829587084]
    assert permute(torch.arange(11), key, 11).tolist() == [3, 8, 7, 6, 2, 10, 1, 0, 4, 9, 5]


@pytest.mark.parametrize(
    ("kind", "small", "few", "digest"),
    [
        (
            "balanced", [3, 2, 1, 0, 2, 5, 1, 0, 4, 3, 5, 4],
            [2102, 1139583, 688231, 175641, 1379026, 199790], "ff6380918edd4a1f",
        ),
        (
            "signed", [2, 3, 0, 0, 5, 2, 3, 3, 0, 4, 3, 5],
            [1149220, 997297, 230399, 775224, 1111765, 303209], "c62625a88fd453b9",
        ),
        (
            "roast", [5, 0, 1, 2, 3, 4, 5, 0, 4, 5, 0, 1],
            [239143, 239144, 239150, 1148155, 837478, 362402], "bbd2b4f97ef0d8ab",
        ),
    ],
)  # fmt: skip
def test_pinned_slots(kind, small, few, digest):
    """Clients of one sum must agree on them to the bit, today and in the next version."""
    assert Subspace(3, 4, 1, 1, 2023, kind).slots(torch.arange(12)).tolist() == small
    big = Subspace(*GOODREADS, 1, 4, 2023, kind)
    assert big.slots(torch.tensor([0, 1, 7, 8, 1000003, 2872111])).tolist() == few
    every = big.slots(elements(big)).numpy().astype("<i4")
    assert hashlib.sha256(every.tobytes()).hexdigest()[:16] == digest


def test_pinned_signs():
    signs = Subspace(3, 4, 1, 1, 2023, "signed").signs(torch.arange(12))
    assert signs is not None
    assert signs.tolist() == [-1, -1, -1, 1, 1, -1, -1, 1, -1, 1, -1, 1]


@given(subspaces())
@PROPERTY
def test_sizes_divide_each_other_and_the_padded_table(s):
    sizes = [Subspace(s.rows, s.width, g, s.levels, s.seed, s.kind, 1 if s.kind == "roast" else 0).size
             for g in range(s.levels + 1)]  # fmt: skip
    n = s.rows * s.width
    assert sizes[0] == n
    assert all(big % small == 0 for big, small in zip([s.span, *sizes[1:]], sizes[1:], strict=False))
    assert n <= s.span < n + 2**s.levels
    assert s.span % 2**s.levels == 0


@given(subspaces())
@PROPERTY
def test_the_same_arguments_are_the_same_subspace_remembered_or_not(s):
    other = Subspace(s.rows, s.width, s.level, s.levels, s.seed, s.kind, s.chunk, not s.remember)
    grid = elements(s).view(s.rows, s.width)
    assert s.slots(grid).equal(other.slots(grid))
    assert s.slots(grid).dtype == torch.int64
    ours, theirs = s.signs(grid), other.signs(grid)
    assert (ours is None) == (theirs is None) == (s.kind != "signed" or s.level == 0)
    assert ours is None or ours.equal(theirs)
    assert s.counts().equal(other.counts())


@given(subspaces())
@PROPERTY
def test_columns_of_s_are_orthogonal_and_counted(s):
    S = dense(s)
    assert (S.T @ S).equal(s.counts().double().diag())
    assert int(s.counts().sum()) == s.rows * s.width


@given(subspaces())
@PROPERTY
def test_level_zero_is_the_identity(s):
    whole = s.whole()
    assert whole.slots(elements(s)).equal(elements(s))
    assert whole.size == s.rows * s.width
    assert whole.weight == 1
    assert dense(whole).equal(torch.eye(whole.size, dtype=torch.float64))
    theta = table(s, 2)
    assert whole.reduce(theta).equal(theta.flatten(1))
    assert whole.recover(whole.reduce(theta)).equal(theta)
    assert whole.reduce(theta).data_ptr() != theta.data_ptr()


@given(subspaces())
@PROPERTY
def test_reduce_and_recover_are_those_of_the_matrix_on_any_batch(s):
    S, theta, psi = dense(s), table(s, 2, 3), values(s, 2, 3)
    torch.testing.assert_close(s.recover(psi).flatten(-2), psi @ S.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(s.reduce(theta), theta.flatten(-2) @ torch.linalg.pinv(S).T, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(s.reduce(theta[1, 2]), s.reduce(theta)[1, 2], rtol=0, atol=0)


@given(subspaces())
@PROPERTY
def test_the_projection_is_orthogonal_and_done_once(s):
    theta, other = table(s), table(s, seed=7)
    projected = s.project(theta)
    torch.testing.assert_close(s.project(projected), projected, rtol=1e-12, atol=1e-12)
    assert float(((theta - projected) * s.project(other)).sum()) == pytest.approx(0, abs=1e-9)


@given(subspaces())
@PROPERTY
def test_reducing_what_was_recovered_gives_it_back_where_slots_are_not_empty(s):
    psi, filled = values(s), s.counts() > 0
    back = s.reduce(s.recover(psi))
    torch.testing.assert_close(back[filled], psi[filled], rtol=1e-12, atol=1e-12)
    assert not back[~filled].any()


@given(subspaces())
@PROPERTY
def test_norms_are_those_weighted_with_counts_and_balance_bounds_them(s):
    psi = values(s)
    norm = float(s.recover(psi).norm())
    assert norm == pytest.approx(float((s.counts() * psi**2).sum().sqrt()), rel=1e-12)
    if s.kind == "balanced":
        assert norm <= s.weight * float(psi.norm()) * (1 + 1e-12)
        if s.span == s.rows * s.width:
            assert norm == pytest.approx(s.weight * float(psi.norm()), rel=1e-12)


def test_the_weight_of_each_level_of_a_table_that_divides():
    for level in range(5):
        s = Subspace(64, 8, level, 4, 5)
        assert s.weight == pytest.approx(2 ** (level / 2), rel=1e-15)
        assert s.counts().unique().tolist() == [2**level]


def test_a_balanced_slot_lacks_only_the_padding():
    s = Subspace(11, 3, 2, 4, 9)
    assert s.span == 48
    assert s.counts().max() <= 4
    assert int((4 - s.counts()).sum()) == 48 - 33


def test_empty_slots_reduce_to_zero_and_change_nothing():
    s = Subspace(40, 4, 1, 1, 3, "signed")
    empty = s.counts() == 0
    assert empty.any()
    theta, psi = table(s), values(s)
    assert not s.reduce(theta)[empty].any()
    assert s.recover(psi).equal(s.recover(torch.where(empty, torch.zeros_like(psi), psi)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_are_kept_and_sums_are_taken_in_double_precision(kind, dtype):
    s = Subspace(500, 8, 4, 4, 1, kind)
    theta = (table(s) + 1000).to(dtype)
    exact = s.reduce(theta.double())
    assert s.reduce(theta).dtype == s.recover(s.reduce(theta)).dtype == dtype
    assert s.reduce(theta).equal(exact.to(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_worked_on_in_pieces_is_that_of_one_pass(kind):
    s = Subspace(10_007, 8, 2, 4, 1, kind)
    e, theta = elements(s), table(s, 2)
    signs = s.signs(e)
    signed = theta.flatten(1) if signs is None else theta.flatten(1) * signs
    sums = [np.bincount(s.slots(e).numpy(), row.numpy(), s.size) for row in signed]
    expected = torch.from_numpy(np.stack(sums)) / s.counts().clamp(min=1)
    torch.testing.assert_close(s.reduce(theta), expected, rtol=1e-13, atol=1e-13)
    assert int(s.slots(e).max()) < s.size


@given(subspaces(), st.sampled_from([32, 64]), st.integers(0, 2**32))
@PROPERTY
def test_recovery_commutes_with_sums_of_masked_words(s, bits, seed):
    ring, rng = Ring(bits), np.random.default_rng(seed)
    words = rng.integers(0, ring.modulus, (5, s.size), dtype=ring.dtype, endpoint=False)

    def recovered(rows):
        signed = torch.from_numpy(rows.view(f"<i{bits // 8}"))
        return s.recover(signed).numpy().view(ring.dtype)

    assert (recovered(ring.sum(words)) == ring.sum(recovered(words))).all()


@pytest.mark.parametrize(
    ("kind", "level", "kept"),
    [
        ("balanced", 1, 0.5),
        ("balanced", 2, 0.25),
        ("balanced", 4, 0.0625),
        ("signed", 1, 0.4323),
        ("signed", 2, 0.2454),
    ],
)
def test_a_random_table_keeps_the_share_of_energy_that_is_its_rank(kind, level, kept):
    s = Subspace(20_000, 8, level, 4, 11, kind)
    theta = table(s)
    rank = int((s.counts() > 0).sum()) / (s.rows * s.width)
    assert rank == pytest.approx(kept, abs=0.003)
    assert float(s.project(theta).square().sum() / theta.square().sum()) == pytest.approx(rank, abs=0.01)


@pytest.mark.parametrize("rows", [4096, 20_011])
@pytest.mark.parametrize("seed", range(5))
def test_no_row_of_a_balanced_table_is_another_in_disguise(rows, seed):
    """A hash linear in the element's number makes whole rows coincide; a power of two of slots shows it best."""
    for level in (1, 2, 4):
        s = Subspace(rows, 8, level, 4, seed)
        slots = s.slots(elements(s).view(rows, 8)).sort(1).values
        assert len(slots.unique(dim=0)) == rows
        inside = float((slots[:, 1:] == slots[:, :-1]).any(1).float().mean())
        assert inside < 3 * 28 * (2**level - 1) / (rows * 8) + 10 / rows


def test_neighbours_meet_in_a_slot_as_often_as_strangers():
    """Of pairs of elements at a fixed distance, about 1 in size meets."""
    s = Subspace(4096, 8, 4, 4, 2)
    slots = s.slots(elements(s))
    met = [int((slots[gap:] == slots[:-gap]).sum()) for gap in range(1, 65)]
    assert sum(met) / 64 == pytest.approx(32768 / s.size, rel=0.25)
    assert max(met) < 8 * 32768 / s.size


def test_signs_are_as_often_minus_one_and_do_not_follow_slots():
    s = Subspace(20_000, 8, 4, 4, 2, "signed")
    signs = s.signs(elements(s))
    assert signs is not None
    assert signs.unique().tolist() == [-1, 1]
    assert abs(float(signs.mean())) < 0.01
    per_slot = torch.zeros(s.size).index_add_(0, s.slots(elements(s)), signs)
    assert float(per_slot.square().mean()) == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize("chunk", [0, 2, 4])
def test_a_chunk_lies_together(chunk):
    s = Subspace(60, 8, 2, 3, 4, "roast", chunk)
    slots = s.slots(elements(s).view(-1, chunk or 8))
    assert ((slots - slots[:, :1]) % s.size == torch.arange(chunk or 8)).all()
    assert len(slots[:, 0].unique()) > 10


def test_tables_with_other_seeds_collide_elsewhere():
    a, b = (Subspace(200, 8, 1, 4, seed) for seed in (1, 2))
    assert float((a.slots(elements(a)) == b.slots(elements(b))).float().mean()) < 0.01


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": 0}, "at least 1"),
        ({"level": 5}, "divide the size before"),
        ({"level": -1}, "divide the size before"),
        ({"rows": 2**29}, "split the table"),
        ({"levels": 40}, "split the table"),
        ({"kind": "roast", "chunk": 3}, "divisor of the width"),
        ({"kind": "roast", "chunk": -8}, "divisor of the width"),
        ({"chunk": 4}, "only roast has chunks"),
        ({"kind": "roast", "rows": 4, "level": 4}, "fewer than one chunk"),
    ],
)
def test_what_is_no_subspace_is_refused(change, says):
    with pytest.raises(SubspaceError, match=says):
        Subspace(**{"rows": 60, "width": 8, "level": 2, "levels": 4, "seed": 1} | change)


def test_an_unknown_kind_is_refused(unchecked):
    with pytest.raises(SubspaceError, match="use balanced, signed or roast"):
        Subspace(60, 8, 2, 4, 1, "md5")


def test_values_of_another_shape_or_type_are_refused(unchecked):
    s = Subspace(60, 8, 2, 4, 1)
    with pytest.raises(SubspaceError, match="one of 60 x 8"):
        s.reduce(torch.zeros(8, 60))
    with pytest.raises(SubspaceError, match="decode it first"):
        s.reduce(torch.zeros(60, 8, dtype=torch.int64))
    with pytest.raises(SubspaceError, match="120 slots"):
        s.recover(torch.zeros(121))


def test_all_levels_share_one_remembered_hash():
    from privfed.methods.fair.subspaces import subspace

    subspace._remembered.cache_clear()
    theta = torch.zeros(50, 8)
    for level in range(1, 5):
        Subspace(50, 8, level, 4, 77).project(theta)
    assert subspace._remembered.cache_info().misses == 1
    Subspace(50, 8, 2, 4, 77, remember=False).project(theta)
    assert subspace._remembered.cache_info().currsize == 1


def test_the_weight_is_a_plain_number():
    assert isinstance(Subspace(50, 8, 3, 4, 77).weight, float)
    assert Subspace(50, 8, 3, 4, 77).weight == math.sqrt(8)
