"""`render`: a dossier as one HTML file that loads nothing, to be read on a screen and printed on paper."""

from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from privfed.audit.page.palette import stylesheet
from privfed.audit.report import formatting
from privfed.dossier.evidence import Citation
from privfed.dossier.page import summary
from privfed.dossier.questions import Answer, Case, Question, Reply
from privfed.dossier.questions.wording import interval, small

SHOWN = 3
"""Citations that stand below an answer; all of them are in answers.json."""

SPELT = 6
"""Bad news that is spelt out on the first page; what is more is named."""


def render(case: Case, replies: list[tuple[Question, Reply]], registry: dict[str, Any], made: str) -> str:
    """The page.

    Args:
        case: what the dossier is about.
        replies: every question with its answer.
        registry: the record of the deployments registry.
        made: day on which the dossier was made.
    """
    environment = Environment(
        loader=PackageLoader("privfed.dossier.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: formatting.typeset(value) if type(value) is str else value,
    )
    return environment.get_template("dossier.html").render(
        case=case,
        evidence=case.evidence,
        budget=case.budget,
        environment=case.environment,
        made=made,
        colours=stylesheet(),
        css=(resources.files("privfed.dossier.page") / "style.css").read_text(encoding="utf-8"),
        kind=summary.KINDS[case.evidence.kind],
        first=summary.first_sentence(case),
        deck=summary.deck(case),
        figures=summary.figures(case),
        suspicion=summary.suspicion(case),
        cards=[
            ("Is it worth it?", summary.worth(case)),
            ("What did attacks find?", summary.leaked(case)),
            ("What does the year come to?", summary.spent(case)),
        ],
        alarms=summary.alarms(replies),
        open=summary.open_questions(replies, registry["fields"]),
        answered=sum(isinstance(reply, Answer) for _, reply in replies),
        groups=_by_source(replies),
        registry=registry,
        shown=SHOWN,
        spelt=SPELT,
        cite=_cite,
        is_answer=lambda reply: isinstance(reply, Answer),
        interval=interval,
        epsilon=formatting.epsilon,
        delta=small,
        capital=formatting.capital,
        compared=formatting.compared(case.evidence.guarantee.value.neighbours, case.evidence.guarantee.value.unit),
        unit=formatting.named(formatting.UNITS, case.evidence.guarantee.value.unit),
    )


def _by_source(replies: list[tuple[Question, Reply]]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for question, reply in replies:
        group = groups.setdefault(question.source.name, {"source": question.source, "replies": []})
        group["replies"].append((question, reply))
    return list(groups.values())


def _cite(one: Citation) -> str:
    kept = "" if one.copied else " (not copied: it names users)"
    return f"{one.file}{kept} · {one.key} · {one.sha256[:12]}"
