"""Checks of public data: nothing private is among what is declared public."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from privfed.audit.report.records import Check
from privfed.experiment import Experiment, RunResult
from privfed.privacy.statements import derived_catalogue


def check_public_data(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """What is public beside what is claimed, where a finite epsilon is."""
    if not math.isfinite(result.guarantee.epsilon) or not result.guarantee.rounds_counted:
        return
    faults = [*_public_histories(experiment, result), *_catalogue(experiment, result)]
    yield Check(
        name="public data",
        passed=not faults,
        detail=faults[0] if faults else f"no history is declared public{_warning(experiment)}",
    )


def _public_histories(experiment: Experiment, result: RunResult) -> Iterator[str]:
    public, unit = experiment.public_info.public, result.guarantee.unit
    if public is not None and len(public):
        yield (
            f"the server is given {len(public):,} training items of {int((public.counts > 0).sum()):,} users as "
            f"public, and epsilon = {result.guarantee.epsilon:.4g} is claimed for every {unit}"
        )


def _catalogue(experiment: Experiment, result: RunResult) -> Iterator[str]:
    parts = experiment.parts
    if parts.catalogue_derived and derived_catalogue(parts.train.n_items) not in result.guarantee.assumptions:
        yield (
            f"the catalogue of {parts.train.n_items:,} items was derived from the interactions, so one person's item "
            f"changes what everybody is told, and no assumption of the guarantee says so"
        )


def _warning(experiment: Experiment) -> str:
    """What rests on the assumption that a derived catalogue is public."""
    parts = experiment.parts
    if not parts.catalogue_derived:
        return ", and the catalogue has a list of its own"
    alone = int((np.bincount(parts.seen.items, minlength=parts.train.n_items) == 1).sum())
    return (
        f"; the catalogue of {parts.train.n_items:,} items was derived from the interactions, as the guarantee "
        f"assumes: {alone:,} of them are there because of a single user"
    )
