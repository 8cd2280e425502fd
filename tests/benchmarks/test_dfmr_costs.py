"""What DFMR's server and devices keep is what the formula of sizes says, and every buffer is counted once."""

import numpy as np
import pytest
import torch

from benchmarks.quality.dfmr_costs import held_bytes, middle, stored
from privfed.data import SplitSpec, load, split


@pytest.mark.parametrize("row", ["DCF", "DFMR"])
@pytest.mark.parametrize("bits", [2, 9])
def test_tensors_of_codes_are_as_large_as_the_formula_says(row: str, bits: int) -> None:
    found = stored("synthetic-small", middle(split(load("synthetic-small"), SplitSpec()), 1), row, bits)
    kept = {party: sum(tensors.values()) for party, tensors in found["kept"].items()}
    assert kept == found["formula"]
    assert found["at work"]["server"] > kept["server"]
    assert found["at work"]["client"] > kept["client"]


def test_people_of_median_activity_keep_the_catalogue() -> None:
    parts = split(load("synthetic-small"), SplitSpec())
    one = middle(parts, 1)
    assert (one.train.n_users, one.train.n_items) == (1, parts.train.n_items)
    assert one.train.counts[0] == np.sort(parts.train.counts)[(parts.train.n_users - 1) // 2]


def test_a_buffer_counts_once_whoever_views_it() -> None:
    rows, table = np.zeros((4, 8)), torch.zeros(16)
    assert held_bytes({"rows": rows, "row": rows[0]}, [table, table[2:]]) == rows.nbytes + table.nbytes
    assert held_bytes(torch.from_numpy(rows), rows[1:]) == rows.nbytes
