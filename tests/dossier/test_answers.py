"""Answers: each cites what it is from, what nobody recorded is refused by name, and bad news is marked as such."""

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from privfed.audit.report.records import Interval, LinkRow
from privfed.dossier.budget import yearly_budget
from privfed.dossier.environment import bill_of_materials, environment, junit_counts
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Citation, Datum, Evidence
from privfed.dossier.gathering import gather
from privfed.dossier.page.summary import deck, first_sentence, leaked, open_questions, spent, worth
from privfed.dossier.questions import QUESTIONS, Answer, Case, Unknown
from privfed.dossier.reading import read
from privfed.dossier.registry import FIELDS, registry_record
from tests.dossier.conftest import change, write_node, write_run

BILL: dict[str, Any] = {"components": []}
STANDS = Citation("sbom.cdx.json", "components", "0" * 64)
CASES = [("run", None), ("attacked", None), ("unprotected", None), ("laplace", None), ("node", None),
         ("audit", "private-gram:gaussian"), ("audit", "gpfedrec:none")]  # fmt: skip


def case_of(evidence: Evidence, *past: Path, allowed: float | None = None) -> Case:
    given = None if allowed is None else Datum(allowed, STANDS)
    return Case(evidence, yearly_budget(evidence, past, "2026", given), environment(BILL, STANDS))


def answers(case: Case) -> dict[str, Answer | Unknown]:
    return {question.id: question.reply(case) for question in QUESTIONS}


@pytest.mark.parametrize(("kind", "setting"), CASES)
def test_every_question_is_answered_from_a_citation_or_left_to_somebody(
    kept: Callable[[str], Path], kind: str, setting: str | None
) -> None:
    case = case_of(gather(kept(kind), setting))
    replies = answers(case)
    assert len(replies) == len(QUESTIONS)
    for reply in replies.values():
        if isinstance(reply, Answer):
            assert reply.sources
            assert reply.text.endswith((".", ")"))
        else:
            assert reply.by in ("controller", "officer", "engineer")
            assert reply.why
    record = registry_record(case)
    assert [one["field"].removeprefix("deployment.") for one in record["fields"]] == [field.path for field in FIELDS]
    assert all(
        one["sources"] if one["filled"] else one["value"].startswith("to be filled by: ") for one in record["fields"]
    )


def test_prose_without_data_is_no_answer() -> None:
    with pytest.raises(DossierError, match="cites nothing"):
        Answer("All is well.", ())


def test_an_unprotected_run_says_so_in_the_first_sentence(kept: Callable[[str], Path]) -> None:
    case = case_of(gather(kept("unprotected")))
    assert first_sentence(case).startswith("Nothing is guaranteed to anybody: epsilon is infinite, because ")
    assert "no formal bound" in deck(case)
    bad = [name for name, reply in answers(case).items() if isinstance(reply, Answer) and reply.alarm]
    assert {"nist-epsilon", "nist-trust", "nist-total", "edpb-anonymous", "edpb-inference", "dpia-risks"} <= set(bad)
    assert worth(case).head == "Worse than recommending the most popular items."
    assert leaked(case).head == "An attack finds more than popularity explains."
    record = registry_record(case)["record"]["deployment"]
    assert record["privacy_loss"]["privacy_parameters"]["epsilon"] == "to be filled by: controller"


def test_a_guaranteed_run_has_its_numbers_everywhere(kept: Callable[[str], Path]) -> None:
    evidence = gather(kept("run"))
    case, own = case_of(evidence), evidence.guarantee.value
    assert first_sentence(case).startswith(
        "A moderate guarantee for everything one person contributes: epsilon 1.99 at"
    )
    assert "mu = 0.5" in str(answers(case)["nist-variant"])
    assert "rho = 0.125" in str(answers(case)["nist-variant"])
    parameters = registry_record(case)["record"]["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": own.epsilon, "delta": own.delta, "rho": pytest.approx(0.125)}
    assert worth(case).head == "Better than recommending the most popular items."
    assert [lane.weak for lane in worth(case).lanes] == [False, True]
    assert leaked(case).head == "No attack behind the mechanism was measured."
    assert isinstance(answers(case)["edpb-singling-out"], Unknown)
    assert "by tenths of people" in str(answers(case)["nist-bias"])


def test_mu_is_not_defined_for_other_noise(kept: Callable[[str], Path]) -> None:
    reply = answers(case_of(gather(kept("laplace"))))["nist-variant"]
    assert "mu and rho are not defined" in str(reply)


