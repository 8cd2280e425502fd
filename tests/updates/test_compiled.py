"""Machine code where no cache of it can be kept."""

import numpy as np
import pytest
from numba import njit

from privfed.compute.compiled import compiled

SOURCE = "def total(x):\n    found = 0\n    for value in x:\n        found += value\n    return found\n"


def test_functions_run_where_nothing_can_be_kept_on_disk():
    """A function without a file has no place for a cache; numba alone refuses it."""
    names = {}
    exec(SOURCE, names)
    with pytest.raises(RuntimeError, match="cannot cache"):
        njit(cache=True)(names["total"])
    assert compiled(names["total"])(np.arange(5)) == 10
