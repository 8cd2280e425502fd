"""Whether every released number is a whole number of the steps that the plan claims."""

from collections.abc import Iterator

from attacks.implementation import off_grid
from privfed.audit.checks.implementation.claims import claims_epsilon, released
from privfed.audit.report.records import Check
from privfed.experiment import Experiment, RunResult

NAME = "released numbers lie on the claimed grid"


def check_grid(experiment: Experiment, result: RunResult) -> Iterator[Check]:
    """One check over all covered blocks; none where no grid is claimed.

    Uploads that are rounded again to few bits leave the grid as post-processing, and are not tested.
    """
    if not claims_epsilon(experiment, result) or experiment.config.privacy.upload_bits is not None:
        return
    tests = [(off_grid(seen.values, seen.step), seen) for seen in released(experiment, result) if seen.step is not None]
    if not tests:
        return
    wrong = [(test, seen) for test, seen in tests if test.rejects()]
    if wrong:
        test, seen = wrong[0]
        detail = f"block {seen.name!r} at '{seen.tap}' in round {seen.round + 1}: {test.where}, which the plan claims"
    else:
        detail = f"all {sum(test.n_tested for test, _ in tests)} numbers that were looked at are whole numbers of steps"
    yield Check(name=NAME, passed=not wrong, detail=detail)
