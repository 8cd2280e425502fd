"""Local training samples of implicit feedback: every positive with k distinct negatives, shuffled, in batches.

Somebody with fewer than k items left to draw from trains with those there are, and with none sits out: one person's
history stops nobody else's training, and changes nothing about it.

Negatives are drawn without rejection and from addressed words, so a client's samples depend on nothing but its
own key, history and round (NCF, WWW 2017, section 3.2 for the sampling scheme).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, Shaped, UInt32
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import on_host, placed
from privfed.compute.tiles import padded, rungs_of, tile_size, tiles
from privfed.data import Histories

_FLAGS_PER_SAMPLE = 12
"""Clearing more flags than this takes longer than sorting the samples."""
_NUMBER_BITS = 31
_NUMBER = (1 << _NUMBER_BITS) - 1
"""A key of the shuffle holds a word of 32 bits and, below it, the number of a sample."""
_STEPS = 2
"""Of a walk among barred items, without a branch."""
_MAGIC = np.uint64(0x0218A392CD3D5DBF)
"""A de Bruijn sequence of 64 bits: shifted by each of 0 to 63, its six highest bits are distinct."""
_BIT = np.zeros(64, np.int64)
_BIT[[((int(_MAGIC) << bit) & (2**64 - 1)) >> 58 for bit in range(64)]] = range(64)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples of n clients, client after client.

    Attributes:
        counts: samples per client.
        owner: client (position) of every sample.
        items: item of every sample.
        labels: 1 for positives, 0 for negatives.
    """

    counts: Int64[Tensor, " n"]
    owner: Int64[Tensor, " samples"]
    items: Int64[Tensor, " samples"]
    labels: Float[Tensor, " samples"]


@dataclass(frozen=True, slots=True, eq=False)
class TouchedRows:
    """Distinct (client, item) pairs of some samples, ascending, and where each sample finds its pair."""

    owner: Int64[Tensor, " rows"]
    ids: Int64[Tensor, " rows"]
    of_sample: Int64[Tensor, " samples"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Step `step` of local training for one tile of clients.

    Attributes:
        samples: which samples; padding points at sample 0 with weight 0.
        weight: 1 / batch length for real samples, so that a sum is the mean over the batch.
    """

    step: int
    samples: Int64[Tensor, "tile batch"]
    weight: Float[Tensor, "tile batch"]


class NegativeSampler:
    """Draws samples for any users of a population.

    Args:
        positives: training items per user.
        excluded: items that may never be drawn as negatives (a superset of the positives).
        negatives: distinct negatives per positive, as far as a user has that many items left.
    """

    def __init__(self, positives: Histories, excluded: Histories, negatives: int) -> None:
        self.positives, self.negatives = positives, negatives
        # Larger than any item, or any number of items below one, so that keys of different users never mix.
        stride = positives.n_items + 1
        pairs = excluded.pairs(stride)
        owners, barred = pairs // stride, pairs % stride
        counts = np.bincount(owners, minlength=excluded.n_users)
        start = np.cumsum(counts) - counts
        room = positives.n_items - counts
        self.room = placed(room)
        # Negatives of each positive, by user.
        self._each = placed(np.minimum(room, negatives))
        rank = np.arange(len(pairs)) - start[owners]
        self._stride = stride
        # barred[k] - k allowed items lie below barred[k]: ascending within a user, so one bisection over all users
        # finds how many barred items to skip.
        self._gaps = placed(owners * stride + barred - rank)
        self._excluded_start = placed(start)
        self._start = placed(positives.indptr[:-1].copy())
        self._items = placed(positives.items)
        self.positive_counts = placed(np.where(room > 0, positives.counts, 0))

    def words_needed(self, users: Int64[Tensor, " n"]) -> int:
        """Random words per user at most: k per positive for the negatives, then k + 1 per positive for the shuffle."""
        most = int(self.positive_counts[users].max()) if len(users) else 0
        return most * (2 * self.negatives + 1)

    def epoch(self, users: Int64[Tensor, " n"], uints: UInt32[np.ndarray, "n w"]) -> Samples:
        """One epoch of samples for `users`, each client's drawn and shuffled by its own random integers."""
        if not self.room.is_cpu:
            return self.sample(users, placed(uints.astype(np.int64)))
        each = self._each[users]
        counts = self.positive_counts[users] * (each + 1)
        total = int(counts.sum())
        owner, items, labels = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.float32)
        _draw(
            users.numpy(), uints, counts.numpy(), each.numpy(), self._start.numpy(), self._items.numpy(),
            self.room.numpy(), self._excluded_start.numpy(), self._gaps.numpy(), self._stride, owner, items, labels,
        )  # fmt: skip
        return Samples(counts, torch.from_numpy(owner), torch.from_numpy(items), torch.from_numpy(labels))

    def sample(self, users: Int64[Tensor, " n"], uints: Int64[Tensor, "n w"]) -> Samples:
        """What `epoch` does on any device, step by step."""
        count, each = self.positive_counts[users], self._each[users]
        owner, rank = _ragged(count)
        positives = self._items[self._start[users][owner] + rank]
        negatives = self.unrank(users[owner], self._distinct(users[owner], owner, rank, uints))
        # [positives, 1 + k], of which a user has as many columns as negatives.
        drawn = torch.arange(self.negatives + 1) <= each[owner].unsqueeze(1)
        items = torch.cat([positives.unsqueeze(1), negatives], 1)[drawn]
        labels = torch.zeros(drawn.shape)
        labels[:, 0] = 1
        labels = labels[drawn]
        owner, rank = _ragged(count * (each + 1))
        shuffle = uints[owner, (each * count)[owner] + rank]
        # Sorted by client, then by a random word: a shuffle of every client at once. Stable, so that equal words,
        # too, come in one order everywhere.
        order = ((owner << 32) | shuffle).argsort(stable=True)
        return Samples(count * (each + 1), owner, items[order], labels[order])

    def _distinct(
        self,
        users: Int64[Tensor, " p"],
        owner: Int64[Tensor, " p"],
        rank: Int64[Tensor, " p"],
        words: Int64[Tensor, "n w"],
    ) -> Int64[Tensor, "p k"]:
        """K distinct numbers below each user's room: draw j from the numbers not yet taken, in sorted order.

        Columns beyond the user's negatives hold anything.
        """
        room, each, columns = self.room[users], self._each[users], list[Tensor]()
        for j in range(self.negatives):
            # word / 2^32 times what is left, as a shift; x then steps over each number taken, in ascending order.
            x = (words[owner, rank * each + each.clamp(max=j)] * (room - j).clamp(min=0)) >> 32
            if columns:
                for taken in torch.stack(columns).sort(0).values:
                    x = x + (x >= taken)
            columns.append(x)
        return torch.stack(columns, 1)

    def unrank(self, users: Int64[Tensor, " p"], x: Int64[Tensor, "p k"]) -> Int64[Tensor, "p k"]:
        """The x-th item outside each user's excluded items."""
        key = (users * self._stride).unsqueeze(1) + x
        skipped = torch.searchsorted(self._gaps, key, right=True) - self._excluded_start[users].unsqueeze(1)
        return x + skipped


