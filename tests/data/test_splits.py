from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privfed.data import DataError, SplitSpec, build, split


def parts(result):
    """Original item codes of each user in train, valid, test."""
    return [
        tuple(part.items_of(user).tolist() for part in (result.train, result.valid, result.test))
        for user in range(result.train.n_users)
    ]


def naive_leave_one_out(rows, ties):
    """rows: (user, item, time) in file order; plain Python, one user at a time."""
    result = {}
    for user in sorted({u for u, _, _ in rows}):
        mine = [(t, position, i) for position, (u, i, t) in enumerate(rows) if u == user]
        sign = 1 if ties == "later_row_is_newer" else -1
        items = [i for _, _, i in sorted(mine, key=lambda row: (row[0], sign * row[1]))]
        result[user] = (items[:-2], items[-2:-1], items[-1:]) if len(items) >= 3 else (items, [], [])
    return list(result.values())


@pytest.mark.parametrize("ties", ["later_row_is_newer", "earlier_row_is_newer"])
@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=40))
def test_leave_one_out_agrees_with_a_plain_loop(ties, rows):
    rows = list({(u, i): (u, i, t) for u, i, t in rows}.values())
    user, item, time = zip(*rows, strict=True)
    data = build("toy", user, item, timestamp=time, catalogue=10)
    result = split(data, SplitSpec(ties=ties))
    expected = naive_leave_one_out(rows, ties)
    assert parts(result) == expected
    assert result.users_without_holdout == sum(not test for _, _, test in expected)


@pytest.mark.parametrize(
    ("ties", "tested", "validated"), [("later_row_is_newer", 4, 3), ("earlier_row_is_newer", 2, 3)]
)
def test_equal_times_are_broken_by_file_order_even_after_duplicates_went(ties, tested, validated):
    data = build("toy", [1] * 5, [1, 2, 1, 3, 4], timestamp=[0, 9, 9, 9, 9], catalogue=5)
    result = split(data, SplitSpec(ties=ties))
    assert (result.test.items_of(0).tolist(), result.valid.items_of(0).tolist()) == ([tested], [validated])
    assert f"the {ties.split('_')[0]} row of the file is newer" in result.describe()


def test_users_with_fewer_than_three_only_train():
    data = build("toy", [1, 1, 2, 2, 2, 3], [1, 2, 1, 2, 3, 1], timestamp=range(6))
    result = split(data, SplitSpec())
    assert result.users_without_holdout == 2
    assert result.train.counts.tolist() == [2, 1, 1]
    assert "2 of 3 users have no test item" in result.describe()


def test_an_order_column_is_enough_and_unknown_ranks_come_first():
    data = build("toy", [1] * 4, [1, 2, 3, 4], order=[2, -1, 1, 0], catalogue=5)
    assert parts(split(data, SplitSpec())) == [([2, 4], [3], [1])]
    contradicted = build("toy", [1] * 4, [1, 2, 3, 4], order=[2, -1, 1, 0], timestamp=[1, 2, 3, 4], catalogue=5)
    assert parts(split(contradicted, SplitSpec())) == [([2, 4], [3], [1])]
    assert contradicted.histories().items_of(0).tolist() == [2, 4, 3, 1]


def test_no_time_is_never_invented():
    data = build("toy", [1] * 4, [1, 2, 3, 4])
    with pytest.raises(DataError, match=r"ratio split .* or supply an order column"):
        split(data, SplitSpec())
    assert split(data, SplitSpec(kind="ratio")).test.counts.tolist() == [1]


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    valid=st.floats(0, 0.5),
    test=st.floats(0, 0.49),
    seed=st.integers(0, 5),
)
def test_ratio_split_partitions_each_user_and_leaves_something_to_train(counts, valid, test, seed):
    user = np.repeat(np.arange(len(counts)), counts)
    item = np.concatenate([np.arange(count) for count in counts])
    data = build("toy", user, item, catalogue=30)
    spec = SplitSpec(kind="ratio", valid_fraction=valid, test_fraction=test, seed=seed)
    result = split(data, spec)
    for count, (train, held, tested) in zip(counts, parts(result), strict=True):
        assert sorted(train + held + tested) == list(range(count))
        assert train
        assert len(tested) == min(int(test * count + 0.5), count - 1)
        assert len(held) == min(int(valid * count + 0.5), count - 1 - len(tested))
    again = split(data, spec)
    assert parts(again) == parts(result)


