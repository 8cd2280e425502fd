"""The evaluator on small splits: candidates, masks, chunks, warnings and refusals."""

import numpy as np
import pytest

from privfed.data import Histories, Split, SplitSpec
from privfed.evaluation import HONEST, PAPER, EvaluationError, EvaluationResult, Evaluator, Protocol


def histories(rows, n_items):
    lengths = np.array([len(r) for r in rows])
    items = np.array([i for r in rows for i in r], dtype=np.int64)
    return Histories(np.concatenate([[0], lengths.cumsum()]).astype(np.int64), items, n_items)


def make_split(n_users=40, n_items=300, held_out=1, seed=0, without=()):
    rng = np.random.default_rng(seed)
    train, valid, test = [], [], []
    for user in range(n_users):
        own = rng.choice(n_items, rng.integers(5, 20) + 2 * held_out, replace=False)
        n = 0 if user in without else (held_out if isinstance(held_out, int) else rng.integers(*held_out))
        valid.append(own[:n])
        test.append(own[n : 2 * n])
        train.append(own[2 * n :])
    parts = [histories(part, n_items) for part in (train, valid, test)]
    return Split(SplitSpec(), *parts, users_without_holdout=len(without))


def random_scores(evaluator, users, seed=0, levels=None):
    items = evaluator.candidates(users)
    n_items = evaluator.split.train.n_items
    rng = np.random.default_rng(seed)
    shape = (evaluator.split.train.n_users, n_items)
    table = rng.normal(size=shape) if levels is None else rng.integers(levels, size=shape)
    table = table.astype(np.float32)
    return table[users] if items is None else table[users[:, None], items]


SAMPLED = Protocol(candidates="sampled", n_sampled=20)


@pytest.mark.parametrize("part", ["valid", "test"])
def test_full_ranking_equals_a_loop(part):
    split = make_split()
    users = np.arange(40)
    evaluator = Evaluator(split, Protocol(k=(3, 10)), part)
    scores = random_scores(evaluator, users)
    evaluator.add(users, scores)
    hits = []
    for user in users:
        hidden = set(split.train.items_of(user)) | (set(split.valid.items_of(user)) if part == "test" else set())
        (target,) = (split.valid if part == "valid" else split.test).items_of(user)
        order = [i for i in np.argsort(-scores[user], kind="stable") if i not in hidden]
        hits.append(order.index(target) < 10)
    assert evaluator.result().metric("hr", 10).value == pytest.approx(np.mean(hits))


def test_several_held_out_items_equal_a_loop_in_both_candidate_modes():
    split = make_split(held_out=4)
    users = np.arange(40)
    for protocol in (Protocol(k=(10,)), SAMPLED.model_copy(update={"k": (10,)})):
        evaluator = Evaluator(split, protocol)
        scores = random_scores(evaluator, users)
        evaluator.add(users, scores)
        items = evaluator.candidates(users)
        recall = []
        for user in users:
            target = set(split.test.items_of(user))
            columns = np.arange(300) if items is None else items[user]
            hidden = set(split.train.items_of(user)) | set(split.valid.items_of(user)) if items is None else set()
            order = [columns[c] for c in np.argsort(-scores[user]) if columns[c] not in hidden]
            recall.append(len(target & set(order[:10])) / len(target))
        assert evaluator.result().metric("recall", 10).value == pytest.approx(np.mean(recall))


def test_ragged_held_out_items_pad_with_the_first_and_ignore_it():
    train = histories([[0], [1]], 60)
    split = Split(SplitSpec(), train, histories([[], []], 60), histories([[5, 6, 7], [8]], 60), 0)
    evaluator = Evaluator(split, Protocol(candidates="sampled", n_sampled=10, k=(1, 2)))
    items = evaluator.candidates(np.array([1, 0]))
    assert items[:, :3].tolist() == [[8, 8, 8], [5, 6, 7]]
    scores = np.zeros((2, 13), np.float32)
    scores[:, 1] = 5
    scores[0, 0] = 1
    evaluator.add(np.array([1, 0]), scores)
    assert evaluator.result().metric("hr", 1).value == 1