def test_singling_out_linking_and_inference_name_the_attack_and_its_interval(kept: Callable[[str], Path]) -> None:
    replies = answers(case_of(gather(kept("unprotected"))))
    assert "by construction" in str(replies["edpb-singling-out"])
    assert "vote" in str(replies["edpb-linkability"])
    assert "stable pseudonym" in str(replies["edpb-linkability"])
    for name in ("edpb-singling-out", "edpb-linkability", "edpb-inference"):
        assert "AUC 0.9" in str(replies[name])
        assert "[" in str(replies[name])
        assert "guessing by popularity reaches 0.842" in str(replies[name])


LINK = LinkRow(
    attack="rank-1 sign", tap="wire", rounds=[1, 9], selection_users=18, n_users=25, chance=0.04,
    accuracy=Interval(value=0.92, lo=0.74, hi=0.99), auc=Interval(value=0.99, lo=0.97, hi=1.0),
)  # fmt: skip


def test_people_found_again_between_two_rounds_are_a_link_with_its_interval(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "none", attacked=True)
    change(run / "attacks.json", links=[LINK.model_dump(mode="json")])
    evidence = gather(run)
    reply = answers(case_of(evidence))["edpb-linkability"]
    assert isinstance(reply, Answer)
    assert reply.alarm
    assert "would name 92% of 25 people again [74%, 99%], where chance names 4%" in reply.text
    assert "AUC of 0.990 [0.970, 1.000]" in reply.text
    assert reply.sources[0].key == "links[0]"
    at_chance = LINK.model_copy(update={"auc": Interval(value=0.5, lo=0.4, hi=0.6)})
    quiet = replace(evidence, links=(Datum(at_chance, STANDS),), chosen_at={})
    reply = answers(case_of(quiet))["edpb-linkability"]
    assert isinstance(reply, Answer)
    assert not reply.alarm


@pytest.mark.parametrize(
    ("plan", "says", "alarm"),
    [
        (
            "central-gaussian:clip_norm=1,noise_multiplier=2",
            "receives each, could link them, and is trusted not to",
            False,
        ),
        (
            "secure-sum:clip_norm=1",
            "no claim about whole people bounds what sums say of one: epsilon is infinite",
            True,
        ),
    ],
)
def test_where_sums_alone_are_released_plan_and_ledger_answer(
    tmp_path: Path, plan: str, says: str, alarm: bool
) -> None:
    reply = answers(case_of(gather(write_run(tmp_path / "run", plan))))["edpb-linkability"]
    assert isinstance(reply, Answer)
    assert reply.text.startswith("No upload of one person is released: the plan releases sums alone")
    assert "The ledger holds 1 query." in reply.text
    assert says in reply.text
    assert reply.alarm is alarm
    assert {"config.privacy", "entries"} <= {source.key for source in reply.sources}
    assert ("trusted not to" in reply.text) is plan.startswith("central")


def test_rows_that_servers_see_and_uploads_without_attack_are_no_sums_alone(tmp_path: Path) -> None:
    for name, plan in (("shared", "shared-sum"), ("laplace", "local-laplace:epsilon0=1,clip_norm=1")):
        reply = answers(case_of(gather(write_run(tmp_path / name, plan))))["edpb-linkability"]
        assert isinstance(reply, Unknown)
        assert "uploads of two rounds" in reply.why


def test_a_contradiction_and_a_failed_check_are_bad_news(kept: Callable[[str], Path]) -> None:
    evidence = gather(kept("audit"), "gpfedrec:none")
    case = case_of(replace(evidence, contradictions=(Datum("Two numbers disagree.", STANDS),)))
    reply = answers(case)["nist-testing"]
    assert isinstance(reply, Answer)
    assert reply.alarm
    assert "Contradicted: Two numbers disagree." in reply.text


def test_past_runs_add_up_and_what_is_left_is_what_was_allowed_less_that(tmp_path: Path) -> None:
    first, second, third = (write_run(tmp_path / name) for name in ("one", "two", "three"))
    evidence = gather(first)
    own = evidence.guarantee.value.epsilon
    budget = yearly_budget(evidence, [second], "2026", Datum(10.0, STANDS))
    assert [(run.name, run.current) for run in budget.past] == [("one", True), ("two", False)]
    assert [run.name for run in budget.uncounted] == ["three"]
    assert budget.ever.epsilon == pytest.approx(2 * own)
    assert budget.ever.mu == pytest.approx(math.sqrt(0.5))
    assert budget.ever.epsilon_by_mu is not None
    assert own < budget.ever.epsilon_by_mu < 2 * own
    year = budget.past[0].date[:4]
    now = yearly_budget(evidence, [second, third], year, Datum(10.0, STANDS))
    assert now.left == pytest.approx(10 - 3 * own)
    assert now.uncounted == ()
    assert yearly_budget(evidence, [tmp_path], year).ever.runs == 3
    assert yearly_budget(evidence, [second], "1999").this_year.runs == 0


