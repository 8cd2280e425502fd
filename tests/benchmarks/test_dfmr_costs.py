"""What DFMR's server and devices keep is what the formula of sizes says, and every buffer is counted once."""

import numpy as np
import pytest
import torch

from benchmarks import dfmr_tables, harness
from benchmarks.paper_tables import paper
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


@pytest.mark.parametrize("name", dfmr_tables.sources("space"))
def test_what_was_measured_is_what_the_formula_says(name: str) -> None:
    rows = [row for row in harness.results(name) if "formula" in row]
    assert len(rows) > 10
    for row in rows:
        assert {party: dfmr_tables.kept(row, party) for party in row["kept"]} == row["formula"]


@pytest.mark.parametrize("result", ["space-jd", "space-tmall", "space-ub", "space-ml10m"])
def test_sizes_in_the_slides_follow_from_the_catalogue(result: str) -> None:
    ((data, rows),) = next(one for one in paper("dfmr")["results"] if one["id"] == result)["numbers"].items()
    n_items = {"JD": 13_465, "Tmall": 16_177, "UB": 30_947, "ML10M": 3_633}[data]
    for bits in (8, 32, 256):
        words, codes = n_items * bits * 8, n_items * bits / 8
        expected = {
            "server: MF": words,
            "client: MF": words + 8 * bits,
            "server: eALS": words + 8 * bits**2,
            "server: DFMR (w/o cache)": 2 * codes,
            "server: DFMR (w/ cache)": 2 * codes + 8 * bits * (5 * bits + 3),
            "client: DFMR (w/ cache)": codes + 8 * bits * (4 * bits - 1),
        }
        for row, size in expected.items():
            assert rows[row][f"d = {bits}"] == pytest.approx(size / dfmr_tables.MB, rel=2e-3, abs=6e-5), (row, bits)
