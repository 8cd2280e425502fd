"""Padding against its claims: what runs is within epsilon, fake items are what they claim, and draws last."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from attacks import SupportView
from attacks.supports import (
    padding_probability,
    realised_posterior,
    recover_examined_count,
    rr_epsilon_add_remove,
    rr_epsilon_swap,
    support_epsilon_bound,
)
from privfed.data import Histories
from privfed.methods import ClientData, method
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.composition import Composition
from privfed.privacy.configuring import configure
from privfed.privacy.guarantee import guarantee_for
from privfed.privacy.padding.fake_items import FakeItems
from privfed.privacy.padding.full_support import FullSupport
from privfed.privacy.padding.no_padding import NoPadding
from privfed.privacy.padding.randomised_response import RandomisedResponse
from privfed.setup.padded_histories import sample_padding
from privfed.setup.padding import padded_data, private_items
from privfed.setup.refusals import method_profile

quick = settings(max_examples=50, deadline=None)
WORDS = 2**32


def histories(mask):
    user, item = np.nonzero(mask)
    return Histories.from_pairs(user, item, *mask.shape)


def drawn(padding, own, known=None):
    """What is sent of every user's own items, and what besides, as masks."""
    covered = sample_padding(padding, histories(own), None if known is None else histories(known))
    everybody = np.arange(len(own))
    return covered.kept.mask(everybody), covered.fake_items.mask(everybody)


def random_masks(seed=0, users=40, items=60, share=0.15):
    rng = np.random.default_rng(seed)
    return rng.random((users, items)) < share, rng.random((users, items)) < share


# Randomised response: what runs and what is claimed


epsilons = st.one_of(st.sampled_from([1e-6, 1e-3, math.log(2), 1, 4, 50]), st.floats(1e-6, 50))
"""ln 2 with a dyadic `keep` leaves no slack at all between what is asked for and what runs."""
keeps = st.one_of(
    st.sampled_from([1e-9, 1e-6, 0.5, 1 - 1e-6, 1 - 2**-32, math.nextafter(1, 0)]),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)


@settings(max_examples=400, deadline=None)
@given(epsilon=epsilons, keep=keeps)
def test_what_really_runs_never_costs_more_than_was_asked_for(epsilon, keep):
    try:
        padding = RandomisedResponse(epsilon=epsilon, keep=keep)
    except ValueError:
        assume(False)
    q, p = padding.thresholds
    assert 0 < p < q < WORDS
    assert q <= keep * WORDS
    one, swap = padding.realised
    assert one <= epsilon
    assert one == pytest.approx(rr_epsilon_add_remove(q / WORDS, p / WORDS), rel=1e-9)
    assert swap == pytest.approx(rr_epsilon_swap(q / WORDS, p / WORDS), rel=1e-9)
    assert one <= swap <= 2 * one
    assert padding.claim.epsilon == one
    assert padding.claim.epsilon_swap == swap


@quick
@given(epsilon=st.floats(0.01, 12), keep=st.floats(0.01, 0.999))
def test_other_items_answer_as_rarely_as_epsilon_allows(epsilon, keep):
    """One part in 10^5 less would be too rare: no epsilon is given away."""
    padding = RandomisedResponse(epsilon=epsilon, keep=keep)
    assert rr_epsilon_add_remove(keep, padding.others) == pytest.approx(epsilon, rel=1e-6)
    assert rr_epsilon_add_remove(keep, padding.others * (1 - 1e-5)) > epsilon


@pytest.mark.parametrize(("epsilon", "keep"), [(1e-6, 1e-4), (1e-6, 1 - 1e-4), (1, 1e-10), (0.1, 1 - 1e-12)])
def test_answers_that_no_random_bit_tells_apart_are_refused_in_a_sentence(epsilon, keep):
    with pytest.raises(
        PlanError, match=r"less than a step of a 32-bit word .* choose keep nearer to 0.5 or a larger"
    ) as e:
        configure(RandomisedResponse, {"epsilon": epsilon, "keep": keep})
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "field", [{"epsilon": 0}, {"epsilon": 51}, {"epsilon": 1, "keep": 0}, {"epsilon": 1, "keep": 1}]
)
def test_settings_outside_their_range_are_refused(field):
    with pytest.raises(PlanError):
        configure(RandomisedResponse, field)


