"""All checks of a finished run: what was sent, what was recorded, and what the plan and the data say.

A check reads the experiment and its result and yields rows; a row that did not pass is a contradiction. Checks need no
attack to succeed: each compares two things that have to agree.
"""

from collections.abc import Callable, Iterable

from privfed.audit.checks.adaptive_count import check_adaptive_count
from privfed.audit.checks.added_noise import check_added_noise
from privfed.audit.checks.cohorts import check_cohorts
from privfed.audit.checks.every_round import check_every_round
from privfed.audit.checks.games import check_games
from privfed.audit.checks.hostile_server import check_hostile_server
from privfed.audit.checks.implementation import IMPLEMENTATION_CHECKS
from privfed.audit.checks.masked_uploads import check_masked_uploads
from privfed.audit.checks.neighbours import check_neighbours
from privfed.audit.checks.padding import check_padding
from privfed.audit.checks.popularity import check_popularity
from privfed.audit.checks.public_data import check_public_data
from privfed.audit.checks.training_data import check_training_data
from privfed.audit.checks.transcript_ledger import check_transcript
from privfed.audit.report.records import Check
from privfed.experiment import Experiment, RunResult

RunCheck = Callable[[Experiment, RunResult], Iterable[Check]]

RUN_CHECKS: tuple[RunCheck, ...] = (
    check_transcript,
    check_cohorts,
    check_padding,
    check_public_data,
    check_added_noise,
    check_adaptive_count,
    check_every_round,
    check_hostile_server,
    check_masked_uploads,
    check_neighbours,
    check_training_data,
    check_games,
    check_popularity,
    *IMPLEMENTATION_CHECKS,
)


def check_run(experiment: Experiment, result: RunResult) -> list[Check]:
    """Every check of one run, in order."""
    return [row for check in RUN_CHECKS for row in check(experiment, result)]
