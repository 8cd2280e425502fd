"""Thresholds on the command line: how they are given, and what is said and answered where one is broken."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from privfed.audit.report.records import AuditReport

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="RULE",
        help="Exit with 1 where a setting is so, such as 'excess_auc > .05' or 'epsilon > 8'; may be given several "
        "times. Names: epsilon, delta, auc, excess_auc, excess_auc_low, utility, gain, gain_low, of_unprotected.",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy-file",
        metavar="FILE.toml",
        help="A TOML file with fail_if, a list of such rules, and only, a list of patterns of method:setting.",
        show_default=False,
    ),
]


def refuse_unreadable(fail_if: list[str] | None, policy_file: Path | None) -> None:
    """Refuse a rule that cannot be read, before anything is trained or drawn."""
    if fail_if or policy_file:
        from privfed.audit.report.thresholds import ThresholdPolicy

        ThresholdPolicy.read(fail_if or (), policy_file)


def broken(report: "AuditReport", fail_if: list[str] | None, policy_file: Path | None) -> list[str]:
    """Every setting that breaks a rule, in a sentence each."""
    from privfed.audit.report.thresholds import ThresholdPolicy

    return ThresholdPolicy.read(fail_if or (), policy_file).failures(report)


def closing(report: "AuditReport", directory: Path, page: Path) -> list[str]:
    """The last lines that a person sees: the verdict, the advice, the page, and what to do next."""
    mark = " (synthetic data)" if report.dataset.get("synthetic") else ""
    return [
        f"Verdict{mark}: {report.verdict}",
        f"Advice: {report.advice}",
        f"The page: {page}",
        f"Next: open the page; privfed compare {directory} OTHER lays another audit beside it.",
    ]