@pytest.mark.parametrize(("epsilon", "keep"), [(0.5, 0.5), (2, 0.9), (4, 0.5)])
def test_the_claims_hold_over_many_draws_and_are_nearly_reached(epsilon, keep):
    """Both neighbour relations, each draw under a key of its own: bounds from counts stay below, and not far."""
    users = 8000
    padding = RandomisedResponse(epsilon=epsilon, keep=keep)
    own = np.zeros((users, 4), bool)
    own[:, 0] = own[:, 1] = True
    without, moved = own.copy(), own.copy()
    without[:, 1] = False
    moved[:, [1, 2]] = moved[:, [2, 1]]
    sent = {}
    for number, (name, mask) in enumerate({"own": own, "without": without, "moved": moved}.items()):
        kept, fakes = drawn(padding.model_copy(update={"seed": number}), mask)
        assert not (kept & ~mask).any()
        assert not (fakes & mask).any()
        sent[name] = kept | fakes
    q, p = (t / WORDS for t in padding.thresholds)
    for item, rate in ((0, q), (1, q), (2, p), (3, p)):
        assert stats.binomtest(int(sent["own"][:, item].sum()), users, rate).pvalue > 1e-4
    one, swap = padding.realised
    added = support_epsilon_bound(sent["own"][:, 1], sent["without"][:, 1])
    assert 0.75 * one < added.epsilon <= one
    pair = [sent[name][:, 1] & ~sent[name][:, 2] for name in ("own", "moved")]
    swapped = support_epsilon_bound(*pair)
    assert one < swapped.epsilon <= swap
    chance = stats.chi2_contingency(
        [[np.sum(sent["own"][:, 0] & m) for m in (sent["own"][:, 1], ~sent["own"][:, 1])],
         [np.sum(~sent["own"][:, 0] & m) for m in (sent["own"][:, 1], ~sent["own"][:, 1])]]
    )  # fmt: skip
    assert chance.pvalue > 1e-4


def test_public_items_neither_answer_nor_are_fake_items():
    own, known = random_masks()
    for padding in (RandomisedResponse(epsilon=1), FakeItems(rho=3), FakeItems(rho=3, drawn="uniform")):
        kept, fakes = drawn(padding, own, known)
        assert not (kept & known).any()
        assert not (fakes & (own | known)).any()
        assert not (kept & ~own).any()


# Fakes


@quick
@given(
    seed=st.integers(0, 1000),
    rho=st.one_of(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e300]), st.floats(0, 20)),
    kind=st.sampled_from(["uniform", "popularity"]),
    share=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
)
def test_fake_items_are_as_many_as_said_and_stop_at_the_catalogue(seed, rho, kind, share):
    own, known = random_masks(seed, users=6, items=15, share=share)
    kept, fakes = drawn(FakeItems(rho=rho, drawn=kind), own, known)
    taken = (own | known).sum(1)
    wanted = [min(float(np.rint(rho * n)), 15 - n) for n in taken.tolist()]
    assert fakes.sum(1).tolist() == wanted
    assert np.array_equal(kept, own & ~known)


def test_uniform_fake_items_are_as_likely_as_the_leakage_formulas_say():
    users, items = 8000, 12
    own = np.zeros((users, items), bool)
    own[:, :2] = True
    known = np.zeros_like(own)
    known[:, 2] = True
    _, fakes = drawn(FakeItems(rho=1, drawn="uniform"), own, known)
    phi = padding_probability(np.array([1]), np.array([2]), items, 1.0)[0]
    counts = fakes[:, 3:].sum(0)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert counts.sum() / (users * (items - 3)) == pytest.approx(phi)


