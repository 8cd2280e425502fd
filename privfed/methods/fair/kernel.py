"""Local training of FAIR on devices of one tier: sampling, gradients and Adam as machine code, client after client.

Each client trains its tier's reduced tables, all layers and its user rows by minibatch Adam with fresh moments
(Kingma and Ba, ICLR 2015): on BPR pairs (Rendle et al., UAI 2009), each positive with one negative that is redrawn in
every epoch, or on squared errors of ratings. The result is that of dense Adam over all slots, because a slot without a
gradient so far has zero moments and stays where it is: a client keeps the slots that it has touched, in the order of
their first touch, and a step moves the first `active` of them. Where a device would touch most slots anyway, it keeps
all of them and needs no list.

The stored values of all tables share one numbering: those of a table start at its `offset`. A client's arithmetic is
plain IEEE arithmetic in a fixed order and reads nothing of other clients, so it is equal to the bit in any company. A
minibatch goes through the network in blocks of a few columns, which is all the working memory that it takes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privfed.compute.compiled import compiled

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's, as published and as in torch."""

LANES = 16
"""Columns that reductions and padding go by."""

COLUMNS = 64
"""Columns of a block. Lanes of positives and lanes of their negatives take turns, so that sums in which a pair cancels
are exactly 0 instead of a rounding error, which Adam would blow up."""

ROUNDS = 4
KEY_WORDS = 2 * ROUNDS
"""Random words that order one epoch; one more for each of its samples draws the negative."""

Real = NDArray[np.floating]
Whole = NDArray[np.integer]


