"""Positions of held-out items in a ranking, and the metrics that follow from them.

A user has one or several relevant (held-out) items. An item's position is 1 plus the candidates ahead of it.
With relevant set R and cut-off K, averaged over users:

    HR@K      = 1 if any position <= K
    Recall@K  = #{positions <= K} / |R|
    MRR@K     = 1 / first position if that is <= K, else 0
    Precision@K = #{positions <= K} / K
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

from privfed.compute.devices import HOST, here, on_host, placed

ENTRIES_PER_BLOCK = 4_000_000
"""Scores looked at at once; bounds temporary memory to some tens of megabytes."""

_WORDS = 2**64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions of the relevant items, one entry per (user row, relevant item).

    Attributes:
        row: Row of the user in the scored chunk.
        position: Position by the tie rule, from 1; of an item that even at best stands behind `deepest`, the best.
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
    deepest: int | None = None,
) -> Positions:
    """Rank each row and say where its relevant items stand.

    Each row is sorted once and its relevant items are looked up in it, so that a user with thousands of held-out
    items costs little more than one with a single item.

    Args:
        scores: Finite; higher is better.
        items: Item id of each column, per user (addresses the tie-break).
        relevant: Held-out items.
        ranked: Columns that take part; must include the relevant ones.
        users: User id of each row (addresses the tie-break).
        pessimistic: Ties count against relevant items; otherwise they are broken by the seeded order.
        seed: Seed of the tie-break.
        deepest: Largest cut-off of interest: ties behind it are left unbroken. None breaks them all.
    """
    found = []
    step = max(1, ENTRIES_PER_BLOCK // max(1, scores.shape[1]))
    for start in range(0, len(scores), step):
        block = slice(start, start + step)
        addresses = _Addresses(items[block], relevant[block], users[block], pessimistic, seed)
        penalty = np.where(ranked[block], -scores[block], np.float32(np.inf))
        found.append(_ranked(penalty, addresses, scores.shape[1] if deepest is None else deepest, start))
    return Positions(*(np.concatenate(column) for column in zip(*found, strict=True)))


@dataclass(frozen=True, eq=False)
class _Addresses:
    """What decides the order of equals: see :func:`positions`."""

    items: Int64[np.ndarray, "users candidates"]
    relevant: Bool[np.ndarray, "users candidates"]
    users: Int64[np.ndarray, "users"]
    pessimistic: bool
    seed: int

    def words(self, row: Int64[np.ndarray, "n"], column: Int64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
        """The tie-break words of single entries; under the pessimistic rule relevant items come last."""
        word = _mixed(np.full(len(row), self.seed % _WORDS, np.uint64)) + self.users[row].astype(np.uint64)
        word = _mixed(_mixed(word) + self.items[row, column].astype(np.uint64))
        last = (self.relevant[row, column] & self.pessimistic).astype(np.uint64)
        words: np.ndarray = (word >> np.uint64(1)) | (last << np.uint64(63))
        return words


def _ranked(
    penalty: Float32[np.ndarray, "users candidates"], addresses: _Addresses, deepest: int, first_row: int
) -> tuple[Int64[np.ndarray, "relevant"], ...]:
    """Row, position, best and worst of the relevant items of a block; a lower penalty is better."""
    row, column = np.nonzero(addresses.relevant)
    own = penalty[row, column]
    ordered = _sorted(penalty)
    ahead = _count(ordered, row, own, below=True)
    equals = _count(ordered, row, own, below=False) - ahead

    tied = np.flatnonzero(equals > 1)
    tied = tied[np.lexsort((own[tied], row[tied]))]
    begins = np.diff(row[tied], prepend=-1) != 0
    begins[1:] |= np.diff(own[tied]) != 0
    group = np.cumsum(begins) - 1
    rivals = equals - 1
    rivals[tied] = equals[tied] - np.bincount(group, minlength=0)[group]

    leaders = tied[begins]
    leaders = leaders[ahead[leaders] < deepest]
    equals_ahead = np.zeros(len(row), dtype=np.int64)
    step = max(1, ENTRIES_PER_BLOCK // max(1, penalty.shape[1]))
    for start in range(0, len(leaders), step):
        chosen = leaders[start : start + step]
        member, at = np.nonzero(penalty[row[chosen]] == own[chosen, None])
        rows = row[chosen][member]
        order = np.lexsort((addresses.words(rows, at), member))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order)) - np.searchsorted(member, np.arange(len(chosen)))[member[order]]
        held = addresses.relevant[rows, at]
        entry = np.searchsorted(row * penalty.shape[1] + column, rows[held] * penalty.shape[1] + at[held])
        equals_ahead[entry] = place[held]
    return row + first_row, 1 + ahead + equals_ahead, 1 + ahead, 1 + ahead + rivals


def _sorted(penalty: Float32[np.ndarray, "users candidates"]) -> Float32[np.ndarray, "users candidates"]:
    """Every row ascending: most of the work of an evaluation, so an accelerator does it where one computes."""
    return np.sort(penalty, axis=1) if here() == HOST else on_host(placed(penalty).sort(1).values)


def _count(
    ordered: Float32[np.ndarray, "users candidates"],
    row: Int64[np.ndarray, "n"],
    value: Float32[np.ndarray, "n"],
    *,
    below: bool,
) -> Int64[np.ndarray, "n"]:
    """Number of a row's entries (ascending) below a value (or not above it): a binary search for all at once."""
    width = ordered.shape[1]
    count = np.zeros(len(row), dtype=np.int64)
    for bit in reversed(range(width.bit_length())):
        further = count + (1 << bit)
        probed = ordered[row, np.minimum(further, width) - 1]
        reached = (probed < value) if below else (probed <= value)
        count = np.where(reached & (further <= width), further, count)
    return count


