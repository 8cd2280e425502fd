"""Alternating least squares: each half step against dense least squares over every term, written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import Histories
from privfed.methods.shared.als import ALSObjective, Feedback, ObjectiveError, popularity_weights


def feedback_of(rng, users, items, bought, seen):
    """Random disjoint lists: shares `bought` and `seen` of all pairs."""
    draw = rng.random((users, items))
    return Feedback(
        *(
            Histories.from_pairs(*mask.nonzero(), users, items)
            for mask in (draw < bought, (draw >= bought) & (draw < bought + seen))
        )
    )


def objective_of(rng, items, pairs=True, points=True):
    return ALSObjective(
        rng.uniform(0, 0.5, items),
        rng.uniform(0, 0.3, items) * pairs,
        rng.uniform(0, 0.4) * points,
        rng.uniform(0, 1),
        tuple(rng.uniform(-0.2, 1, 2)),
        rng.uniform(0.05, 1),
    )


def terms(objective, feedback, user):
    """Every squared term of one user: (weight, {item: coefficient}, target)."""
    bought, seen = set(feedback.purchased.items_of(user).tolist()), set(feedback.examined.items_of(user).tolist())
    rest = set(range(feedback.purchased.n_items)) - bought - seen
    over_seen, over_rest = objective.margins
    found = [(1.0, {i: 1}, 1.0) for i in bought]
    found += [(objective.examined_weight, {j: 1}, objective.examined_target) for j in seen]
    found += [(objective.missing[k], {k: 1}, 0.0) for k in rest]
    found += [(objective.pairs[j], {i: 1, j: -1}, over_seen) for j in seen for i in bought]
    found += [(objective.pairs[j], {j: 1, k: -1}, over_rest) for j in seen for k in rest]
    return found


def design(objective, feedback, user):
    """The same as rows of a weighted least squares problem in the user's scores."""
    found = terms(objective, feedback, user)
    rows, targets = np.zeros((len(found), feedback.purchased.n_items)), np.zeros(len(found))
    for n, (weight, coefficients, target) in enumerate(found):
        for item, coefficient in coefficients.items():
            rows[n, item] = coefficient * weight**0.5
        targets[n] = target * weight**0.5
    return rows, targets


def loss(objective, feedback, users, items):
    total = objective.regularisation * ((users**2).sum() + (items**2).sum())
    for u, vector in enumerate(users):
        rows, targets = design(objective, feedback, u)
        total += ((rows @ items @ vector - targets) ** 2).sum()
    return total


def naive_users(objective, feedback, items):
    d = items.shape[1]
    ridge = np.eye(d) * objective.regularisation**0.5
    out = []
    for u in range(feedback.purchased.n_users):
        rows, targets = design(objective, feedback, u)
        stacked = np.concatenate([rows @ items, ridge]), np.concatenate([targets, np.zeros(d)])
        out.append(np.linalg.lstsq(*stacked)[0])
    return np.array(out)


def naive_items(objective, feedback, users, items):
    """One item after the other, the others fixed."""
    items = items.copy()
    d = items.shape[1]
    designs = [design(objective, feedback, u) for u in range(len(users))]
    for i in range(len(items)):
        others = items.copy()
        others[i] = 0
        left, right = [np.eye(d) * objective.regularisation**0.5], [np.zeros(d)]
        for (rows, targets), vector in zip(designs, users, strict=True):
            left.append(rows[:, [i]] * vector)
            right.append(targets - rows @ others @ vector)
        items[i] = np.linalg.lstsq(np.concatenate(left), np.concatenate(right))[0]
    return items


SIZES = (st.integers(1, 6), st.integers(1, 9), st.integers(1, 4), st.floats(0, 0.5), st.floats(0, 0.5))


