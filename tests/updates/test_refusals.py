"""Updates that do not fit what the server declared are refused in one sentence, before anything is computed."""

import pytest
import torch

from privfed.contracts import Block, UpdateError
from privfed.updates import ClientUpdates, Dense, Rows

SCHEMA = {
    "items": Block((4, 2)),
    "head": Block((3,)),
    "counts": Block((4, 1), kind="integer", bound=1),
}


def longs(*values):
    return torch.tensor(values, dtype=torch.int64)


def rows(owner, ids, width=2):
    return Rows("items", longs(*owner), longs(*ids), torch.ones(len(owner), width))


BAD = {
    "undeclared block": (lambda: [Dense("predictions", longs(0), torch.ones(1, 3))], "'predictions' was not declared"),
    "wrong shape": (lambda: [Dense("head", longs(0), torch.ones(1, 4))], r"shape \(3,\) but the update holds \(4,\)"),
    "transposed table": (lambda: [Dense("items", longs(0), torch.ones(1, 2, 4))], r"declared with shape \(4, 2\)"),
    "rows of another width": (lambda: [rows([0], [0], width=3)], "width 3"),
    "rows of something that is no table": (lambda: [Rows("head", longs(0), longs(0), torch.ones(1, 3))], "'head'"),
    "row beyond the table": (lambda: [rows([0], [4])], r"row ids must lie in 0\.\.3"),
    "negative row": (lambda: [rows([0], [-1])], r"row ids must lie in 0\.\.3"),
    "repeated row of one client": (lambda: [rows([0, 0], [2, 2])], "distinct and ascending"),
    "rows out of order": (lambda: [rows([0, 0], [2, 1])], "distinct and ascending"),
    "clients out of order": (lambda: [rows([1, 0], [0, 0])], "distinct and ascending"),
    "owner beyond the cohort": (lambda: [Dense("head", longs(2), torch.ones(1, 3))], r"positions 0\.\.1"),
    "negative owner": (lambda: [rows([-1], [0])], r"positions 0\.\.1"),
    "fewer owners than values": (lambda: [Dense("head", longs(0), torch.ones(2, 3))], "1 owners for 2 values"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.usefixtures("unchecked")
def test_a_misfit_is_refused_with_its_block_and_what_was_expected(case):
    parts, words = BAD[case]
    with pytest.raises(UpdateError, match=words) as caught:
        ClientUpdates(torch.arange(2), SCHEMA, parts())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ids", [[], [0], [0, 1, 2]])
@pytest.mark.usefixtures("unchecked")
def test_rows_need_one_id_per_value(ids):
    part = Rows("items", longs(0, 1), longs(*ids), torch.ones(2, 2))
    with pytest.raises(UpdateError):
        ClientUpdates(torch.arange(2), SCHEMA, [part])


OVERLAPS = {
    "a client twice in one dense part": [Dense("head", longs(0, 0), torch.ones(2, 3))],
    "two dense parts": [Dense("head", longs(0, 1), torch.ones(2, 3)), Dense("head", longs(1), torch.ones(1, 3))],
    "rows and a whole table": [rows([0], [1]), Dense("items", longs(0), torch.ones(1, 4, 2))],
    "two parts with the same row": [rows([0], [1]), rows([0], [1])],
    "the first and the last of three parts": [rows([0], [1]), rows([0], [2]), rows([0], [1])],
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_no_client_sends_a_coordinate_twice(case):
    """The L2 norm of a value sent in two parts is up to sqrt(2) times what the parts show: a clip would not hold."""
    with pytest.raises(UpdateError):
        ClientUpdates(torch.arange(2), SCHEMA, OVERLAPS[case])


def test_an_integer_block_takes_integers_only():
    part = Dense("counts", longs(0), torch.full((1, 4, 1), 0.5))
    with pytest.raises(UpdateError):
        ClientUpdates(torch.arange(1), SCHEMA, [part])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (-1, 2)])
def test_a_block_needs_coordinates(shape):
    with pytest.raises(UpdateError, match="every side must be at least 1"):
        Block(shape)


def test_a_scalar_block_has_one_coordinate():
    """`Block(())` may be declared, so it must work: a private bias, a count."""
    assert Block(()).size == 1
    updates = ClientUpdates(torch.arange(2), {"b": Block(())}, [Dense("b", longs(1), torch.tensor([-3.0]))])
    assert updates.norms(1).tolist() == [0.0, 3.0]
    assert updates.norms(2).tolist() == [0.0, 3.0]
    assert updates.materialise(torch.arange(2))["b"].tolist() == [0.0, -3.0]