class Network(NamedTuple):
    """The network and how it is trained.

    Attributes:
        dim: width of a row.
        product: 1 with the table `gmf`, 0 without.
        bias: 1 where the last layer has a bias, else 0.
        widths: of the perceptron, input to last hidden layer.
        kept: stored values of a row of each table.
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


class TrainedSlots(NamedTuple):
    """Output of training.

    Attributes:
        first: place of each client's first slot, and the end.
        slots: touched slots, in the order of their first touch.
        values: trained values of them.
        active: how many slots each client touched.
        dense: each client's own rows, layers and factors, `[clients, numbers]`: user rows of every table, layers in the
            model's order, factors. Trained in place.
    """

    first: Whole
    slots: Whole
    values: Real
    active: Whole
    dense: Real


class Scratch(NamedTuple):
    """Working memory of one device, used by one client after the other.

    Attributes:
        gradient, first_moment, second_moment: of slots.
        dense_gradient, dense_first, dense_second: of dense numbers.
        totals: of the product's rows, weighted by slopes `[dim]`.
        slot_position: where a slot is kept, plus 1; 0 where it is not. No entries on devices that keep all.
        samples: positions of a block's positives.
        items: of a block's columns.
        places: where the stored values of each column's rows are kept `[tables, kept, columns]`.
        signs: of these values; no columns where all are 1.
        values: stored values, signed; their gradients in the backward pass.
        rows: item rows `[tables, dim, columns]`.
        row_gradients: of the loss.
        hidden: outputs of the layers `[layers, width, columns]`.
        back: gradients of their inputs.
        scores, slopes: of every column; slopes are the loss's gradients, 0 in the padding.
        lanes: partial sums.
    """

    gradient: Real
    first_moment: Real
    second_moment: Real
    dense_gradient: Real
    dense_first: Real
    dense_second: Real
    totals: Real
    slot_position: Whole
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
    lanes: Real


@compiled
def train(
    net: Network, layout: DenseLayout, known: KnownInteractions, stored: Stored, trained: TrainedSlots, s: Scratch
) -> None:
    """Train every client."""
    # A pair takes two columns: a block holds 64 ratings, or 32 positives with their negatives.
    block = COLUMNS // (1 + net.pairs)
    # Once for all clients: `_adam` empties every gradient that it has used.
    _fill(s.dense_gradient, 0)
    for c in range(len(known.counts)):
        n = known.counts[c]
        slots = trained.slots[trained.first[c] : trained.first[c + 1]]
        p = trained.values[trained.first[c] : trained.first[c + 1]]
        d = trained.dense[c]
        active = _start(stored, s, slots, p)
        # Moments are fresh for each client; those of a slot are set to 0 when the slot is taken up.
        _fill(s.dense_first, 0)
        _fill(s.dense_second, 0)
        word, step = 0, 0
        for _ in range(net.epochs):
            for start in range(0, n, net.batch):
                end = min(n, start + net.batch)
                # A minibatch may take several blocks: gradients and totals add up over them, then one step follows.
                _fill(s.totals, 0)
                for first in range(start, end, block):
                    length = min(block, end - first)
                    _draw(net, known, s, c, first, length, word)
                    active = _gather(net, stored, s, slots, p, active, length)
                    # Padding repeats whatever its columns held; its slopes are 0.
                    columns = (length + LANES - 1) // LANES * LANES * (1 + net.pairs)
                    _forward(net, layout, d, s, columns)
                    _slopes(net, known, s, length, columns, end - start)
                    _backward(net, layout, d, s, columns)
                    _back_to_stored(net, layout, d, s, columns)
                    _scatter(net, stored, s, length)
                _user(net, layout, d, s)
                step += 1
                # Both bias corrections, once per step instead of per parameter. Slots of all ages share the step count:
                # dense Adam would have left an untouched slot with zero moments and in its place as well.
                size = net.lr / (1 - BETA1**step)
                root = 1 / np.sqrt(1 - BETA2**step)
                _adam(p[:active], s.gradient, s.first_moment, s.second_moment, size, root)
                _adam(d, s.dense_gradient, s.dense_first, s.dense_second, size, root)
            # An epoch's words: the key of its order, then one word for the negative of each sample.
            word += KEY_WORDS + n
        trained.active[c] = active
        # Only this client's entries: to clear the whole map would cost more than a small client's training.
        if len(slots) < len(stored.values):
            for j in range(active):
                s.slot_position[slots[j]] = 0


@compiled
def count_changes(stored: Stored, trained: TrainedSlots, table: int, counts: Whole) -> None:
    """Count the slots of a table that each client touched."""
    for c in range(len(trained.active)):
        counts[c] = 0
        for j in range(trained.first[c], trained.first[c] + trained.active[c]):
            # Touched slots of all tables share one list; a table's are those in its range of the common numbering.
            counts[c] += stored.offset[table] <= trained.slots[j] < stored.offset[table + 1]


@compiled
def take_changes(stored: Stored, trained: TrainedSlots, table: int, slots: Whole, changes: Real) -> None:
    """List these slots, numbered within the table, with trained minus received values, client after client."""
    at = 0
    for c in range(len(trained.active)):
        for j in range(trained.first[c], trained.first[c] + trained.active[c]):
            slot = trained.slots[j]
            if stored.offset[table] <= slot < stored.offset[table + 1]:
                slots[at] = slot - stored.offset[table]
                changes[at] = trained.values[j] - stored.values[slot]
                at += 1


@compiled
def _start(stored: Stored, s: Scratch, slots: Whole, p: Real) -> int:
    """Take over all slots where the device keeps them all, else none; returns how many."""
    if len(slots) < len(stored.values):
        return 0
    for j in range(len(slots)):
        # Every slot is kept, so a slot's number is also its position and `slot_position` is not needed.
        slots[j] = j
        p[j] = stored.values[j]
        s.gradient[j] = 0
        s.first_moment[j] = 0
        s.second_moment[j] = 0
    return len(slots)


@compiled
def _draw(net: Network, known: KnownInteractions, s: Scratch, c: int, first: int, length: int, word: int) -> None:
    """A block's positives, from place `first` of the epoch's order, and a negative for each of them.

    The order is a keyed bijection of [0, n), computed where it is needed: rounds of an odd multiplication and a fold
    are one of [0, 2^bits), and what falls outside [0, n) goes through again. A negative is the x-th item that is not
    barred, with x uniform.
    """
    n, begin = np.int64(known.counts[c]), known.starts[c]
    # The smallest power of two that holds [0, n): at most every other position falls outside and walks on.
    bits = 1
    while (1 << bits) < n:
        bits += 1
    mask, fold = (1 << bits) - 1, max(1, bits // 2)
    barred = known.barred[known.barred_starts[c] : known.barred_starts[c] + known.barred_counts[c]]
    for j in range(length):
        # int64 throughout: with n below 2^31 the products below stay under 2^62.
        place = np.int64(first + j)
        if net.shuffled:
            # Cycle walking: a bijection of [0, 2^bits) that is repeated until it lands below n is one of [0, n).
            while True:
                for k in range(ROUNDS):
                    odd = np.int64(known.uints[c, word + 2 * k]) | 1
                    plus = np.int64(known.uints[c, word + 2 * k + 1])
                    # Multiplication carries low bits upwards only; the fold brings the upper ones down again.
                    place = (place * (odd & mask) + (plus & mask)) & mask
                    place ^= place >> fold
                if place < n:
                    break
        s.samples[j] = begin + place
        s.items[_column(net, j, 0)] = known.items[s.samples[j]]
        if net.pairs:
            # word / 2^32 times the number of allowed items, as a shift: no modulo, and a bias below items / 2^32.
            x = (np.int64(known.uints[c, word + KEY_WORDS + first + j]) * (known.n_items - len(barred))) >> 32
            low, high = 0, len(barred)
            while low < high:
                middle = (low + high) // 2
                # barred[k] - k allowed items lie below barred[k], so bisection finds how many barred ones to skip.
                if barred[middle] - middle <= x:
                    low = middle + 1
                else:
                    high = middle
            s.items[_column(net, j, 1)] = x + low


@compiled
def _column(net: Network, j: int, side: int) -> int:
    """Column of sample j of a block: side 0 for the positive, 1 for its negative."""
    # A pair's slopes -s and s fall in the same lane, one right after the other, so `_sum` returns to what it was.
    return (j // LANES * (1 + net.pairs) + side) * LANES + j % LANES


@compiled
def _gather(net: Network, stored: Stored, s: Scratch, slots: Whole, p: Real, active: int, length: int) -> int:
    """Gather the stored values of every column, taking up slots on their first touch; returns the number of slots."""
    whole = len(slots) == len(stored.values)
    hashed, signed = stored.slots.shape[1] > 0, stored.signs.shape[1] > 0
    for t in range(len(net.kept)):
        kept, offset = net.kept[t], stored.offset[t]
        for sample in range(length * (1 + net.pairs)):
            # All positives, then all negatives, here and in `_scatter`: it fixes the order of slots, and of the sums
            # over columns that meet in one slot.
            column = _column(net, sample % length, sample // length)
            for k in range(kept):
                element = np.int64(s.items[column]) * kept + k
                slot = offset + (np.int64(stored.slots[t, element]) if hashed else element)
                place = slot
                if not whole:
                    # Positions are stored plus 1, so that an array of zeros is an empty map.
                    place = np.int64(s.slot_position[slot]) - 1
                    if place < 0:
                        place = active
                        active += 1
                        s.slot_position[slot] = active
                        slots[place] = slot
                        p[place] = stored.values[slot]
                        s.gradient[place] = 0
                        s.first_moment[place] = 0
                        s.second_moment[place] = 0
                s.places[t, k, column] = place
                s.values[t, k, column] = p[place]
                if signed:
                    # Kept for `_scatter`, which would otherwise look the element up again.
                    s.signs[t, k, column] = stored.signs[t, element]
                    s.values[t, k, column] *= s.signs[t, k, column]
    return active


@compiled
def _forward(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """Rows, hidden layers and scores of all columns."""
    dim, widths = net.dim, net.widths
    _rows(net, at, d, s, columns)
    for l in range(len(widths) - 1):
        # The user's part of the first layer is the same in all columns.
        user = dim if l == 0 else 0
        # Weights are input-first, [widths[l], widths[l + 1]] from at.weights[l] on. One axpy over contiguous
        # columns per weight: a matrix library would choose an order of summation by itself.
        for o in range(widths[l + 1]):
            h = s.hidden[l, o, :columns]
            z = d[at.biases[l] + o]
            for i in range(user):
                z += d[i] * d[at.weights[l] + i * widths[l + 1] + o]
            _fill(h, z)
            for i in range(widths[l] - user):
                x = s.rows[0, i, :columns] if l == 0 else s.hidden[l - 1, i, :columns]
                _add(h, d[at.weights[l] + (user + i) * widths[l + 1] + o], x)
            _rectify(h)
    score = s.scores[:columns]
    _fill(score, d[at.bias] if net.bias else 0.0)
    for o in range(widths[-1]):
        _add(score, d[at.last + o], s.hidden[len(widths) - 2, o, :columns])
    for i in range(dim * net.product):
        # Table 1 is `gmf`: its user row follows the first one in `d`, and weight times user is one scalar per block.
        _add(score, d[at.product + i] * d[dim + i], s.rows[1, i, :columns])


@compiled
def _rows(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """Item rows from stored values; columns of a table that a device does not keep stay 0."""
    for t in range(len(net.kept)):
        for i in range(net.dim):
            # rows[t, i, column] = sum_k factor[t, k, i] values[t, k, column]; without factors, rows are the values.
            x = s.rows[t, i, :columns]
            if net.factored:
                _fill(x, 0)
                for k in range(net.kept[t]):
                    _add(x, d[at.factors + (t * net.kept[t] + k) * net.dim + i], s.values[t, k, :columns])
            elif i < net.kept[t]:
                _copy(x, s.values[t, i, :columns])


@compiled
def _slopes(net: Network, known: KnownInteractions, s: Scratch, length: int, columns: int, batch: int) -> None:
    """Gradients of the minibatch's mean loss by the block's scores."""
    real = s.scores.dtype.type
    # Constants in the tables' dtype: a plain float would lift the arithmetic to float64.
    share, one = real(1 / batch), real(1)
    _fill(s.slopes[:columns], 0)
    for j in range(length):
        if net.pairs:
            positive, negative = _column(net, j, 0), _column(net, j, 1)
            # d/dx log(1 + exp(-x)) = -1 / (1 + exp(x)) at x = positive - negative.
            # exp may overflow to infinity; the quotient is then 0, which is the limit.
            slope = np.divide(share, one + np.exp(s.scores[positive] - s.scores[negative]))
            s.slopes[positive] = -slope
            s.slopes[negative] = slope
        else:
            s.slopes[j] = 2 * (s.scores[j] - known.targets[s.samples[j]]) * share


@compiled
def _backward(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """Add the block's part of the gradients of all dense numbers but the user's; leave those of item rows."""
    dim, widths, layers, g = net.dim, net.widths, len(net.widths) - 1, s.dense_gradient
    slopes = s.slopes[:columns]
    if net.bias:
        g[at.bias] += _sum(slopes, s.lanes)
    for o in range(widths[layers]):
        h, back = s.hidden[layers - 1, o, :columns], s.back[layers - 1, o, :columns]
        g[at.last + o] += _dot(slopes, h, s.lanes)
        _fill(back, 0)
        _add(back, d[at.last + o], slopes)
        # A ReLU's output is positive exactly where its input is, so inputs are not kept.
        _mask(back, h)
    for l in range(layers - 1, -1, -1):
        # Rows of W0 that meet the user are left to `_user`, which needs only sums over the whole minibatch.
        user = dim if l == 0 else 0
        for o in range(widths[l + 1]):
            g[at.biases[l] + o] += _sum(s.back[l, o, :columns], s.lanes)
        for i in range(widths[l] - user):
            x = s.rows[0, i, :columns] if l == 0 else s.hidden[l - 1, i, :columns]
            below = s.row_gradients[0, i, :columns] if l == 0 else s.back[l - 1, i, :columns]
            weight = at.weights[l] + (user + i) * widths[l + 1]
            _fill(below, 0)
            for o in range(widths[l + 1]):
                back = s.back[l, o, :columns]
                _add(below, d[weight + o], back)
                g[weight + o] += _dot(x, back, s.lanes)
            if l > 0:
                _mask(below, x)
    for i in range(dim * net.product):
        # What user row and last layer are multiplied with, both constant in a minibatch: summed over its columns.
        s.totals[i] += _dot(slopes, s.rows[1, i, :columns], s.lanes)
        toward = s.row_gradients[1, i, :columns]
        _fill(toward, 0)
        _add(toward, d[at.product + i] * d[dim + i], slopes)


@compiled
def _back_to_stored(net: Network, at: DenseLayout, d: Real, s: Scratch, columns: int) -> None:
    """From gradients of item rows to those of stored values and factors."""
    dim, g = net.dim, s.dense_gradient
    for t in range(len(net.kept)):
        for k in range(net.kept[t]):
            value = s.values[t, k, :columns]
            if net.factored:
                factor = at.factors + (t * net.kept[t] + k) * dim
                for i in range(dim):
                    g[factor + i] += _dot(value, s.row_gradients[t, i, :columns], s.lanes)
                # Only now: the factors' gradients have read the values, whose memory their own gradients take over.
                _fill(value, 0)
                for i in range(dim):
                    _add(value, d[factor + i], s.row_gradients[t, i, :columns])
            else:
                # Columns beyond `kept` have no stored value, so their gradients go nowhere.
                _copy(value, s.row_gradients[t, k, :columns])


@compiled
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


@compiled
def _scatter(net: Network, stored: Stored, s: Scratch, length: int) -> None:
    """Add the gradients of each column's stored values to those of their slots."""
    signed = stored.signs.shape[1] > 0
    for t in range(len(net.kept)):
        for sample in range(length * (1 + net.pairs)):
            column = _column(net, sample % length, sample // length)
            for k in range(net.kept[t]):
                value = s.values[t, k, column]
                if signed:
                    value *= s.signs[t, k, column]
                s.gradient[s.places[t, k, column]] += value


@compiled
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


@compiled
def _fill(out: Real, value: float) -> None:
    for j in range(len(out)):
        out[j] = value


@compiled
def _copy(out: Real, x: Real) -> None:
    for j in range(len(out)):
        out[j] = x[j]


@compiled
def _add(out: Real, factor: float, x: Real) -> None:
    for j in range(len(out)):
        out[j] += factor * x[j]


@compiled
def _rectify(h: Real) -> None:
    for j in range(len(h)):
        h[j] = max(h[j], h.dtype.type(0))


@compiled
def _mask(back: Real, h: Real) -> None:
    for j in range(len(back)):
        back[j] = back[j] if h[j] > 0 else h.dtype.type(0)


@compiled
def _dot(x: Real, y: Real, lanes: Real) -> float:
    """Inner product in a fixed order: a sum for each lane, then the sum of the lanes."""
    # A sum per lane vectorises without leave to reassociate, so the result is the same whatever the
    # width of the vector unit; `_total` adds the lanes one after the other.
    _fill(lanes, 0)
    for j in range(len(x) // LANES):
        for lane in range(LANES):
            lanes[lane] += x[j * LANES + lane] * y[j * LANES + lane]
    return _total(lanes)


@compiled
def _sum(x: Real, lanes: Real) -> float:
    _fill(lanes, 0)
    for j in range(len(x) // LANES):
        for lane in range(LANES):
            lanes[lane] += x[j * LANES + lane]
    return _total(lanes)


@compiled
def _total(lanes: Real) -> float:
    total: float = lanes[0]
    for lane in range(1, LANES):
        total += lanes[lane]
    return total