@pytest.mark.parametrize("protocol", [HONEST, SAMPLED])
def test_chunks_and_their_order_do_not_matter(protocol):
    split = make_split(without=(3, 17))
    whole = Evaluator(split, protocol, popularity=split.train.popularity())
    users = np.arange(40)
    whole.add(users, random_scores(whole, users, levels=4))
    parts = Evaluator(split, protocol, popularity=split.train.popularity())
    for chunk in np.array_split(np.random.default_rng(1).permutation(40), 7):
        parts.add(chunk, random_scores(parts, chunk, levels=4))
    assert whole.result() == parts.result()
    assert whole.result().n_users == 38


def test_sampled_candidates_are_unseen_distinct_disjoint_between_parts_and_seeded():
    split = make_split(n_items=120)
    users = np.arange(40)
    valid = Evaluator(split, SAMPLED, "valid").candidates(users)
    test = Evaluator(split, SAMPLED, "test").candidates(users)
    for user in users:
        drawn = [*valid[user, 1:], *test[user, 1:]]
        assert len(set(drawn)) == 40
        assert not set(drawn) & set(split.seen.items_of(user))
        assert valid[user, 0] == split.valid.items_of(user)[0]
        assert test[user, 0] == split.test.items_of(user)[0]
    assert (Evaluator(split, SAMPLED, "test").candidates(users) == test).all()
    other = SAMPLED.model_copy(update={"seed": 1})
    assert (Evaluator(split, other, "test").candidates(users) != test).any()


def test_who_holds_something_out_in_one_part_alone_gets_sampled_items_there():
    split = Split(SplitSpec(), histories([[0], [1]], 40), histories([[2], []], 40), histories([[], [3]], 40), 1)
    for part, user, seen in (("valid", 0, {0, 2}), ("test", 1, {1, 3})):
        (drawn,) = Evaluator(split, SAMPLED.model_copy(update={"n_sampled": 19}), part).candidates(np.array([user]))
        assert len(set(drawn[1:].tolist()) - seen) == 19


def test_sampled_items_are_uniform_over_the_unseen():
    n_users = 4000
    split = Split(
        SplitSpec(),
        histories([[0, 1, 2]] * n_users, 20),
        histories([[3]] * n_users, 20),
        histories([[4]] * n_users, 20),
        0,
    )
    protocol = Protocol(candidates="sampled", n_sampled=5)
    drawn = Evaluator(split, protocol).candidates(np.arange(n_users))[:, 1:]
    share = np.bincount(drawn.ravel(), minlength=20) / n_users
    assert (share[:5] == 0).all()
    assert share[5:] == pytest.approx(np.full(15, 1 / 3), abs=0.035)


@pytest.mark.parametrize("protocol", [Protocol(k=(1, 2)), Protocol(k=(1, 2), candidates="sampled", n_sampled=5)])
def test_a_pair_that_was_kept_several_times_is_one_relevant_item(protocol):
    """Held out twice, or held out and trained on: it is ranked, and once."""
    split = Split(SplitSpec(), histories([[0, 4]], 30), histories([[]], 30), histories([[4, 5, 4]], 30), 0)
    evaluator = Evaluator(split, protocol)
    items, scores = evaluator.candidates(np.array([0])), np.zeros((1, 30), np.float32)
    scores[0, [4, 5]] = 2, 1
    evaluator.add(np.array([0]), scores if items is None else np.take_along_axis(scores, items, axis=1))
    recall = [evaluator.result().metric("recall", k).value for k in (1, 2)]
    assert recall == [0.5, 1]
    assert evaluator.result().metric("ndcg", 2).value == 1


def test_users_without_held_out_items_are_skipped():
    split = make_split(without=(0, 5))
    evaluator = Evaluator(split, SAMPLED)
    assert evaluator.users.tolist() == [u for u in range(40) if u not in (0, 5)]
    users = np.arange(40)
    assert (evaluator.candidates(users)[[0, 5]] == 0).all()
    evaluator.add(users, random_scores(evaluator, users))
    assert evaluator.result().n_users == 38


