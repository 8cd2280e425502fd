"""Schemas and tiles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.compute.tiles import TILE, padded, tiles
from privfed.contracts import Block, UpdateError, schema_digest, upload_bytes


def test_a_digest_tells_schemas_apart_that_would_decode_differently():
    base = {"a": Block((2, 3)), "b": Block((4,))}
    others = [
        {"b": Block((4,)), "a": Block((2, 3))},
        {"a": Block((3, 2)), "b": Block((4,))},
        {"a": Block((2, 3), kind="integer"), "b": Block((4,))},
        {"a": Block((2, 3), weight=2.0), "b": Block((4,))},
        {"a": Block((2, 3), bound=5), "b": Block((4,))},
        {"a": Block((2, 3), kind="integer", counts=True), "b": Block((4,))},
        {"x": Block((2, 3)), "b": Block((4,))},
        {"a": Block((2, 3))},
    ]
    digests = {schema_digest(schema) for schema in [base, *others]}
    assert len(digests) == len(others) + 1
    assert schema_digest({"a": Block((2, 3)), "b": Block((4,))}) == schema_digest(base)


def test_counts_are_whole_numbers():
    with pytest.raises(UpdateError, match=r"counts clients was declared as real; .* declare it as integer"):
        Block((3,), counts=True)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e-10, 2**63 - 1, 1e300, float("inf"), float("nan")])
def test_squares_of_weights_are_exact_in_every_type(weight):
    with pytest.raises(UpdateError, match=r"has weight .*; it must be between 2\^-30 and 2\^30"):
        Block((3,), weight=weight)


def test_dense_upload_bytes():
    assert upload_bytes({"a": Block((2, 3)), "n": Block((5,), kind="integer")}) == 4 * 6 + 8 * 5
    assert upload_bytes({}) == 0


@given(st.integers(0, 1000), st.integers(1, 40))
def test_tiles_cover_everybody_in_whole_tiles(clients, per_tile):
    spans = list(tiles(clients, per_tile))
    assert all(span.stop - span.start == per_tile for span in spans)
    covered = [c for span in spans for c in range(span.start, span.stop)]
    assert covered == list(range(padded(clients, per_tile)))
    assert clients <= padded(clients, per_tile) < clients + per_tile


def test_a_tile_is_sixteen():
    assert TILE == 16
    assert padded(17) == 32
