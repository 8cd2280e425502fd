"""What accuracy does not say: how much of the catalogue is recommended, how popular that is, and for whom it is right.

Measured on the list of the first cut-off, which a device would show of the whole catalogue less what the user has.
"""

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Real

from attacks.metrics import SHARES, interval
from privfed.data import Histories
from privfed.evaluation.result import BeyondAccuracy, Metric, Ratio

TENTHS = 10
NOBODY = -1
"""In the place of an item, where fewer items than places are left to recommend."""


def recommended(
    scores: Float32[np.ndarray, "n items"], ranked: Bool[np.ndarray, "n items"], k: int
) -> Int64[np.ndarray, "k n"]:
    """The k best ranked items of every row, in no order; equals at the end go by item number."""
    k = min(k, scores.shape[1])
    penalty = np.where(ranked, -scores, np.float32(np.inf))
    best = np.argpartition(penalty, k - 1, axis=1)[:, :k]
    # Which of several equals a partition takes depends on the processor.
    last = np.take_along_axis(penalty, best[:, -1:], axis=1)
    chosen = (np.take_along_axis(penalty, best, axis=1) == last).sum(1)
    tied = np.flatnonzero((penalty == last).sum(1) > chosen)
    best[tied] = penalty[tied].argsort(axis=1, kind="stable")[:, :k]
    found: np.ndarray = np.where(np.isinf(np.take_along_axis(penalty, best, axis=1)), NOBODY, best).T
    return found


def tenths_of(popularity: Real[np.ndarray, " items"]) -> Int64[np.ndarray, " items"]:
    """Tenth of the catalogue that each item is in, 0 for the most popular tenth; equals by item number."""
    tenths = np.empty(len(popularity), dtype=np.int64)
    tenths[np.argsort(-popularity, kind="stable")] = np.arange(len(popularity)) * TENTHS // len(popularity)
    return tenths


def exposure(lists: Int64[np.ndarray, "k n"], tenths: Int64[np.ndarray, " items"]) -> Float64[np.ndarray, "tenths n"]:
    """Share of each list in each tenth of the catalogue; a list without items has none."""
    there = lists != NOBODY
    own = np.where(there, tenths[lists], TENTHS)
    counts = np.stack([(own == tenth).sum(0) for tenth in range(TENTHS)])
    shares: np.ndarray = counts / np.maximum(there.sum(0), 1)
    return shares


def beyond_accuracy(
    lists: Int64[np.ndarray, "k n"],
    main: Float64[np.ndarray, " n"],
    users: Int64[np.ndarray, " n"],
    train: Histories,
    held_out: Histories,
    weights: Float64[np.ndarray, "resamples n"],
    k: int,
) -> BeyondAccuracy:
    """Coverage, popularity lift, exposure, and quality by activity.

    Args:
        lists: of `recommended`.
        main: NDCG of these users.
        users: whose lists they are.
        train: histories that popularity and activity are read off.
        held_out: histories that the lift compares with.
        weights: how often each user is in each resample.
        k: the cut-off.
    """
    popularity, there = train.popularity().astype(np.float64), lists != NOBODY
    shown = np.where(there, popularity[lists], 0).sum(0) / np.maximum(there.sum(0), 1)
    wanted = np.bincount(held_out.owners, popularity[held_out.items], held_out.n_users)[users]
    wanted /= np.maximum(held_out.counts[users], 1)
    return BeyondAccuracy(
        k=k,
        coverage=len(np.unique(lists[there])) / train.n_items,
        popularity_lift=_ratio(shown, wanted, weights),
        exposure=tuple(exposure(lists, tenths_of(popularity)).mean(1).tolist()),
        by_activity=_by_activity(main, train.counts[users], weights, k),
    )


def _ratio(
    above: Float64[np.ndarray, " n"], below: Float64[np.ndarray, " n"], weights: Float64[np.ndarray, "resamples n"]
) -> Ratio | None:
    """Sum over sum; None where nobody holds anything out that somebody trained on."""
    if not below.sum():
        return None
    resampled = weights @ below
    value = float(above.sum() / below.sum())
    ratios = weights @ above / np.where(resampled > 0, resampled, np.inf)
    low, high = interval(value, ratios, len(below), (0.0, np.inf))
    return Ratio(value=value, lo=float(low), hi=float(high))


def _by_activity(
    main: Float64[np.ndarray, " n"],
    activity: Int64[np.ndarray, " n"],
    weights: Float64[np.ndarray, "resamples n"],
    k: int,
) -> tuple[Metric, ...]:
    """The main metric for each tenth of the users, where each tenth has somebody."""
    if len(main) < TENTHS:
        return ()
    tenth = np.empty(len(main), dtype=np.int64)
    tenth[np.argsort(activity, kind="stable")] = np.arange(len(main)) * TENTHS // len(main)
    members = np.eye(TENTHS)[tenth]  # [n, tenths]
    sizes = weights @ members
    means = (weights * main) @ members / np.where(sizes > 0, sizes, np.inf)
    counts = members.sum(0)
    measured = main @ members / counts
    low, high = interval(measured, means, counts.astype(np.int64), SHARES)
    return tuple(
        Metric(name="ndcg", k=k, value=value, lo=lo, hi=hi, n_users=int(n))
        for value, lo, hi, n in zip(measured.tolist(), low.tolist(), high.tolist(), counts, strict=True)
    )