@pytest.mark.parametrize("power", [0.0, 2.0])
def test_popular_fake_items_follow_public_counts(power):
    """One fake each: a draw in proportion to (count + 1)^power among the items that are left."""
    users, items, crowd = 10_000, 6, 60
    counts = np.array([0, 1, 4, 9, 30, crowd])
    own = np.zeros((users + crowd, items), bool)
    known = np.zeros_like(own)
    known[users:] = np.arange(crowd)[:, None] < counts
    own[:users, 1] = True
    _, fakes = drawn(FakeItems(rho=1, drawn="popularity", power=power), own, known)
    free = np.array([0, 2, 3, 4, 5])
    weights = (counts[free] + 1.0) ** power
    found = fakes[:users][:, free].sum(0)
    assert found.sum() == users
    assert stats.chisquare(found, users * weights / weights.sum()).pvalue > 1e-4


def test_the_statement_that_the_number_of_rows_tells_the_history_is_true():
    own, known = random_masks(share=0.1)
    own &= ~known
    kept, fakes = drawn(FakeItems(rho=2, drawn="uniform"), own, known)
    found = recover_examined_count((kept | fakes).sum(1), known.sum(1), 2.0)
    assert found.tolist() == own.sum(1).tolist()
    assert "the number of rows tells how long that is" in FakeItems(rho=2).claim.sentence


def test_the_posterior_in_the_module_is_the_one_that_is_found():
    own, known = random_masks(users=400, items=500, share=0.02)
    own &= ~known
    kept, fakes = drawn(FakeItems(rho=1, drawn="uniform"), own, known)
    sent = kept | fakes | known
    view = SupportView(sent, known, (sent & ~known).sum(0), known.sum(0).astype(np.float64))
    found = realised_posterior(view, own)
    some = own.any(1)
    expected = 1 / (1 + 1 * (1 + known.sum(1)[some] / own.sum(1)[some]))
    assert np.allclose(found[some], expected)


def test_popular_fake_items_without_public_histories_are_refused():
    with pytest.raises(PlanError, match=r"choose padding\.drawn = 'uniform'"):
        drawn(FakeItems(rho=1), random_masks()[0])


# What was drawn lasts


COVERS = {
    "uniform": FakeItems(rho=1, drawn="uniform"),
    "popularity": FakeItems(rho=1),
    "response": RandomisedResponse(epsilon=2, keep=0.7),
}


def rows(padding, own, known):
    kept, fakes = drawn(padding, own, known)
    return kept | fakes


@pytest.mark.parametrize("name", COVERS)
def test_rows_are_the_same_again_and_others_under_another_key(name):
    own, known = random_masks()
    once = rows(COVERS[name], own, known)
    assert np.array_equal(once, rows(COVERS[name], own, known))
    assert not np.array_equal(once, rows(COVERS[name].model_copy(update={"seed": 1}), own, known))


@pytest.mark.parametrize("name", COVERS)
def test_rows_do_not_depend_on_how_users_are_chunked(name, monkeypatch):
    own, known = random_masks()
    once = rows(COVERS[name], own, known)
    for chunk in (1, 7, 40):
        monkeypatch.setattr("privfed.setup.padded_histories._USERS_AT_ONCE", chunk)
        assert np.array_equal(once, rows(COVERS[name], own, known))


@pytest.mark.parametrize("name", COVERS)
def test_rows_do_not_depend_on_other_users_private_items_or_number(name):
    """Nor on others' public items, but for fakes that follow public counts, whose module says so."""
    own, known = random_masks()
    once = rows(COVERS[name], own, known)
    other = own.copy()
    other[20:] = np.roll(own[20:], 1, axis=1)
    assert np.array_equal(once[:20], rows(COVERS[name], other, known)[:20])
    if name != "popularity":
        assert np.array_equal(once[:10], rows(COVERS[name], own[:10], known[:10]))
        other = known.copy()
        other[20:] = ~known[20:]
        assert np.array_equal(once[:20], rows(COVERS[name], own, other)[:20])
    more_own, more_known = np.vstack([own, own]), np.vstack([known, np.zeros_like(known)])
    assert np.array_equal(once, rows(COVERS[name], more_own, more_known)[:40])


