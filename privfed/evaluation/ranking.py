"""Positions of held-out items in a ranking, and the metrics that follow from them.

A user has one or several relevant (held-out) items. An item's position is 1 plus the candidates ahead of it.
With relevant set R and cut-off K, averaged over users:

    HR@K      = 1 if any position <= K
    Recall@K  = #{positions <= K} / |R|
    MRR@K     = 1 / first position if that is <= K, else 0
    NDCG@K    = sum over positions p <= K of 1 / log2(p + 1), divided by the same sum for positions 1 ..
    min(|R|, K)

(Jarvelin & Kekalainen, TOIS 2002, with binary gains). With one relevant item HR equals Recall and NDCG is
1/log2(p + 1).

Ties need a rule, since saturated or untrained scores tie in masses. Here every (user, item) has a fixed
64-bit tie-break word, a hash of (seed, user, item). Equal scores are ordered by it, which is a uniformly
random order that does not depend on chunks, on the order of users, or on which column an item stands in. The
pessimistic rule puts relevant items behind all their equals.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt64

COMPARISONS_PER_BLOCK = 4_000_000
"""Score comparisons done at once; bounds temporary memory to a few tens of megabytes."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class Positions:
    """Where the relevant items stand, one entry per (user row, relevant item).

    Attributes:
        row: Row of the user in the scored chunk.
        position: Position by the tie rule, from 1.
        best: Position if all its equals stood behind.
        worst: Position if all its equals that are not relevant themselves stood ahead.
    """

    row: Int64[np.ndarray, "relevant"]
    position: Int64[np.ndarray, "relevant"]
    best: Int64[np.ndarray, "relevant"]
    worst: Int64[np.ndarray, "relevant"]


def positions(
    scores: Float32[np.ndarray, "users candidates"],
    items: Int64[np.ndarray, "users candidates"],
    relevant: Bool[np.ndarray, "users candidates"],
    ranked: Bool[np.ndarray, "users candidates"],
    users: Int64[np.ndarray, "users"],
    *,
    pessimistic: bool,
    seed: int,
) -> Positions:
    """Rank each row and say where its relevant items stand.

    Args:
        scores: Higher is better.
        items: Item id of each column, per user (addresses the tie-break).
        relevant: Held-out items.
        ranked: Columns that take part; must include the relevant ones.
        users: User id of each row (addresses the tie-break).
        pessimistic: Ties count against relevant items; otherwise they are broken by the seeded order.
        seed: Seed of the tie-break.
    """
    row, column = np.nonzero(relevant)
    own = scores[row, column]
    ahead = np.empty(len(row), dtype=np.int64)
    equals = np.empty(len(row), dtype=np.int64)
    equals_ahead = np.zeros(len(row), dtype=np.int64)
    step = max(1, COMPARISONS_PER_BLOCK // max(1, scores.shape[1]))
    for start in range(0, len(row), step):
        block = slice(start, start + step)
        rows = row[block]
        theirs, takes_part = scores[rows], ranked[rows]
        ahead[block] = ((theirs > own[block, None]) & takes_part).sum(axis=1)
        tied = (theirs == own[block, None]) & takes_part
        equals[block] = (tied & ~relevant[rows]).sum(axis=1)
        pair, other = np.nonzero(tied & (tied.sum(axis=1, keepdims=True) > 1))
        if not len(pair):
            continue
        at = rows[pair]
        word = _tie_words(users[at], items[at, other], relevant[at, other], pessimistic=pessimistic, seed=seed)
        mine = column[block][pair]
        own_word = _tie_words(users[at], items[at, mine], relevant[at, mine], pessimistic=pessimistic, seed=seed)
        equals_ahead[block] = np.bincount(pair[word < own_word], minlength=len(rows))
    return Positions(row, 1 + ahead + equals_ahead, 1 + ahead, 1 + ahead + equals)


def user_metrics(
    found: Positions, n_rows: int, k: tuple[int, ...]
) -> dict[tuple[str, int], Float64[np.ndarray, "rows"]]:
    """HR, NDCG, Recall and MRR of each row at each cut-off; NaN for a row without relevant items.

    Args:
        found: From :func:`positions`.
        n_rows: Rows of the chunk.
        k: Cut-offs.
    """
    count = np.bincount(found.row, minlength=n_rows)
    some = count > 0
    discount = 1 / np.log2(np.arange(max(k)) + 2)
    ideal = np.concatenate([[0.0], discount.cumsum()])
    metrics = {}
    for cut in k:
        hit = found.position <= cut
        row, position = found.row[hit], found.position[hit]
        hits = np.bincount(row, minlength=n_rows)
        gain = np.bincount(row, discount[position - 1], minlength=n_rows)
        first = np.zeros(n_rows)
        np.maximum.at(first, row, 1 / position)
        metrics["hr", cut] = np.where(some, np.minimum(hits, 1), np.nan)
        metrics["ndcg", cut] = np.where(some, gain / ideal[np.clip(count, 1, cut)], np.nan)
        metrics["recall", cut] = np.where(some, hits / np.maximum(count, 1), np.nan)
        metrics["mrr", cut] = np.where(some, first, np.nan)
    return metrics


def ties_decide(found: Positions, n_rows: int, k: tuple[int, ...]) -> Bool[np.ndarray, "rows"]:
    """Rows in which the tie rule decides whether a relevant item makes some cut."""
    cuts = np.array(k)
    straddles = ((found.best[:, None] <= cuts) & (found.worst[:, None] > cuts)).any(axis=1)
    decided = np.zeros(n_rows, dtype=bool)
    decided[found.row[straddles]] = True
    return decided


def _tie_words(
    users: Int64[np.ndarray, "pairs"],
    items: Int64[np.ndarray, "pairs"],
    relevant: Bool[np.ndarray, "pairs"],
    *,
    pessimistic: bool,
    seed: int,
) -> UInt64[np.ndarray, "pairs"]:
    """63-bit order of each (user, item) among equals; under the pessimistic rule relevant items come last."""
    word = _mixed(_mixed(_mixed(np.full(len(users), seed)) + users.astype(np.uint64)) + items.astype(np.uint64))
    last = relevant.astype(np.uint64) if pessimistic else np.zeros(len(users), dtype=np.uint64)
    return (word >> np.uint64(1)) | (last << np.uint64(63))


def _mixed(word: Int64[np.ndarray, "pairs"] | UInt64[np.ndarray, "pairs"]) -> UInt64[np.ndarray, "pairs"]:
    """One step of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): a bijective scrambling of 64-bit words."""
    z = word.astype(np.uint64) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX[0]
    z = (z ^ (z >> np.uint64(27))) * _MIX[1]
    return z ^ (z >> np.uint64(31))
