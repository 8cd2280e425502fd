"""User attributes follow their users through every filter, and become classes to tell apart."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import (
    ATTRIBUTES,
    DataError,
    SplitSpec,
    behaviours_from_ratings,
    build,
    load,
    split,
    user_classes,
)
from privfed.data.attributes import UNKNOWN
from privfed.data.people import demographics

PEOPLE = demographics(
    pd.DataFrame(
        {
            "gender": ["F", "M", None, "F", "M"],
            "age": [34, 35, 20, None, 60],
            "occupation": ["writer", "artist", "writer", "other", "artist"],
        },
        index=[11, 5, 7, 2, 30],
    )
)


def of_ids(data):
    """Original id -> gender, as the data set has it after whatever was done to it."""
    return dict(zip(data.user_ids.tolist(), data.attributes["gender"].tolist(), strict=True))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from([2, 5, 7, 11, 30]), st.integers(0, 5)), min_size=4, unique=True),
    least=st.integers(1, 3),
)
def test_attributes_stay_with_their_users(rows, least):
    users, items = zip(*rows, strict=True)
    gender = {user: str(value) for user, value in PEOPLE["gender"].items()}
    if max(users.count(user) for user in users) < least:
        return
    data = build("toy", users, items, timestamp=range(len(rows)), attributes=PEOPLE, min_per_user=least)
    expected = {user: gender[user] for user in users if users.count(user) >= least}
    assert {user: str(value) for user, value in of_ids(data).items()} == expected
    assert split(data, SplitSpec()).attributes is data.attributes


def test_attributes_survive_the_core_filter_of_behaviours():
    users, items = [2, 2, 5, 7, 7, 11, 11], [0, 1, 5, 0, 1, 0, 1]
    data = build("toy", users, items, rating=[5, 5, 5, 4, 4, 4, 5], attributes=PEOPLE)
    made = behaviours_from_ratings(data, min_per_user=2, min_per_item=2)
    assert made.user_ids.tolist() == [2, 7, 11]
    assert [str(value) for value in made.attributes["occupation"]] == ["other", "writer", "writer"]
    parts = split(made, SplitSpec(kind="ratio", target="buy"))
    assert user_classes(parts.attributes, "occupation").codes.tolist() == [0, 1, 1]


def test_a_split_refuses_attributes_of_others():
    parts = split(build("toy", [2, 5, 7], [1, 2, 3], attributes=PEOPLE), SplitSpec(kind="ratio"))
    with pytest.raises(DataError, match="has 3 users and attributes of 2"):
        type(parts)(**(vars(parts) | {"attributes": parts.attributes[:2]}))


def test_classes_are_what_people_are():
    ids = [2, 5, 7, 11, 30]
    people = build("toy", ids, range(5), attributes=PEOPLE).attributes
    gender = user_classes(people, "gender")
    assert (gender.attribute, gender.names, gender.words) == ("gender", ("F", "M"), "F or M")
    assert gender.codes.tolist() == [0, 1, UNKNOWN, 0, 1]
    age = user_classes(people, "age 35")
    assert (age.attribute, age.words) == ("age", "under 35 or 35 or older")
    assert age.codes.tolist() == [UNKNOWN, 1, 0, 0, 1]
    groups = user_classes(people, "age group")
    assert (groups.names, groups.words) == (("18-24", "25-34", "35-44", "56+"), "4 age groups")
    assert groups.codes.tolist() == [UNKNOWN, 2, 0, 1, 3]
    jobs = user_classes(people, "occupation")
    assert (jobs.words, jobs.codes.tolist()) == ("3 occupations", [1, 0, 2, 2, 0])


def test_small_classes_are_left_out_among_few():
    people = build("toy", [2, 5, 7, 11, 30], range(5), attributes=PEOPLE).attributes
    jobs = user_classes(people, "occupation").among(np.array([4, 2, 3, 1, 0]), 2)
    assert jobs.names == ("artist", "writer")
    assert jobs.codes.tolist() == [0, 1, 1, 0, UNKNOWN]
    assert user_classes(people, "gender").among(np.array([0, 1]), 2).names == ()


def test_what_a_data_set_does_not_say_is_refused():
    with pytest.raises(DataError, match="toy says nothing about its users, so there is no attribute to guess"):
        user_classes(build("toy", [1], [1]).attributes, "gender", "toy")
    only_age = build("toy", [1], [1], attributes=pd.DataFrame({"age": [3], "zip": ["x"]}, index=[1])).attributes
    with pytest.raises(DataError, match=r"does not say the gender of its users \(it says age, zip\)"):
        user_classes(only_age, "gender")
    nobody = build("toy", [1], [1], attributes=PEOPLE.loc[[11]]).attributes
    with pytest.raises(DataError, match="it says nothing"):
        user_classes(nobody, "gender")


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_generated_people_have_every_attribute(attribute):
    data = load("synthetic-small")
    classes = user_classes(data.attributes, attribute)
    assert len(classes.codes) == data.n_users
    assert np.unique(classes.codes).tolist() == list(range(len(classes.names)))


def test_movielens_classes_have_the_published_sizes(real_data):
    small, large = (load(name, path=real_data).attributes for name in ("ml-100k", "ml-1m"))
    assert np.bincount(user_classes(small, "gender").codes).tolist() == [273, 670]
    assert np.bincount(user_classes(large, "gender").codes).tolist() == [1709, 4331]
    assert np.bincount(user_classes(large, "age 35").codes).tolist() == [3421, 2619]
    assert user_classes(large, "age group").words == "7 age groups"
    assert user_classes(large, "occupation").words == "21 occupations"
