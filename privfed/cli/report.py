"""`privfed report`: the page, charts and tables of an audit again, from its report.json."""

from pathlib import Path
from typing import Annotated

import typer

from privfed.cli import options, policy
from privfed.cli.failures import CONTRADICTED, CommandError
from privfed.cli.screen import Screen
from privfed.experiment.record_file import RECORD

EXAMPLE = "Example: privfed report audits/gpfedrec"


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with the report.json of an audit.", show_default=False)
    ],
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    fail_if: policy.FailIf = None,
    policy_file: policy.PolicyFile = None,
) -> None:
    """Write index.html, runs.csv, charts/ and tables/ of a finished audit again, from its report.json alone.

    All of them are written, or none. What follows from the runs (means, contradictions, sentences) is worked out anew;
    report.json stays as it is. The exit code is 1 when the numbers contradict a claim, or a threshold is
    broken.
    """
    policy.refuse_unreadable(fail_if, policy_file)
    file = report_of(directory)

    from privfed.audit.publish import publish
    from privfed.audit.report.conclusions import conclude
    from privfed.audit.report.records import read_report

    screen, stored = Screen(as_json, quiet), read_report(file)

    with screen.working("Drawing"):
        concluded = conclude(stored)
        page = publish(concluded, directory)
    files = sorted(str(path) for folder in ("charts", "tables") for path in (directory / folder).iterdir())
    if concluded.contradictions != stored.contradictions:
        screen.explain("This version of privfed draws other conclusions from these runs than report.json holds.")
    for contradiction in concluded.contradictions:
        screen.result(f"Contradicted: {contradiction.text}")
    screen.explain(
        f"Charts: {directory / 'charts'} (SVG and PDF). Tables: {directory / 'tables'} (CSV and LaTeX). "
        f"Runs: {directory / 'runs.csv'}."
    )
    failures = policy.broken(concluded, fail_if, policy_file)
    for failure in failures:
        screen.result(f"Failed: {failure}")
    screen.result(*policy.closing(concluded, directory, page))
    screen.document(
        {
            "directory": str(directory),
            "page": str(page),
            "runs": str(directory / "runs.csv"),
            "files": files,
            "verdict": concluded.verdict,
            "advice": concluded.advice,
            "failures": failures,
            "synthetic": bool(concluded.dataset.get("synthetic")),
            "contradictions": [c.model_dump(mode="json") for c in concluded.contradictions],
        }
    )
    if concluded.contradictions or failures:
        raise typer.Exit(CONTRADICTED)


def report_of(directory: Path) -> Path:
    """The report.json of an audit's folder.

    Raises:
        CommandError: there is none.
    """
    file = directory / "report.json"
    if directory.is_file():
        raise CommandError(f"{directory} is a file: give the folder that holds the report.json of an audit")
    if not file.exists():
        if (directory / RECORD).exists():
            from privfed.cli.directory import DirectoryRecord

            DirectoryRecord.read(directory, "audit")
            raise CommandError(f"the audit in {directory} is not finished: give its command again to go on")
        missing = "holds no report.json" if directory.is_dir() else "is not there"
        raise CommandError(f"{directory} {missing}: give the --out folder of 'privfed audit'")
    return file
