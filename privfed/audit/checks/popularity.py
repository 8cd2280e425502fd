"""The baseline worked out again: what ranking by popularity reaches, by arithmetic of the audit's own.

Ties are the reason for an interval: however equal counts are ordered, the reported number lies between what they reach
behind the held-out items and ahead of them. Whatever misreads a part of the data, leaves out candidates or counts other
users is misread in the baseline as in everything that is held against it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy import stats

from privfed.audit.report.records import POPULARITY, Check
from privfed.evaluation import Evaluator, Part
from privfed.experiment import Experiment, RunResult
from privfed.experiment.gain import gain_over_popularity

_MARGIN, P_VALUE = 1e-6, 1e-8
_AT_ONCE = 1024

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
    evaluator, k = Evaluator(parts, protocol, "test"), min(protocol.k)
    for users in np.array_split(evaluator.users, -(-len(evaluator.users) // _AT_ONCE)):
        evaluator.add(users, np.zeros((len(users), parts.train.n_items), dtype=np.float32))
    users, held = evaluator.users, np.zeros(len(evaluator.users))
    shown = np.zeros(len(users))
    known = np.bincount(parts.train.items, minlength=parts.train.n_items) > 0
    for place, user in enumerate(users.tolist()):
        hidden = np.zeros(parts.train.n_items, dtype=bool)
        hidden[parts.train.items_of(user)] = True
        if protocol.when_testing == "valid_left_out":
            hidden[parts.valid.items_of(user)] = True
        if protocol.catalogue == "trained":
            hidden |= ~known
        own = np.unique(parts.test.items_of(user))
        held[place] = len(own) if protocol.catalogue == "all" else int(known[own].sum())
        hidden[own] = False
        shown[place] = min(k / max(int((~hidden).sum()), 1), 1.0)
    found, cases = round(float((evaluator.by_user("recall", k) * held).sum())), int(held.sum())
    wanted = float((shown * held).sum())
    law = stats.binom(cases, wanted / cases)
    if 2 * min(law.cdf(found), law.sf(found - 1)) < P_VALUE:
        yield f"among equal scores {found} of {cases} held-out items are shown, where ties at random show {wanted:.1f}"


def popularity_bounds(experiment: Experiment, part: Part) -> Bounds:
    """What popularity reaches on a part, with equal counts at their worst and at their best."""
    parts, protocol = experiment.parts, experiment.config.protocol
    counts = np.bincount(experiment.trained.train.items, minlength=parts.train.n_items)
    known = np.bincount(parts.train.items, minlength=parts.train.n_items) > 0
    held = parts.valid if part == "valid" else parts.test
    reached: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for user in range(held.n_users):
        own, hidden = held.items_of(user), np.zeros(parts.train.n_items, dtype=bool)
        relevant = np.zeros_like(hidden)
        relevant[own] = True
        hidden[parts.train.items_of(user)] = True
        if part == "test" and protocol.when_testing == "valid_left_out":
            hidden[parts.valid.items_of(user)] = True
        if protocol.catalogue == "trained":
            hidden, relevant = hidden | ~known, relevant & known
        if not relevant.any():
            continue
        best, worst = _places(counts, relevant, ~hidden & ~relevant)
        for k in protocol.k:
            for name, low in _metrics(worst, k).items():
                reached.setdefault((name, k), []).append((low, _metrics(best, k)[name]))
    return {key: tuple(np.mean(values, axis=0).tolist()) for key, values in reached.items()}


def _places(
    counts: Int64[np.ndarray, " items"], relevant: Bool[np.ndarray, " items"], others: Bool[np.ndarray, " items"]
) -> tuple[Int64[np.ndarray, " relevant"], Int64[np.ndarray, " relevant"]]:
    """Places of the held-out items in the ranking, from 1, with all equal counts behind them and ahead of them."""
    own, rest = np.sort(counts[relevant])[::-1], np.sort(counts[others])
    ahead, equal_too = (len(rest) - np.searchsorted(rest, own, side) for side in ("right", "left"))
    order = np.arange(1, len(own) + 1)
    return ahead + order, equal_too + order


def _metrics(places: Int64[np.ndarray, " relevant"], k: int) -> dict[str, float]:
    """Metrics of one user, by their definitions."""
    found: Float64[np.ndarray, " found"] = places[places <= k].astype(np.float64)
    most = np.arange(1, min(len(places), k) + 1)
    return {
        "hr": float(len(found) > 0),
        "recall": len(found) / len(places),
        "precision": len(found) / k,
        "mrr": 1 / float(places.min()) if len(found) else 0.0,
        "ndcg": float((1 / np.log2(found + 1)).sum() / (1 / np.log2(most + 1)).sum()),
    }
