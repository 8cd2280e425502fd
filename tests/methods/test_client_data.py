"""What clients are given: ratings next to their items, through a split and behind padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, Histories, SplitSpec, build, load, split
from privfed.methods import ClientData


def ratings_by_pair(data):
    return dict(zip(zip(data.positives.owners, data.positives.items, strict=True), data.ratings, strict=True))


@pytest.mark.parametrize("negatives", ["train", "all"])
def test_ratings_stand_beside_the_training_items(negatives):
    interactions = load("synthetic-small")
    data = ClientData.from_split(split(interactions, SplitSpec()), negatives)
    rating = dict(zip(zip(interactions.user, interactions.item, strict=True), interactions.rating, strict=True))
    assert ratings_by_pair(data) == {pair: rating[pair] for pair in ratings_by_pair(data)}
    assert data.ratings.dtype == np.float32
    unrated = split(build("toy", [1, 1], [1, 2]), SplitSpec(kind="ratio"))
    assert ClientData.from_split(unrated, negatives).ratings is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7), st.booleans()), max_size=32, unique_by=lambda r: r[:2]))
def test_behind_a_padding_each_item_keeps_its_rating(rows):
    user, item, stays = (np.array([row[n] for row in rows], dtype=np.int64) for n in range(3))
    own = Histories.from_pairs(user, item, 4, 8)
    data = ClientData(own, own, ratings=np.arange(len(own), dtype=np.float32))
    kept = Histories.from_pairs(user[stays > 0][::-1], item[stays > 0][::-1], 4, 8)
    covered = data.with_padding(kept, Histories.from_pairs(user, 7 - item, 4, 8), public_target=False)
    before = ratings_by_pair(data)
    assert ratings_by_pair(covered) == {pair: before[pair] for pair in ratings_by_pair(covered)}
    assert len(covered.ratings) == len(kept)
    assert data.with_padding(kept, kept, public_target=True).ratings is data.ratings


def test_one_rating_for_each_training_item():
    own = Histories.from_pairs(np.array([0, 0]), np.array([1, 2]), 1, 3)
    with pytest.raises(DataError, match="1 ratings stand beside 2 training items"):
        ClientData(own, own, ratings=np.ones(1, np.float32))


@pytest.mark.parametrize("users", [[], [0], [2, 3, 11], list(range(40, 120))])
def test_a_part_of_the_users_numbers_them_from_0(users):
    parts = split(load("synthetic-small"), SplitSpec())
    data, users = ClientData.from_split(parts, "all"), np.array(users, dtype=np.int64)
    hosted, everything = data.hosting(users), ratings_by_pair(data)
    assert hosted.n_users == len(users)
    assert hosted.n_items == data.n_items
    whose = {(users[owner], item): rating for (owner, item), rating in ratings_by_pair(hosted).items()}
    assert whose == {pair: everything[pair] for pair in everything if pair[0] in users}
    for place, user in enumerate(users):
        assert hosted.excluded.items_of(place).tolist() == data.excluded.items_of(user).tolist()
    assert hosted.everybody.users.tolist() == users.tolist()
    assert hosted.everybody.activity.tolist() == data.positives.counts.tolist()
    assert data.everybody.users.tolist() == list(range(data.n_users))
