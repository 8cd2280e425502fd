"""Decompositions whose fast routine fails, one by one and in every place that calls one."""

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
import torch
from scipy.sparse import csr_array

import privfed
from privfed.compute import linear_algebra as la
from privfed.data import Histories
from privfed.methods.dfmr.discrete.balance import inverse_root
from privfed.methods.dfmr.discrete.start import binarise_items
from privfed.methods.dpals import model as dpals
from privfed.methods.fair.subspaces.low_rank import LowRankTables
from privfed.methods.private_gram.model.content import Content
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.methods.references.ease import model as ease
from privfed.methods.references.puresvd import model as pure_svd
from privfed.methods.shared import ials
from privfed.methods.shared.warm_start import _roots

PLACES = [
    (np.linalg, "eigh"),
    (np.linalg, "svd"),
    (np.linalg, "qr"),
    (np.linalg, "lstsq"),
    (scipy.linalg, "eigh"),
    (scipy.linalg, "cho_factor"),
    (scipy.sparse.linalg, "svds"),
    (scipy.sparse.linalg, "eigsh"),
    (torch.linalg, "eigh"),
    (torch.linalg, "svd"),
    (torch.linalg, "cholesky"),
    (torch.linalg, "solve"),
]
"""Every routine that the product starts with, and the second ones of other libraries."""


class Failing:
    """A routine that fails: always, or unless a LAPACK driver is asked for by name."""

    def __init__(self, library, name, *, always=True):
        self.routine, self.always, self.tried = getattr(library, name), always, 0
        kind = torch.linalg.LinAlgError if library is torch.linalg else np.linalg.LinAlgError
        self.error = scipy.sparse.linalg.ArpackError(-9999) if name in {"svds", "eigsh"} else kind("fails")

    def __call__(self, *arguments, **named):
        if self.always or "driver" not in named:
            self.tried += 1
            raise self.error
        return self.routine(*arguments, **named)


@pytest.fixture
def fail(monkeypatch):
    """Let a routine fail until the test ends."""

    def patch(library, name, *, always=True):
        failing = Failing(library, name, always=always)
        monkeypatch.setattr(library, name, failing)
        return failing

    return patch


def positive(side, seed=0):
    table = np.random.default_rng(seed).normal(size=(side, side + 3))
    return table @ table.T


def histories(users=30, items=20, seed=1):
    had = np.random.default_rng(seed).random((users, items)) < 0.3
    return Histories(np.concatenate([[0], had.sum(1).cumsum()]), np.nonzero(had)[1], items)


def private_gram():
    side, recipe = 12, EstimatorSettings(smoothing=0.5, rank=4)
    kernel = positive(side, 3) / side
    popularity = np.linspace(2, 1, side) / side
    evidence = NoisyGram(positive(side, 2), popularity, 50.0, 0.1, Content(lambda: (kernel,), (1.0,)))
    outside = np.random.default_rng(5).normal(size=(3, side))
    across = Content(lambda: (outside,), (1.0,))
    return np.concatenate([evidence.weights(recipe), evidence.reaching(recipe, across)])


def low_rank():
    return LowRankTables(9, 6, 3).project(torch.from_numpy(np.random.default_rng(0).normal(size=(4, 9, 6))))


def item_step():
    """With matrices that are not positive before they are projected."""
    squares = torch.from_numpy(np.stack([positive(4, seed) - 2 * np.eye(4) for seed in range(5)]))
    sums = torch.from_numpy(np.random.default_rng(3).normal(size=(5, 4)))
    step = dpals.ItemStep(20.0, 0.5, 0.1, 0.2, 0.1)
    return step.factors(torch.from_numpy(positive(4)), sums, torch.ones(5, dtype=torch.float64), squares)


def projector(columns):
    """Of a subspace: free of signs and of the basis."""
    return columns @ columns.T