@given(st.integers(0, 2**32), *SIZES, st.booleans(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_each_half_step_is_the_least_squares_solution(seed, users, items, dim, bought, seen, pairs, points):
    rng = np.random.default_rng(seed)
    feedback = feedback_of(rng, users, items, bought, seen)
    objective = objective_of(rng, items, pairs, points)
    table = rng.normal(size=(items, dim))
    found = objective.users(table, feedback)
    np.testing.assert_allclose(found, naive_users(objective, feedback, table), rtol=1e-7, atol=1e-9)
    people, before = rng.normal(size=(users, dim)), table.copy()
    new = objective.items(people, table, feedback)
    np.testing.assert_allclose(new, naive_items(objective, feedback, people, table), rtol=1e-7, atol=1e-9)
    assert (table == before).all()


@given(st.integers(0, 2**32), *SIZES, st.booleans())
@settings(max_examples=50, deadline=None)
def test_no_half_step_raises_the_objective(seed, users, items, dim, bought, seen, points):
    rng = np.random.default_rng(seed)
    feedback = feedback_of(rng, users, items, bought, seen)
    objective = objective_of(rng, items, points=points)
    people, table = rng.normal(size=(users, dim)), rng.normal(size=(items, dim))
    values = [loss(objective, feedback, people, table)]
    for _ in range(4):
        people = objective.users(table, feedback)
        values.append(loss(objective, feedback, people, table))
        table = objective.items(people, table, feedback)
        values.append(loss(objective, feedback, people, table))
    assert (np.diff(values) <= 1e-9 * (1 + values[0])).all()


def gradient(objective, feedback, users, items):
    """By central differences, which are exact on each quadratic half."""
    out = []
    for table in (users, items):
        slope = np.zeros_like(table)
        for place in np.ndindex(*table.shape):
            kept, values = table[place], []
            for step in (0.5, -0.5):
                table[place] = kept + step
                values.append(loss(objective, feedback, users, items))
            table[place], slope[place] = kept, values[0] - values[1]
        out.append(slope)
    return out


@pytest.mark.parametrize("pairs", [False, True])
def test_the_gradient_vanishes_where_a_half_step_ends(pairs):
    rng = np.random.default_rng(4)
    feedback = feedback_of(rng, 7, 11, 0.2, 0.3)
    objective = objective_of(rng, 11, pairs)
    table = rng.normal(size=(11, 3))
    people = objective.users(table, feedback)
    scale = np.abs(gradient(objective, feedback, rng.normal(size=(7, 3)), table)[0]).max()
    assert np.abs(gradient(objective, feedback, people, table)[0]).max() < 1e-9 * scale
    once = objective.items(people, table, feedback)
    slope = np.abs(gradient(objective, feedback, people, once)[1])
    assert slope[-1].max() < 1e-9 * scale
    assert (slope.max() < 1e-9 * scale) != pairs
    for _ in range(200):
        once = objective.items(people, once, feedback)
    assert np.abs(gradient(objective, feedback, people, once)[1]).max() < 1e-9 * scale


def test_users_are_solved_on_their_own():
    rng = np.random.default_rng(5)
    feedback, objective = feedback_of(rng, 9, 12, 0.2, 0.2), objective_of(rng, 12)
    table, some = rng.normal(size=(12, 4)), np.array([7, 2, 2])
    assert (objective.users(table, feedback.subset(some)) == objective.users(table, feedback)[some]).all()


def test_a_user_without_items_scores_nothing_and_no_users_pull_items_to_zero():
    objective = objective_of(np.random.default_rng(6), 5)
    table = np.random.default_rng(7).normal(size=(5, 2))
    nothing = np.empty(0, dtype=np.int64)
    assert not objective.users(table, Feedback.from_histories(Histories(np.zeros(3, dtype=np.int64), nothing, 5))).any()
    nobody = Feedback.from_histories(Histories(np.zeros(1, dtype=np.int64), nothing, 5))
    assert not objective.items(np.empty((0, 2)), table, nobody).any()


# Lists and weights


def test_what_was_purchased_does_not_count_as_examined_and_repeats_count_once():
    bought = Histories(np.array([0, 3, 3, 4]), np.array([5, 1, 5, 0]), 6)
    seen = Histories(np.array([0, 3, 5, 6]), np.array([5, 4, 2, 3, 3, 0]), 6)
    feedback = Feedback.from_histories(bought, seen)
    assert [feedback.purchased.items_of(u).tolist() for u in range(3)] == [[1, 5], [], [0]]
    assert [feedback.examined.items_of(u).tolist() for u in range(3)] == [[2, 4], [3], []]
    assert [feedback.subset(np.array([1, 0])).examined.items_of(u).tolist() for u in range(2)] == [[3], [2, 4]]
    turned = feedback.by_item()
    assert [turned.purchased.items_of(i).tolist() for i in range(6)] == [[2], [0], [], [], [], [0]]
    assert [turned.examined.items_of(i).tolist() for i in range(6)] == [[], [], [0], [1], [0], []]
    assert not len(Feedback.from_histories(bought).examined)


def test_popularity_weights_add_up_to_the_total():
    counts = np.array([0, 1, 4, 9])
    assert popularity_weights(counts, 12.0, 0.5).tolist() == [0, 2, 4, 6]
    assert popularity_weights(counts, 12.0, 0).tolist() == [3, 3, 3, 3]
    assert popularity_weights(counts * 0, 12.0, 0.5).tolist() == [0, 0, 0, 0]


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_belong_together_is_refused():
    s = np.full(4, 0.1)
    for wrong in ((-s, s, 0.0), (s, -s, 0.0), (s, s, -0.1)):
        with pytest.raises(ObjectiveError, match=r"the smallest weight is -0\.1"):
            ALSObjective(*wrong, 0.5, (0.5, 0.5), 0.1)
    with pytest.raises(ObjectiveError, match="the regularisation 0: weights"):
        ALSObjective(s, s, 0.0, 0.5, (0.5, 0.5), 0.0)
    objective, feedback = (
        ALSObjective(s, s, 0.0, 0.5, (0.5, 0.5), 0.1),
        feedback_of(np.random.default_rng(0), 3, 4, 0.5, 0),
    )
    for call in (
        lambda: objective.users(np.ones((5, 2)), feedback),
        lambda: objective.items(np.ones((3, 2)), np.ones((5, 2)), feedback),
        lambda: objective.users(np.ones((4, 2)), feedback.by_item()),
        lambda: ALSObjective(s[:, None], s, 0.0, 0.5, (0.5, 0.5), 0.1).users(np.ones((4, 2)), feedback),
    ):
        with pytest.raises(ObjectiveError, match="take all of one catalogue"):
            call()
    # The compiled kernel reads offsets of users, and sides of factors, unchecked.
    fewer = Feedback(feedback.purchased, feedback.examined.subset(np.arange(2)))
    with pytest.raises(ObjectiveError, match="purchases of 3 users and examinations of 2"):
        objective.users(np.ones((4, 2)), fewer)
    for shape in ((2, 2), (3, 40), (3, 1)):
        with pytest.raises(ObjectiveError, match="pass one row of that width for each user"):
            objective.items(np.ones(shape), np.ones((4, 2)), feedback)
