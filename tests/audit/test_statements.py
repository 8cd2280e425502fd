"""Sentences say what the numbers say, and change when the numbers do."""

from types import SimpleNamespace

import pytest

from privfed.audit.report import formatting
from privfed.audit.report.conclusions import conclude
from privfed.audit.report.records import AuditReport, Statement


def said(report: AuditReport, topic: str, setting: str | None = None) -> Statement:
    found = [s for s in report.statements if s.topic == topic and s.setting == setting]
    assert len(found) == 1
    return found[0]


def test_what_was_tested_is_said_first(report: AuditReport) -> None:
    first = report.statements[0]
    assert first.topic == "tested"
    for fact in (
        "100,000 interactions",
        "943 people",
        "1,682 items",
        "GPFedRec",
        "100 rounds",
        "3 seeds each",
    ):
        assert fact in first.text
    assert "synthetic" not in first.text


def test_synthetic_data_are_called_synthetic(report: AuditReport, make: SimpleNamespace) -> None:
    made_up = make.report(report.runs, dataset=report.dataset | {"synthetic": True})
    assert "synthetic: no number here is a measurement on people" in said(made_up, "tested").text


def test_each_cell_but_popularity_has_three_statements(report: AuditReport) -> None:
    about = [(s.method, s.setting) for s in report.statements if s.topic in {"attack", "guarantee", "utility"}]
    assert len(about) == 9
    assert {method for method, _ in about} == {"gpfedrec"}


def test_a_strong_attack_and_one_that_fails(report: AuditReport) -> None:
    open_text = said(report, "attack", "none").text
    assert "uploads in 4 rounds" in open_text
    assert "more than 99 times in 100" in open_text
    assert "One upload" not in open_text
    assert "From one upload (round 10) alone: more than 99 times in 100." in open_text
    assert "better than the popularity guess at 0.842" in said(report, "attack", "none").detail
    closed = said(report, "attack", "local_laplace")
    assert "50 times in 100, no better than chance" in closed.text
    assert "worse than the popularity guess" in closed.detail


def test_the_tap_before_the_mechanism_never_speaks_for_a_setting(make: SimpleNamespace) -> None:
    raw = [make.attack(name, 0.99, [1], tap="raw") for name in ("rank-1 sign", "popularity")]
    report = make.report([make.run("gpfedrec", "local_laplace", 0, attacks=raw)])
    assert "Nothing that passes behind the mechanism was attacked" in said(report, "attack", "local_laplace").text


def test_the_worst_sum_speaks_where_only_sums_are_seen_and_says_which(make: SimpleNamespace) -> None:
    tier = "all items, sum of tier.1.mlp and tier.1.gmf"
    whole = [make.attack(name, auc, [40], tap="sum") for name, auc in (("row norm", 0.84), ("popularity", 0.842))]
    part = [make.attack("row norm", 0.9, [40], tap="sum", scope=tier), make.attack("popularity", 0.8, [40], tap="sum")]
    found = {}
    for case, rows in (("whole", whole), ("part", [*whole, *part])):
        report = make.report([make.run("gpfedrec", "local_laplace", 0, attacks=rows)])
        found[case] = said(report, "attack", "local_laplace").text
    assert found["whole"].startswith("From the sum over clients (round 40): shown one item")
    assert found["part"].startswith("From the sum of tier.1.mlp and tier.1.gmf over clients (round 40): shown")


def test_as_good_as_popularity_is_said_when_the_gain_is_unclear(make: SimpleNamespace) -> None:
    row = make.attack("row norm", 0.85, [1], gain={"value": 0.008, "lo": -0.01, "hi": 0.02})
    report = make.report([make.run("gpfedrec", "none", 0, attacks=[row])])
    assert "about as good as the popularity guess" in said(report, "attack", "none").detail


def test_infinity_comes_with_its_reason(report: AuditReport) -> None:
    text = said(report, "guarantee", "published_noise").text
    assert text == (
        "Nothing is guaranteed (epsilon = inf): uploads are not clipped, so no noise scale gives a guarantee."
    )


@pytest.mark.parametrize(("epsilon", "factor", "weak"), [(1.0, "2.72", False), (68.3, "10^30", True)])
def test_a_finite_epsilon_is_an_odds_factor(make: SimpleNamespace, epsilon: float, factor: str, weak: bool) -> None:
    claim = make.guarantee("local_laplace", epsilon=epsilon)
    statement = said(
        make.report([make.run("gpfedrec", "local_laplace", 0, guarantee=claim)]), "guarantee", "local_laplace"
    )
    assert f"more than a factor of {factor} (epsilon = {formatting.epsilon(epsilon)})" in statement.text
    assert ("no meaningful guarantee" in statement.text) == weak
    assert "delta = 10^-5" in statement.detail


