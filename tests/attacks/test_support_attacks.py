"""What an aggregator's guesses find in supports, from planted controls to a whole table."""

import dataclasses
import json

import numpy as np
import pytest

from attacks import SupportView, Targets, ViewError, measure
from attacks.evaluation import TOUCHED_ITEMS
from attacks.membership import PopularityGuesser
from attacks.supports import SUPPORT_ATTACKS, Affinity, ExaminedShare, InSupport, debiased_count, observe_support

AUDITED = 150


def view_of(sent, public, examined, fit=None, **other):
    """The audited users are the first ones of the federation."""
    rows = sent & ~public
    return SupportView(
        sent[:AUDITED],
        public[:AUDITED],
        rows.sum(axis=0),
        public.sum(axis=0).astype(np.float64),
        examined_counts=examined.sum(axis=0),
        affinity=None if fit is None else fit[:AUDITED],
        **other,
    )


def table(view, targets, attacks=SUPPORT_ATTACKS):
    return {row.attack: row for row in measure(observe_support(view, attacks), view.prior, targets)}


def against_cover(view, examined):
    return Targets.examined_vs_padding(examined[:AUDITED], view.sent, view.public)


@pytest.fixture(scope="module")
def shop(sim):
    """600 users, 800 items by popularity and taste: purchases, examinations, how items fit users."""
    return sim.shopping(np.random.default_rng(0), 600, 800)


def test_matched_padding_blinds_popularity_where_uniform_padding_does_not(sim, shop):
    public, examined, fit = shop
    weight = public.sum(axis=0) + 0.1
    found = {}
    for kind, weights in (("uniform", None), ("matched", weight)):
        for rho in (1, 3):
            sent = sim.padded(np.random.default_rng(1), public, examined, rho, weights)
            view = view_of(sent, public, examined, fit)
            found[kind, rho] = table(view, against_cover(view, examined))
    rows = found["uniform", 1]
    assert list(rows) == ["popularity", "in support", "examined share", "affinity"]
    assert rows["in support"].auc.value == 0.5
    assert rows["popularity"].auc.value > 0.7
    assert rows["examined share"].auc.value > rows["popularity"].auc.value
    assert rows["affinity"].auc.value > 0.6
    assert found["matched", 1]["popularity"].auc.value == pytest.approx(0.5, abs=0.05)
    assert found["matched", 1]["examined share"].auc.value < rows["examined share"].auc.value - 0.08
    for name in ("popularity", "examined share"):
        assert found["uniform", 3][name].auc.value == pytest.approx(rows[name].auc.value, abs=0.04)
    assert rows["affinity"].gain.value == pytest.approx(rows["affinity"].auc.value - rows["popularity"].auc.value)
    assert {row.scope for row in rows.values()} == {TOUCHED_ITEMS}
    assert {row.membership for row in rows.values()} == {"natural"}
    json.dumps([dataclasses.asdict(row) for row in rows.values()])


def test_dropping_the_exact_counts_does_not_stop_their_estimate(sim, shop):
    public, examined, _ = shop
    sent = sim.padded(np.random.default_rng(2), public, examined, 1)
    real = public.sum(axis=1) + examined.sum(axis=1)
    phi = float((real / (800 - real)).mean())
    unbought = (~public).sum(axis=0)
    estimates = debiased_count((sent & ~public).sum(axis=0), unbought, q=1.0, p=phi)
    view = view_of(sent, public, examined, examined_estimates=estimates)
    rows = table(view, against_cover(view, examined))
    exact, estimated = rows["examined share"].auc.value, rows["estimated examined share"].auc.value
    assert 0.65 < estimated < exact
    alone = dataclasses.replace(view, examined_counts=None)
    assert list(table(alone, against_cover(view, examined))) == ["popularity", "in support", "estimated examined share"]


def test_examined_share_is_a_calibrated_posterior(sim, shop):
    public, examined, _ = shop
    sent = sim.padded(np.random.default_rng(3), public, examined, 1)
    view = view_of(sent, public, examined)
    score = ExaminedShare().score(view)[view.unpurchased]
    truth = examined[:AUDITED][view.unpurchased]
    for low, high in ((0.1, 0.4), (0.4, 0.7), (0.7, 0.95)):
        some = (score > low) & (score <= high)
        assert some.sum() > 200
        assert truth[some].mean() == pytest.approx(score[some].mean(), abs=0.05)
    assert (ExaminedShare().score(view)[~view.sent] == 0).all()


def test_padding_that_knows_nothing_to_find_gives_chance(sim):
    rng = np.random.default_rng(4)
    public, examined = np.zeros((2, 300, 200), bool)
    order = rng.random((300, 200)).argsort(axis=1)
    np.put_along_axis(public, order[:, :4], values=True, axis=1)
    np.put_along_axis(examined, order[:, 4:14], values=True, axis=1)
    sent = sim.padded(rng, public, examined, 2)
    view = view_of(sent, public, examined, rng.normal(size=sent.shape).astype(np.float32))
    rows = table(view, against_cover(view, examined))
    for name in ("popularity", "affinity"):
        assert rows[name].auc.value == pytest.approx(0.5, abs=0.03)