def naive_user_time(rows, valid, test):
    """rows: (user, item, time) in file order; shares as fractions of hundredths, so nothing is rounded."""
    result = []
    for user in sorted({u for u, _, _ in rows}):
        mine = sorted((t, position, i) for position, (u, i, t) in enumerate(rows) if u == user)
        items = [i for _, _, i in mine]
        trained = max(1, (100 - valid - test) * len(items) // 100)
        held = max(trained, (100 - test) * len(items) // 100)
        result.append((items[:trained], items[trained:held], items[held:]))
    return result


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 29), st.integers(0, 9)), min_size=1, max_size=80),
    valid=st.integers(0, 49),
    test=st.integers(0, 50),
)
def test_user_time_agrees_with_a_plain_loop(rows, valid, test):
    rows = list({(u, i): (u, i, t) for u, i, t in rows}.values())
    user, item, time = zip(*rows, strict=True)
    data = build("toy", user, item, timestamp=time, catalogue=30)
    result = split(data, SplitSpec(kind="user_time", valid_fraction=valid / 100, test_fraction=test / 100))
    assert parts(result) == naive_user_time(rows, valid, test)


def test_user_time_needs_a_time_and_says_its_shares():
    spec = SplitSpec(kind="user_time", valid_fraction=0.1, test_fraction=0.1)
    timed = split(build("toy", [1] * 10, range(10), order=range(10)), spec)
    assert parts(timed) == [(list(range(8)), [8], [9])]
    assert "test the newest 0.1, validation the 0.1 before" in timed.describe()
    with pytest.raises(DataError, match=r"kind=\"published\".* or the ratio split .* or supply an order column"):
        split(build("toy", [1] * 3, [1, 2, 3], split=["train"] * 3), spec)


def test_ratio_split_depends_on_the_seed_and_not_on_position():
    data = build("toy", np.zeros(200, dtype=int), np.arange(200))
    tested = [split(data, SplitSpec(kind="ratio", seed=seed)).test.items for seed in range(40)]
    assert not np.array_equal(tested[0], tested[1])
    assert np.mean(np.concatenate(tested)) == pytest.approx(99.5, abs=5 * 58 / np.sqrt(40 * 40))


def test_published_split_is_followed():
    data = build("toy", [1, 1, 1, 2], [1, 2, 3, 1], split=["test", "train", "valid", "train"], catalogue=4)
    result = split(data, SplitSpec(kind="published"))
    assert parts(result) == [([2], [3], [1]), ([1], [], [])]
    assert result.users_without_holdout == 1
    with pytest.raises(DataError, match="published without a split"):
        split(build("toy", [1], [1]), SplitSpec(kind="published"))


def test_seen_is_everything_and_leaks_of_kept_duplicates_are_told():
    kept = build("toy", [1] * 4, [1, 2, 3, 1], timestamp=range(4), duplicates="keep", catalogue=4)
    result = split(kept, SplitSpec())
    assert result.leaked == 1
    assert "1 held-out entries repeat a training pair (leaky)" in result.describe()
    assert result.seen.items_of(0).tolist() == [1, 2, 3]
    clean = split(build("toy", [1] * 4, [1, 2, 3, 1], timestamp=range(4)), SplitSpec())
    assert clean.leaked == 0
    validated = build("toy", [1] * 4, [1, 2, 1, 3], timestamp=range(4), duplicates="keep", catalogue=4)
    assert split(validated, SplitSpec()).leaked == 1
    assert "leaky" not in clean.describe()
    assert clean.describe().count(". ") == 0