def test_too_much_and_nothing_guaranteed_and_different_things_are_told(tmp_path: Path) -> None:
    run, laplace = write_run(tmp_path / "run"), write_run(tmp_path / "laplace", "local-laplace:epsilon0=1,clip_norm=1")
    nothing = write_run(tmp_path / "nothing", "none")
    evidence = gather(run)
    year = yearly_budget(evidence, [], "2026").past[0].date[:4]

    def card(*past: Path, allowed: float | None = None) -> str:
        given = None if allowed is None else Datum(allowed, STANDS)
        return spent(replace(case_of(evidence), budget=yearly_budget(evidence, past, year, given))).head

    assert card(allowed=0.5) == "More than allowed was spent."
    assert card(laplace) == "These do not add up."
    assert card(nothing, allowed=5.0) == "More than allowed was spent."
    assert "∞" in card(nothing)
    with pytest.raises(DossierError, match="holds no ledger"):
        card(tmp_path / "run" / "..", tmp_path / "empty" if (tmp_path / "empty").mkdir() is None else tmp_path)
    with pytest.raises(DossierError, match="is not there"):
        card(tmp_path / "nowhere")


def test_a_node_knows_its_own_budget_and_what_ended(tmp_path: Path) -> None:
    node = write_node(tmp_path / "node", runs=2)
    ended = {
        "run": "old",
        "epsilon": 1.5,
        "delta": 1e-6,
        "rounds": 3,
        "counted": "one user, add_or_remove_one, central trust",
    }
    change(node / "state" / "book.json", ended=[ended])
    budget = yearly_budget(gather(node, "run-0"), [], "2026")
    own = next(run.epsilon for run in budget.past if run.name == "run-0")
    assert {run.name for run in budget.past} == {"run-0", "run-1", "old"}
    assert budget.ever.epsilon == pytest.approx(2 * own + 1.5)
    assert budget.ever.mu is None
    assert budget.allowed is not None
    assert budget.allowed.value == 8.0
    assert budget.allowed.source.file == "node.toml"
    assert budget.left == pytest.approx(8.0 - 2 * own - 1.5)
    assert yearly_budget(gather(node, "run-0"), [], "1999").left == budget.left


def test_the_bill_of_materials_is_cyclonedx_with_the_digest_of_every_record(tmp_path: Path) -> None:
    for name, record in (("zeta", "zeta/a.py,sha256=x,1\n"), ("Alpha_Beta", None)):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        if record is not None:
            (folder / "RECORD").write_text(record)
    installed = [PathDistribution(path) for path in sorted(tmp_path.iterdir())]
    bill = bill_of_materials(installed)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert [one["purl"] for one in bill["components"]] == ["pkg:pypi/alpha-beta@1.0", "pkg:pypi/zeta@1.0"]
    assert "hashes" not in bill["components"][0]
    assert len(bill["components"][1]["hashes"][0]["content"]) == 64
    assert bill_of_materials(installed) == bill
    assert bill["serialNumber"].startswith("urn:uuid:")


def test_the_tests_that_ran_are_counted_and_entities_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(
        "<testsuites><testsuite><testcase/><testcase><failure/></testcase><testcase><skipped/></testcase></testsuite></testsuites>"
    )
    counts = junit_counts(read(tmp_path, file.name))
    assert (counts.tests, counts.failures, counts.skipped) == (3, 1, 1)
    for text, told in (
        ("<a/>", "holds no test"),
        ("<a", "no JUnit report"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "entities"),
    ):
        file.write_text(text)
        with pytest.raises(DossierError, match=told):
            junit_counts(read(tmp_path, file.name))


def test_what_is_left_is_listed_by_who_has_to_fill_it(kept: Callable[[str], Path]) -> None:
    case = case_of(gather(kept("run")))
    replies = [(question, question.reply(case)) for question in QUESTIONS]
    groups = open_questions(replies, registry_record(case)["fields"])
    assert [group["who"] for group in groups] == ["the controller", "the data protection officer", "the engineer"]
    assert "data curators" in groups[0]["fields"]
