import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import Histories
from privfed.methods.dfmr.discrete import EXAMINED, PADDING, PURCHASED, DiscreteError, ItemSupport


def histories(rows, m=6):
    user = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return Histories.from_pairs(user, np.array([i for row in rows for i in row], dtype=np.int64), len(rows), m)


def test_purchased_wins_over_examined_and_both_over_cover():
    support = ItemSupport.from_histories(
        histories([[3, 1, 3], []]), histories([[1, 5], [2]]), histories([[5, 3, 0], [4, 4]])
    )
    assert support.items.tolist() == [0, 1, 3, 5, 2, 4]
    assert support.kind.tolist() == [PADDING, PURCHASED, PURCHASED, EXAMINED, EXAMINED, PADDING]
    assert support.indptr.tolist() == [0, 4, 6]
    assert (support.n_purchased.tolist(), support.n_examined.tolist()) == ([2, 0], [1, 1])
    assert support.n_rest.tolist() == [3, 5]


rows = st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=4, max_size=4)


@settings(max_examples=50, deadline=None)
@given(bought=rows, seen=rows, padding=st.none() | rows, users=st.permutations(range(4)), k=st.integers(0, 4))
def test_against_sets(bought, seen, padding, users, k):
    support = ItemSupport.from_histories(
        histories(bought), histories(seen), None if padding is None else histories(padding)
    )
    expected = []
    for u in range(4):
        kinds = dict.fromkeys((padding or [[]] * 4)[u], PADDING)
        kinds |= dict.fromkeys(seen[u], EXAMINED) | dict.fromkeys(bought[u], PURCHASED)
        expected.append(sorted(kinds.items()))
        assert support.n_purchased[u] == len(set(bought[u]))
        assert support.n_examined[u] == len(set(seen[u]) - set(bought[u]))
    for called in (np.array(users[:k], dtype=np.int64), np.arange(4)):
        owner, entry = support.of_users(called)
        stacked = [(p, *pair) for p, u in enumerate(called) for pair in expected[u]]
        assert list(zip(owner, support.items[entry], support.kind[entry], strict=True)) == stacked


def test_histories_of_another_data_set_are_refused():
    with pytest.raises(DiscreteError, match="another behaviour or the padding is of 2 x 6"):
        ItemSupport.from_histories(histories([[1]]), histories([[1], [2]]))
    with pytest.raises(DiscreteError, match="numbered 0 to 0"):
        ItemSupport.from_histories(histories([[1]]), histories([[]])).of_users(np.array([-1]))
