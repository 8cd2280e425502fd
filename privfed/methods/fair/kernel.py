"""Local training of FAIR on devices of one tier: sampling, gradients and Adam as machine code, client after client.

Each client trains its tier's reduced tables, all layers and its user rows by minibatch Adam with fresh moments
(Kingma and Ba, ICLR 2015): on BPR pairs (Rendle et al., UAI 2009), each positive with one negative that is redrawn in
every epoch, or on squared errors of ratings. The result is that of dense Adam over all slots, because a slot without a
gradient so far has zero moments and stays where it is: a client keeps the slots that it has touched, in the order of
their first touch, and a step moves the first `active` of them. Where a device would touch most slots anyway, it keeps
all of them and needs no list.

The stored values of all tables share one numbering: those of a table start at its `offset`. A client's arithmetic is
plain IEEE arithmetic in a fixed order and reads nothing of other clients, so it is equal to the bit in any company. A
minibatch goes through the network in blocks of a few columns, which is all the working memory that it takes; products
with layers and their gradients keep a few sums in registers (`privfed.compute.vector_lanes`).
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from privfed.compute.compiled import compiled
from privfed.compute.vector_lanes import LANES, exp, filled, load, spread, store, total

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's, as published and as in torch."""

COLUMNS = 64
"""Columns of a block. Lanes of positives and lanes of their negatives take turns, so that sums in which a pair cancels
are exactly 0 instead of a rounding error, which Adam would blow up."""

ROUNDS = 4
KEY_WORDS = 2 * ROUNDS
"""Random words that order one epoch; one more for each of its samples draws the negative."""

SAME, NEXT = cast("tuple[int, int]", (np.int64(0), np.int64(1)))
"""Steps between weights. As plain literals they would be types of their own, and whatever takes them compiled for each.
"""

Real = NDArray[np.floating]
Whole = NDArray[np.integer]


class Network(NamedTuple):
    """The network and how it is trained.

    Attributes:
        dim: width of a row.
        product: 1 with the table `gmf`, 0 without.
        bias: 1 where the last layer has a bias, else 0.
        widths: of the perceptron, input to last hidden layer.
        kept: stored values of a row of each table; of one tier, the same for all.
        factored: 1 where a row is its stored values times the table's factor `[kept, dim]`, which is trained too.
        pairs: 1 for pairs of a positive and a negative, 0 for ratings.
        batch: samples of a step.
        epochs: passes over the samples.
        shuffled: 1 where every epoch has an order of its own.
        lr: learning rate.
    """

    dim: int
    product: int
    bias: int
    widths: Whole
    kept: Whole
    factored: int
    pairs: int
    batch: int
    epochs: int
    shuffled: int
    lr: float


class DenseLayout(NamedTuple):
    """Offsets of the pieces of a client's dense numbers, behind the user's rows `[tables, dim]`.

    Attributes:
        weights, biases: of the perceptron's layers.
        product: the last layer's weights of the product of rows.
        last: its weights of the last hidden layer.
        bias: its bias.
        factors: of the tables.
    """

    weights: Whole
    biases: Whole
    product: int
    last: int
    bias: int
    factors: int


class KnownInteractions(NamedTuple):
    """Private data of the clients, and the random words of their samples.

    Attributes:
        starts: place of each client's first item.
        counts: items of each client.
        items: of all clients.
        targets: their ratings; empty for pairs.
        barred_starts: place of each client's first barred item.
        barred_counts: barred items of each client.
        barred: items never drawn as negatives, distinct and ascending within a client.
        n_items: of the catalogue.
        uints: random 32-bit words of each client, (KEY_WORDS + counts) of them in every epoch.
    """

    starts: Whole
    counts: Whole
    items: Whole
    targets: Real
    barred_starts: Whole
    barred_counts: Whole
    barred: Whole
    n_items: int
    uints: Whole


class Stored(NamedTuple):
    """The tier's tables as devices received them.

    Attributes:
        values: of all tables, one after another.
        offset: where each table starts, and the end.
        slots: slot of every element of each table `[tables, elements]`; no columns where slots are elements.
        signs: -1 or 1 likewise; no columns where all are 1.
    """

    values: Real
    offset: Whole
    slots: Whole
    signs: Whole


