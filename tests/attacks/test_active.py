"""Crafted models: they change what they say and nothing else, and they win where there is something to win."""

import numpy as np
import pytest

from attacks import Knowledge, ServerView
from attacks.active import CRAFTS, HONEST, Craft, broken, lit
from attacks.evaluation.choice import best_on
from attacks.membership import RankOneSign
from attacks.metrics import user_auc

SENT = {
    "items": np.random.default_rng(0).normal(0, 0.1, (300, 8)).astype(np.float32),
    "bias": np.linspace(-1, 1, 300, dtype=np.float32),
    "head": np.ones((8, 4), np.float32),
    "order": np.arange(300),
}


@pytest.mark.parametrize("craft", CRAFTS, ids=lambda craft: craft.name)
def test_a_craft_keeps_names_shapes_and_whole_numbers(craft: Craft) -> None:
    model = craft.model(SENT, 300)
    assert {name: (v.shape, v.dtype) for name, v in model.items()} == {n: (v.shape, v.dtype) for n, v in SENT.items()}
    assert (model["order"] == SENT["order"]).all()
    same = all((model[name] == SENT[name]).all() for name in SENT)
    assert same == (craft == HONEST)


def test_codes_tell_items_apart_and_equal_rows_do_not() -> None:
    codes, equal = (Craft("", rows=rows).model(SENT, 300)["items"] for rows in ("codes", "equal"))
    assert len(np.unique(codes, axis=0)) > 150
    assert len(np.unique(equal, axis=0)) == 1
    for table in (codes, equal):
        assert np.linalg.norm(table) == pytest.approx(np.linalg.norm(SENT["items"]), rel=1e-3)


def test_a_broken_model_has_no_number_left() -> None:
    model = broken(SENT)
    assert np.isnan(np.concatenate([model[name].reshape(-1) for name in ("items", "bias", "head")])).all()
    assert (model["order"] == SENT["order"]).all()


def test_lit_rows_are_the_only_ones() -> None:
    model = lit(SENT, np.array([3, 7]), 300)
    assert np.flatnonzero(model["items"].any(axis=1)).tolist() == [3, 7]
    assert (model["head"] == SENT["head"]).all()


def local(table: np.ndarray, labels: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """One step on cross-entropy by every user: `labels` are 1, 0, and NaN for rows that nobody looked up."""
    error = labels - 1 / (1 + np.exp(-np.clip(heads @ table.T, -30, 30)))
    return np.nan_to_num(error)[:, :, None] * heads[:, None]


def world(members_follow_data: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A table with loud taste in it, private heads, histories, and labels of local training."""
    rng = np.random.default_rng(4)
    members = rng.random((30, 300)) < 0.1
    trained = members if members_follow_data else rng.permuted(members, axis=1)
    labels = np.where(trained, 1.0, np.where(rng.random(members.shape) < 0.4, 0.0, np.nan))
    return 3 * rng.normal(size=(300, 8)), rng.normal(size=(30, 8)), members, labels


@pytest.mark.parametrize("informative", [True, False])
def test_equal_rows_read_a_history_that_loud_rows_hide_under_noise(informative: bool) -> None:
    """Saturated predictions leave small errors; a server that sends quiet rows gets errors of one half."""
    table, heads, members, labels = world(informative)
    noise = np.random.default_rng(5).normal(0, 1.5, (30, 300, 8))
    found = {}
    for craft in (HONEST, Craft("quiet", row_gain=0.0)):
        upload = local(craft.model({"items": table}, 300)["items"], labels, heads) + noise
        score = RankOneSign().score(ServerView(0, upload.astype(np.float32)), Knowledge(np.ones(300)))
        found[craft.name] = user_auc(score, members, np.ones_like(members)).mean()
    if informative:
        assert found["quiet"] > found["as sent"] + 0.02
    else:
        assert found["quiet"] == pytest.approx(0.5, abs=0.05)


def test_a_choice_is_made_on_known_people_alone() -> None:
    known = np.arange(8) < 4
    auc = {"good": np.array([0.9] * 4 + [0.1] * 4), "bad": np.array([0.6] * 4 + [1.0] * 4)}
    assert best_on(auc, known) == ("good", False)
    assert best_on({"upside down": np.array([0.1] * 4 + [np.nan] * 4), **auc}, known)[0] in ("upside down", "good")
    assert best_on({"upside down": np.array([0.0] * 4 + [np.nan] * 4), **auc}, known) == ("upside down", True)
    with pytest.raises(ValueError, match="known person"):
        best_on({"nobody": np.full(8, np.nan)}, known)


def test_the_best_of_many_guesses_is_a_guess() -> None:
    """Without a second half the maximum over noise would look like a finding."""
    rng = np.random.default_rng(6)
    known = np.arange(40) < 20
    guesses = {number: rng.normal(0.5, 0.1, 40) for number in range(60)}
    best, reverse = best_on(guesses, known)
    signed = 1 - guesses[best] if reverse else guesses[best]
    assert signed[known].mean() > 0.54
    assert signed[~known].mean() == pytest.approx(0.5, abs=0.05)
