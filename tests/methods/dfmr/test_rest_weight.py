"""The weight of what was not purchased, where no number is given: a rule of public numbers."""

import numpy as np
import pytest

from privfed.data import Histories
from privfed.methods.dfmr.config import DCFConfig, DFMRConfig, LightFRConfig


def purchases(users: int, items: int, each: int) -> Histories:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.sort(rng.choice(items, each, replace=False)) for _ in range(users)])
    return Histories.from_pairs(np.repeat(np.arange(users), each), rows, users, items)


@pytest.mark.parametrize("config", [DFMRConfig, DCFConfig, LightFRConfig])
def test_it_goes_with_density_and_length_of_histories(config: type[DFMRConfig]) -> None:
    sparse, dense = purchases(20, 400, 2), purchases(20, 40, 10)
    assert config().rest_weight(sparse) == pytest.approx(0.1 * 2 * 2 / 400)
    assert config().rest_weight(dense) == pytest.approx(0.1 * 10 * 10 / 40)
    for bought in (sparse, dense):
        assert config().grid(bought).s == config(s=config().rest_weight(bought)).grid(bought).s > 0


def test_a_number_that_is_given_stays() -> None:
    bought = purchases(20, 40, 10)
    assert DCFConfig(s=0.3).rest_weight(bought) == 0.3
    assert DCFConfig(s=0.0).rest_weight(bought) == 0.0


def test_the_rule_asks_for_no_purchase_to_be_there() -> None:
    nobody = Histories.from_pairs(np.empty(0, np.int64), np.empty(0, np.int64), 0, 0)
    assert DFMRConfig().rest_weight(nobody) == 0.0
