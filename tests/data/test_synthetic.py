import numpy as np
import pytest
from pydantic import ValidationError

from privfed.data import SplitSpec, SyntheticSpec, generate, load, split


@pytest.fixture(scope="module")
def data():
    return load("synthetic")


def test_it_has_the_size_and_says_what_it_is(data):
    assert (data.n_users, data.n_items) == (943, 1682)
    assert 90_000 < len(data) < 110_000
    assert data.card.synthetic
    assert "synthetic" in data.name
    assert data.card.has_timestamps
    assert data.card.duplicates_dropped == 0
    assert np.bincount(data.user).min() >= 20
    assert set(data.attributes.columns) == {"gender", "age", "occupation", "age_group"}
    assert data.item_info["title"].str.startswith("Synthetic").all()
    with pytest.raises(ValidationError, match="name"):
        SyntheticSpec(name="real people")


def test_the_seed_decides_everything():
    small = SyntheticSpec(name="synthetic-tiny", n_users=40, n_items=60, mean_per_user=10, min_per_user=4)
    other = small.model_copy(update={"seed": 1})
    assert generate(small).card == generate(small).card
    assert generate(small).card.sha256 != generate(other).card.sha256


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("synthetic", "fe701a7499bdf3b8a9598de69c2636b3a93583d7987a127891ccb3dd430025b2"),
        ("synthetic-small", "76433341fd0591dff3c9bb8a5d25d592ebfe65531824d068f5e637d15c1404a2"),
    ],
)
def test_the_named_ones_never_change(name, sha256):
    assert load(name).card.sha256 == sha256


def test_popularity_has_a_long_tail(data):
    popularity = np.sort(np.bincount(data.item, minlength=data.n_items))[::-1]
    assert popularity[:168].sum() > 0.3 * popularity.sum()
    assert popularity[0] > 20 * np.median(popularity[-168:])


def test_some_times_are_equal_and_rows_come_in_order(data):
    assert (np.diff(data.timestamp) >= 0).all()
    pairs = np.stack([data.user, data.timestamp], axis=1)
    assert 0 < len(pairs) - len(np.unique(pairs, axis=0)) < 0.2 * len(pairs)


@pytest.mark.parametrize("name", ["synthetic", "synthetic-small"])
def test_taste_can_be_learnt_neighbours_beat_popularity(name):
    """Item-item cosine neighbours against popularity, full ranking, leave-one-out, HR@10."""
    parts = split(load(name), SplitSpec())
    users = np.arange(parts.train.n_users)
    train = parts.train.mask(users).astype(np.float32)
    popularity = parts.train.popularity()
    norm = np.sqrt(np.maximum(popularity, 1))
    cosine = train.T @ train / np.outer(norm, norm)
    np.fill_diagonal(cosine, 0)

    def hit_rate(scores):
        scores = np.where(parts.train.mask(users), -np.inf, scores)
        target = scores[parts.test.owners, parts.test.items]
        return np.mean((scores[parts.test.owners] > target[:, None]).sum(axis=1) < 10)

    by_popularity = hit_rate(np.broadcast_to(popularity, train.shape))
    assert hit_rate(train @ cosine) > 1.3 * by_popularity
    assert by_popularity > 2 * 10 / parts.train.n_items


@pytest.mark.parametrize("attribute", ["gender", "age_group", "occupation"])
def test_attributes_leave_a_trace_in_what_people_choose(data, attribute):
    """Mean distance between group profiles, against the same with shuffled groups."""
    chosen = data.histories().mask(np.arange(data.n_users)).astype(float)
    profiles = chosen / chosen.sum(axis=1, keepdims=True)
    codes = data.attributes[attribute].cat.codes.to_numpy()

    def spread(groups):
        return sum(
            (groups == g).sum() * ((profiles[groups == g].mean(0) - profiles.mean(0)) ** 2).sum() for g in set(groups)
        )

    rng = np.random.default_rng(0)
    by_chance = [spread(rng.permutation(codes)) for _ in range(20)]
    assert spread(codes) > np.mean(by_chance) + 4 * np.std(by_chance)


def test_most_of_a_tiny_catalogue_is_never_asked_for():
    data = generate(SyntheticSpec(n_users=1, n_items=2, mean_per_user=50))
    assert (len(data), data.n_items) == (1, 2)
