"""Budgets forwards and backwards."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.budget import laplace_budget, solve_laplace
from privfed.privacy.errors import PlanError
from privfed.privacy.events import SchemaSummary
from privfed.privacy.ledger import Ledger
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.target import plan_for_target

LOCAL = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=5")


def test_one_hundred_uploads_at_epsilon_one():
    budget = laplace_budget(1.0, 100, 1e-5)
    assert budget.basic_epsilon == 100
    assert budget.epsilon == pytest.approx(68.3, abs=0.06)
    assert budget.rdp_epsilon == pytest.approx(70.8, abs=0.06)
    assert budget.noise_scale_per_clip == 2.0
    assert budget.accountant == "PLD"


@pytest.mark.parametrize(("uploads", "pld", "basic"), [(100, 0.175, 0.08), (20, 0.444, 0.4)])
def test_total_eight(uploads, pld, basic):
    solution = solve_laplace(8.0, uploads, 1e-5)
    assert solution.budget.epsilon0 == pytest.approx(pld, abs=7e-4)
    assert solution.basic_epsilon0 == pytest.approx(basic)
    assert solution.budget.epsilon <= 8.0


@pytest.mark.parametrize("target", [650.0, 720.0, 900.0])
def test_a_total_where_the_tight_accountant_gives_out_is_still_solved(target):
    solution = solve_laplace(target, 40, 1e-8)
    assert solution.budget.epsilon <= target
    assert solution.budget.epsilon0 >= solution.basic_epsilon0 * (1 - 2e-3)


@settings(max_examples=5, deadline=None)
@given(st.floats(1e-3, 200.0), st.integers(1, 300), st.sampled_from([1e-8, 1e-5, 1e-2]))
def test_solutions_keep_the_target_and_waste_nothing(target, uploads, delta):
    solution = solve_laplace(target, uploads, delta)
    assert solution.budget.epsilon <= target
    assert solution.budget.epsilon0 >= solution.basic_epsilon0 * (1 - 2e-3)
    assert laplace_budget(solution.budget.epsilon0 * 1.003, uploads, delta).epsilon > target * 0.999


@pytest.mark.parametrize(
    ("sampling", "uploads"),
    [("", 40), (",sampling.kind=epoch,sampling.size=3", 20), (",sampling.kind=fixed,sampling.size=3", 40)],
)
def test_a_plan_solved_for_a_target_keeps_it_in_the_ledger(sampling, uploads):
    """6 users, 20 rounds of two asks: the worst user that the rule allows stays at or below the target."""
    start = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=5" + sampling)
    plan = plan_for_target(start, 8.0, rounds=20, population=6, queries_per_round=2)
    assert plan.mechanism.clip_norm == 5
    assert plan.sampling == start.sampling
    assert plan.mechanism.epsilon0 == solve_laplace(8.0, uploads, 1e-5).budget.epsilon0
    ledger = Ledger(plan, 6)
    for round in range(20):
        members = {"all": range(6), "epoch": [0, 1, 2] if round % 2 else [3, 4, 5], "fixed": [0, 1, 2]}
        for index in range(2):
            ledger.record(
                cohort_id=round,
                round=round,
                step="train",
                index=index,
                schema=SchemaSummary(("items",)),
                participants=np.array(list(members[plan.sampling.kind])),
            )
    assert 7.9 < ledger.guarantee().epsilon <= 8.0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("none", "without clipping"),
        ("published-noise", "not clipped"),
        ("local-laplace:epsilon0=1,clip_norm=5,clip_order=2", "L2 norm"),
    ],
)
def test_plans_without_a_bound_cannot_be_solved(words, part):
    with pytest.raises(PlanError, match=f"cannot reach epsilon = 8: .*{part}"):
        plan_for_target(PrivacyPlan.parse(words), 8.0, 100, 943)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: laplace_budget(-1.0, 100, 1e-5), "epsilon0 = -1.0"),
        (lambda: laplace_budget(float("inf"), 100, 1e-5), "epsilon0 = inf"),
        (lambda: laplace_budget(1.0, 0, 1e-5), "participations = 0"),
        (lambda: laplace_budget(1.0, 1, 0.0), "delta = 0.0"),
        (lambda: solve_laplace(0.0, 100, 1e-5), "epsilon = 0.0"),
        (lambda: plan_for_target(LOCAL, 8.0, 0, 943), "rounds = 0"),
        (lambda: plan_for_target(LOCAL, -8.0, 1, 943), "epsilon = -8.0"),
    ],
)
def test_bad_numbers_are_one_sentence(call, part):
    with pytest.raises(PlanError, match=part):
        call()
