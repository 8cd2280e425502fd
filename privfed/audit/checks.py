"""Tests of a finished run against its claim: what was sent, what was recorded, what the plan and the data say.

A check reads the experiment and its result and yields rows; a row that did not pass is a contradiction. Checks need no
attack to succeed: each compares two things that have to agree.
"""

from collections.abc import Callable, Iterable

from privfed.audit.added_noise import check_added_noise
from privfed.audit.cohorts import check_cohorts
from privfed.audit.implementation import IMPLEMENTATION_CHECKS
from privfed.audit.neighbours import check_neighbours
from privfed.audit.padding import check_padding
from privfed.audit.public_data import check_public_data
from privfed.audit.report import Check
from privfed.audit.transcript_ledger import check_transcript
from privfed.experiment import Experiment, RunResult

RunCheck = Callable[[Experiment, RunResult], Iterable[Check]]

RUN_CHECKS: tuple[RunCheck, ...] = (
    check_transcript,
    check_cohorts,
    check_padding,
    check_public_data,
    check_added_noise,
    check_neighbours,
    *IMPLEMENTATION_CHECKS,
)


def check_run(experiment: Experiment, result: RunResult) -> list[Check]:
    """Every check of one run, in order."""
    return [row for check in RUN_CHECKS for row in check(experiment, result)]
