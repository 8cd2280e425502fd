"""One round's samples of a client: its positives and k times as many negatives, all distinct.

Negatives are drawn without replacement per client (HeteFedRec draws 1:4 and does not specify more), so a client's
samples and the rows it touches are one to one and nothing is scattered. A negative is the next item, in the client's
own addressed words, that is neither excluded nor drawn already; where more than half of what is left is wanted, those
left out are drawn instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt32
from torch import Tensor

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
    # Masks [n, items] of the called clients.
    positive, barred = positives.mask(users), excluded.mask(users)
    barred |= positive
    n_items = positives.n_items
    room = n_items - barred.sum(1)
    wanted = np.minimum(positive.sum(1) * negatives, room)
    inverse = 2 * wanted > room
    chosen = _distinct(barred, np.where(inverse, room - wanted, wanted), users, uints)
    # Where most of what is left is wanted, `_distinct` chose what to leave out, with far fewer repeated draws.
    chosen[inverse] = ~(chosen | barred)[inverse]
    chosen |= positive
    # Row-major, which is the promised order: client after client, items ascending.
    at = np.flatnonzero(chosen)
    owner, items = np.divmod(at, n_items)
    labels = positive.reshape(-1)[at].astype(np.float32)
    counts = chosen.sum(1)
    return DistinctSamples(*(placed(x) for x in (counts, owner, items, labels)))


def _distinct(
    barred: Bool[np.ndarray, "n items"],
    target: Int64[np.ndarray, "n"],
    users: Int64[np.ndarray, "n"],
    words: Words,
) -> Bool[np.ndarray, "n items"]:
    """`target[i]` distinct items of client i outside `barred`, each set of that size equally likely."""
    n_items = barred.shape[1]
    chosen = np.zeros_like(barred)
    first = np.empty(barred.size, np.int32)
    room = np.maximum(n_items - barred.sum(1), 1)
    # m draws over all items miss a free one with probability exp(-m / items), so m = -items log(1 - target / room)
    # find the target on average. Four deviations more, and hardly a client needs a second pass.
    expected = -n_items * np.log1p(-np.minimum(target / room, 0.5))
    budget = np.ceil(expected + 4 * np.sqrt(expected) + 8).astype(np.int64)
    todo = np.flatnonzero(target)
    while len(todo):
        given = words(users[todo].tolist(), int(budget[todo].max()))
        owner = np.repeat(todo, budget[todo])
        place = np.repeat(np.arange(len(todo)), budget[todo])
        # Words are 32 bits, so a word times the number of items needs 64.
        drawn = given[place, _ranks(budget[todo])].astype(np.uint64) * np.uint64(n_items) >> np.uint64(32)
        key = owner * n_items + drawn.astype(np.int64)
        key = key[~barred.reshape(-1)[key]]
        order = np.arange(len(key), dtype=np.int32)
        # Written backwards, so the earliest draw of every (client, item) stays. Only entries just written are read, so
        # `first` needs no clearing between passes, and repeats are found without a sort.
        first[key[::-1]] = order[::-1]
        key = key[first[key] == order]
        owner = key // n_items
        found = np.bincount(owner, minlength=len(target))[todo]
        enough = np.zeros(len(target), dtype=bool)
        enough[todo] = found >= target[todo]
        # `key` is still in the order of the draws, so this is the set that drawing one at a time would have made.
        keep = enough[owner] & (_ranks(found) < target[owner])
        chosen.reshape(-1)[key[keep]] = True
        todo = todo[~enough[todo]]
        # More words begin with the same ones, so the next pass repeats these draws and goes on from there.
        budget[todo] *= 2
    return chosen


def _ranks(counts: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "total"]:
    """0, 1, ... within every run of the given lengths."""
    first = np.repeat(np.cumsum(counts) - counts, counts)
    ranks: np.ndarray = np.arange(len(first)) - first
    return ranks