class Changes(NamedTuple):
    """Output of training.

    Attributes:
        reserved: slots of each table that each client may touch `[clients, tables]`; all of them where it keeps all.
        counts: slots that it touched `[clients, tables]`.
        slots: these, numbered within their table, client after client `[tables, entries]`; distinct within a client.
        values: trained minus received.
        dense: each client's own rows, layers and factors, `[clients, numbers]`: user rows of every table, layers in the
            model's order, factors. Trained in place.
    """

    reserved: Whole
    counts: Whole
    slots: Whole
    values: Real
    dense: Real


class Scratch(NamedTuple):
    """Memory of one device, used by one client after the other.

    Attributes:
        gradient, first_moment, second_moment: of slots.
        dense_gradient, dense_first, dense_second: of dense numbers.
        trained: values of slots.
        slots: numbers of the touched ones. No entries on devices that keep all.
        slot_position: where a slot is kept, plus 1; 0 where it is not. No entries on devices that keep all.
        begin, end: places of each table's slots so far. Here and in the two above, a row counts as one slot where slots
            are not hashed.
        listed: entries of each table's list so far.
        user: what the user adds to the first layer.
        scale: weights of the product of rows, times the user's row.
        totals: of the product's rows, weighted by slopes.
        samples: positions of a block's positives.
        items: of a block's columns.
        places: where the stored values of each column's rows are kept `[tables, kept, columns]`.
        signs: of these values; no columns where all are 1.
        values: stored values, signed; their gradients in the backward pass.
        rows: item rows `[tables, dim, columns]`.
        row_gradients: of the loss.
        hidden: outputs of the layers `[layers, width, columns]`.
        back: gradients of their inputs.
        scores, slopes: of every column `[1, columns]`; slopes are the loss's gradients, 0 in the padding.
    """

    gradient: Real
    first_moment: Real
    second_moment: Real
    dense_gradient: Real
    dense_first: Real
    dense_second: Real
    trained: Real
    slots: Whole
    slot_position: Whole
    begin: Whole
    end: Whole
    listed: Whole
    user: Real
    scale: Real
    totals: Real
    samples: Whole
    items: Whole
    places: Whole
    signs: Real
    values: Real
    rows: Real
    row_gradients: Real
    hidden: Real
    back: Real
    scores: Real
    slopes: Real


@compiled(borrow=True)
def train(
    net: Network, layout: DenseLayout, known: KnownInteractions, stored: Stored, changes: Changes, s: Scratch
) -> None:
    """Train every client, and list what changed."""
    # A pair takes two columns: a block holds 64 ratings, or 32 positives with their negatives.
    block = COLUMNS // (1 + net.pairs)
    run = _run(net, stored)
    for t in range(len(net.kept)):
        s.listed[t] = 0
    # Once for all clients: `_adam` empties every gradient that it has used.
    _fill(s.dense_gradient, 0)
    for c in range(len(known.counts)):
        n = known.counts[c]
        d = changes.dense[c]
        whole = _start(stored, s, changes.reserved[c], run)
        # Moments are fresh for each client; those of a slot are set to 0 when the slot is taken up.
        _fill(s.dense_first, 0)
        _fill(s.dense_second, 0)
        step = 0
        for epoch in range(net.epochs):
            # An epoch's words: the key of its order, then one word for the negative of each sample.
            word = epoch * (KEY_WORDS + n)
            for start in range(0, n, net.batch):
                end = min(n, start + net.batch)
                _begin_step(net, layout, d, s)
                # A minibatch may take several blocks: gradients and totals add up over them, then one step follows.
                for first in range(start, end, block):
                    length = min(block, end - first)
                    columns = (length + LANES - 1) // LANES * LANES * (1 + net.pairs)
                    _draw(net, known, s, c, first, length, columns, word)
                    _gather(net, stored, s, columns, whole)
                    _forward(net, layout, d, s, columns)
                    _slopes(net, known, s, length, columns, end - start)
                    _backward(net, layout, d, s, columns)
                    _back_to_stored(net, layout, d, s, columns)
                    _scatter(net, stored, s, columns)
                _user(net, layout, d, s)
                step += 1
                # Both bias corrections, once per step instead of per parameter. Slots of all ages share the step count:
                # dense Adam would have left an untouched slot with zero moments and in its place as well.
                size = net.lr / (1 - BETA1**step)
                root = 1 / np.sqrt(1 - BETA2**step)
                for t in range(len(net.kept)):
                    kept = slice(s.begin[t] * run, s.end[t] * run)
                    _adam(s.trained[kept], s.gradient[kept], s.first_moment[kept], s.second_moment[kept], size, root)
                _adam(d, s.dense_gradient, s.dense_first, s.dense_second, size, root)
        for t in range(len(net.kept)):
            changes.counts[c, t] = (s.end[t] - s.begin[t]) * run
            _list(stored, s, t, run, changes.slots[t, s.listed[t] :], changes.values[t, s.listed[t] :], whole)
            s.listed[t] += changes.counts[c, t]