def user_metrics(
    relevant: Positions, n_rows: int, k: tuple[int, ...]
) -> dict[tuple[str, int], Float64[np.ndarray, "rows"]]:
    """HR, NDCG, Recall, MRR and Precision of each row at each cut-off; NaN for a row without relevant items.

    Args:
        relevant: Positions from :func:`positions`.
        n_rows: Rows of the chunk.
        k: Cut-offs.
    """
    count = np.bincount(relevant.row, minlength=n_rows)
    some = count > 0
    deepest = min(max(k), max(relevant.position.max(initial=1), count.max(initial=1)))
    discount = 1 / np.log2(np.arange(deepest) + 2)
    ideal = np.concatenate([[0.0], discount.cumsum()])
    metrics = {}
    for cut in k:
        hit = relevant.position <= cut
        row, position = relevant.row[hit], relevant.position[hit]
        hits = np.bincount(row, minlength=n_rows)
        gain = np.bincount(row, discount[position - 1], minlength=n_rows)
        first = np.zeros(n_rows)
        np.maximum.at(first, row, 1 / position)
        metrics["hr", cut] = np.where(some, np.minimum(hits, 1), np.nan)
        metrics["ndcg", cut] = np.where(some, gain / ideal[np.clip(count, 1, min(cut, deepest))], np.nan)
        metrics["recall", cut] = np.where(some, hits / np.maximum(count, 1), np.nan)
        metrics["mrr", cut] = np.where(some, first, np.nan)
        metrics["precision", cut] = np.where(some, hits / cut, np.nan)
    return metrics


def ties_decide(relevant: Positions, n_rows: int, k: tuple[int, ...]) -> Bool[np.ndarray, "rows"]:
    """Rows in which the tie rule decides whether a relevant item makes some cut."""
    cuts = np.array(k)
    straddles = ((relevant.best[:, None] <= cuts) & (relevant.worst[:, None] > cuts)).any(axis=1)
    decided = np.zeros(n_rows, dtype=bool)
    decided[relevant.row[straddles]] = True
    return decided


def _mixed(word: Int64[np.ndarray, "pairs"] | UInt64[np.ndarray, "pairs"]) -> UInt64[np.ndarray, "pairs"]:
    """One step of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): a bijective scrambling of 64-bit words."""
    z = word.astype(np.uint64) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX[0]
    z = (z ^ (z >> np.uint64(27))) * _MIX[1]
    return z ^ (z >> np.uint64(31))