def test_perfect_and_useless_scores_and_their_intervals():
    split = make_split(200)
    users = np.arange(200)
    evaluator = Evaluator(split, HONEST)
    evaluator.add(users, split.test.mask(users).astype(np.float32))
    best = evaluator.result()
    assert all(m.value == m.lo == m.hi == 1 for m in best.metrics)
    evaluator.reset()
    evaluator.add(users, -split.test.mask(users).astype(np.float32))
    assert all(m.value == 0 for m in evaluator.result().metrics)
    evaluator.reset()
    evaluator.add(users, random_scores(evaluator, users))
    hr = evaluator.result().metric("hr", 20)
    assert hr.lo < hr.value < hr.hi
    assert (hr.hi - hr.lo) / 3.92 == pytest.approx(np.sqrt(hr.value * (1 - hr.value) / 200), rel=0.2)


def test_constant_scores_warn_and_the_tie_rule_is_visible():
    split = make_split(400, 150)
    users = np.arange(400)
    values = {}
    for ties in ("random", "pessimistic"):
        evaluator = Evaluator(split, Protocol(candidates="sampled", n_sampled=49, ties=ties, k=(10,)))
        evaluator.add(users, np.zeros((400, 50), np.float32))
        result = evaluator.result()
        assert result.tie_fraction == 1
        assert "100.0% of users" in result.warning
        assert ties in result.warning
        values[ties] = result.metric("hr", 10).value
    assert values["pessimistic"] == 0
    assert values["random"] == pytest.approx(0.2, abs=0.06)
    evaluator = Evaluator(split, HONEST)
    evaluator.add(users, random_scores(evaluator, users))
    assert evaluator.result().warning is None


def test_ties_behind_the_first_cut_are_broken_too():
    """Five items are better than all others, which are equal: 45 of 95 places are within the second cut."""
    held_out = histories([[user % 95 + 5] for user in range(950)], 100)
    nothing = histories([[]] * 950, 100)
    evaluator = Evaluator(Split(SplitSpec(), nothing, nothing, held_out, 0), Protocol(k=(1, 50)))
    evaluator.add(np.arange(950), np.tile((np.arange(100) < 5).astype(np.float32), (950, 1)))
    assert evaluator.result().metric("hr", 50).value == pytest.approx(45 / 95, abs=0.06)


@pytest.mark.parametrize(("tied", "warned"), [(1, False), (2, True)])
def test_more_than_a_hundredth_of_the_users_must_tie_for_a_warning(tied, warned):
    split = make_split(100)
    users, evaluator = np.arange(100), Evaluator(split, HONEST)
    scores = random_scores(evaluator, users)
    scores[:tied] = 0
    evaluator.add(users, scores)
    assert evaluator.result().tie_fraction == tied / 100
    assert (evaluator.result().warning is not None) == warned


def test_popularity_stands_beside_the_result_and_equals_evaluating_it():
    split = make_split()
    users = np.arange(40)
    popularity = split.train.popularity()
    beside = Evaluator(split, HONEST, popularity=popularity)
    beside.add(users, random_scores(beside, users))
    alone = Evaluator(split, HONEST)
    alone.add(users, np.tile(popularity.astype(np.float32), (40, 1)))
    assert beside.result().popularity == alone.result().metrics
    assert alone.result().popularity is None


def test_what_was_measured_elsewhere_is_taken_in_and_metrics_are_found_by_name():
    split, users = make_split(), np.arange(40)
    popularity = split.train.popularity()
    whole, here, there = (Evaluator(split, HONEST, popularity=popularity) for _ in range(3))
    scores = random_scores(whole, users)
    for evaluator, some in ((whole, users), (here, users[:15]), (there, users[15:])):
        evaluator.add(some, scores[some])
    here.include(there.measured)
    assert here.result() == whole.result()
    beside = whole.measured[whole.rows([("ndcg", 10), ("hr", 20)], of_popularity=True)].mean(axis=1)
    named = {(metric.name, metric.k): metric.value for metric in whole.result().popularity}
    assert beside.tolist() == pytest.approx([named["ndcg", 10], named["hr", 20]])
    assert beside.tolist() != whole.measured[whole.rows([("ndcg", 10), ("hr", 20)])].mean(axis=1).tolist()