def test_without_padding_there_is_nothing_left_to_guess(sim, shop):
    public, examined, _ = shop
    view = view_of(public | examined, public, examined)
    assert table(view, against_cover(view, examined)) == {}
    rest = table(view, Targets.examined_vs_rest(examined[:AUDITED], view.public))
    assert rest["in support"].auc.value == 1


def test_dense_supports_tell_nothing_by_themselves(shop):
    public, examined, _ = shop
    view = view_of(np.ones_like(public), public, examined)
    rows = table(view, Targets.examined_vs_rest(examined[:AUDITED], view.public), [InSupport()])
    assert rows["in support"].auc.value == 0.5
    assert rows["popularity"].auc.value > 0.6


def test_share_with_support_beats_support_alone_by_what_the_padding_gives_away(sim, shop):
    public, examined, _ = shop
    sent = sim.padded(np.random.default_rng(5), public, examined, 5)
    view = view_of(sent, public, examined)
    rest = table(view, Targets.examined_vs_rest(examined[:AUDITED], view.public))
    assert rest["examined share"].auc.value > rest["in support"].auc.value > rest["popularity"].auc.value


def test_games_choose_their_candidates():
    public = np.array([[1, 0, 0, 0, 0]], bool)
    examined = np.array([[1, 1, 1, 0, 0]], bool)
    sent = np.array([[1, 1, 0, 1, 0]], bool)
    rest = Targets.examined_vs_rest(examined, public)
    assert rest.candidates.tolist() == [[False, True, True, True, True]]
    cover = Targets.examined_vs_padding(examined, sent, public)
    assert cover.candidates.tolist() == [[False, True, False, True, False]]
    assert (cover.members & cover.candidates).tolist() == [[False, True, False, False, False]]


def test_attacks_declare_themselves_and_refuse_what_they_cannot_see(shop):
    public, examined, _ = shop
    bare = dataclasses.replace(view_of(public | examined, public, examined), examined_counts=None)
    assert [attack.applies(bare) for attack in SUPPORT_ATTACKS] == [True, False, False, False]
    with pytest.raises(ViewError, match=r"needs SupportView\.examined_counts"):
        ExaminedShare().score(bare)
    with pytest.raises(ViewError, match=r"needs SupportView\.examined_estimates"):
        ExaminedShare("estimated").score(bare)
    with pytest.raises(ViewError, match=r"needs SupportView\.affinity"):
        Affinity().score(bare)
    assert (PopularityGuesser().score(bare, bare.prior) == bare.popularity).all()
    names = {attack.name for attack in SUPPORT_ATTACKS}
    assert len(names) == len(SUPPORT_ATTACKS)
    for attack in SUPPORT_ATTACKS:
        assert attack.unit == "examination"
        assert attack.adversary == "aggregator"
        assert attack.observable
        assert attack.cost
        assert attack.explains.endswith(".")
        assert isinstance(attack.knowledge, tuple)


def test_views_are_refused_with_one_sentence():
    sent, public = np.ones((2, 3), bool), np.zeros((2, 3), bool)
    counts, popular = np.full(3, 2), np.ones(3)
    good = SupportView(sent, public, counts, popular)
    assert (good.n_users, good.n_items, good.unpurchased.sum()) == (2, 3, 6)
    refused = {
        "two non-empty boolean masks": {"public": public[:1]},
        r"supporters is float64": {"supporters": popular},
        r"supporters goes down to -1": {"supporters": -np.ones(3, np.int64)},
        r"1 clients send item 2 .* but 2 audited users do": {"supporters": np.array([2, 2, 1])},
        r"popularity is float64 of shape \(2,\)": {"popularity": popular[:2]},
        r"examined_counts is int64 of shape \(2,\)": {"examined_counts": counts[:2]},
        r"examined_counts goes down to -2": {"examined_counts": -counts},
        r"examined_estimates is float64": {"examined_estimates": np.array([0.0, np.nan, 1.0])},
        r"affinity is float32 of shape \(3,\)": {"affinity": np.ones(3, np.float32)},
        r"affinity is float64": {"affinity": np.ones((2, 3))},
    }
    for message, change in refused.items():
        with pytest.raises(ViewError, match=message):
            dataclasses.replace(good, **change)
    with pytest.raises(ViewError, match="two non-empty boolean masks"):
        SupportView(sent[:0], public[:0], counts, popular)
    with pytest.raises(ValueError, match="use 'sent' or 'estimated'"):
        ExaminedShare("guessed")
