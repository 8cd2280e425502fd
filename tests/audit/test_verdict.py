"""The verdict and its advice, computed from the numbers; grades and odds; thresholds for continuous integration."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from privfed.audit.report.grades import grade, guarantee_words, odds_sentence, suspicion_after
from privfed.audit.report.names import short_names
from privfed.audit.report.records import AuditReport, Run
from privfed.audit.report.thresholds import NAMES, Threshold, ThresholdError, ThresholdPolicy
from privfed.audit.report.verdict import verdict


@pytest.mark.parametrize(
    ("epsilon", "word", "after"),
    [(0.0, "strong", 1), (1.0, "strong", 3), (3.0, "moderate", 17), (8.0, "weak", 97), (10.0, "weak", 100)],
)
def test_grades_and_odds(epsilon: float, word: str, after: int) -> None:
    assert grade(epsilon, 1e-5) == word
    assert suspicion_after(epsilon) == after
    prior = 0.01 / 0.99 * math.exp(epsilon)
    assert suspicion_after(epsilon) >= 100 * prior / (1 + prior) > suspicion_after(epsilon) - 1
    assert odds_sentence(epsilon, 1e-5) == f"a suspicion of 1 in 100 grows to at most {after} in 100"


@pytest.mark.parametrize("epsilon", [10.1, 68.3, math.inf])
def test_nothing_above_ten_is_called_a_guarantee(epsilon: float) -> None:
    assert grade(epsilon, 1e-5) == "none"
    assert "nothing" in odds_sentence(epsilon, 1e-5)


@pytest.mark.parametrize(("delta", "users"), [(0.466, 2), (0.011, 0), (1e-3, 1000), (1e-5, 10**6)])
def test_a_delta_that_excuses_everything_is_no_guarantee(delta: float, users: int) -> None:
    assert grade(0.5, delta, users) == "none"
    assert guarantee_words(0.5, delta, users) == "no meaningful guarantee (delta is too large)"
    assert "nothing" in odds_sentence(0.5, delta, users)
    assert grade(0.5, min(delta, 0.5 / max(users, 50)), users) == "strong"


def run(make: SimpleNamespace, number: int, epsilon: float, ndcg: float, method: str = "gpfedrec") -> Run:
    """A protected run with an epsilon and a quality; popularity has .252."""
    row = make.run(method, "local_laplace", 0)
    gain = {"value": ndcg - 0.252, "lo": ndcg - 0.262, "hi": ndcg - 0.242}
    utility = [
        one.model_copy(update={"value": ndcg, "lo": ndcg - 0.02, "hi": ndcg + 0.02}) if one.name == "ndcg" else one
        for one in row.utility
    ]
    changes = {
        "setting": {"slug": f"s{number}", "name": f"local Laplace number {number}"},
        "guarantee": make.guarantee("local_laplace", epsilon=epsilon),
        "utility": [one.model_dump() | ({"gain": gain} if one.name == "ndcg" else {}) for one in utility],
    }
    return make.run(method, "local_laplace", 0, **changes)


def report_of(make: SimpleNamespace, *runs: Run) -> AuditReport:
    return make.report([make.run("popularity", "none", 0), *runs])


def test_none_good(make: SimpleNamespace) -> None:
    report = report_of(make, make.run("gpfedrec", "none", 0), run(make, 1, 1.0, 0.1), run(make, 2, 8.0, 0.255))
    assert report.verdict == "None of three settings is guaranteed and better than popularity."
    assert report.advice == "None of these is worth deploying: publish popularity, or use private-gram."
    assert [row.group for row in verdict(report).rows] == ["guaranteed", "guaranteed", "nothing"]
    assert [row.quality for row in verdict(report).rows] == ["60 % below", "about level", "69 % above"]


def test_private_gram_is_not_advised_where_it_was_audited_in_vain(make: SimpleNamespace) -> None:
    report = report_of(make, run(make, 1, 1.0, 0.1, "private-gram"))
    assert report.advice == "It is not worth deploying: publish popularity."


def test_one_good(make: SimpleNamespace) -> None:
    report = report_of(make, run(make, 1, 8.0, 0.302), run(make, 2, 1.0, 0.1), run(make, 3, 20.0, 0.4))
    assert report.verdict == ("One of three settings is guaranteed and better than popularity: GPFedRec at epsilon 8.")
    assert report.advice == (
        "Deploy GPFedRec · local Laplace, epsilon 8: its guarantee is weak, and its NDCG@10 of 0.302 is 20 % above "
        "popularity. On paper a weak guarantee rules out little: you rely on the attacks that were tried."
    )
    assert [row.group for row in verdict(report).rows] == ["good", "guaranteed", "nothing"]


def test_all_good_and_the_best_grade_wins_before_the_best_quality(make: SimpleNamespace) -> None:
    report = report_of(make, run(make, 1, 8.0, 0.4), run(make, 2, 1.0, 0.3), run(make, 3, 0.5, 0.35))
    assert report.verdict.startswith(
        "All three settings are guaranteed and better than popularity: GPFedRec at epsilon 8, 1 and 0.5."
    )
    assert report.advice.startswith("Deploy GPFedRec · local Laplace, epsilon 0.5: its guarantee is strong, and")
    assert "weak" not in report.advice


def test_an_audit_that_contradicts_itself_advises_nothing(make: SimpleNamespace, report: AuditReport) -> None:
    broken = make.report([one for one in report.runs if one.method != "popularity"])
    assert broken.contradictions
    assert broken.advice == "Use no number of this audit before its contradictions are explained."


def test_names_are_short_and_different(make: SimpleNamespace) -> None:
    names = short_names(report_of(make, run(make, 1, 8.0, 0.3), run(make, 2, 8.0, 0.3), run(make, 3, 1.0, 0.3)))
    assert list(names.values())[1:] or names
    assert sorted(name for name in names.values() if "Laplace" in name) == [
        "GPFedRec · local Laplace number 1",
        "GPFedRec · local Laplace number 2",
        "GPFedRec · local Laplace, epsilon 1",
    ]


def test_without_a_paired_interval_the_wider_one_decides(report: AuditReport) -> None:
    rows = verdict(report).rows
    assert not any(row.paired for row in rows)
    assert {row.cell.setting.slug: row.useful for row in rows} == {
        "none": True,
        "published_noise": True,
        "local_laplace": False,
    }
    assert {row.cell.setting.slug: row.of_unprotected and round(row.of_unprotected, 2) for row in rows} == {
        "none": None,
        "published_noise": 0.96,
        "local_laplace": 0.28,
    }


def test_a_threshold_is_broken_by_the_settings_beyond_it(make: SimpleNamespace) -> None:
    report = report_of(make, run(make, 1, 8.0, 0.3), run(make, 2, 1.0, 0.3))
    assert ThresholdPolicy.read(["epsilon > 8", "excess_auc > .05"]).failures(report) == []
    assert ThresholdPolicy.read(["epsilon >= 8"]).failures(report) == [
        "GPFedRec · local Laplace, epsilon 8: epsilon is 8, and the audit has to fail if epsilon >= 8."
    ]
    assert len(ThresholdPolicy.read(["gain_low < 1", "auc<1"]).failures(report)) == 4
    assert ThresholdPolicy.read([]).failures(report) == []


def test_a_leak_breaks_a_threshold_and_infinity_is_above_all(report: AuditReport) -> None:
    failures = ThresholdPolicy.read(["excess_auc > .05", "epsilon > 100"]).failures(report)
    assert len(failures) == 4
    assert any("excess_auc is 0.157" in text for text in failures)
    assert any("epsilon is ∞" in text for text in failures)


def test_what_was_not_measured_keeps_no_threshold(make: SimpleNamespace) -> None:
    report = report_of(make, make.run("gpfedrec", "local_laplace", 0, attacks=[]))
    (why,) = ThresholdPolicy.read(["excess_auc > .05"]).failures(report)
    assert why.endswith("excess_auc was not measured, so 'excess_auc > 0.05' cannot be ruled out.")
    assert ThresholdPolicy.read(["epsilon > 8"]).failures(make.report([make.run("popularity", "none", 0)])) == [
        "The audit has no setting, so no threshold was tested."
    ]


def test_a_policy_file_holds_rules_and_whom_they_are_about(report: AuditReport, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('fail_if = ["epsilon > 10"]\nonly = ["gpfedrec:local*"]\n')
    (why,) = ThresholdPolicy.read(file=file).failures(report)
    assert "epsilon is 68.3" in why
    file.write_text('fail_if = ["epsilon > 10"]\nonly = ["fedmf:*"]\n')
    assert ThresholdPolicy.read(file=file).failures(report) == [
        "The audit has no setting that fits fedmf:*, so no threshold was tested."
    ]
    assert len(ThresholdPolicy.read(["auc > 0"], file).rules) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("epsilom > 8", "unknown name: use one of epsilon, delta, auc, excess_auc"),
        ("epsilon = 8", "cannot be read: write a name, a comparison and a number"),
        ("epsilon > 8 or True", "cannot be read"),
        ("__import__('os') > 1", "cannot be read"),
        ("epsilon > eight", "has no number on its right"),
        ("epsilon > nan", "has no number on its right"),
        ("", "cannot be read"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(ThresholdError, match=told) as caught:
        Threshold.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fail_if = 3", "has to be a list of texts"),
        ("rules = []", "unknown key rules: use fail_if and only"),
        ("fail_if = [", "is not TOML"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(ThresholdError, match=told):
        ThresholdPolicy.read(file=file)
    with pytest.raises(ThresholdError, match="cannot be read: No such file"):
        ThresholdPolicy.read(file=tmp_path / "nowhere.toml")


def test_every_name_of_a_rule_is_explained() -> None:
    assert all(len(explained) > 10 for explained, _ in NAMES.values())
