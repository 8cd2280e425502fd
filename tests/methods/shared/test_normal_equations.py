"""Normal equations as machine code, against numpy's solution of the same equations written out."""

import numpy as np
import pytest

from privfed.compute.compiled import compiled
from privfed.methods.shared.normal_equations import add_rows, padded, problem_of, solve, start


@compiled
def solved(matrix, ridge, table, lists, weights, targets, out):
    """Solve a problem for every list twice, and return whether all were positive definite."""
    problem, every = problem_of(len(matrix)), True
    for _ in range(2):
        for row in range(len(out)):
            first, last = lists[0][row], lists[0][row + 1]
            start(problem, matrix, ridge)
            add_rows(problem, table, lists[1][first:last], weights[first:last], targets[first:last])
            every &= solve(problem)
            out[row] = problem.side
    return every


@pytest.mark.parametrize("dim", [1, 2, 15, 16, 17, 33, 64])
def test_solutions_are_those_of_the_equations_written_out(dim):
    rng = np.random.default_rng(dim)
    lengths = np.array([0, 1, 2, 31, 32, 33, 90, 0])
    lists = np.concatenate([[0], lengths.cumsum()]), rng.integers(0, 100, lengths.sum())
    table = rng.normal(size=(100, dim))
    weights, targets = rng.uniform(-0.1, 1, lengths.sum()), rng.normal(size=lengths.sum())
    wide, ridge = padded(table), 0.3
    base, out = wide.T @ wide, np.empty((len(lengths), wide.shape[1]))
    assert solved(base, ridge, wide, lists, weights, targets, out)
    for row, found in enumerate(out):
        mine = slice(*lists[0][row : row + 2])
        taken, square = table[lists[1][mine]], table.T @ table + ridge * np.eye(dim)
        wanted = np.linalg.solve(square + (taken.T * weights[mine]) @ taken, taken.T @ targets[mine])
        np.testing.assert_allclose(found[:dim], wanted, rtol=1e-9, atol=1e-11)
        assert not found[dim:].any()


def test_no_row_depends_on_the_rows_before():
    rng = np.random.default_rng(1)
    table, out = padded(rng.normal(size=(50, 20))), np.empty((2, 32))
    ones = np.ones(40)
    places = rng.integers(0, 50, 40)
    solved(table.T @ table, 1.0, table, (np.array([0, 7, 40]), places), ones, ones, out)
    alone = np.empty((1, 32))
    solved(table.T @ table, 1.0, table, (np.array([0, 33]), places[7:]), ones, ones, alone)
    np.testing.assert_array_equal(alone[0], out[1])


@pytest.mark.parametrize("last", [-1.0, 0.0, np.nan])
def test_a_matrix_without_a_solution_is_told(last):
    nothing = np.empty(0)
    matrix, lists = np.diag([1.0] * 15 + [last]), (np.zeros(2, dtype=np.int64), np.empty(0, dtype=np.int64))
    out = np.empty((1, 16))
    assert not solved(matrix, 0.0, np.zeros((1, 16)), lists, nothing, nothing, out)
    assert np.isnan(out).all()
