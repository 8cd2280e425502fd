"""Games about whole users: the measurement, who is in a sum, and whose history a recommender was trained on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import Knowledge, ServerView, SumView, ViewError
from attacks.evaluation import measure_users
from attacks.shadow import RecommendedLists, UserLevelLists, infer_list_members, item_factors
from attacks.sums import AggregateMatch, aggregate_match


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
def test_auc_is_the_share_of_pairs_in_order(guesses):
    scores = np.array([score for score, _ in guesses], dtype=np.float64)
    members = np.array([member for _, member in guesses])
    if members.all() or not members.any():
        with pytest.raises(ViewError, match="on one side"):
            measure_users(UserLevelLists(), scores, members, "game")
        return
    pairs = [(a > b) + (a == b) / 2 for a in scores[members] for b in scores[~members]]
    found = measure_users(UserLevelLists(), scores, members, "game", resamples=20)
    assert found.auc.value == pytest.approx(np.mean(pairs))
    assert found.auc.lo <= found.auc.hi
    assert (found.n_members, found.n_nonmembers) == (members.sum(), (~members).sum())


def test_rates_are_those_of_the_best_cut_and_left_out_where_users_are_too_few():
    rng = np.random.default_rng(0)
    members = np.arange(2400) < 1200
    scores = np.round(rng.normal(size=2400) + 1.5 * members, 1)
    found = measure_users(UserLevelLists(), scores, members, "game")
    for rate in found.tpr_at_fpr:
        cuts = [c for c in np.unique(scores) if (scores[~members] >= c).mean() <= rate.fpr]
        assert rate.tpr.value == pytest.approx(max((scores[members] >= c).mean() for c in cuts))
        assert rate.tpr.lo <= rate.tpr.value <= rate.tpr.hi
        assert rate.false_positives == (scores[~members] >= min(cuts)).sum()
    few = measure_users(UserLevelLists(), scores[1100:1300], members[1100:1300], "game")
    assert [rate.tpr is None for rate in few.tpr_at_fpr] == [False, True]


def test_the_interval_knows_that_one_users_guesses_belong_together():
    """Ten equal guesses per user: as wide as with one, not sqrt(10) times narrower."""
    rng = np.random.default_rng(1)
    members = np.arange(60) < 30
    scores = rng.normal(size=60) + members
    once = measure_users(UserLevelLists(), scores, members, "game")
    users = np.tile(np.arange(60), 10)
    together = measure_users(UserLevelLists(), np.tile(scores, 10), np.tile(members, 10), "game", users=users)
    apart = measure_users(UserLevelLists(), np.tile(scores, 10), np.tile(members, 10), "game")
    width = {name: r.auc.hi - r.auc.lo for name, r in (("once", once), ("together", together), ("apart", apart))}
    assert together.n_users == 60
    assert width["together"] == pytest.approx(width["once"])
    assert width["apart"] < width["once"] / 2


def test_bad_scores_are_refused():
    members = np.array([True, False])
    with pytest.raises(ViewError, match="one score and one boolean"):
        measure_users(UserLevelLists(), np.zeros(3), members, "game")
    with pytest.raises(ViewError, match="NaN or infinity"):
        measure_users(UserLevelLists(), np.array([np.nan, 0]), members, "game")


@pytest.fixture(scope="module")
def crowd(sim, linear_head):
    """120 users, 300 items, and a trainer."""
    members, _ = sim.histories(np.random.default_rng(2), 120, 300)
    model = linear_head.drawn(np.random.default_rng(3), 300)
    return members, model, Knowledge(members.sum(axis=0).astype(np.float64), oracle=model)


def cohorts(crowd, size, rounds, seed=4):
    members, model, _ = crowd
    rng = np.random.default_rng(seed)
    for number in range(rounds):
        inside = np.zeros(120, dtype=bool)
        inside[rng.choice(120, size, replace=False)] = True
        uploads = model.round(rng, members, number).uploads
        yield SumView(ServerView(number, uploads[inside].sum(axis=0, keepdims=True)), inside, size)


def test_who_is_in_a_small_sum_is_seen_and_in_a_large_one_hardly(crowd):
    members, _, knowledge = crowd
    found = {size: aggregate_match(cohorts(crowd, size, 2), members, knowledge) for size in (3, 20, 60)}
    assert found[3].auc.value > 0.95
    assert found[3].auc.value > found[20].auc.value > found[60].auc.value > 0.5
    assert (found[3].unit, found[3].n_users, found[3].n_members) == ("user", 120, 6)
    assert found[3].game == "in the sum vs not in it"


def test_a_sum_of_others_gives_chance(crowd):
    """The sums are of other people's uploads, so claimed members are nobody's."""
    members, model, knowledge = crowd
    stranger = members[np.random.default_rng(5).permutation(120)][:, np.random.default_rng(6).permutation(300)]
    sums = []
    for seen in cohorts((stranger, model, knowledge), 30, 8):
        claimed = np.random.default_rng(seen.total.round).random(120) < 0.5
        sums.append(SumView(seen.total, claimed))
    assert aggregate_match(sums, members, knowledge).auc.value == pytest.approx(0.5, abs=0.05)


def test_scale_of_the_sum_does_not_matter_and_unknown_histories_are_left_out(crowd):
    members, _, knowledge = crowd
    (seen,) = cohorts(crowd, 10, 1)
    base = AggregateMatch().score(seen, members, knowledge)
    scaled = SumView(ServerView(0, seen.total.uploads * np.float32(0.01)), seen.members)
    assert AggregateMatch().score(scaled, members, knowledge) == pytest.approx(base, abs=1e-5)
    unknown = members.copy()
    unknown[:20] = False
    scores = AggregateMatch().score(seen, unknown, knowledge)
    assert np.isnan(scores).tolist() == [True] * 20 + [False] * 100
    assert aggregate_match([seen], unknown, knowledge).n_users == 100


def test_sums_that_cannot_be_asked_about(crowd):
    members, _, knowledge = crowd
    with pytest.raises(ViewError, match="no sum to attack"):
        aggregate_match([], members, knowledge)
    with pytest.raises(ViewError, match=r"Histories have shape \(7, 300\)"):
        aggregate_match(cohorts(crowd, 5, 1), members[:7], knowledge)
    with pytest.raises(ViewError, match=r"needs Knowledge\.oracle"):
        aggregate_match(cohorts(crowd, 5, 1), members, Knowledge(knowledge.popularity))


def shown(rng, circles, histories, members, length=20):
    """Lists of a recommender that knows its members' circle and shows all others what is popular."""
    n_items = histories.shape[1]
    of_circle = np.stack([histories[circles == c].sum(axis=0) for c in range(circles.max() + 1)])
    wanted = np.where(members[:, None], of_circle[circles], histories.sum(axis=0)) + rng.random(histories.shape)
    wanted[histories] = -1
    rank = (-wanted).argsort(axis=1).argsort(axis=1)
    assert rank.shape[1] == n_items
    return RecommendedLists(histories, rank < length, members)


