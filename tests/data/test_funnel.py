"""The generated funnel of views, carts and purchases."""

import numpy as np
import pytest
from pydantic import ValidationError

from privfed.data import FunnelSpec, SplitSpec, generate_funnel, load, split
from privfed.data.population import SyntheticPopulation
from privfed.data.synthetic_spec import FUNNELS

NAMES = ("synthetic-funnel", "synthetic-funnel-small")


@pytest.fixture(scope="module", params=NAMES)
def data(request):
    return load(request.param)


def times(data, behaviour):
    """(user, item) -> time of the rows of a behaviour."""
    rows = data.rows_of(behaviour)
    pairs = zip(data.user[rows].tolist(), data.item[rows].tolist(), strict=True)
    return dict(zip(pairs, data.timestamp[rows].tolist(), strict=True))


def test_it_says_what_it_is(data):
    assert data.card.synthetic
    assert data.card.has_timestamps
    assert data.card.duplicates_dropped == 0
    assert list(data.behaviour_counts) == ["buy", "cart", "view"]
    assert data.card.items == data.n_items == len(data.item_info)
    assert set(data.attributes.columns) == {"gender", "age", "occupation", "age_group"}
    assert data.item_info["title"].str.startswith("Synthetic").all()
    with pytest.raises(ValidationError, match="name"):
        FunnelSpec(name="a shop")


def test_each_step_comes_after_the_one_before(data):
    viewed, carted, bought = (times(data, behaviour) for behaviour in ("view", "cart", "buy"))
    assert all(viewed[pair] < moment for pair, moment in carted.items())
    assert all(carted[pair] < moment for pair, moment in bought.items() if pair in carted)
    assert {pair for pair in bought if pair in viewed} == {pair for pair in bought if pair in carted}


def test_the_shares_are_those_of_the_spec(data):
    spec = FunnelSpec()
    viewed, carted, bought = (times(data, behaviour) for behaviour in ("view", "cart", "buy"))
    seen = [pair for pair in bought if pair in viewed]
    assert len(carted) == pytest.approx(spec.cart_share * len(viewed), abs=1)
    assert len(seen) == pytest.approx(spec.buy_share * len(carted), abs=1)
    assert 1 - len(seen) / len(bought) == pytest.approx(spec.without_view, abs=0.01)


def test_one_time_line_a_user_and_rows_in_order(data):
    assert (np.diff(data.timestamp) >= 0).all()
    pairs = np.stack([data.user, data.timestamp], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs)


def test_the_seed_decides_everything_and_shares_can_be_zero_or_one():
    small = FunnelSpec(name="synthetic-tiny", n_users=30, n_items=40, mean_per_user=10, min_per_user=4)
    other = small.model_copy(update={"seed": 1})
    assert generate_funnel(small).card == generate_funnel(small).card
    assert generate_funnel(small).card.sha256 != generate_funnel(other).card.sha256
    everything = generate_funnel(small.model_copy(update={"cart_share": 1, "buy_share": 1, "without_view": 0}))
    assert len(set(everything.behaviour_counts.values())) == 1
    crowded = generate_funnel(small.model_copy(update={"cart_share": 1, "buy_share": 1, "without_view": 0.9}))
    assert np.bincount(crowded.user[crowded.rows_of("buy")]).max() <= crowded.n_items


def test_the_better_the_liking_the_further_down_the_funnel(data):
    spec = FUNNELS[data.name]
    population = SyntheticPopulation.sample(spec, np.random.default_rng(spec.seed))
    liking = np.concatenate([block for _, block in population.blocks()])
    everything = liking[data.user, data.item]
    bought = data.rows_of("buy")
    pair = data.user * data.n_items + data.item
    seen = np.isin(pair, pair[data.rows_of("view")])
    steps = [data.rows_of("view"), data.rows_of("cart"), bought & seen]
    means = [liking.mean(), *(everything[rows].mean() for rows in steps)]
    assert (np.diff(means) > 0.25).all()
    never_viewed = np.setdiff1d(np.arange(liking.size), pair[data.rows_of("view")])
    assert everything[bought & ~seen].mean() > liking.flat[never_viewed].mean() + 0.5


@pytest.mark.parametrize("name", NAMES)
def test_views_help_to_find_purchases(name):
    """Item-item cosine neighbours of purchases alone, of both, and popularity; full ranking, recall@10."""
    parts = split(load(name), SplitSpec(kind="user_time", target="buy"))
    users = np.arange(parts.train.n_users)
    bought = parts.train.mask(users).astype(float)
    viewed = parts.auxiliary["view"].mask(users).astype(float)
    held = parts.test.mask(users)

    def recall(scores):
        top = np.argsort(-np.where(bought > 0, -np.inf, scores), axis=1, kind="stable")[:, :10]
        return np.take_along_axis(held, top, axis=1).sum() / held.sum()

    def neighbours(profile):
        norm = np.sqrt(np.maximum((profile**2).sum(axis=0), 1e-9))
        cosine = profile.T @ profile / np.outer(norm, norm)
        np.fill_diagonal(cosine, 0)
        return recall(profile @ cosine)

    popular = recall(np.broadcast_to(bought.sum(axis=0), bought.shape))
    assert neighbours(bought) > 1.1 * popular
    assert neighbours(bought + 0.3 * viewed) > 1.1 * neighbours(bought)


def test_few_held_out_purchases_were_viewed_in_the_training_prefix(data):
    parts = split(data, SplitSpec(kind="user_time", target="buy"))
    view = parts.auxiliary["view"]
    was_viewed = np.isin(parts.test.owners * data.n_items + parts.test.items, view.owners * data.n_items + view.items)
    assert 0 < was_viewed.mean() < 0.15