def test_result_round_trips_as_json_and_names_unmeasured_metrics():
    split = make_split()
    evaluator = Evaluator(split, PAPER.model_copy(update={"n_sampled": 20}))
    evaluator.add(np.arange(40), random_scores(evaluator, np.arange(40)))
    result = evaluator.result()
    assert EvaluationResult.model_validate_json(result.model_dump_json()) == result
    with pytest.raises(ValueError, match="hr@7 was not measured"):
        result.metric("hr", 7)


def test_precision_is_measured_where_the_protocol_asks_for_it():
    split = make_split()
    with_it = HONEST.model_copy(update={"precision": True})
    plain, asked = (Evaluator(split, protocol) for protocol in (HONEST, with_it))
    for evaluator in (plain, asked):
        evaluator.add(np.arange(40), random_scores(evaluator, np.arange(40)))
    kept = [metric for metric in asked.result().metrics if metric.name != "precision"]
    for one, other in zip(kept, plain.result().metrics, strict=True):
        # Bounds of all metrics come from one product, which some processors add up in another order at another size.
        assert (one.lo, one.hi) == pytest.approx((other.lo, other.hi), rel=1e-12)
        assert one.model_copy(update={"lo": other.lo, "hi": other.hi}) == other
    for k in HONEST.k:
        # One held-out item each: a hit is one of k places.
        assert asked.result().metric("precision", k).value == pytest.approx(plain.result().metric("hr", k).value / k)


def test_bad_input_gets_one_sentence():
    split = make_split()
    users = np.arange(40)
    evaluator = Evaluator(split, HONEST)
    scores = random_scores(evaluator, users)
    with pytest.raises(EvaluationError, match="No scores were added"):
        evaluator.result()
    broken = scores.copy()
    broken[3, 5] = np.nan
    with pytest.raises(EvaluationError, match="1 of 12000 scores are NaN"):
        evaluator.add(users, broken)
    with pytest.raises(EvaluationError, match=r"\(40, 300\)"):
        evaluator.add(users, scores[:, :-1])
    with pytest.raises(EvaluationError, match="numbered 0 to 39"):
        evaluator.add(users + 1, scores)
    evaluator.add(users[:5], scores[:5])
    with pytest.raises(EvaluationError, match="twice"):
        evaluator.add(users, scores)
    with pytest.raises(EvaluationError, match="twice"):
        evaluator.add(np.array([7, 7]), scores[:2])
    with pytest.raises(EvaluationError, match=r"only .* items it never"):
        Evaluator(make_split(n_items=60), PAPER)
    tight = Split(SplitSpec(), *(histories([[item]], 40) for item in range(3)), 0)
    assert Evaluator(tight, Protocol(candidates="sampled", n_sampled=18)).candidates(np.array([0])).shape == (1, 19)
    with pytest.raises(EvaluationError, match=r"only 37 items it never .* need 38 distinct ones"):
        Evaluator(tight, Protocol(candidates="sampled", n_sampled=19))
    with pytest.raises(EvaluationError, match="popularity covers 3"):
        Evaluator(split, HONEST, popularity=np.ones(3))
    with pytest.raises(EvaluationError, match="No user has a held-out item"):
        Evaluator(make_split(3, without=(0, 1, 2)), HONEST)


def test_one_metric_user_by_user_averages_to_the_result():
    evaluator = Evaluator(make_split(without=(5,)), Protocol(k=(3, 10)))
    users = np.arange(40)
    evaluator.add(users, random_scores(evaluator, users))
    ndcg = evaluator.by_user("ndcg", 10)
    assert ndcg.shape == (39,)
    assert ndcg.mean() == pytest.approx(evaluator.result().metric("ndcg", 10).value)
    with pytest.raises(EvaluationError, match="ndcg@5 is not measured; measured are hr@3"):
        evaluator.by_user("ndcg", 5)
