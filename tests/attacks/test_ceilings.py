"""Ceilings against the formula and against mechanisms that reach them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.empirical import advantage_ceiling, tpr_ceiling


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_randomised_response_reaches_the_ceiling(epsilon):
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert tpr_ceiling(1 - keep, epsilon) == pytest.approx(keep)
    assert advantage_ceiling(epsilon) == pytest.approx(2 * keep - 1)


def test_known_values_and_ends():
    assert tpr_ceiling(0.01, 1.0, 1e-5) == pytest.approx(math.e * 0.01 + 1e-5)
    assert tpr_ceiling(0.3, 0.0) == pytest.approx(0.3)
    assert advantage_ceiling(0.0, 0.01) == pytest.approx(0.01)
    assert tpr_ceiling(0.0, math.inf) == 1
    assert advantage_ceiling(math.inf) == 1
    assert advantage_ceiling(5000.0) == tpr_ceiling(0.1, 5000.0) == 1
    assert tpr_ceiling(0.0, 5000.0, 0.25) == pytest.approx(0.25)


@given(st.floats(0, 20), st.floats(0, 0.5))
@settings(max_examples=50, deadline=None)
def test_advantage_is_the_largest_gap_of_the_tpr_ceiling(epsilon, delta):
    grid = np.linspace(0, 1, 2001)
    gap = max(tpr_ceiling(float(f), epsilon, delta) - f for f in grid)
    assert gap <= advantage_ceiling(epsilon, delta) + 1e-9
    corner = (1 - delta) / (1 + math.exp(epsilon))
    reached = tpr_ceiling(corner, epsilon, delta) - corner
    assert reached == pytest.approx(advantage_ceiling(epsilon, delta))


@pytest.mark.parametrize("bad", [(0.1, -1.0, 0.0), (0.1, math.nan, 0.0), (1.5, 1.0, 0.0), (0.1, 1.0, 2.0)])
def test_bad_input_is_refused(bad):
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        tpr_ceiling(*bad)