@compiled(borrow=True)
def add_entries(sums: Real, slots: Whole, values: Real) -> None:
    """sums[slots[j]] += values[j], in order."""
    for j in range(len(slots)):
        sums[np.uint32(slots[j])] += values[j]


@compiled(borrow=True)
def _start(stored: Stored, s: Scratch, room: Whole, run: int) -> int:
    """Take over all slots where the device keeps them all, else none; returns 1 where it does."""
    whole = int(room.sum() == len(stored.values))
    begin = 0
    for t in range(len(room)):
        s.begin[t] = begin
        begin += room[t] // run
        s.end[t] = begin if whole else s.begin[t]
    if whole:
        # Every slot is kept, so a slot's number is also its position and `slot_position` is not needed.
        for j in range(len(stored.values)):
            s.trained[j] = stored.values[j]
            s.gradient[j] = 0
            s.first_moment[j] = 0
            s.second_moment[j] = 0
    return whole


@compiled(borrow=True)
def _list(stored: Stored, s: Scratch, t: int, run: int, slots: Whole, values: Real, whole: int) -> None:
    """List the slots of a table and how they changed; the device forgets them."""
    begin, offset = s.begin[t], stored.offset[t]
    for place in range(begin, s.end[t]):
        number = place if whole else np.int64(s.slots[place])
        for j in range(run):
            entry = (place - begin) * run + j
            slots[entry] = number * run + j - offset
            values[entry] = s.trained[place * run + j] - stored.values[number * run + j]
        # Only this client's entries: to clear the whole map would cost more than a small client's training.
        if not whole:
            s.slot_position[number] = 0


