"""The baseline worked out again: what ranking by popularity reaches, by arithmetic of the audit's own.

Ties are the reason for an interval: however equal counts are ordered, the reported number lies between what they reach
behind the held-out items and ahead of them. Whatever misreads a part of the data, leaves out candidates or counts other
users is misread in the baseline as in everything that is held against it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy import stats

from privfed.audit.report.records import POPULARITY, Check
from privfed.data import Split
from privfed.evaluation import Evaluator, Part, Protocol
from privfed.experiment import Experiment, RunResult
from privfed.experiment.gain import gain_over_popularity

_MARGIN, P_VALUE = 1e-6, 1e-8
_USERS = 1024
"""Whose rankings of equal scores are looked at."""

Bounds = Mapping[tuple[str, int], tuple[float, float]]
"""(metric, cut-off) -> mean over users with all ties against the held-out items, and for them."""


def check_popularity(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """The metrics of the popularity recommender, or what another method gains over them."""
    config = experiment.config
    exact = config.protocol.task == "ranking" and config.protocol.candidates == "full" and not config.boost
    if not exact or config.control is not None or not result.history or config.evaluation.private:
        return
    itself = config.method_name == POPULARITY
    faults = [*_reported(experiment, result), *_ties(experiment)] if itself else [*_gained(experiment, result)]
    yield Check(
        name="popularity worked out again",
        passed=not faults,
        detail=faults[0]
        if faults
        else "what popularity reaches lies between what equal counts give at worst and at best",
    )


def _reported(experiment: Experiment, result: RunResult) -> Iterator[str]:
    for part, evaluated in result.selected.results.items():
        bounds = popularity_bounds(experiment, part)
        for metric in evaluated.metrics:
            low, high = bounds.get((metric.name, metric.k), (-math.inf, math.inf))
            if not low - _MARGIN <= metric.value <= high + _MARGIN:
                yield (
                    f"{metric.name}@{metric.k} of popularity on the {part} part is {metric.value:.4f} in the report, "
                    f"and {low:.4f} to {high:.4f} by the counts"
                )


def _gained(experiment: Experiment, result: RunResult) -> Iterator[str]:
    measured, gain = result.selected.by_user, gain_over_popularity(experiment, result.selected)
    if measured is None or gain is None:
        return
    name, k, values = measured
    low, high = popularity_bounds(experiment, "test")[name, k]
    reached = float(values.mean()) - gain.value
    if not low - _MARGIN <= reached <= high + _MARGIN:
        yield (
            f"the gain is over a popularity with {name}@{k} = {reached:.4f}, and it reaches {low:.4f} to {high:.4f} by "
            "the counts"
        )


def _ties(experiment: Experiment) -> Iterator[str]:
    """Held-out items that a ranking of equal scores finds more often, or less, than ties at random do."""
    protocol, parts = experiment.config.protocol, experiment.parts
    if protocol.ties != "random":
        return
    tested = np.flatnonzero(parts.test.counts)
    if len(tested) > _USERS:
        rng = np.random.default_rng([37, experiment.config.seed])
        parts = parts.subset(np.sort(rng.choice(tested, _USERS, replace=False)))
    evaluator, k = Evaluator(parts, protocol, "test"), min(protocol.k)
    users = evaluator.users
    evaluator.add(users, np.zeros((len(users), parts.train.n_items), dtype=np.float32))
    listed, own, hidden = _lists(parts, protocol, "test")
    held, left_out = (
        np.bincount(pairs // len(listed), minlength=parts.train.n_users)[users] for pairs in (own, hidden)
    )
    shown = np.minimum(k / (int(listed.sum()) - left_out + held), 1.0)
    found, cases = round(float((evaluator.by_user("recall", k) * held).sum())), int(held.sum())
    wanted = float((shown * held).sum())
    law = stats.binom(cases, wanted / cases)
    if 2 * min(law.cdf(found), law.sf(found - 1)) < P_VALUE:
        yield f"among equal scores {found} of {cases} held-out items are shown, where ties at random show {wanted:.1f}"


def popularity_bounds(experiment: Experiment, part: Part) -> Bounds:
    """What popularity reaches on a part, with equal counts at their worst and at their best."""
    parts, protocol = experiment.parts, experiment.config.protocol
    listed, own, hidden = _lists(parts, protocol, part)
    counts = np.bincount(experiment.trained.train.items, minlength=len(listed))
    user, item = np.divmod(own, len(listed))
    # By user, most counted first.
    order = np.lexsort((-counts[item], user))
    user, count = user[order], counts[item][order]
    first = np.searchsorted(user, user)
    place = np.arange(len(user)) - first + 1
    whose, stride = hidden // len(listed), int(counts.max(initial=0)) + 1
    everything, theirs = np.sort(counts[listed]), np.sort(whose * stride + counts[hidden % len(listed)])
    end = np.searchsorted(theirs, (user + 1) * stride)

    def places(side: Literal["left", "right"]) -> Int64[np.ndarray, " held"]:
        """Behind all candidates with more counts (`right`), or with as many (`left`), and the user's own before."""
        all_above = len(everything) - np.searchsorted(everything, count, side)
        hidden_above = end - np.searchsorted(theirs, user * stride + count, side)
        found: Int64[np.ndarray, " held"] = all_above - hidden_above + place
        return found

    if not len(user):
        return {}
    _, start, held = np.unique(user, return_index=True, return_counts=True)
    worst, best = places("left"), places("right")
    return {
        (name, k): (float(low.mean()), float(high.mean()))
        for k in protocol.k
        for (name, low), high in zip(
            _metrics(worst, start, held, k).items(), _metrics(best, start, held, k).values(), strict=True
        )
    }


def _lists(
    parts: Split, protocol: Protocol, part: Part
) -> tuple[Bool[np.ndarray, " items"], Int64[np.ndarray, " held"], Int64[np.ndarray, " hidden"]]:
    """Which items are listed at all, and pairs of user and listed item: held out, and no candidates beside these."""
    train, held = parts.train, parts.valid if part == "valid" else parts.test
    left_out = train.union(held)
    if part == "test" and protocol.when_testing == "valid_left_out":
        left_out = left_out.union(parts.valid)
    listed = train.popularity() > 0 if protocol.catalogue == "trained" else np.ones(train.n_items, dtype=bool)
    own, hidden = (rows.pairs(train.n_items) for rows in (held, left_out))
    return listed, own[listed[own % train.n_items]], hidden[listed[hidden % train.n_items]]


def _metrics(
    places: Int64[np.ndarray, " held"], start: Int64[np.ndarray, " users"], held: Int64[np.ndarray, " users"], k: int
) -> dict[str, Float64[np.ndarray, " users"]]:
    """Metrics of every user by their definitions; places of one user's items follow each other from `start` on."""
    found = places <= k
    hits = np.add.reduceat(found, start, dtype=np.int64)
    gain = np.add.reduceat(np.where(found, 1 / np.log2(places + 1), 0.0), start)
    best = np.minimum.reduceat(places, start)
    ideal = np.cumsum(1 / np.log2(np.arange(1, min(k, int(held.max())) + 1) + 1))
    return {
        "hr": (hits > 0).astype(np.float64),
        "recall": hits / held,
        "precision": hits / k,
        "mrr": np.where(best <= k, 1 / best, 0.0),
        "ndcg": gain / ideal[np.minimum(held, k) - 1],
    }