def test_a_spec_that_leaves_nothing_to_train_is_refused():
    with pytest.raises(ValidationError, match="leaves nothing for training"):
        SplitSpec(kind="ratio", valid_fraction=0.5, test_fraction=0.5)
    with pytest.raises(ValidationError, match="kind"):
        SplitSpec(kind="latest")


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=6), share=st.floats(0, 0.79), seed=st.integers(0, 3))
def test_validation_can_be_taken_from_a_published_training_part(counts, share, seed):
    user = np.repeat(np.arange(len(counts)), counts)
    item = np.concatenate([np.arange(count) for count in counts])
    tested = np.random.default_rng(seed).random(len(user)) < 0.3
    data = build("toy", user, item, split=np.where(tested, "test", "train"), catalogue=30)
    published = parts(split(data, SplitSpec(kind="published")))
    spec = SplitSpec(kind="published", valid_from_train=True, valid_fraction=share, seed=seed)
    taken = split(data, spec)
    for (train, held, test), (before, none, same) in zip(parts(taken), published, strict=True):
        assert (test, none) == (same, [])
        assert sorted(train + held) == sorted(before)
        assert len(held) == max(0, min(int(share * len(before) + 0.5), len(before) - 1))
    assert parts(split(data, spec)) == parts(taken)
    assert f"(validation {share:g} of each user's published training rows, at random, seed {seed})" in taken.describe()


def test_a_published_validation_part_is_not_replaced():
    data = build("toy", [1, 1, 1], [1, 2, 3], split=["train", "valid", "test"])
    assert len(split(data, SplitSpec(kind="published")).valid) == 1
    with pytest.raises(DataError, match="published with a validation part"):
        split(data, SplitSpec(kind="published", valid_from_train=True))
    with pytest.raises(ValidationError, match='kind is "ratio": choose kind="published"'):
        SplitSpec(kind="ratio", valid_from_train=True)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=40),
    refreshes=st.integers(2, 6),
)
def test_arrivals_agree_with_a_plain_loop(rows, refreshes):
    """Every refresh waits for its share of all rows and then takes whatever has the time of the last of them, too."""
    rows = list({(u, i): (u, i, t) for u, i, t in rows}.values())
    user, item, time = zip(*rows, strict=True)
    data = build("toy", user, item, timestamp=time, catalogue=10)
    result = split(data, SplitSpec(arrivals=refreshes))
    at = {(u, i): t for u, i, t in rows}
    owners = data.user_ids[result.train.owners]
    times = [at[u, i] for u, i in zip(owners, result.train.items, strict=True)]
    for refresh in range(refreshes):
        last = sorted(times)[-(-(refresh + 1) * len(times) // refreshes) - 1]
        for row, mine in enumerate(data.user_ids):
            there = [t for u, t in zip(owners, times, strict=True) if u == mine and t <= last]
            assert result.arrived[row, refresh] == len(there)
    with pytest.raises(DataError, match=r"nothing arrives by time: leave split\.arrivals out"):
        split(build("toy", [1] * 4, [1, 2, 3, 4]), SplitSpec(kind="ratio", arrivals=refreshes))
    with pytest.raises(DataError, match="give the arrivals of that part, or arrived=None"):
        replace(result, arrived=result.arrived + 1)


def test_ratings_stand_beside_their_items_and_a_changed_part_is_refused():
    data = build("toy", [2, 1, 1, 1], [1, 2, 3, 4], rating=[5, 4, 3, 2], timestamp=[0, 3, 1, 2], catalogue=5)
    result = split(data, SplitSpec())
    assert [result.train.items.tolist(), result.ratings.train.tolist()] == [[3, 1], [3, 5]]
    assert [result.valid.items.tolist(), result.ratings.valid.tolist()] == [[4], [2]]
    assert [result.test.items.tolist(), result.ratings.test.tolist()] == [[2], [4]]
    assert result.untrained == 1
    assert split(build("toy", [1], [1]), SplitSpec(kind="ratio")).ratings is None
    with pytest.raises(DataError, match="train part of toy has 1 items and 2 ratings"):
        replace(result, train=result.train.subset(np.array([0])))
