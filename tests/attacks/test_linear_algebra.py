"""Decompositions in attacks whose fast routine fails."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg

from attacks import _linear_algebra as la
from attacks.attributes import Gram, popularity_blind
from attacks.shadow import item_factors


def failing(error):
    def routine(*_, **__):
        raise error

    return routine


def rows(users, columns):
    return np.random.default_rng(0).normal(size=(users, columns))


def of_coordinates():
    found = Gram.from_columns([rows(6, 9)]).coordinates()
    return found @ found.T


def of_factors():
    found = item_factors(rows(15, 11) > 0.3, 4)
    return found @ found.T


def of_directions():
    """The largest eigenvector of each of a batch, as a projector: what rank-one sign reads uploads along."""
    grams = np.stack([rows(5, 8)[:, k:] @ rows(5, 8)[:, k:].T for k in range(3)])
    last = la.eigenpairs(grams)[1][:, :, -1]
    return last[:, :, None] * last[:, None, :]


PRODUCTS = {
    "coordinates": (of_coordinates, np.linalg, "eigh"),
    "directions": (of_directions, np.linalg, "eigh"),
    "popularity": (lambda: popularity_blind(rows(5, 12), np.arange(12)), np.linalg, "qr"),
    "factors": (of_factors, scipy.sparse.linalg, "svds"),
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_routine_that_fails_changes_no_product(monkeypatch, product):
    make, library, name = PRODUCTS[product]
    wanted, calls = make(), []
    arpack, lapack = scipy.sparse.linalg.ArpackError(-9999), np.linalg.LinAlgError("fails")

    def routine(*_, **__):
        calls.append(name)
        raise arpack if name == "svds" else lapack

    monkeypatch.setattr(library, name, routine)
    np.testing.assert_allclose(make(), wanted, atol=1e-9)
    assert calls


def test_the_last_routine_stands_in_for_both_others(monkeypatch):
    matrix, eigh, svd = rows(4, 6) @ rows(4, 6).T, scipy.linalg.eigh, scipy.linalg.svd
    fails = np.linalg.LinAlgError("fails")

    def only(routine, key, value):
        return lambda *given, **named: routine(*given, **named) if named[key] == value else failing(fails)()

    monkeypatch.setattr(np.linalg, "eigh", failing(fails))
    monkeypatch.setattr(scipy.linalg, "eigh", only(eigh, "driver", "ev"))
    monkeypatch.setattr(scipy.sparse.linalg, "svds", failing(fails))
    monkeypatch.setattr(scipy.linalg, "svd", only(svd, "lapack_driver", "gesvd"))
    values, vectors = la.eigenpairs(matrix)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=1e-9)
    table = rows(7, 5) > 0
    values, _ = la.largest_singular_vectors(table, 3)
    np.testing.assert_allclose(values, np.linalg.svd(table.astype(float))[1][2::-1], atol=1e-9)
    monkeypatch.setattr(scipy.linalg, "eigh", failing(fails))
    with pytest.raises(np.linalg.LinAlgError, match="fails"):
        la.eigenpairs(matrix)
