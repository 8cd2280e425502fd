"""One round's samples of a client: its positives and k times as many negatives, all distinct.

Negatives are drawn without replacement per client (HeteFedRec draws 1:4 and does not specify more), so a client's
samples and the rows it touches are one to one and nothing is scattered. A negative is the next item, in the client's
own addressed words, that is neither excluded nor drawn already; where more than half of what is left is wanted, those
left out are drawn instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, UInt32
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import placed
from privfed.data import Histories

Words = Callable[[Sequence[int], int], UInt32[np.ndarray, "users count"]]
"""(users, count) -> that many words of each user; more words begin with the same ones."""


@dataclass(frozen=True, slots=True, eq=False)
class DistinctSamples:
    """Samples of n clients, client after client and item by item.

    Attributes:
        counts: samples per client.
        owner: client (position) of every sample.
        items: its item, ascending within a client.
        labels: 1 for positives, 0 for negatives.
    """

    counts: Int64[Tensor, " n"]
    owner: Int64[Tensor, " samples"]
    items: Int64[Tensor, " samples"]
    labels: Float[Tensor, " samples"]


def draw_distinct(
    positives: Histories, excluded: Histories, negatives: int, users: Int64[np.ndarray, "n"], uints: Words
) -> DistinctSamples:
    """This round's samples of `users`.

    Args:
        positives: training items of all users.
        excluded: items never drawn as negatives, the positives among them.
        negatives: per positive, as far as there are that many items left.
        users: users whose samples are drawn.
        uints: their addressed words.
    """
    if not len(users):
        return DistinctSamples(*(placed(np.empty(0, kind)) for kind in (np.int64, np.int64, np.int64, np.float32)))
    n_items, own, barred = positives.n_items, positives.subset(users), excluded.subset(users)
    # Counts of distinct items: a user may have one twice.
    known, room = _sizes(own.indptr, own.items, barred.indptr, barred.items, n_items)
    wanted = np.minimum(known * negatives, room)
    # Where most of what is left is wanted, what to leave out is drawn, with far fewer repeated draws.
    inverse = 2 * wanted > room
    target = np.where(inverse, room - wanted, wanted)
    # m draws over all items miss a free one with probability exp(-m / items), so m = -items log(1 - target / room)
    # find the target on average. Four deviations more, and hardly a client needs a second pass.
    expected = -n_items * np.log1p(-np.minimum(target / np.maximum(room, 1), 0.5))
    budget = np.ceil(expected + 4 * np.sqrt(expected) + 8).astype(np.int64)
    counts = known + wanted
    first = np.cumsum(counts) - counts
    items, labels = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.float32)
    todo = np.flatnonzero(counts)
    while len(todo):
        # Words come in blocks of four; whole ones lie in one piece.
        given = uints(users[todo].tolist(), -(-int(budget[todo].max()) // 4) * 4)
        done = np.zeros(len(todo), np.bool_)
        _choose(todo, given, own.indptr, own.items, barred.indptr, barred.items, n_items, target, inverse,
                first, items, labels, done)  # fmt: skip
        todo = todo[~done]
        # More words begin with the same ones, so the next pass repeats these draws and goes on from there.
        budget[todo] *= 2
    owner = np.repeat(np.arange(len(users)), counts)
    return DistinctSamples(*(placed(x) for x in (counts, owner, items, labels)))


_FREE, _POSITIVE, _BARRED, _DRAWN = range(4)


@compiled
def _sizes(
    own: Int64[np.ndarray, " offsets"],
    own_items: Int64[np.ndarray, " positives"],
    barred: Int64[np.ndarray, " offsets"],
    barred_items: Int64[np.ndarray, " excluded"],
    n_items: int,
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Positives of every client, and items that are neither positive nor excluded."""
    n = len(own) - 1
    known, room = np.zeros(n, np.int64), np.full(n, n_items)
    # The client, plus 1, that met an item last: so nothing has to be cleared between them.
    met = np.zeros(n_items, np.int64)
    for c in range(n):
        for at in range(own[c], own[c + 1]):
            new = met[own_items[at]] != c + 1
            known[c] += new
            room[c] -= new
            met[own_items[at]] = c + 1
        for at in range(barred[c], barred[c + 1]):
            room[c] -= met[barred_items[at]] != c + 1
            met[barred_items[at]] = c + 1
    return known, room


@compiled
def _choose(
    clients: Int64[np.ndarray, " k"],
    words: UInt32[np.ndarray, "k count"],
    own: Int64[np.ndarray, " offsets"],
    own_items: Int64[np.ndarray, " positives"],
    barred: Int64[np.ndarray, " offsets"],
    barred_items: Int64[np.ndarray, " excluded"],
    n_items: int,
    target: Int64[np.ndarray, " n"],
    inverse: Bool[np.ndarray, " n"],
    first: Int64[np.ndarray, " n"],
    items: Int64[np.ndarray, " samples"],
    labels: Float32[np.ndarray, " samples"],
    done: Bool[np.ndarray, " k"],
) -> None:
    """Samples of the clients whose words are enough: `target` distinct free items, or all free items but these."""
    kind = np.empty(n_items, np.uint8)
    for k in range(len(clients)):
        c = clients[k]
        kind[:] = _FREE
        for at in range(barred[c], barred[c + 1]):
            kind[barred_items[at]] = _BARRED
        for at in range(own[c], own[c + 1]):
            kind[own_items[at]] = _POSITIVE
        left = target[c]
        for word in words[k]:
            if left == 0:
                break
            # A word is below 2^32, so this is uniform on the items but for a bias below items / 2^32.
            item = (np.int64(word) * n_items) >> 32
            if kind[item] == _FREE:
                kind[item] = _DRAWN
                left -= 1
        if left:
            continue
        done[k] = True
        negative, to = _FREE if inverse[c] else _DRAWN, first[c]
        for place in range(n_items):
            if kind[place] == _POSITIVE or kind[place] == negative:
                items[to], labels[to] = place, kind[place] == _POSITIVE
                to += 1