@compiled(borrow=True)
def _draw(
    net: Network, known: KnownInteractions, s: Scratch, c: int, first: int, length: int, columns: int, word: int
) -> None:
    """A block's positives, from place `first` of the epoch's order, and a negative for each of them.

    The order is a keyed bijection of [0, n), computed where it is needed: rounds of an odd multiplication and a fold
    are one of [0, 2^bits), and what falls outside [0, n) goes through again. A negative is the x-th item that is not
    barred, with x uniform. Padding repeats the first sample.
    """
    n, begin = np.int64(known.counts[c]), known.starts[c]
    # The smallest power of two that holds [0, n): at most every other position falls outside and walks on.
    bits = 1
    while (1 << bits) < n:
        bits += 1
    mask, fold = (1 << bits) - 1, max(1, bits // 2)
    words, items = known.uints[c, word:], known.items[begin : begin + n]
    barred = known.barred[known.barred_starts[c] : known.barred_starts[c] + known.barred_counts[c]]
    for j in range(length):
        # int64 throughout: with n below 2^31 the products below stay under 2^62.
        place = np.int64(first + j)
        if net.shuffled:
            # Cycle walking: a bijection of [0, 2^bits) that is repeated until it lands below n is one of [0, n).
            while True:
                for k in range(ROUNDS):
                    odd = np.int64(words[2 * k]) | 1
                    plus = np.int64(words[2 * k + 1])
                    # Multiplication carries low bits upwards only; the fold brings the upper ones down again.
                    place = (place * (odd & mask) + (plus & mask)) & mask
                    place ^= place >> fold
                if place < n:
                    break
        s.samples[j] = begin + place
        s.items[_column(net, j, 0)] = items[place]
        if net.pairs:
            # word / 2^32 times the number of allowed items, as a shift: no modulo, and a bias below items / 2^32.
            x = (np.int64(words[KEY_WORDS + first + j]) * (known.n_items - len(barred))) >> 32
            # barred[k] - k allowed items lie below barred[k], so bisection finds how many barred ones to skip. Halves
            # are taken without a branch, which a processor would guess wrong every other time.
            low, left = 0, len(barred)
            while left > 0:
                half = (left + 1) // 2
                skipped = barred[np.uint64(low + half - 1)] - (low + half - 1) <= x
                low += half if skipped else 0
                left = left - half if skipped else half - 1
            s.items[_column(net, j, 1)] = x + low
    for j in range(length, columns // (1 + net.pairs)):
        for side in range(1 + net.pairs):
            s.items[_column(net, j, side)] = s.items[_column(net, 0, side)]


@compiled(borrow=True)
def _column(net: Network, j: int, side: int) -> int:
    """Column of sample j of a block: side 0 for the positive, 1 for its negative."""
    # A pair's slopes -s and s fall in the same lane, one right after the other, so sums return to what they were.
    return (j // LANES * (1 + net.pairs) + side) * LANES + j % LANES


@compiled(borrow=True)
def _run(net: Network, stored: Stored) -> int:
    """Slots that follow each other and are taken up together: a row, where slots are not hashed."""
    return 1 if stored.slots.shape[1] else net.kept[0]


@compiled(borrow=True)
def _gather(net: Network, stored: Stored, s: Scratch, columns: int, whole: int) -> None:
    """Gather the stored values of every column, taking up slots on their first touch."""
    signed, run = stored.signs.shape[1] > 0, _run(net, stored)
    for t in range(len(net.kept)):
        kept, fresh = net.kept[t], s.end[t]
        _find(stored, s, t, kept // run, run, columns, whole)
        for place in range(fresh, s.end[t]):
            for j in range(run):
                slot = np.int64(s.slots[place]) * run + j
                s.trained[place * run + j] = stored.values[slot]
                s.gradient[place * run + j] = 0
                s.first_moment[place * run + j] = 0
                s.second_moment[place * run + j] = 0
        for k in range(kept):
            places, later, values = s.places[t, k // run], np.uint64(k % run), s.values[t, k]
            for column in range(columns):
                values[column] = s.trained[places[column] + later]
            if signed:
                # Kept for `_scatter`, which would otherwise look the element up again.
                signs = s.signs[t, k]
                for column in range(columns):
                    signs[column] = stored.signs[t, np.int64(s.items[column]) * kept + k]
                    values[column] *= signs[column]


@compiled(borrow=True)
def _find(stored: Stored, s: Scratch, t: int, runs: int, run: int, columns: int, whole: int) -> None:
    """Where the stored values of every column are kept; runs that are not yet are added to the list."""
    offset, end, hashed = stored.offset[t] // run, s.end[t], stored.slots.shape[1] > 0
    places, numbers, slots, positions = s.places[t], stored.slots[t], s.slots, s.slot_position
    for column in range(columns):
        first = np.int64(s.items[column]) * runs
        for k in range(runs):
            # Unsigned: what may be negative is compared with 0 before it is an index.
            number = np.uint64(offset + (np.int64(numbers[np.uint64(first + k)]) if hashed else first))
            place = np.int64(number)
            if not whole:
                # Positions are stored plus 1, so that an array of zeros is an empty map. No branch: whether a slot is
                # new is left to chance.
                position = np.int64(positions[number])
                place = position - 1 if position > 0 else end
                end += position == 0
                slots[np.uint64(place)] = number
                positions[number] = place + 1
            places[k, column] = place * run
    s.end[t] = end


@compiled(borrow=True)
def _begin_step(net: Network, at: DenseLayout, d: Real, s: Scratch) -> None:
    """What is the same in all columns of a minibatch: the user's parts of the first layer and of the product."""
    dim, width = net.dim, net.widths[1]
    for o in range(width):
        s.user[o] = d[at.biases[0] + o]
    for i in range(dim):
        for o in range(width):
            s.user[o] += d[i] * d[at.weights[0] + i * width + o]
    for i in range(dim * net.product):
        # Table 1 is `gmf`: its user row follows the first one in `d`, and weight times user is one number.
        s.scale[i] = d[at.product + i] * d[dim + i]
        s.totals[i] = 0


@compiled(borrow=True)
def _forward(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """Rows, hidden layers and scores of all columns."""
    dim, widths, last = net.dim, net.widths, len(net.widths) - 2
    _rows(net, at, d, s, columns)
    for l in range(last + 1):
        # Weights are input-first, [widths[l], widths[l + 1]] from at.weights[l] on; the user's come first.
        width = widths[l + 1]
        h, x = s.hidden[l, :width], s.rows[0] if l == 0 else s.hidden[l - 1, : widths[l]]
        weight = at.weights[l] + (dim * width if l == 0 else 0)
        for o in range(width):
            _fill(h[o, :columns], s.user[o] if l == 0 else d[at.biases[l] + o])
        _multiply(h, x, d, weight, NEXT, width, columns)
        for o in range(width):
            _rectify(h[o, :columns])
    _fill(s.scores[0, :columns], d[at.bias] if net.bias else 0.0)
    _multiply(s.scores, s.hidden[last, : widths[last + 1]], d, at.last, SAME, NEXT, columns)
    if net.product:
        _multiply(s.scores, s.rows[1], s.scale, SAME, SAME, NEXT, columns)


@compiled(borrow=True)
def _rows(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """Item rows from stored values; columns of a table that a device does not keep stay 0."""
    for t in range(len(net.kept)):
        kept = net.kept[t]
        for i in range(net.dim if net.factored else kept):
            if net.factored:
                _fill(s.rows[t, i, :columns], 0)
            else:
                _copy(s.rows[t, i, :columns], s.values[t, i, :columns])
        if net.factored:
            # rows[t, i, column] = sum_k factor[t, k, i] values[t, k, column]; without factors, rows are the values.
            factors = at.factors + t * kept * net.dim
            _multiply(s.rows[t], s.values[t, :kept], d, factors, NEXT, net.dim, columns)


@compiled(borrow=True)
def _slopes(net: Network, known: KnownInteractions, s: Scratch, length: int, columns: int, batch: int) -> None:
    """Gradients of the minibatch's mean loss by the block's scores."""
    real = s.scores.dtype.type
    # Constants in the tables' dtype: a plain float would lift the arithmetic to float64.
    share = real(1 / batch)
    if net.pairs:
        for column in range(0, columns, 2 * LANES):
            # d/dx log(1 + exp(-x)) = -1 / (1 + exp(x)) at x = positive - negative.
            x = load(s.scores, (0, column)) - load(s.scores, (0, column + LANES))
            slope = filled(share) / (filled(real(1)) + exp(x))
            store(s.slopes, (0, column), filled(real(0)) - slope)
            store(s.slopes, (0, column + LANES), slope)
        for j in range(length, columns // 2):
            s.slopes[0, _column(net, j, 0)] = 0
            s.slopes[0, _column(net, j, 1)] = 0
    else:
        _fill(s.slopes[0, :columns], 0)
        for j in range(length):
            s.slopes[0, j] = 2 * (s.scores[0, j] - known.targets[s.samples[j]]) * share


@compiled(borrow=True)
def _backward(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """Add the block's part of the gradients of all dense numbers but the user's; leave those of item rows."""
    dim, widths, last, g = net.dim, net.widths, len(net.widths) - 2, s.dense_gradient
    if net.bias:
        _sums(g, at.bias, s.slopes, columns)
    back = s.back[last, : widths[last + 1]]
    _products(g, at.last, SAME, NEXT, s.slopes, s.hidden[last, : widths[last + 1]], columns)
    _clear(back, columns)
    _multiply(back, s.slopes, d, at.last, NEXT, SAME, columns)
    for l in range(last, -1, -1):
        width = widths[l + 1]
        back = s.back[l, :width]
        for o in range(width):
            # A ReLU's output is positive exactly where its input is, so inputs are not kept.
            _mask(back[o, :columns], s.hidden[l, o, :columns])
        _sums(g, at.biases[l], back, columns)
        # Rows of W0 that meet the user are left to `_user`, which needs only sums over the whole minibatch.
        weight = at.weights[l] + (dim * width if l == 0 else 0)
        x = s.rows[0] if l == 0 else s.hidden[l - 1, : widths[l]]
        below = s.row_gradients[0] if l == 0 else s.back[l - 1, : widths[l]]
        _products(g, weight, width, NEXT, x, back, columns)
        _clear(below, columns)
        _multiply(below, back, d, weight, width, NEXT, columns)
    if net.product:
        # What user row and last layer are multiplied with, both constant in a minibatch: summed over its columns.
        _products(s.totals, SAME, SAME, NEXT, s.slopes, s.rows[1], columns)
        _clear(s.row_gradients[1], columns)
        _multiply(s.row_gradients[1], s.slopes, s.scale, SAME, NEXT, SAME, columns)


@compiled(borrow=True)
def _back_to_stored(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """From gradients of item rows to those of stored values and factors."""
    dim, g = net.dim, s.dense_gradient
    for t in range(len(net.kept)):
        kept = net.kept[t]
        values = s.values[t, :kept]
        if net.factored:
            factors = at.factors + t * kept * dim
            _products(g, factors, dim, NEXT, values, s.row_gradients[t], columns)
            # Only now: the factors' gradients have read the values, whose memory their own gradients take over.
            _clear(values, columns)
            _multiply(values, s.row_gradients[t], d, factors, dim, NEXT, columns)
        else:
            # Columns beyond `kept` have no stored value, so their gradients go nowhere.
            for k in range(kept):
                _copy(values[k, :columns], s.row_gradients[t, k, :columns])


@compiled(borrow=True)
def _user(net: Network, at: DenseLayout, d: Real, s: Scratch) -> None:
    """Gradients of the user's rows and of the weights that meet them, from the minibatch's totals."""
    dim, width, g = net.dim, net.widths[1], s.dense_gradient
    for i in range(dim):
        for o in range(width):
            weight = at.weights[0] + i * width + o
            # The user's part of W0^T x is the same in all columns, so dL/dz summed over them is the bias's
            # gradient db: dL/dW0 = u db^T and dL/du = W0 db.
            g[weight] = d[i] * g[at.biases[0] + o]
            g[i] += d[weight] * g[at.biases[0] + o]
        if net.product:
            # score = sum_i w_i u_i q_i: each of w and u takes the other times the totals.
            g[dim + i] = d[at.product + i] * s.totals[i]
            g[at.product + i] = d[dim + i] * s.totals[i]


@compiled(borrow=True)
def _scatter(net: Network, stored: Stored, s: Scratch, columns: int) -> None:
    """Add the gradients of each column's stored values to those of their slots."""
    signed, run = stored.signs.shape[1] > 0, _run(net, stored)
    for t in range(len(net.kept)):
        for k in range(net.kept[t]):
            places, later, values = s.places[t, k // run], np.uint64(k % run), s.values[t, k]
            if signed:
                for column in range(columns):
                    values[column] *= s.signs[t, k, column]
            for column in range(columns):
                s.gradient[places[column] + later] += values[column]


@compiled(borrow=True)
def _adam(p: Real, gradient: Real, first: Real, second: Real, size: float, root: float) -> None:
    """One step of Adam on all of `p`, which also empties their gradients.

    Args:
        p: parameters.
        gradient: of them; here and below, entries beyond the parameters are left alone.
        first: moment.
        second: moment.
        size: lr / (1 - beta1^t).
        root: 1 / sqrt(1 - beta2^t).
    """
    # The powers behind size and root are taken in float64 and rounded once; the loop keeps to the dtype of p.
    real = p.dtype.type
    keep1, take1, keep2, take2 = real(BETA1), real(1 - BETA1), real(BETA2), real(1 - BETA2)
    scale, rise, small = real(size), real(root), real(EPSILON)
    for j in range(len(p)):
        g = gradient[j]
        m = keep1 * first[j] + take1 * g
        v = keep2 * second[j] + take2 * g * g
        first[j] = m
        second[j] = v
        # `/` would check for zero and keep the loop from being vectorised.
        p[j] -= np.divide(scale * m, np.sqrt(v) * rise + small)
        gradient[j] = 0


@compiled(borrow=True)
def _multiply(out: Real, x: Real, weights: Real, at: int, by_row: int, by_term: int, columns: int) -> None:
    """out[o] += sum_i weights[at + o * by_row + i * by_term] * x[i], term after term.

    Four rows at a time, so that what is read of x feeds four products.
    """
    rows, terms = len(out), len(x)
    for first in range(0, columns, LANES):
        for o in range(0, rows - 3, 4):
            h0, h1 = load(out, (o, first)), load(out, (o + 1, first))
            h2, h3 = load(out, (o + 2, first)), load(out, (o + 3, first))
            for i in range(terms):
                value, weight = load(x, (i, first)), at + o * by_row + i * by_term
                h0 = h0 + spread(weights, (weight,)) * value
                h1 = h1 + spread(weights, (weight + by_row,)) * value
                h2 = h2 + spread(weights, (weight + 2 * by_row,)) * value
                h3 = h3 + spread(weights, (weight + 3 * by_row,)) * value
            store(out, (o, first), h0)
            store(out, (o + 1, first), h1)
            store(out, (o + 2, first), h2)
            store(out, (o + 3, first), h3)
        for o in range(rows // 4 * 4, rows):
            h = load(out, (o, first))
            for i in range(terms):
                h = h + spread(weights, (at + o * by_row + i * by_term,)) * load(x, (i, first))
            store(out, (o, first), h)


@compiled(borrow=True)
def _products(g: Real, at: int, by_x: int, by_y: int, x: Real, y: Real, columns: int) -> None:
    """g[at + i * by_x + o * by_y] += the inner product of x[i] and y[o]: a sum for each lane, then that of the lanes.

    Four rows of y at a time, as in `_multiply`.
    """
    zero, n_y = filled(g.dtype.type(0)), len(y)
    for i in range(len(x)):
        for o in range(0, n_y - 3, 4):
            h0, h1, h2, h3 = zero, zero, zero, zero
            for first in range(0, columns, LANES):
                value = load(x, (i, first))
                h0 = h0 + value * load(y, (o, first))
                h1 = h1 + value * load(y, (o + 1, first))
                h2 = h2 + value * load(y, (o + 2, first))
                h3 = h3 + value * load(y, (o + 3, first))
            place = at + i * by_x + o * by_y
            g[place] += total(h0)
            g[place + by_y] += total(h1)
            g[place + 2 * by_y] += total(h2)
            g[place + 3 * by_y] += total(h3)
        for o in range(n_y // 4 * 4, n_y):
            h = zero
            for first in range(0, columns, LANES):
                h = h + load(x, (i, first)) * load(y, (o, first))
            g[at + i * by_x + o * by_y] += total(h)


@compiled(borrow=True)
def _sums(g: Real, at: int, x: Real, columns: int) -> None:
    """g[at + i] += the sum of x[i], lane by lane as in `_products`."""
    for i in range(len(x)):
        h = load(x, (i, 0))
        for first in range(LANES, columns, LANES):
            h = h + load(x, (i, first))
        g[at + i] += total(h)


@compiled(borrow=True)
def _clear(out: Real, columns: int) -> None:
    for i in range(len(out)):
        _fill(out[i, :columns], 0)


@compiled(borrow=True)
def _fill(out: Real, value: float) -> None:
    for j in range(len(out)):
        out[j] = value


@compiled(borrow=True)
def _copy(out: Real, x: Real) -> None:
    for j in range(len(out)):
        out[j] = x[j]


@compiled(borrow=True)
def _rectify(h: Real) -> None:
    for j in range(len(h)):
        h[j] = max(h[j], h.dtype.type(0))


@compiled(borrow=True)
def _mask(back: Real, h: Real) -> None:
    for j in range(len(back)):
        back[j] = back[j] if h[j] > 0 else h.dtype.type(0)
