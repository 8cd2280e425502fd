"""Donors leave a split, and stay in it with their training items alone."""

import numpy as np
import pytest
from pydantic import ValidationError

from privfed.data import DataError, SplitSpec, SyntheticSpec, build, generate, split

SPEC = SyntheticSpec(name="synthetic-opened", n_users=40, n_items=30, mean_per_user=8, min_per_user=5, seed=2)


@pytest.fixture(scope="module")
def data():
    return generate(SPEC)


def test_everybody_else_keeps_everything_and_donors_keep_what_trains(data):
    everybody, parts = split(data, SplitSpec()), split(data, SplitSpec(donors=("3", "17")))
    opened = data.user_ids.astype(str).get_indexer(["3", "17"])
    rest = np.setdiff1d(np.arange(40), opened)
    np.testing.assert_array_equal(parts.donors.users, opened)
    for row, user in enumerate(rest):
        for part in ("train", "valid", "test"):
            mine, whole = getattr(parts, part), getattr(everybody, part)
            np.testing.assert_array_equal(mine.items_of(row), whole.items_of(user))
    for row, user in enumerate(opened):
        np.testing.assert_array_equal(parts.donors.histories.items_of(row), everybody.train.items_of(user))
    assert parts.attributes.equals(everybody.attributes.iloc[rest])
    assert (parts.train.n_users, parts.donors.histories.n_users) == (38, 2)
    np.testing.assert_array_equal(parts.rows_of(rest, data.user_ids), np.arange(38))
    assert "2 donors" in parts.describe()
    assert "donors" not in everybody.describe()


def test_ratings_and_arrivals_of_everybody_else_stay_theirs():
    user, item = np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6)
    data = build("toy", user, item, rating=np.arange(30), timestamp=np.random.default_rng(0).permutation(30))
    spec = SplitSpec(arrivals=3)
    everybody, parts = split(data, spec), split(data, spec.model_copy(update={"donors": ("1", "4")}))
    rest = np.array([0, 2, 3, 5])
    np.testing.assert_array_equal(parts.arrived, everybody.arrived[rest])
    for part in ("train", "valid", "test"):
        held, rated = getattr(parts, part), getattr(parts.ratings, part)
        np.testing.assert_array_equal(rated, 5 * rest[held.owners] + held.items)


def test_a_share_is_drawn_from_the_seed_and_the_number_of_users_alone(data):
    other = generate(SPEC.model_copy(update={"seed": 9}))
    drawn = [split(of, SplitSpec(donors=0.2)).donors.users for of in (data, other)]
    np.testing.assert_array_equal(*drawn)
    assert len(drawn[0]) == 8
    assert not np.array_equal(drawn[0], split(data, SplitSpec(donors=0.2, seed=1)).donors.users)


def test_without_donors_a_specification_is_written_as_ever():
    assert "donors" not in SplitSpec().model_dump(mode="json")
    for donors in (0.05, ("a", "7")):
        spec = SplitSpec(donors=donors)
        assert SplitSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert SplitSpec(donors=[3, "b"]).donors == ("3", "b")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_lies_between_nobody_and_everybody(share):
    with pytest.raises(ValidationError):
        SplitSpec(donors=share)


@pytest.mark.parametrize(
    ("donors", "message"),
    [
        (("3", "stranger"), "no user 'stranger'.*give ids"),
        (("3", "3"), "twice: name each once"),
        ((), "0 of 40 users.*at least one"),
        (0.001, "0 of 40 users.*at least one"),
        (0.999, "40 of 40 users.*at least one"),
    ],
)
def test_donors_who_cannot_be_are_refused(data, donors, message):
    with pytest.raises(DataError, match=message):
        split(data, SplitSpec(donors=donors))


def test_a_donor_has_no_row_of_its_own(data):
    parts = split(data, SplitSpec(donors=("3",)))
    with pytest.raises(DataError, match="user 3 is a donor"):
        parts.rows_of(parts.donors.users, data.user_ids)