PRODUCTS = {
    "private-gram": (private_gram, {"eigh", "cho_factor", "lstsq"}),
    "low rank": (low_rank, {"eigh"}),
    "item step": (item_step, {"eigh", "svd", "cholesky"}),
    "ease": (lambda: ease.item_weights(histories(), np.arange(20), 2.0), {"cholesky"}),
    "ials": (
        lambda: ials._solved_in_batches(
            torch.eye(4, dtype=torch.float64),
            torch.from_numpy(positive(20)[:, :4].copy()),
            histories(),
            torch.arange(30, dtype=torch.float64),
        ),
        {"cholesky"},
    ),
    "puresvd": (lambda: projector(pure_svd.item_factors(histories(), 5)), {"svds"}),
    "puresvd, few users": (lambda: projector(pure_svd.item_factors(histories(12, 40), 5)), {"svds"}),
    "puresvd of full rank": (lambda: projector(pure_svd.item_factors(histories(), 20)), {"svd"}),
    "codes": (lambda: binarise_items(np.random.default_rng(4).normal(size=(40, 5)), 0).astype(float), {"qr", "svd"}),
    "leading": (lambda: projector(la.leading_eigenvectors(positive(9), 3, np.ones(9))), {"eigsh"}),
    "balance": (lambda: inverse_root(np.full(4, 0.1), positive(4)), {"eigh"}),
    "start": (lambda: _roots(torch.from_numpy(positive(7)), 3), {"eigh"}),
}


@pytest.mark.parametrize("dim", [6, 9])
def test_eigenvectors_of_nothing_are_left_out(dim):
    columns = np.linalg.qr(np.random.default_rng(2).normal(size=(9, 4)))[0]
    found = la.leading_eigenvectors(columns @ np.diag([4.0, 3.0, 2.0, 1.0]) @ columns.T, dim, np.ones(9))
    assert found.shape == (9, 4)
    np.testing.assert_allclose(projector(found), projector(columns), atol=1e-9)


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_routine_that_fails_changes_no_product(product):
    make, routines = PRODUCTS[product]
    wanted, tried = np.asarray(make()), set()
    for library, name in PLACES:
        with pytest.MonkeyPatch.context() as patch:
            failing = Failing(library, name)
            patch.setattr(library, name, failing)
            np.testing.assert_allclose(np.asarray(make()), wanted, atol=1e-8, err_msg=name)
            tried |= {name} if failing.tried else set()
    assert routines <= tried


@pytest.mark.parametrize("product", PRODUCTS)
def test_all_fast_routines_may_fail_together(fail, product):
    make, _ = PRODUCTS[product]
    wanted = np.asarray(make())
    for library, name in PLACES:
        fail(library, name, always=(library, name) != (scipy.linalg, "eigh"))
    np.testing.assert_allclose(np.asarray(make()), wanted, atol=1e-8)


@pytest.mark.parametrize("most", [1, 3, 9, 12])
@pytest.mark.parametrize("always", [True, False])
def test_largest_eigenpairs_of_a_routine_that_fails(fail, most, always):
    matrix = positive(9)
    failing = fail(scipy.linalg, "eigh", always=always)
    values, vectors = la.largest_eigenpairs(matrix, most)
    assert failing.tried
    assert len(values) == min(most, 9)
    np.testing.assert_allclose(vectors.T @ matrix @ vectors, np.diag(values), atol=1e-9)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[-most:], atol=1e-9)


def test_the_first_routine_decides_the_bits():
    matrix = positive(30)
    for found, wanted in (
        (la.largest_eigenpairs(matrix, 4), scipy.linalg.eigh(matrix, subset_by_index=(26, 29))),
        (la.largest_eigenpairs(matrix, 30), scipy.linalg.eigh(matrix)),
        (la.eigenpairs(matrix), np.linalg.eigh(matrix)),
        (la.singular_triplets(matrix[:5]), np.linalg.svd(matrix[:5], full_matrices=False)),
    ):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_batches_of_any_shape_go_through_the_host(fail):
    matrices = torch.from_numpy(np.stack([positive(5, seed) for seed in range(6)]).reshape(2, 3, 5, 5))
    wanted = torch.linalg.eigvalsh(matrices)
    fail(torch.linalg, "eigh")
    values, vectors = la.eigenpairs_of(matrices)
    torch.testing.assert_close(values, wanted)
    torch.testing.assert_close(vectors @ torch.diag_embed(values) @ vectors.mT, matrices)