@pytest.fixture(scope="module")
def lists():
    """Two populations of 200 users in four circles; half of each is trained on."""
    rng = np.random.default_rng(7)
    popularity = 0.15 * (1 + np.arange(400) // 50 % 2)
    out = []
    for _ in range(2):
        circles = rng.integers(0, 4, 200)
        own = circles[:, None] == np.arange(400)[None] // 100
        histories = rng.random((200, 400)) < np.where(own, popularity, 0.02)
        out.append(shown(rng, circles, histories, rng.random(200) < 0.5))
    return out


def test_members_are_shown_what_is_close_to_their_history(lists):
    shadow, target = lists
    found = infer_list_members(shadow, target, item_factors(shadow.histories, 16))
    assert found.auc.lo > 0.8
    assert (found.unit, found.n_users) == ("user", 200)
    assert found.game == "in training vs not in training"
    assert [rate.fpr for rate in found.tpr_at_fpr] == [0.1, 0.01]


def test_the_same_lists_for_everybody_give_chance(lists):
    shadow, target = lists
    rng = np.random.default_rng(8)
    factors = item_factors(shadow.histories, 16)
    nothing = [
        RecommendedLists(s.histories, np.broadcast_to(np.arange(400) < 20, s.histories.shape), s.members) for s in lists
    ]
    assert infer_list_members(*nothing, factors).auc.value == pytest.approx(0.5, abs=0.1)
    shuffled = RecommendedLists(target.histories, target.recommended, rng.permutation(target.members))
    assert infer_list_members(shadow, shuffled, factors).auc.value == pytest.approx(0.5, abs=0.12)


def test_the_basis_of_the_factors_does_not_decide(lists):
    """A reflection, another scale and another order of items change nothing; neither does the target's membership."""
    shadow, target = lists
    factors = item_factors(shadow.histories, 8)
    base = UserLevelLists().score(shadow, target, factors)
    assert UserLevelLists().score(shadow, target, -3 * factors) == pytest.approx(base, abs=1e-2)
    order = np.random.default_rng(9).permutation(400)
    moved = [RecommendedLists(s.histories[:, order], s.recommended[:, order], s.members) for s in (shadow, target)]
    assert UserLevelLists().score(*moved, factors[order]) == pytest.approx(base)
    hidden = RecommendedLists(target.histories, target.recommended, ~target.members)
    assert (UserLevelLists().score(shadow, hidden, factors) == base).all()


def test_factors_are_those_of_the_best_approximation(lists):
    histories = lists[0].histories
    factors = item_factors(histories, 5)
    right = np.linalg.svd(histories.astype(float))[2][:5]
    projected = histories @ right.T @ right
    assert histories @ np.linalg.pinv(factors.T) @ factors.T == pytest.approx(projected, abs=1e-6)


def test_lists_that_cannot_be_compared_are_refused(lists):
    shadow, target = lists
    factors = item_factors(shadow.histories, 4)
    with pytest.raises(ViewError, match="factors of 399 items"):
        infer_list_members(shadow, target, factors[1:])
    with pytest.raises(ViewError, match="shadow recommender's users are all on one side"):
        infer_list_members(RecommendedLists(shadow.histories, shadow.recommended, np.ones(200, bool)), target, factors)
    with pytest.raises(ViewError, match="no history or an empty list"):
        RecommendedLists(np.zeros_like(shadow.histories), shadow.recommended, shadow.members)
    with pytest.raises(ViewError, match="boolean masks of shapes"):
        RecommendedLists(shadow.histories, shadow.recommended[:3], shadow.members)
    with pytest.raises(ViewError, match="width is 200"):
        item_factors(shadow.histories, 200)
