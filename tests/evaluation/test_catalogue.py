"""Ranking among what somebody trained on, and with validation items in or out, against loops over users."""

import numpy as np
import pytest

from privfed.data import Histories, Split, SplitSpec
from privfed.evaluation import EvaluationError, Evaluator, Protocol

N_ITEMS = 80


def histories(rows):
    lengths = [len(row) for row in rows]
    items = np.array([item for row in rows for item in row], dtype=np.int64)
    return Histories(np.cumsum([0, *lengths]), items, N_ITEMS)


@pytest.fixture(scope="module")
def parts():
    """30 users; items from 50 on are in nobody's training part, and user 0 holds out nothing else."""
    rng = np.random.default_rng(5)
    train = [rng.choice(50, 6, replace=False) for _ in range(30)]
    rest = [rng.permutation(np.setdiff1d(np.arange(N_ITEMS), own)) for own in train]
    rest[0] = np.arange(50, 80)
    return Split(
        SplitSpec(), histories(train), histories([r[:2] for r in rest]), histories([r[2:8] for r in rest]), 0, "toy"
    )


def naive_recall(parts, scores, k, hidden_of, relevant_of):
    values = {}
    for user in range(30):
        relevant, hidden = relevant_of(user), hidden_of(user)
        if relevant:
            order = [i for i in np.argsort(-scores[user]) if i not in hidden][:k]
            values[user] = len(relevant & set(order)) / len(relevant)
    return values


@pytest.mark.parametrize("when_testing", ["valid_left_out", "valid_ranked"])
@pytest.mark.parametrize("part", ["valid", "test"])
@pytest.mark.parametrize("catalogue", ["all", "trained"])
def test_recall_equals_a_loop(parts, part, catalogue, when_testing):
    evaluator = Evaluator(parts, Protocol(k=(10,), catalogue=catalogue, when_testing=when_testing), part)
    scores = np.random.default_rng(1).normal(size=(30, N_ITEMS)).astype(np.float32)
    evaluator.add(np.arange(30), scores)
    trained = set(parts.train.items) if catalogue == "trained" else set(range(N_ITEMS))
    held = parts.valid if part == "valid" else parts.test

    def hidden(user):
        own = set(parts.train.items_of(user))
        if part == "test" and when_testing == "valid_left_out":
            own |= set(parts.valid.items_of(user))
        return own | (set(range(N_ITEMS)) - trained)

    expected = naive_recall(parts, scores, 10, hidden, lambda user: set(held.items_of(user)) & trained)
    result = evaluator.result()
    assert result.metric("recall", 10).value == pytest.approx(np.mean(list(expected.values())))
    assert result.n_users == len(expected) == len(evaluator.users)
    assert (0 in expected) == (catalogue == "all")


def test_sampled_candidates_are_trained_unseen_and_halves_of_one_draw(parts):
    protocol = Protocol(candidates="sampled", n_sampled=15, catalogue="trained")
    trained = set(parts.train.items.tolist())
    drawn = {}
    for part in ("valid", "test"):
        evaluator = Evaluator(parts, protocol, part)
        held = parts.valid if part == "valid" else parts.test
        candidates = evaluator.candidates(evaluator.users)
        for user, row in zip(evaluator.users, candidates, strict=True):
            own = [item for item in held.items_of(user) if item in trained]
            width = candidates.shape[1] - 15
            assert row[:width].tolist() == own + own[:1] * (width - len(own))
            drawn[part, user] = set(row[width:].tolist())
            assert drawn[part, user] <= trained - set(parts.seen.items_of(user))
            assert len(drawn[part, user]) == 15
    assert all(not drawn["valid", u] & drawn["test", u] for u in range(1, 30) if ("valid", u) in drawn)


def test_a_part_of_which_nobody_trained_on_anything_is_refused():
    nobody = Split(SplitSpec(), histories([[1, 2]]), histories([[]]), histories([[3]]), 0)
    assert Evaluator(nobody, Protocol()).users.tolist() == [0]
    with pytest.raises(EvaluationError, match="held-out item that somebody trained on in the test part"):
        Evaluator(nobody, Protocol(catalogue="trained"))