def touched_rows(samples: Samples, n_items: int) -> TouchedRows:
    """The distinct pairs of `samples`: by machine code, or else by flags or, where these are many, by sorting."""
    if samples.items.is_cpu:
        found = _touch(samples.counts.numpy(), samples.items.numpy(), n_items)
        return TouchedRows(*(torch.from_numpy(part) for part in found))
    return stacked_rows(samples, n_items)


def stacked_rows(samples: Samples, n_items: int) -> TouchedRows:
    """What `touched_rows` does off the processor: a flag for every (client, item) or, where these are many, a sort."""
    pairs = len(samples.counts) * n_items
    key = samples.owner * n_items + samples.items
    if pairs > _FLAGS_PER_SAMPLE * len(key):
        rows, of_sample = torch.unique(key, return_inverse=True)
        return TouchedRows(rows // n_items, rows % n_items, of_sample)
    flag: Bool[Tensor, " pairs"] = torch.zeros(pairs, dtype=torch.bool)
    # `nonzero` returns flags in ascending order, which `unique` would have to sort for.
    flag[key] = True
    rows = flag.nonzero().squeeze(1)
    # Only places of touched pairs are written and read; int32 because there is one entry for every pair.
    place = torch.empty(pairs, dtype=torch.int32)
    place[rows] = torch.arange(len(rows), dtype=torch.int32)
    return TouchedRows(rows // n_items, rows % n_items, place[key].long())


@compiled
def _draw(
    users: Int64[np.ndarray, " n"],
    words: UInt32[np.ndarray, "n w"],
    counts: Int64[np.ndarray, " n"],
    each: Int64[np.ndarray, " n"],
    start: Int64[np.ndarray, " users"],
    positives: Int64[np.ndarray, " pairs"],
    room: Int64[np.ndarray, " users"],
    excluded_start: Int64[np.ndarray, " users"],
    gaps: Int64[np.ndarray, " excluded"],
    stride: int,
    owner: Int64[np.ndarray, " samples"],
    items: Int64[np.ndarray, " samples"],
    labels: Float32[np.ndarray, " samples"],
) -> None:
    """Every client's draws and shuffle, one client after the other."""
    most, widest = (counts.max(), each.max()) if len(counts) else (0, 0)
    # Item and label of a sample before the shuffle, as one number; what it is sorted by; and scratch.
    drawn, keys, place = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(2 * most + 2, np.int64)
    scratch, below = np.empty(widest, np.int64), np.empty(len(gaps) + 2, np.int64)
    barred = np.empty(len(gaps) + _STEPS, np.int64)
    first = 0
    for c in range(len(users)):
        user, count = users[c], counts[c]
        if count == 0:
            continue
        negatives = each[c]
        pairs, taken = count // (negatives + 1), scratch[:negatives]
        own = positives[start[user] : start[user] + pairs]
        end = excluded_start[user + 1] if user + 1 < len(excluded_start) else len(gaps)
        _choose(words[c], own, room[user], gaps[excluded_start[user] : end], user * stride, taken, below, barred, drawn)
        _order(words[c, negatives * pairs : negatives * pairs + count], place, keys)
        owner[first : first + count] = c
        for s in range(count):
            sample = drawn[keys[s] & _NUMBER]
            items[first + s], labels[first + s] = sample >> 1, sample & 1
        first += count


@compiled
def _choose(
    words: UInt32[np.ndarray, " w"],
    positives: Int64[np.ndarray, " pairs"],
    room: int,
    gaps: Int64[np.ndarray, " excluded"],
    base: int,
    taken: Int64[np.ndarray, " negatives"],
    below: Int64[np.ndarray, " cells"],
    barred: Int64[np.ndarray, " excluded_and_steps"],
    drawn: Int64[np.ndarray, " samples"],
) -> None:
    """Twice every positive, plus one, and after it twice each of its negatives."""
    # `below[b]`: gaps below the first number of cell b. As many cells as gaps, so a walk takes one step on average.
    shift, gap, count = 0, 0, len(gaps)
    while (room >> shift) > count:
        shift += 1
    for cell in range((room >> shift) + 1):
        while gap < count and gaps[gap] - base < cell << shift:
            gap += 1
        below[cell] = gap
    for gap in range(count):
        barred[gap] = gaps[gap] - base
    barred[count : count + _STEPS] = room
    at, word = 0, 0
    for positive in positives:
        drawn[at] = 2 * positive + 1
        at += 1
        # Above every number. All loops but the last walk have no branch: where a draw falls, no processor predicts.
        taken[:] = room
        for j in range(len(taken)):
            x = (np.int64(words[word]) * (room - j)) >> 32
            word += 1
            # Steps over each number taken, in ascending order, and takes its place among them.
            for i in range(j):
                x += x >= taken[i]
            place = x
            for i in range(j + 1):
                here = taken[i]
                taken[i], place = min(here, place), max(here, place)
            gap = below[x >> shift]
            for _ in range(_STEPS):
                gap += barred[gap] <= x
            while gap < count and barred[gap] <= x:
                gap += 1
            drawn[at] = 2 * (x + gap)
            at += 1


@compiled
def _order(
    words: UInt32[np.ndarray, " samples"], place: Int64[np.ndarray, " cells"], keys: Int64[np.ndarray, " samples"]
) -> None:
    """A stable sort: keys that hold word and number of a sample, ascending."""
    # Words are uniform, so each of as many cells as samples holds about one, and insertion puts a cell in order.
    count, bits = len(words), 1
    while 1 << bits < count:
        bits += 1
    by = 32 - bits
    place[: (1 << bits) + 1] = 0
    for s in range(count):
        place[(np.int64(words[s]) >> by) + 1] += 1
    for cell in range(1 << bits):
        place[cell + 1] += place[cell]
    for s in range(count):
        key = np.int64(words[s])
        to = place[key >> by]
        place[key >> by] = to + 1
        keys[to] = key << _NUMBER_BITS | s
    for s in range(count):
        key, to = keys[s], s
        while to > 0 and keys[to - 1] > key:
            keys[to] = keys[to - 1]
            to -= 1
        keys[to] = key


@compiled
def _touch(
    counts: Int64[np.ndarray, " n"], items: Int64[np.ndarray, " samples"], n_items: int
) -> tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"], Int64[np.ndarray, " samples"]]:
    """Owner and item of the distinct pairs, and the pair of every sample."""
    owner, ids, of_sample = np.empty_like(items), np.empty_like(items), np.empty_like(items)
    # A bit for every item, 64 to a word.
    flags, place = np.zeros((n_items + 63) // 64, np.uint64), np.empty(n_items, np.int32)
    one, first, row = np.uint64(1), 0, 0
    for c in range(len(counts)):
        last = first + counts[c]
        for s in range(first, last):
            flags[items[s] >> 6] |= one << np.uint64(items[s] & 63)
        for word in range(len(flags)):
            left = flags[word]
            flags[word] = 0
            while left:
                lowest = left & (~left + one)
                item = 64 * word + _BIT[(lowest * _MAGIC) >> np.uint64(58)]
                owner[row], ids[row], place[item] = c, item, row
                row += 1
                left ^= lowest
        for s in range(first, last):
            of_sample[s] = place[items[s]]
        first = last
    return owner[:row], ids[:row], of_sample


def tile_order(counts: Int64[Tensor, " n"]) -> Int64[Tensor, " padded"]:
    """Clients by falling size, padded with -1 to whole tiles, so that a tile's clients need alike many steps."""
    order = counts.argsort(descending=True, stable=True)
    return torch.nn.functional.pad(order, (0, padded(len(order), tile_size()) - len(order)), value=-1)


def tile_batches(samples: Samples, batch_size: int) -> Iterator[tuple[Int64[Tensor, " tile"], list[Batch]]]:
    """Tiles of exactly `tile_size()` clients (positions, -1 for padding) with their steps.

    Every batch is padded to one canonical width, so a client's arithmetic does not depend on its neighbours.
    """
    width = padded(batch_size)
    start = samples.counts.cumsum(0) - samples.counts
    order, column = tile_order(samples.counts), torch.arange(width)
    # Clients come by falling size, so the first of a tile takes most steps.
    longest = samples.counts[order[:: tile_size()]].tolist()
    for span, most in zip(tiles(len(samples.counts), tile_size()), longest, strict=True):
        clients = order[span]
        real = clients >= 0
        count = torch.where(real, samples.counts[clients], 0)
        batches = []
        for step in range(-(-most // batch_size)):
            length = (count - step * batch_size).clamp(0, batch_size)
            inside = column < length.unsqueeze(1)
            first = start[clients].unsqueeze(1) + step * batch_size
            # [tile, width]: 1 / the client's own batch length, so that padding and short last batches cost no accuracy.
            weight = inside.float() / length.clamp(min=1).unsqueeze(1)
            batches.append(Batch(step, torch.where(inside, first + column, 0), weight))
        yield clients, batches


@dataclass(frozen=True, slots=True, eq=False)
class FullTile:
    """Clients whose lists are padded to one width, with all of their samples at once.

    Padding points one past the end: a caller puts a client, a sample or a row of zeros there, so that no number of
    somebody's reaches anybody else, not even as a product with 0.

    Attributes:
        clients: positions, without padding.
        lanes: positions, and as many more as make the tile full.
        samples: of every lane.
        weight: 1 / the client's samples, so that a sum is the mean over them; padding weighs nothing.
    """

    clients: Int64[Tensor, " real"]
    lanes: Int64[Tensor, " tile"]
    samples: Int64[Tensor, "tile width"]
    weight: Float[Tensor, "tile width"]


def full_batches(samples: Samples, further: Int64[Tensor, " n"] | None = None) -> Iterator[FullTile]:
    """Full tiles of clients of one width; those without samples are in no tile.

    Args:
        samples: of all clients.
        further: a further width of each client that those of a tile share; None where there is none.
    """
    n, size = len(samples.counts), tile_size()
    start, width = samples.counts.cumsum(0) - samples.counts, rungs_of(samples.counts)
    kinds = width if further is None else width + (int(width.max()) + 1 if n else 1) * further
    for kind in np.unique(on_host(kinds[samples.counts > 0])).tolist():
        for clients in torch.split(((kinds == kind) & (samples.counts > 0)).nonzero().squeeze(1), size):
            lanes = torch.full((size,), n)
            lanes[: len(clients)] = clients
            count, first = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
            count[: len(clients)], first[: len(clients)] = samples.counts[clients], start[clients]
            column = torch.arange(int(width[clients[0]]))
            inside = column < count.unsqueeze(1)
            where = torch.where(inside, first.unsqueeze(1) + column, len(samples.items))
            yield FullTile(clients, lanes, where, inside.float() / count.clamp(min=1).unsqueeze(1))


def padded_one(values: Shaped[Tensor, "n *rest"], fill: int = 0) -> Shaped[Tensor, "more *rest"]:
    """The values and one more, which padding finds."""
    return torch.cat([values, values.new_full((1, *values.shape[1:]), fill)])


def steps_taken(samples: Samples, batch_size: int) -> Int64[Tensor, " n"]:
    """Local SGD steps of every client."""
    return (samples.counts + batch_size - 1) // batch_size


def _ragged(count: Int64[Tensor, " n"]) -> tuple[Int64[Tensor, " total"], Int64[Tensor, " total"]]:
    owner = torch.repeat_interleave(torch.arange(len(count)), count)
    rank = torch.arange(len(owner)) - torch.repeat_interleave(count.cumsum(0) - count, count)
    return owner, rank