def test_cost_is_said_against_the_unprotected_run_and_popularity(report: AuditReport) -> None:
    assert said(report, "utility", "none").text == "NDCG@10 is 0.428."
    assert said(report, "utility", "published_noise").text == (
        "NDCG@10 is 0.411, 4 % lower against 0.428 without a mechanism (the intervals over people overlap)."
    )
    lost = said(report, "utility", "local_laplace")
    assert "72 % lower" in lost.text
    assert "worse than recommending the most popular items to everybody" in lost.text
    assert lost.detail == "Recommending the most popular items to everybody gives 0.252."


def test_what_every_guarantee_says_is_said_once(report: AuditReport) -> None:
    limits = [s.text for s in report.statements if s.topic == "limit"]
    assert limits.count("Choices made by looking at data spend privacy too, and are not in this ledger.") == 1
    assert not any("One upload alone" in text for text in limits)
    assert any("Fewer than 5 seeds (3)" in text for text in limits)
    assert any("say nothing about epsilon" in text for text in limits)


def test_concluding_twice_changes_nothing(report: AuditReport) -> None:
    assert conclude(report) == report


def test_an_audit_of_popularity_alone_still_speaks(make: SimpleNamespace) -> None:
    report = make.report([make.run("popularity", "none", 0)])
    assert [s.topic for s in report.statements] == ["tested", "limit", "limit", "limit", "limit"]


def test_whom_a_guarantee_leaves_out_is_said_in_its_headline(make: SimpleNamespace) -> None:
    for trust, phrase in (("central", "everybody but the server"), ("distributed", "follows the protocol")):
        claim = make.guarantee("local_laplace", trust=trust)
        report = make.report([make.run("gpfedrec", "local_laplace", 0, guarantee=claim)])
        assert phrase in said(report, "guarantee", "local_laplace").text


def test_measured_epsilons_and_bits_stand_beside_the_guarantee(full_report: AuditReport) -> None:
    closed = said(full_report, "guarantee", "local_laplace").detail
    assert "epsilon of whole users is at least 0.064 (95 % confidence)" in closed
    assert "the estimate for whole users is 0.78, no more than canaries give that were never there" in closed
    assert "reaches AUC 0.510; the claim allows at most 1.000: too weak to be tested." in closed
    revealed = said(full_report, "guarantee", "published_noise").detail
    assert "the estimate for whole users is 7.8." in revealed
    assert "the claim allows" not in revealed
    assert "4,000 interactions a random bit decided" in said(full_report, "tested").text


def test_guesses_at_attributes_stand_with_what_the_server_learns(full_report: AuditReport) -> None:
    text = said(full_report, "attack", "none").text
    assert "gender AUC at least 0.760 (from the true history 0.800), age AUC at least 0.700 (from the true " in text
    assert "age not told from chance" in said(full_report, "attack", "local_laplace").text


def test_an_estimate_above_its_claim_is_a_caveat(make: SimpleNamespace) -> None:
    run = make.full("gpfedrec", "local_laplace", 0)
    high = [row.model_copy(update={"value": 90.0}) if row.kind == "estimate" else row for row in run.empirical]
    report = make.report([make.run("popularity", "none", 0), run.model_copy(update={"empirical": high})])
    assert report.contradictions == []
    limits = " ".join(s.text for s in report.statements if s.topic == "limit")
    assert "the estimate 90 of one-shot canaries for whole users lies above the 68.3 claimed" in limits
    assert "That contradicts nothing: an estimate may lie above the truth." in limits
    assert "Canaries that were never inserted give up to 1.8" in limits


def test_only_natural_games_are_said_to_be_silent_about_epsilon(full_report: AuditReport, report: AuditReport) -> None:
    both, natural = (" ".join(s.text for s in one.statements if s.topic == "limit") for one in (full_report, report))
    assert "In all games but that of randomised inclusion, members" in both
    assert "In all games" not in natural
    assert "A measured lower bound of 0 is no evidence of privacy" in both
    assert "lower bound" not in natural


def test_aborted_rounds_and_fidelity_are_limits(make: SimpleNamespace) -> None:
    run = make.run("gpfedrec", "local_laplace", 0).model_copy(update={"aborted_rounds": 2, "fidelity": "analytic"})
    limits = " ".join(s.text for s in make.report([run]).statements if s.topic == "limit")
    assert f"2 of {run.rounds} rounds had too few clients" in limits
    assert "analytic (noise of all clients in one draw)" in limits
