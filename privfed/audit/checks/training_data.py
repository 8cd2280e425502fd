"""Checks of what a run was trained on: neither what is held out nor what inclusion bits dropped.

A round of the run is repeated on data from which both are gone, with equal keys. All that is sent and all that clients
train has to be equal to the bit, or the quality that is measured is of items that were trained on, and the game of
inclusion bits is about interactions that were there all along.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from scipy import stats

from privfed.audit.checks.neighbours import World, only, repeated_people
from privfed.audit.report.records import POPULARITY, Check
from privfed.data import Split
from privfed.experiment import Experiment, RunResult

P_VALUE = 1e-8


def check_training_data(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """One round with held-out and dropped items and without them, and the bits that dropped some."""
    config, parts = experiment.config, experiment.given
    if config.method_name == POPULARITY or config.control is not None or parts.arrived is not None:
        return
    people = repeated_people(config.privacy, parts, config.seed)
    faults = [
        *_bits(experiment),
        *_round(experiment, parts if len(people) == parts.train.n_users else only(parts, people)),
    ]
    del result
    yield Check(
        name="what was trained on",
        passed=not faults,
        detail=faults[0]
        if faults
        else f"one round of {len(people)} users is equal to the bit on data without held-out and dropped items, and "
        f"the bits that dropped some are fair and blind to popularity",
    )


def _round(experiment: Experiment, parts: Split) -> Iterator[str]:
    """What differs in a round without the items that nobody may train on."""
    config = experiment.config
    with config.computing():
        whole = World(config, parts, None, ())
        data = whole.experiment.trained
        if config.protocol.negatives == "train":
            data = without_held_out(data)
        taps = config.taps.model_copy(update={"inclusion": 0.0, "shadows": 0})
        bare = World(config.model_copy(update={"taps": taps}), data, None, (), whole.experiment.streams)
        whole.round(0)
        bare.round(0, whole)
    if len(whole.witness.exchanges) != len(bare.witness.exchanges):
        yield "without held-out and dropped items a round has other queries"
    for one, two in zip(whole.witness.exchanges, bare.witness.exchanges, strict=False):
        if one.message != two.message:
            yield f"what is sent with {one.step!r} depends on held-out items or on those that inclusion bits dropped"
        others = [user for user, digest in one.uploads.items() if two.uploads.get(user) != digest]
        if others:
            yield (
                f"what {len(others)} of {len(one.uploads)} users train in {one.step!r} depends on their held-out "
                "items, or on those that inclusion bits dropped"
            )


def without_held_out(parts: Split) -> Split:
    """The same data without validation and test items."""
    nothing = replace(parts.test, indptr=np.zeros_like(parts.test.indptr), items=parts.test.items[:0])
    ratings = parts.ratings
    if ratings is not None:
        ratings = replace(ratings, valid=ratings.valid[:0], test=ratings.test[:0])
    return replace(parts, valid=nothing, test=nothing, ratings=ratings)


def _bits(experiment: Experiment) -> Iterator[str]:
    """Inclusion bits that did not decide what was trained on, or that were not fair."""
    inclusion = experiment.inclusion
    if inclusion is None:
        return
    trained = experiment.trained.train.mask(inclusion.users)
    wrong = int((trained & inclusion.dropped).sum() + (~trained & inclusion.kept).sum())
    if wrong:
        yield f"{wrong} of {len(inclusion)} inclusion bits say something else than what was trained on"
    _, items = np.nonzero(inclusion.decided)
    kept = inclusion.kept[inclusion.decided]
    if not len(kept):
        return
    if 2 * min(stats.binom.cdf(kept.sum(), len(kept), 0.5), stats.binom.sf(kept.sum() - 1, len(kept), 0.5)) < P_VALUE:
        yield f"{int(kept.sum())} of {len(kept)} inclusion bits keep their item, which fair ones do not"
    counts = np.bincount(experiment.parts.train.items, minlength=experiment.parts.train.n_items)[items]
    popular = counts > np.median(counts)
    law = stats.hypergeom(len(kept), int(kept.sum()), int(popular.sum()))
    both = int((kept & popular).sum())
    if 2 * min(law.cdf(both), law.sf(both - 1)) < P_VALUE:
        yield f"inclusion bits keep {both} of {int(popular.sum())} popular items and {int(kept.sum())} of {len(kept)}"