def test_a_matrix_that_rounding_made_indefinite_is_still_solved():
    vector = np.ones((6, 1)) / 6**0.5
    matrix = vector @ vector.T - 1e-12 * np.eye(6)
    with pytest.raises(np.linalg.LinAlgError):
        scipy.linalg.cho_factor(matrix)
    np.testing.assert_allclose(matrix @ la.solve_positive(matrix, vector), vector, atol=1e-9)


@pytest.mark.parametrize("side", [1, 5, 64, 150])
def test_an_inverse_by_triangles_is_the_inverse_and_symmetric_to_the_bit(side, fail):
    matrix = positive(side)
    found = la.inverse_positive(matrix)
    np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    given, lifted = matrix.copy(), la.inverse_positive(matrix, 2.0)
    np.testing.assert_allclose(lifted, np.linalg.inv(matrix + 2 * np.eye(side)), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(matrix, given)
    fail(scipy.linalg, "cho_factor")
    np.testing.assert_allclose(la.inverse_positive(matrix), found, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(la.inverse_positive(matrix, 2.0), lifted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_upper_gram_is_the_upper_triangle_of_the_product(dtype):
    for rows in np.random.default_rng(5).normal(size=(7, 9)).astype(dtype), np.zeros((0, 3), dtype):
        found = la.upper_gram(rows)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, np.triu(rows.T @ rows), rtol=1e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("rank", [1, 4, 20])
def test_roots_of_a_kernel_are_orthogonal_and_as_many_as_its_rank(rank):
    rows = np.random.default_rng(rank).normal(size=(20, rank))
    kernel = rows @ rows.T
    roots, scales = la.orthogonal_roots(kernel)
    assert roots.shape == (20, rank)
    np.testing.assert_allclose(roots @ roots.T, kernel, atol=1e-10)
    np.testing.assert_allclose(roots.T @ roots, np.diag(scales), atol=1e-10)


def test_roots_of_what_is_no_kernel_are_those_of_the_nearest_one():
    matrix = np.diag([3.0, 1.0, -2.0]) + np.flip(np.eye(3), 0) * 0.5
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    roots, _ = la.orthogonal_roots(matrix)
    np.testing.assert_allclose(roots @ roots.T, (vectors * values.clip(min=0)) @ vectors.T, atol=1e-12)


def test_what_no_routine_decomposes_raises(fail):
    fail(np.linalg, "eigh")
    fail(scipy.linalg, "eigh")
    with pytest.raises(np.linalg.LinAlgError, match="fails"):
        la.eigenpairs(positive(3))


def test_singular_vectors_of_a_sparse_matrix_that_lost_rank(fail):
    fail(scipy.sparse.linalg, "svds")
    values, right = la.largest_singular_vectors(csr_array(np.ones((4, 7))), 3, np.ones(4))
    np.testing.assert_allclose(sorted(values), [0, 0, 28**0.5], atol=1e-6)
    assert np.isfinite(right).all()


NORMS = {"norm", "vector_norm", "matrix_norm"}
OF_TENSORS = {"cholesky_inverse", "cholesky_solve", "svd", "svd_lowrank", "qr", "pinverse", "inverse"}


def decompositions(tree):
    """Names that a module takes from a `linalg`, or asks of a tensor; norms do not fail."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and "linalg" in (node.module or ""):
            yield from (alias.name for alias in node.names if alias.name not in NORMS)
        elif isinstance(node, ast.Attribute):
            of_library = isinstance(node.value, ast.Attribute) and node.value.attr == "linalg"
            of_torch = isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in OF_TENSORS
            if (of_library and node.attr not in NORMS) or of_torch:
                yield node.attr


def test_nobody_else_calls_a_decomposition():
    root = Path(privfed.__file__).parent.parent
    called = [
        f"{path.relative_to(root)}: {name}"
        for package in ("privfed", "attacks", "secure_agg")
        for path in (root / package).rglob("*.py")
        if path.name.removeprefix("_") != "linear_algebra.py"
        for name in decompositions(ast.parse(path.read_text()))
    ]
    assert not called, f"call privfed.compute.linear_algebra or attacks._linear_algebra instead: {called}"


def test_the_search_for_decompositions_finds_them():
    code = "from scipy.linalg import eigh, norm\nnp.linalg.solve(a, b)\nnp.linalg.norm(a)\ntorch.svd(a)"
    assert sorted(decompositions(ast.parse(code))) == ["eigh", "solve", "svd"]