def test_fake_items_that_follow_public_counts_change_with_them():
    """The caveat of the module, so that the sentence goes when the code does."""
    own, known = random_masks(users=400, share=0.05)
    other = known.copy()
    other[200:, :30] = True
    before, after = rows(COVERS["popularity"], own, known)[:200], rows(COVERS["popularity"], own, other)[:200]
    assert not np.array_equal(before, after)
    assert np.array_equal(before & own[:200], after & own[:200])


def test_a_history_that_grows_shows_it_as_the_module_says():
    own, known = random_masks(users=300)
    own &= ~known
    grown = own.copy()
    new = np.argmax(~(own | known), axis=1)
    grown[np.arange(300), new] = True
    before, after = (rows(COVERS["response"], mask, known) for mask in (own, grown))
    appeared = after & ~before
    assert not (before & ~after).any()
    assert appeared.any()
    assert not (appeared & ~(grown & ~own)).any()
    before, after = (rows(COVERS["uniform"], mask, known) for mask in (own, grown))
    assert not (before & ~after).any()
    appeared = after & ~before
    assert appeared.sum(1).max() == 2
    assert (appeared & ~(grown & ~own)).any()


def test_equal_words_go_to_the_lower_item(monkeypatch):
    """Whatever a sort makes of ties, and however many fakes the others of a chunk want."""
    from privfed.federation import Streams

    monkeypatch.setattr(Streams, "words", lambda self, *_: np.zeros((len(_[3]), _[4]), np.uint32))
    own = np.zeros((3, 50), bool)
    own[0, 49] = own[1, :20] = own[2, 5] = True
    for kind, known in (("uniform", None), ("popularity", np.zeros_like(own))):
        _, fakes = drawn(FakeItems(rho=1, drawn=kind), own, known)
        assert [np.flatnonzero(row).tolist() for row in fakes] == [[0], list(range(20, 40)), [0]]


# Claims


def test_paddings_without_a_bound_claim_none():
    for padding in (NoPadding(), FakeItems(rho=0), FakeItems(rho=100)):
        assert padding.claim.epsilon == padding.claim.epsilon_swap == math.inf
    assert FullSupport().claim.epsilon == FullSupport().claim.epsilon_swap == 0
    assert "in the open" in NoPadding().claim.sentence
    assert "infinite" in FakeItems(rho=5).claim.sentence


def test_every_row_says_that_its_sums_hide_in_no_crowd():
    """All clients send all rows, so a floor on them closes none: not that of an item that one client has."""
    sentence = FullSupport().claim.sentence
    for said in ("says nothing about it", "no row is suppressed for having too few clients", "the value of one client"):
        assert said in sentence


def test_a_seeded_simulation_says_that_its_seeds_undo_shares_and_padding():
    plan = PrivacyPlan.parse("shared-sum:padding.kind=randomised_response,padding.epsilon=1")
    said = {
        seeded: " ".join(guarantee_for(plan, Composition(), 100, seeded=seeded).statements) for seeded in (True, False)
    }
    assert "whoever holds these reads every upload and tells padding from true rows" in said[True]
    assert "exact sums over the same few clients may be solved together" in said[True]
    assert "simulation" not in said[False]


def test_two_settings_of_a_response_share_their_bits():
    """As the module says: a row of the looser answer that the stricter lacks holds nothing, whatever both claim."""
    own = np.random.default_rng(0).random((100, 200)) < 0.1
    loose, strict = (rows(RandomisedResponse(epsilon=epsilon), own, None) for epsilon in (1, 6))
    assert (loose & ~strict).sum() > 1000
    assert not (own & loose & ~strict).any()


def test_fake_items_do_have_no_epsilon():
    """The bound from counts grows with the draws: an item that is missing was never there."""
    found = []
    for users in (100, 900, 8000):
        own = np.zeros((users, 5), bool)
        own[:, 0] = True
        with_item = rows(FakeItems(rho=1, drawn="uniform"), own, None)[:, 0]
        without = rows(FakeItems(rho=1, drawn="uniform", seed=1), np.roll(own, 1, axis=1), None)[:, 0]
        found.append(support_epsilon_bound(with_item, without).epsilon)
    assert found[0] + 1 < found[1] < found[2] - 1


