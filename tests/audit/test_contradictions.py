"""Every rule fires on the report that breaks it, and on no other."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from attacks.empirical import tpr_ceiling
from privfed.audit.report.ceilings import auc_ceiling, interaction_level, lower_end
from privfed.audit.report.records import AttackRow, AuditReport, Interval, RateAtFprRow, SelfCheck


def rules(report: AuditReport) -> list[str]:
    return [found.rule for found in report.contradictions]


def protected(make: SimpleNamespace, **changes: object) -> AuditReport:
    """A report of one protected run beside the popularity recommender."""
    return make.report([make.run("popularity", "none", 0), make.run("gpfedrec", "local_laplace", 0, **changes)])


def test_a_sound_report_contradicts_nothing(report: AuditReport, make: SimpleNamespace) -> None:
    assert rules(report) == []
    assert rules(protected(make)) == []


@pytest.mark.parametrize(
    ("mechanism", "rule"),
    [
        ({"kind": "unprotected"}, ["no_clip", "no_noise"]),
        ({"kind": "clip_only", "clip_norm": 1.0}, ["no_noise"]),
        ({"kind": "unclipped_noise", "scale": 0.3}, ["no_clip"]),
        ({"kind": "local_laplace", "clip_norm": 1.0, "epsilon0": 1.0, "clip_order": 2}, ["unsound_plan"]),
        (
            {"kind": "local_laplace", "clip_norm": 1.0, "epsilon0": 1.0, "coordinates": "touched"},
            ["unsound_plan"],
        ),
        ({"kind": "wishes"}, ["unreadable_plan"]),
    ],
)
def test_a_finite_epsilon_needs_a_plan_that_can_give_it(
    make: SimpleNamespace, mechanism: dict[str, object], rule: list[str]
) -> None:
    assert rules(protected(make, plan={"mechanism": mechanism}, attacks=[])) == rule


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"epsilon": math.nan}, "nonsense_epsilon"),
        ({"epsilon": -1.0}, "nonsense_epsilon"),
        ({"epsilon": 0.0}, "nonsense_epsilon"),
        ({"epsilon": math.inf}, "no_reason"),
    ],
)
def test_an_epsilon_is_a_number_with_a_meaning(make: SimpleNamespace, changes: dict[str, float], rule: str) -> None:
    report = protected(make, guarantee=make.guarantee("local_laplace", **changes))
    assert rule in rules(report)


def coin_rows(make: SimpleNamespace, auc: float, tap: str = "wire", **changes: object) -> list[AttackRow]:
    changes = {"game": "inclusion", "membership": "randomised"} | changes
    return [make.attack(name, auc, [1], tap=tap, **changes) for name in ("canary", "popularity")]


def test_a_game_of_inclusion_bits_above_its_ceiling_is_a_contradiction(make: SimpleNamespace) -> None:
    strong = make.guarantee("local_laplace", epsilon=0.5)
    report = protected(make, guarantee=strong, attacks=coin_rows(make, 0.95))
    assert rules(report) == ["beaten_ceiling", "beaten_ceiling"]
    text = report.contradictions[0].text
    assert text.startswith("GPFedRec, local Laplace (eps0 = 1 per upload, C = 1), seed 0: canary beats the ceiling")
    assert text.count(".") - text.count("0.") == 1
    assert "\n" not in text


def test_below_the_ceiling_nothing_is_said(make: SimpleNamespace) -> None:
    assert rules(protected(make, attacks=coin_rows(make, 0.95))) == []


def test_few_users_whose_values_agree_deny_no_claim(make: SimpleNamespace) -> None:
    """A bootstrap has no width where all users have the same AUC: at epsilon 16 the ceiling is a little below 1."""
    sure = Interval(value=1.0, lo=1.0, hi=1.0)
    rate = RateAtFprRow(fpr=0.1, tpr=sure, false_positives=40)

    def denied(epsilon: float, n_users: int) -> list[str]:
        perfect = {"auc": sure, "tpr_at_fpr": [rate], "n_users": n_users}
        rows = [row.model_copy(update=perfect) for row in coin_rows(make, 0.9)]
        return rules(protected(make, guarantee=make.guarantee("local_laplace", epsilon=epsilon), attacks=rows))

    assert denied(16.0, 30) == denied(1.0, 2) == []
    assert denied(1.0, 300) == ["beaten_ceiling", "beaten_ceiling"]


@pytest.mark.parametrize("n_users", [1, 4, 30])
def test_the_lower_end_where_all_users_agree_is_hoeffdings(n_users: int) -> None:
    perfect = Interval(value=1.0, lo=1.0, hi=1.0)
    assert lower_end(perfect, n_users) == pytest.approx(0.025 ** (1 / n_users), abs=1e-8)
    assert 0 <= lower_end(Interval(value=0.7, lo=0.7, hi=0.7), n_users) < 0.7
    assert lower_end(Interval(value=0.7, lo=0.6, hi=0.8), n_users) == 0.6


def test_a_rate_alone_can_beat_the_ceiling(make: SimpleNamespace) -> None:
    rate = {"fpr": 0.001, "tpr": {"value": 0.2, "lo": 0.15, "hi": 0.25}, "false_positives": 40}
    rows = coin_rows(make, 0.55, tpr_at_fpr=[rate])
    report = protected(make, guarantee=make.guarantee("local_laplace", epsilon=2.0), attacks=rows)
    assert rules(report) == ["beaten_ceiling", "beaten_ceiling"]
    assert "TPR 0.135 at FPR 0.001" in report.contradictions[0].text


def test_natural_members_are_never_compared_with_an_epsilon(make: SimpleNamespace) -> None:
    strong = make.guarantee("local_laplace", epsilon=0.1)
    assert rules(protected(make, guarantee=strong, attacks=coin_rows(make, 0.99, membership="natural"))) == []


def test_a_ceiling_holds_only_behind_the_noise(make: SimpleNamespace) -> None:
    strong = make.guarantee("local_laplace", epsilon=0.1)
    assert rules(protected(make, guarantee=strong, attacks=coin_rows(make, 0.99, tap="raw"))) == []
    central = make.guarantee("local_laplace", epsilon=0.1, trust="central")
    assert rules(protected(make, guarantee=central, attacks=coin_rows(make, 0.99, tap="wire"))) == []
    assert rules(protected(make, guarantee=central, attacks=coin_rows(make, 0.99, tap="sum"))) != []


@pytest.mark.parametrize(
    ("kind", "value", "denied"),
    [
        ("lower bound", 0.93, False),
        ("lower bound", 1.2, True),
        ("estimate", 1.2, False),
        ("credible bound", 1.2, False),
    ],
)
def test_only_a_lower_bound_denies_a_claim(make: SimpleNamespace, kind: str, value: float, denied: bool) -> None:
    measured = make.full("gpfedrec", "local_laplace", 0).empirical[-1]
    row = measured.model_copy(update={"kind": kind, "value": value, "consistent": value <= measured.accounted})
    report = protected(make, empirical=[row])
    assert rules(report) == (["exceeded_claim"] if denied else [])
    if denied:
        assert "is at least 1.2 with 95 % confidence (Clopper-Pearson), and only 1 is claimed" in (
            report.contradictions[0].text
        )


@given(st.floats(0.0, 12.0), st.floats(0.0, 0.5))
@settings(max_examples=50, deadline=None)
def test_the_auc_ceiling_is_the_area_under_the_roc_ceiling(epsilon: float, delta: float) -> None:
    corner = (1 - delta) / (1 + math.exp(epsilon))
    area = sum(
        integrate.quad(lambda fpr: tpr_ceiling(fpr, epsilon, delta), lo, hi)[0]
        for lo, hi in [(0, corner), (corner, 1 - delta), (1 - delta, 1)]
        if hi > lo
    )
    assert auc_ceiling(epsilon, delta) == pytest.approx(area, abs=1e-7)


def test_ceilings_at_the_ends() -> None:
    assert auc_ceiling(0.0, 0.0) == pytest.approx(0.5)
    assert auc_ceiling(1000.0, 0.0) == pytest.approx(1.0)
    assert np.isclose(auc_ceiling(1.0, 0.0), 1 - 1 / (1 + math.e))


def test_one_interaction_costs_two_steps_where_whole_people_come_and_go(make: SimpleNamespace) -> None:
    assert interaction_level(make.guarantee("local_laplace", epsilon=2.0)) == (2.0, 1e-5)
    epsilon, delta = interaction_level(make.guarantee("local_laplace", epsilon=2.0, neighbours="add_or_remove_one"))
    assert epsilon == 4.0
    assert delta == pytest.approx(1e-5 * (1 + math.exp(2.0)))


def test_numbers_without_popularity_have_nothing_to_stand_beside(make: SimpleNamespace) -> None:
    report = make.report([make.run("gpfedrec", "local_laplace", 0)])
    assert rules(report) == ["no_popularity_method"]
    assert "HR@10 (test) and NDCG@10 (test)" in report.contradictions[0].text
    lone = [make.attack("rank-1 sign", 0.5, [1]), make.attack("popularity", 0.8, [1], tap="raw")]
    assert rules(protected(make, attacks=lone)) == ["no_popularity_attack"]


@pytest.mark.parametrize(("setting", "tap"), [("none", "wire"), ("local_laplace", "raw")])
def test_a_broken_attack_is_told_from_a_safe_upload(make: SimpleNamespace, setting: str, tap: str) -> None:
    weak = [make.attack(name, 0.8, [1], tap=tap) for name in ("rank-1 sign", "popularity")]
    runs = [make.run("popularity", "none", 0), make.run("gpfedrec", setting, 0, attacks=weak)]
    assert rules(make.report(runs)) == ["positive_control"]
    popularity = make.run("popularity", "none", 0, attacks=weak)
    assert rules(make.report([popularity, make.run("gpfedrec", "local_laplace", 0)])) == []
    strong = [*weak, make.attack("rank-1 sign", 0.95, [2], tap=tap)]
    runs[1] = make.run("gpfedrec", setting, 0, attacks=strong)
    assert rules(make.report(runs)) == []


def test_a_failed_self_check_is_a_contradiction(make: SimpleNamespace, report: AuditReport) -> None:
    check = SelfCheck(name="accountants agree", passed=False, detail="PLD 7 is above RDP 6")
    failed = make.report(report.runs, self_checks=[check])
    assert rules(failed) == ["self_check"]
    assert failed.contradictions[0].text == ("The audit's own check 'accountants agree' failed: PLD 7 is above RDP 6.")
