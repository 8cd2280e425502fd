import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, Histories

N_ITEMS = 7


@st.composite
def rows_of_users(draw: st.DrawFn, n_users: int | None = None) -> list[list[int]]:
    size = n_users or draw(st.integers(1, 6))
    return [draw(st.lists(st.integers(0, N_ITEMS - 1), max_size=6)) for _ in range(size)]


def histories(rows: list[list[int]]) -> Histories:
    indptr = np.cumsum([0, *map(len, rows)])
    return Histories(indptr, np.array([item for row in rows for item in row], dtype=np.int64), N_ITEMS)


def lists(h: Histories) -> list[list[int]]:
    return [h.items_of(user).tolist() for user in range(h.n_users)]


@settings(max_examples=50, deadline=None)
@given(rows_of_users(), st.randoms(use_true_random=False))
def test_pairs_in_any_interleaving_keep_each_users_order(rows, random):
    queue = [user for user, row in enumerate(rows) for _ in row]
    random.shuffle(queue)
    left = [list(row) for row in rows]
    pairs = [(user, left[user].pop(0)) for user in queue]
    user, item = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    h = Histories.from_pairs(user, item, len(rows), N_ITEMS)
    assert lists(h) == rows
    assert h.counts.tolist() == [len(row) for row in rows]
    assert h.owners.tolist() == [user for user, row in enumerate(rows) for _ in row]
    assert len(h) == sum(map(len, rows))


@settings(max_examples=50, deadline=None)
@given(rows_of_users(), st.data())
def test_subset_mask_and_popularity_agree_with_plain_lists(rows, data):
    h = histories(rows)
    users = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)), dtype=np.int64)
    assert lists(h.subset(users)) == [rows[user] for user in users]
    mask = h.mask(users)
    assert mask.shape == (len(users), N_ITEMS)
    assert mask.dtype == bool
    assert [set(np.flatnonzero(row)) for row in mask] == [set(rows[user]) for user in users]
    assert h.popularity().tolist() == [sum(row.count(item) for row in rows) for item in range(N_ITEMS)]


@settings(max_examples=50, deadline=None)
@given(rows_of_users(), st.booleans())
def test_distinct_pairs_are_found_whatever_the_order_of_items(rows, ascending):
    rows = [sorted(set(row)) for row in rows] if ascending else rows
    wanted = sorted({10 * user + item for user, row in enumerate(rows) for item in row})
    assert histories(rows).pairs(10).tolist() == wanted


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(rows_of_users(n), rows_of_users(n))))
def test_union_keeps_each_item_once_in_order_of_appearance(pair):
    ours, theirs = pair
    expected = [list(dict.fromkeys(a + b)) for a, b in zip(ours, theirs, strict=True)]
    assert lists(histories(ours).union(histories(theirs))) == expected


@settings(max_examples=50, deadline=None)
@given(rows_of_users())
def test_the_complement_is_what_each_user_does_not_have(rows):
    assert lists(histories(rows).complement()) == [sorted(set(range(N_ITEMS)) - set(row)) for row in rows]


def test_union_of_different_catalogues_is_refused():
    a = histories([[1]])
    b = Histories(a.indptr, a.items, N_ITEMS + 1)
    with pytest.raises(DataError, match="same data set"):
        a.union(b)


@pytest.mark.parametrize("indptr", [[1, 2], [0, 1], [0, 3, 2], []])
def test_bad_offsets_are_refused(indptr):
    with pytest.raises(DataError, match="indptr"):
        Histories(np.array(indptr, dtype=np.int64), np.array([0, 1]), N_ITEMS)


@pytest.mark.parametrize("item", [-1, N_ITEMS])
def test_items_outside_the_catalogue_are_refused(item):
    with pytest.raises(DataError, match="catalogue has codes 0 to 6"):
        Histories(np.array([0, 1]), np.array([item]), N_ITEMS)


@pytest.mark.parametrize("user", [-1, 2])
def test_users_outside_are_refused_rather_than_wrapped(user):
    h = histories([[1], [2]])
    for ask in (lambda: h.items_of(user), lambda: h.mask(np.array([user])), lambda: h.subset(np.array([user]))):
        with pytest.raises(DataError, match="2 users"):
            ask()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.booleans()), max_size=30, unique_by=lambda r: r[:2]))
def test_entries_are_found_where_they_stand(rows):
    user, item, chosen = (np.array([row[n] for row in rows], dtype=np.int64) for n in range(3))
    every = Histories.from_pairs(user, item, 4, 7)
    some = Histories.from_pairs(user[chosen > 0][::-1], item[chosen > 0][::-1], 4, 7)
    at = every.find(some)
    assert every.items[at].tolist() == some.items.tolist()
    assert every.owners[at].tolist() == some.owners.tolist()


def test_what_is_not_there_is_not_found():
    one = Histories.from_pairs(np.array([0, 1]), np.array([3, 4]), 2, 5)
    with pytest.raises(DataError, match="not among the histories"):
        one.find(Histories.from_pairs(np.array([1]), np.array([3]), 2, 5))
    with pytest.raises(DataError, match="same data set"):
        one.find(Histories.from_pairs(np.array([1]), np.array([3]), 3, 5))