def test_a_response_says_that_it_is_about_rows_and_one_item():
    sentence = RandomisedResponse(epsilon=2).claim.sentence
    for said in ("ONE ITEM", "e^2", "k items cost k times", "released sums are another channel", "value of one client"):
        assert said in sentence


@pytest.mark.parametrize("padding", [FullSupport(), NoPadding(), *COVERS.values()], ids=lambda padding: padding.label)
def test_sentences_are_sentences(padding):
    assert padding.claim.sentence.endswith(".")
    assert "\n" not in padding.claim.sentence
    assert padding.claim.padding == padding.label


# Over data


def plan(padding, **fields):
    return PrivacyPlan.named("shared-sum", clip_norm=1.0, padding=padding, **fields)


def data_of(own):
    return ClientData(histories(own), histories(own))


def test_private_targets_train_on_what_answers_and_draw_negatives_from_fake_items():
    own, _ = random_masks(users=30, items=80)
    fedmf = method("fedmf")
    config = fedmf.config(negatives=2)
    padding = RandomisedResponse(epsilon=1, keep=0.6)
    covered = padded_data(data_of(own), plan(padding.model_dump()), fedmf, config)
    kept, fakes = drawn(padding, own)
    everybody = np.arange(30)
    assert np.array_equal(covered.data.positives.mask(everybody), kept)
    assert np.array_equal(covered.data.excluded.mask(everybody), ~fakes)
    assert np.array_equal(covered.support.mask(everybody), kept | fakes)


@pytest.mark.parametrize(
    "padding",
    [{"kind": "fake_items", "rho": 0, "drawn": "uniform"}, {"kind": "fake_items", "rho": 0.3, "drawn": "uniform"}],
)
def test_too_few_fake_items_for_the_negatives_is_one_sentence(padding):
    own, _ = random_masks(users=30, items=80, share=0.1)
    fedmf = method("fedmf")
    with pytest.raises(
        PlanError, match=r"user \d+ has \d of them where 4 negatives are sampled .* take more padding"
    ) as e:
        padded_data(data_of(own), plan(padding), fedmf, fedmf.config())
    assert "\n" not in str(e.value)


def test_who_has_nothing_to_train_on_needs_no_fake_items():
    own, _ = random_masks(users=30, items=80, share=0.1)
    own[3] = False
    fedmf = method("fedmf")
    covered = padded_data(
        data_of(own), plan({"kind": "fake_items", "rho": 4, "drawn": "uniform"}), fedmf, fedmf.config()
    )
    assert covered.support.counts[3] == 0


def test_whole_tables_have_no_rows_to_pad():
    fedvae = method("fedvae")
    for padding in ({"kind": "fake_items", "rho": 1}, {"kind": "randomised_response", "epsilon": 1}):
        reason = plan(padding).mechanism.refusal(method_profile(fedvae, fedvae.config()))
        assert reason is not None
        assert "sends whole tables, so there are no rows to pad" in reason


def test_without_a_drawn_padding_data_stay_as_they_are():
    own, _ = random_masks()
    data, fedmf = data_of(own), method("fedmf")
    for privacy in (plan({"kind": "full_support"}), plan({"kind": "no_padding"}), PrivacyPlan.named("none")):
        covered = padded_data(data, privacy, fedmf, fedmf.config())
        assert covered.data is data
        assert covered.support is None


@pytest.mark.parametrize("padding", [{"kind": "no_padding"}, {"kind": "fake_items", "rho": 1}])
def test_where_the_target_is_public_purchases_and_examinations_are_announced(padding):
    views, bought = random_masks()
    data = ClientData(histories(bought), histories(bought), {"view": histories(views)})
    dfmr = method("dfmr")
    covered = padded_data(data, plan(padding), dfmr, dfmr.config())
    everybody = np.arange(40)
    assert np.array_equal(private_items(data, dfmr, dfmr.config()).mask(everybody), views)
    support = covered.support.mask(everybody)
    assert not (views & ~support).any()
    assert not (bought & ~support).any()
    fakes = support & ~views & ~bought
    assert np.array_equal(fakes.sum(1), (views | bought).sum(1) if padding["kind"] == "fake_items" else np.zeros(40))
