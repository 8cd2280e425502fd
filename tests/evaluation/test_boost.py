"""What a device adds to its own ranking: lifted items, the same scale for everybody, and nothing in any message."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import privfed
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.evaluation import Boost, EvaluationError
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

USERS, ITEMS = 4, 7
BOUGHT = SplitSpec(target="buy")


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(load("synthetic-funnel-small"), BOUGHT)


def viewed(parts: Split) -> Split:
    rows = Histories.from_pairs(np.array([0, 0, 2, 3]), np.array([1, 6, 0, 3]), USERS, ITEMS)
    carted = Histories.from_pairs(np.array([0, 3]), np.array([6, 5]), USERS, ITEMS)
    return replace(parts, auxiliary={"view": rows, "cart": carted})


def naive(scores: np.ndarray, users: list[int], sizes: dict[str, float], parts: Split, items: np.ndarray) -> np.ndarray:
    """One user, item and behaviour at a time."""
    out = scores.copy()
    for row, user in enumerate(users):
        for column in range(scores.shape[1]):
            for behaviour, size in sizes.items():
                rows = parts.auxiliary[behaviour]
                if items[row, column] in rows.items[rows.indptr[user] : rows.indptr[user + 1]]:
                    out[row, column] += size * scores[row].std()
    return out


@pytest.mark.parametrize("sampled", [False, True])
def test_own_items_gain_standard_deviations(parts: Split, *, sampled: bool) -> None:
    known, rng = viewed(parts), np.random.default_rng(0)
    sizes, users = {"view": 2.0, "cart": -0.5}, [3, 0, 1]
    items = rng.permuted(np.tile(np.arange(ITEMS), (3, 1)), axis=1)[:, :5] if sampled else np.tile(range(ITEMS), (3, 1))
    scores = rng.normal(size=items.shape).astype(np.float32)
    candidates = torch.from_numpy(items) if sampled else None
    added = Boost(sizes, known).added(torch.from_numpy(scores), torch.tensor(users), candidates)
    np.testing.assert_allclose(added.numpy(), naive(scores, users, sizes, known, items), rtol=1e-5, atol=1e-6)
    assert not np.allclose(added.numpy(), scores)


def test_a_size_is_the_same_on_every_scale_of_scores(parts: Split) -> None:
    boost, scores = Boost({"view": 1.5}, viewed(parts)), torch.randn(USERS, ITEMS, generator=torch.manual_seed(1))
    order = boost.added(scores, torch.arange(USERS), None).argsort(1)
    assert torch.equal(boost.added(100 * scores + 3, torch.arange(USERS), None).argsort(1), order)


def test_no_boost_changes_no_bit(parts: Split) -> None:
    scores = torch.randn(USERS, ITEMS)
    assert Boost({}, parts).added(scores, torch.arange(USERS), None) is scores


@pytest.mark.parametrize(
    ("sizes", "task", "word"),
    [
        ({"wish": 1.0}, "ranking", "boost.wish names a behaviour, and synthetic-funnel-small has cart, view"),
        ({"view": float("nan")}, "ranking", "no number"),
        ({"view": 1.0}, "rating", "leave boost out"),
    ],
)
def test_a_boost_that_cannot_be_is_refused(parts: Split, sizes: dict[str, float], task: str, word: str) -> None:
    with pytest.raises(EvaluationError, match=word):
        Boost(sizes, parts, task)


def run(parts: Split, boost: dict[str, float], method: str = "dfmr") -> Experiment:
    config = ExperimentConfig(
        data="synthetic-funnel-small", split=BOUGHT, method={"name": method}, rounds=2, boost=boost,
        taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts)


def test_training_and_guarantee_are_as_without_it(parts: Split) -> None:
    plain, boosted = run(parts, {}), run(parts, {"view": 2.0})
    without, lifted = plain.run(), boosted.run()
    assert without.guarantee == lifted.guarantee
    assert without.costs.up_bytes == lifted.costs.up_bytes
    for name, value in plain.server.state().items():
        assert torch.equal(value, boosted.server.state()[name])
    assert without.test.metrics != lifted.test.metrics


def test_only_a_boost_changes_the_digest(parts: Split) -> None:
    plain = run(parts, {}).config
    assert "boost" not in plain.decides()
    assert run(parts, {"view": 2.0}).config.digest() != plain.digest()


def test_a_device_recommends_by_it_and_popularity_does_not() -> None:
    plain = privfed.run("popularity", "synthetic-funnel-small", target="buy")
    lifted = privfed.run("popularity", "synthetic-funnel-small", target="buy", boost={"view": 50.0})
    user = lifted.data.user_ids[0]
    parts = lifted.experiment.parts
    top = set(lifted.recommend(user, k=5)["item"])
    seen = parts.auxiliary["view"]
    assert top <= {lifted.data.item_ids[item] for item in seen.items[: seen.indptr[1]]}
    assert top != set(plain.recommend(user, k=5)["item"])
    assert list(lifted.metrics["popularity"]) == list(plain.metrics["value"])
