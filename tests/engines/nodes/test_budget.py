"""A node's budget over runs: both sums are kept, only what is about the same thing is added, and nothing rolls back."""

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from privfed.engines.nodes.budget import Budget, PrivacyCost, counted_as, run_cost
from privfed.engines.nodes.errors import PolicyRefused
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.record import RunCost
from privfed.privacy import Ledger, PrivacyPlan, SchemaSummary

USERS = 20
GAUSSIAN = PrivacyPlan.parse("local-gaussian:noise_multiplier=20,clip_norm=1,delta=1e-6")
LAPLACE = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=1,delta=1e-6")
SCHEMA = SchemaSummary(("items",), ())


def charged(plan: PrivacyPlan, rounds: int) -> Ledger:
    ledger = Ledger(plan, USERS, run="r")
    for t in range(rounds):
        ledger.record(
            cohort_id=t, round=t, step="train", index=0, schema=SCHEMA, participants=np.arange(USERS)
        )  # fmt: skip
    return ledger


def query(budget: Budget, ledger: Ledger) -> None:
    t = len(ledger.entries)
    place: dict[str, Any] = {"cohort_id": t, "round": t, "step": "train", "index": 0, "schema": SCHEMA}
    budget.accept(ledger, **place, participants=np.arange(USERS))
    ledger.record(**place, participants=np.arange(USERS))


def spent(plan: PrivacyPlan, **changes: Any) -> RunCost:
    return run_cost("r", charged(plan, 1)).model_copy(update=changes)


@pytest.mark.parametrize(("max_delta", "runs"), [(1e-6, 1), (3.5e-6, 3), (1e-5, 10)])
def test_as_many_runs_as_both_sums_allow(max_delta: float, runs: int) -> None:
    policy, earlier = Policy(max_epsilon=100.0, max_delta=max_delta), list[RunCost]()
    for _ in range(runs):
        Budget(policy, earlier).accept_run(GAUSSIAN)
        ledger = charged(GAUSSIAN, 0)
        query(Budget(policy, earlier), ledger)
        earlier.append(run_cost("r", ledger))
    for refused in (
        lambda: Budget(policy, earlier).accept_run(GAUSSIAN),
        lambda: query(Budget(policy, earlier), charged(GAUSSIAN, 0)),
    ):
        with pytest.raises(PolicyRefused, match=r"deltas .* max_epsilon = 100 and max_delta = .* over all runs"):
            refused()


@pytest.mark.parametrize("earlier", [0, 1, 4])
def test_what_is_accepted_is_within_both_sums_and_one_query_more_is_not(earlier: int) -> None:
    policy, before = Policy(max_epsilon=3.0, max_delta=1e-5), [spent(GAUSSIAN)] * earlier
    budget, ledger = Budget(policy, before), charged(GAUSSIAN, 0)
    said = ""
    while not said:
        try:
            query(budget, ledger)
        except PolicyRefused as refused:
            said = str(refused)
    assert "the epsilons of this node's runs" in said
    own = PrivacyCost.from_ledger(ledger)
    assert own.epsilon + math.fsum(run.epsilon or 0.0 for run in before) <= 3.0
    assert own.delta + math.fsum(run.delta for run in before) <= 1e-5
    more = charged(GAUSSIAN, len(ledger.entries) + 1)
    assert PrivacyCost.from_ledger(more).epsilon + math.fsum(run.epsilon or 0.0 for run in before) > 3.0


def test_a_run_that_is_pure_costs_no_delta() -> None:
    policy = Policy(max_epsilon=3.5, max_delta=1e-6)
    earlier = [spent(LAPLACE)] * 2
    ledger = charged(LAPLACE, 0)
    Budget(policy, earlier).accept_run(LAPLACE)
    query(Budget(policy, earlier), ledger)
    with pytest.raises(PolicyRefused, match="epsilons"):
        query(Budget(policy, earlier), ledger)


@pytest.mark.parametrize("max_epsilon", [None, 1e6])
@pytest.mark.parametrize("delta", [1e-5, 0.5, 1.0])
def test_a_run_with_a_huge_delta_leaves_nothing_for_others(max_epsilon: float | None, delta: float) -> None:
    policy = Policy(max_epsilon=max_epsilon, max_delta=1e-5)
    with pytest.raises(PolicyRefused, match="max_delta = 1e-05 over all runs together"):
        Budget(policy, [spent(GAUSSIAN, delta=delta)]).accept_run(GAUSSIAN)


