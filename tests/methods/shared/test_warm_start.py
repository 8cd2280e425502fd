"""Starts from released weights: they are those weights, they fit every system, and they see a public message alone."""

import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Message
from privfed.methods.shared import warm_start
from privfed.methods.shared.warm_start import STRENGTH, GramFactors, NoStartError
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

ITEMS, SIDE, RANK = 70, 24, 8


def released(seed=0, items=ITEMS, side=SIDE):
    """What `private-gram` could publish: a symmetric matrix with eigenvalues in (-0.1, 1), popularity and damping."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(side, side)))[0] if side else np.zeros((0, 0))
    weights = (basis * np.linspace(-0.1, 0.95, side)) @ basis.T
    order = np.empty(items)
    codes = rng.permutation(items)
    order[codes] = np.arange(items, 0, -1) / items
    shares = np.sort(rng.random(side) + 0.2)[::-1]
    shares = shares / max(shares.sum(), 1)
    shared = {
        "head": torch.from_numpy(codes[:side].copy()),
        "shares": torch.from_numpy(shares.copy()).float(),
        "scale": torch.from_numpy((shares * side) ** -0.25).float(),
        "weights": torch.from_numpy(weights).float(),
        "order": torch.from_numpy(order).float(),
    }
    return Message(shared)


def experiment(split, name, **settings):
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": name, **settings}, privacy=PrivacyPlan.parse("none"),
        protocol=Protocol(k=(5,), state="received"), rounds=1, seed=3, taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, split)


def started(e, parameters):
    e.server.load({**e.server.state(), **parameters})
    users = torch.arange(e.n_users)
    return e.clients.score(users, e.server.public().addressed_to(users), None, None)


def owned(split):
    x = torch.zeros(split.train.n_users, split.train.n_items)
    x[torch.from_numpy(split.train.owners), torch.from_numpy(split.train.items)] = 1
    return x


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 50), rank=st.integers(1, 40), side=st.integers(0, 30))
def test_shapes_signs_and_rows_outside_the_head(seed, rank, side):
    message = released(seed, side=side)
    factors, again = GramFactors.from_message(message, rank), GramFactors.from_message(message, rank)
    outside = torch.ones(ITEMS, dtype=torch.bool)
    outside[message.shared["head"]] = False
    for name in ("reading", "predicting", "vectors"):
        table = getattr(factors, name)
        assert table.shape == (ITEMS, rank)
        assert not table[outside].any()
        assert torch.equal(table, getattr(again, name))
    assert factors.log_popularity.exp().sum().item() == pytest.approx(1, abs=1e-4)


def test_popularity_goes_by_the_released_order():
    message = released()
    by_share = GramFactors.from_message(message, 1).log_popularity.argsort(descending=True, stable=True)
    assert torch.equal(by_share, message.shared["order"].argsort(descending=True, stable=True))


def test_a_prefix_of_the_factors_is_the_factors_of_lower_rank():
    wide, narrow = GramFactors.from_message(released(), RANK), GramFactors.from_message(released(), 3)
    for name in ("reading", "predicting", "vectors"):
        assert torch.equal(getattr(wide, name)[:, :3], getattr(narrow, name))


def test_at_full_rank_the_factors_are_the_weights():
    message = released()
    values, vectors = np.linalg.eigh(message.shared["weights"].double().numpy())
    positive = (vectors * values.clip(0)) @ vectors.T
    head, pi, scale = (message.shared[n].numpy() for n in ("head", "shares", "scale"))
    factors = GramFactors.from_message(message, SIDE)
    own = np.zeros(ITEMS)
    own[head[[0, 4, 5, 9]]] = 1
    y = scale * (own[head] - 4 * pi)
    expected = (positive @ y) / scale
    found = factors.predicting.numpy()[head] @ (factors.reading.numpy().T @ own)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["fedvae", "feddae"])
def test_an_autoencoder_starts_at_popularity_moved_by_the_factors(small_split, name):
    factors = GramFactors.from_message(released(), RANK)
    # A gate that starts even mixes FedDAE's encoder with a vector of zeros.
    weight = 0.5 if name == "feddae" else 1.0
    e = experiment(small_split, name, latent=RANK + 2)
    scores = started(e, warm_start.autoencoder(e.server.state(), factors))
    x = owned(small_split)
    z = x @ factors.reading / x.sum(1, keepdim=True).clamp(min=1).sqrt()
    expected = factors.log_popularity + weight * STRENGTH * z @ factors.predicting.T
    expected -= factors.log_popularity.mean()
    assert torch.allclose(scores, expected, atol=1e-3)


def test_nested_tables_are_prefixes_and_heads_are_silent(small_split):
    factors = GramFactors.from_message(released(), RANK)
    e = experiment(small_split, "hetefedrec", widths=[2, 4, RANK], initial_user_scale=1e-12)
    scores = started(e, warm_start.nested_tables(e.server.state(), factors, negatives=4))
    x = owned(small_split)
    read = x / x.sum(1, keepdim=True).clamp(min=1).sqrt()
    odds = factors.log_popularity + math.log(ITEMS / 4)
    for model, width in enumerate((2, 4, RANK)):
        mine = e.clients.model == model
        table = factors.vectors[:, :width]
        assert torch.allclose(scores[mine], odds + STRENGTH * (read[mine] @ table) @ table.T, atol=1e-3)


def test_fair_starts_at_popularity_and_devices_get_the_projected_factors(small_split):
    factors = GramFactors.from_message(released(), RANK)
    e = experiment(small_split, "fair", dim=RANK, scheme="1x-2x", initial_scale=1e-9)
    parameters = warm_start.neural_factorisation(e.server.state(), factors)
    scores = started(e, parameters)
    expected = factors.log_popularity - factors.log_popularity.min()
    assert torch.allclose(scores, expected.expand_as(scores), atol=1e-4)
    table = factors.vectors * math.sqrt(STRENGTH)
    for spaces in e.clients.tiering.spaces.values():
        held = spaces["gmf"].project(e.server.public().shared["items.gmf"])
        assert torch.equal(held, spaces["gmf"].project(table))


def test_one_table_is_as_large_as_a_drawn_one():
    factors, drawn = (
        GramFactors.from_message(released(), RANK),
        torch.randn(ITEMS, 12, generator=torch.Generator().manual_seed(1)),
    )
    table = warm_start.one_table(drawn, factors)
    assert table.shape == drawn.shape
    assert table[:, 0].std().item() == pytest.approx(drawn.std().item(), rel=1e-5)
    sizes = table[factors.head][:, 1 : 1 + RANK].square().mean(0).sqrt()
    assert sizes.max().item() == pytest.approx(drawn.std().item(), rel=1e-5)
    assert not table[:, 1 + RANK :].any()


def test_without_a_gram_matrix_there_is_popularity_alone(small_split):
    factors = GramFactors.from_message(released(side=0), RANK)
    e = experiment(small_split, "fedvae", latent=RANK)
    scores = started(e, warm_start.autoencoder(e.server.state(), factors))
    assert torch.equal(scores.argmax(1), factors.log_popularity.argmax().expand(e.n_users))


def test_inputs_stay_as_they_are(small_split):
    factors = GramFactors.from_message(released(), RANK)
    for name, start, options in (
        ("fedvae", warm_start.autoencoder, {"latent": RANK}),
        ("fair", warm_start.neural_factorisation, {"dim": RANK}),
        ("hetefedrec", lambda s, f: warm_start.nested_tables(s, f, 4), {"widths": [2, 4, RANK]}),
    ):
        state = experiment(small_split, name, **options).server.state()
        before = {key: value.clone() for key, value in state.items()}
        changed = start(state, factors)
        assert all(torch.equal(state[key], before[key]) for key in before)
        assert {k: v.shape for k, v in changed.items()} == {k: v.shape for k, v in before.items()}


def test_nothing_but_public_tensors_goes_in():
    for function in (
        GramFactors.from_message,
        warm_start.autoencoder,
        warm_start.nested_tables,
        warm_start.neural_factorisation,
    ):
        names = set(inspect.signature(function).parameters)
        assert names <= {"message", "rank", "parameters", "factors", "strength", "negatives"}
    assert set(inspect.signature(warm_start.one_table).parameters) == {"items", "factors"}


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda f: GramFactors.from_message(Message({}), 3), "message of private-gram"),
        (lambda f: GramFactors.from_message(released(), 0), "at least 1"),
        (lambda f: warm_start.autoencoder({"items": torch.zeros(ITEMS, 3)}, f), "one layer"),
        (lambda f: warm_start.one_table(torch.zeros(ITEMS, RANK), f), "columns beside popularity"),
        (lambda f: warm_start.one_table(torch.zeros(3, 2 * RANK), f), "same catalogue"),
        (lambda f: warm_start.nested_tables({"items.small": torch.zeros(ITEMS, 4)}, f, 4), "item bias"),
        (lambda f: warm_start.neural_factorisation({}, f), "NeuMF of one hidden layer"),
        (
            lambda f: warm_start.nested_tables(
                {"items.small": torch.zeros(ITEMS, 99), "bias": torch.zeros(ITEMS, 1)}, f, 4
            ),
            "widest table",
        ),
    ],
)
def test_what_does_not_fit_is_refused(refused, words):
    with pytest.raises(NoStartError, match=words):
        refused(GramFactors.from_message(released(), RANK))