def test_a_record_from_before_deltas_were_kept_counts_in_full() -> None:
    old = RunCost.model_validate_json('{"run": "r", "epsilon": 0.1, "rounds": 1}')
    with pytest.raises(PolicyRefused, match="deltas"):
        Budget(Policy(max_epsilon=10.0), [old]).accept_run(GAUSSIAN)


def test_an_earlier_run_without_a_guarantee_ends_a_budget_of_epsilon() -> None:
    nothing = run_cost("r", charged(PrivacyPlan.parse("none"), 1))
    assert nothing.epsilon is None
    with pytest.raises(PolicyRefused, match="an earlier run of this node guaranteed nothing"):
        Budget(Policy(max_epsilon=1e9), [nothing]).accept_run(GAUSSIAN)
    Budget(Policy(), [nothing]).accept_run(GAUSSIAN)


def test_an_infinite_epsilon_never_fits() -> None:
    budget, ledger = Budget(Policy(max_epsilon=1e300), []), charged(PrivacyPlan.parse("none"), 0)
    with pytest.raises(PolicyRefused, match="epsilons"):
        query(budget, ledger)
    with pytest.raises(PolicyRefused, match="epsilons"):
        budget.accept(
            charged(LAPLACE, 0), cohort_id=0, round=0, step="train", index=0, schema=SchemaSummary((), ("bits",)),
            participants=np.arange(USERS),
        )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        "one user, add_or_remove_one, local trust",
        "one interaction, replace_one, local trust",
        "one user, replace_one, central trust",
        "one user, zero_out_one, local trust",
    ],
)
def test_epsilons_of_different_things_are_not_added(other: str) -> None:
    assert counted_as(GAUSSIAN) == counted_as(LAPLACE) == "one user, replace_one, local trust"
    mixed = [spent(GAUSSIAN), spent(GAUSSIAN, counted=other)]
    with pytest.raises(PolicyRefused, match=f"earlier runs of this node counted {other}"):
        Budget(Policy(max_epsilon=1e6, max_delta=0.1), mixed).accept_run(GAUSSIAN)
    Budget(Policy(max_delta=0.1), mixed).accept_run(GAUSSIAN)


def test_a_budget_of_users_takes_part_in_no_run_that_protects_interactions() -> None:
    plan = PrivacyPlan.parse("interaction-dpsgd:noise_multiplier=1,clip_norm=1")
    with pytest.raises(PolicyRefused, match="epsilon is of one interaction and this node's max_epsilon is of one user"):
        Budget(Policy(max_epsilon=1e6, max_delta=0.1), []).accept_run(plan)


@pytest.mark.parametrize("text", ["NaN", "-1", "Infinity"])
@pytest.mark.parametrize("field", ["epsilon", "delta", "pure"])
def test_a_record_says_nothing_that_would_make_sums_smaller(field: str, text: str) -> None:
    fields = {"run": '"r"', "epsilon": "0.1", "delta": "0.1", "pure": "0.1", "rounds": "1"} | {field: text}
    with pytest.raises(ValidationError):
        RunCost.model_validate_json("{" + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "}")


@pytest.mark.parametrize(("weight", "keeps"), [(0.05, True), (1.0, False)])
def test_a_tier_is_charged_its_own_epsilon_and_held_to_what_was_promised(weight: float, keeps: bool) -> None:
    tiers = f"tiers.a.epsilon=1,tiers.a.share=0.5,tiers.a.weight={weight},tiers.b.epsilon=90,tiers.b.share=0.5"
    words = f"central-gaussian:noise_multiplier=0.5,clip_norm=1,delta=1e-6,{tiers},tiers.b.weight=1"
    plan = PrivacyPlan.parse(words)
    query(Budget(Policy(), [], "b"), charged(plan, 0))
    if keeps:
        query(Budget(Policy(max_epsilon=1.0), [], "a"), charged(plan, 0))
        assert run_cost("r", charged(plan, 1), "a").epsilon == PrivacyCost.from_ledger(charged(plan, 1), "a").epsilon
        assert (
            PrivacyCost.from_ledger(charged(plan, 1), "a").epsilon
            < 1
            < PrivacyCost.from_ledger(charged(plan, 1)).epsilon
        )
    else:
        with pytest.raises(PolicyRefused, match="promises epsilon 1 to the tier a and would cost it"):
            query(Budget(Policy(), [], "a"), charged(plan, 0))
