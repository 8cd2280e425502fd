"""Local training of HeteFedRec as machine code, one client after the other: what `training` does tile by tile.

A client's rows lie in blocks of `COLUMNS` of them, feature by feature, so that every loop runs over neighbouring
numbers of a block and the working set of a block stays in the cache. Each head is computed on its own prefix, with
weights in the server's order. Sums over rows are one sum per lane, and the lanes are added up in pairs at the end: a
fixed order, which leaves vector units nothing to choose, and nothing of other clients is read.

Products go by tiles of `INPUTS` inputs and `OUTPUTS` outputs, for which weights are packed tile by tile; what a tile
has beyond the last input or output has weight 0.

All working memory is one array, and what lies where are whole numbers: functions then have few arguments, which is
most of what compiling them takes. Loops take slices and count from 0, because an index that could be negative keeps a
loop from being vectorised.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from privfed.compute.compiled import compiled

COLUMNS = 64
LANES = 16
INPUTS, OUTPUTS = 4, 2
TILED = INPUTS * OUTPUTS
WEIGHTS, BIASES, PACKED, UNITS = range(4)
"""What is found in `PrefixNetwork.offsets`."""
ALONE, STAR, CENTRE = range(3)
"""How the user's graph is used: not at all, or as `star_graph` describes its two propagations."""
PARTS = 4
"""What is trained, its gradient and, for Adam, both moments lie one behind the other."""
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
LEAST_VARIANCE = np.float32(1e-12)
HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)

Reals = Float32[np.ndarray, " n"]
Whole = Int64[np.ndarray, " n"]


class PrefixNetwork(NamedTuple):
    """The model of some clients, and how it is trained.

    Attributes:
        prefixes: width of what each head reads, ascending; the last is the width of the vectors.
        widths: outputs of a head's layers, the last of which is 1.
        offsets: of every layer's weights and biases among the weights, of its packed weights, and of its units:
            `[4, heads, layers]`.
        weights: how many there are.
        features: numbers of a row: its vector and, with item biases, one more behind it.
        inner: 1 with the inner product, else 0.
        graph: `ALONE`, `STAR` or `CENTRE`.
        leak: slope of the activation below 0.
        decorrelation: weight of the regulariser.
        user_l2: penalty on the user vector.
        steps: on everything.
        user_steps: before them, on the user vector alone.
        adam_user: 1 where the user vector moves by Adam, 0 by SGD.
        adam: likewise, of what is shared.
        lr_user, lr_items, lr_heads, lr_bias: learning rates.
    """

    prefixes: Whole
    widths: Whole
    offsets: Int64[np.ndarray, "4 heads layers"]
    weights: int
    features: int
    inner: int
    graph: int
    leak: np.float32
    decorrelation: np.float32
    user_l2: np.float32
    steps: int
    user_steps: int
    adam_user: int
    adam: int
    lr_user: float
    lr_items: float
    lr_heads: float
    lr_bias: float


class Memory(NamedTuple):
    """Working memory, used by one client after the other.

    Attributes:
        numbers: all of it.
        user, heads, rows: where the parts of what is trained begin; rows are `[blocks, features, COLUMNS]`.
        row_numbers: length of a part of rows.
        labels, edges: of every row.
        forward, backward: packed weights.
        packed: how many there are.
        sums: one sum per lane for each packed weight.
        unit_sums: for each unit, of its gradient.
        units: how many there are.
        feature_sums: for each feature of a vector.
        base: what every unit adds to its inputs.
        hidden, back: outputs of all units `[units, COLUMNS]`, and gradients of their inputs.
        vector, vector_gradient: the user's vector as heads read it.
        spread: vectors of a block as a star graph spreads them, or centred.
        inner: inner products `[heads, COLUMNS]`; afterwards sums of the slopes of all heads that read a segment.
        matrix: `[width, width]` of the regulariser.
        mean, deviation: of every feature.
    """

    numbers: Reals
    user: int
    heads: int
    rows: int
    row_numbers: int
    labels: int
    edges: int
    forward: int
    backward: int
    packed: int
    sums: int
    unit_sums: int
    units: int
    feature_sums: int
    base: int
    hidden: int
    back: int
    vector: int
    vector_gradient: int
    spread: int
    inner: int
    matrix: int
    mean: int
    deviation: int


class Start(NamedTuple):
    """What the clients start from.

    Attributes:
        table: item vectors.
        bias: item biases; empty without.
        heads: weights of all heads, one after another.
        first: place of every client's first sample.
        counts: number of its samples.
        items: of all samples, distinct within a client.
        labels: 1 for positives, 0 for negatives.
    """

    table: Float32[np.ndarray, "items width"]
    bias: Reals
    heads: Reals
    first: Whole
    counts: Whole
    items: Whole
    labels: Reals


class Outcome(NamedTuple):
    """Where results are written.

    Attributes:
        user: user vectors, trained in place.
        heads: changes of the heads.
        rows: changes of item vectors and biases, in segments of columns.
        bounds: first column of every segment, and the end.
        places: where in `rows` a client's part of every segment begins, row after row; -1 where it is not wanted.
    """

    user: Float32[np.ndarray, "n width"]
    heads: Float32[np.ndarray, "n weights"]
    rows: Reals
    bounds: Whole
    places: Int64[np.ndarray, "segments n"]


@compiled
def train(net: PrefixNetwork, start: Start, out: Outcome, m: Memory) -> None:
    """Train every client."""
    width = net.prefixes[-1]
    for c in range(len(start.counts)):
        count, first = start.counts[c], start.first[c]
        blocks = (count + COLUMNS - 1) // COLUMNS
        items = start.items[first : first + count]
        _receive(net, m, out.user[c], start.heads)
        _receive_rows(net, m, start.table, start.bias, items, start.labels[first : first + count])
        for t in range(net.user_steps + net.steps):
            alone = t < net.user_steps
            _read_user(net, m, blocks)
            _pack(net, m)
            for b in range(blocks):
                if net.graph == STAR:
                    _spread(net, m, b)
                if net.inner:
                    _inner_products(net, m, b)
                _forward(net, m, count, b)
                _backward(net, m, b, alone)
                if net.inner:
                    _inner_gradients(net, m, b, alone)
            _gradients(net, m, alone)
            _through_graph(net, m, blocks, alone)
            if net.decorrelation > 0 and count >= width and not alone:
                _decorrelate(net, m, count)
            _move(net, m, blocks, t, alone)
        for i in range(width):
            out.user[c, i] = m.numbers[m.user + i]
        for i in range(net.weights):
            out.heads[c, i] = m.numbers[m.heads + i] - start.heads[i]
        for segment in range(len(out.places)):
            if out.places[segment, c] >= 0:
                rows = out.rows[out.places[segment, c] :]
                _send(net, m, start.table, start.bias, items, out.bounds[segment], out.bounds[segment + 1], rows)


@compiled
def _receive(net: PrefixNetwork, m: Memory, user: Reals, heads: Reals) -> None:
    """Lay out the vector and the weights that a client starts from; moments are fresh."""
    _zero(m.numbers, m.user, PARTS * len(user))
    _zero(m.numbers, m.heads, (PARTS if net.adam else 1) * len(heads))
    for i in range(len(user)):
        m.numbers[m.user + i] = user[i]
    for i in range(len(heads)):
        m.numbers[m.heads + i] = heads[i]


@compiled
def _receive_rows(
    net: PrefixNetwork,
    m: Memory,
    table: Float32[np.ndarray, "items width"],
    bias: Reals,
    items: Whole,
    labels: Reals,
) -> None:
    """Lay out the rows that a client starts from, and its graph."""
    n, width, block = m.numbers, table.shape[1], net.features * COLUMNS
    last = (len(items) - 1) // COLUMNS
    # Columns of the last block that are no row stay 0 whatever is trained. A tile may reach beyond the last feature.
    _zero(n, m.rows + last * block, block + INPUTS * COLUMNS)
    _zero(n, m.labels + last * COLUMNS, COLUMNS)
    _zero(n, m.edges + last * COLUMNS, COLUMNS)
    if net.adam:
        _zero(n, m.rows + 2 * m.row_numbers, (last + 1) * block)
        _zero(n, m.rows + 3 * m.row_numbers, (last + 1) * block)
    positives = np.float32(0)
    for j in range(len(items)):
        row, to = table[items[j]], n[m.rows + j // COLUMNS * block + j % COLUMNS :]
        for i in range(width):
            to[i * COLUMNS] = row[i]
        if net.features > width:
            to[width * COLUMNS] = bias[items[j]]
        positives += labels[j]
    edge = np.divide(ONE, np.sqrt(max(positives, ONE)))
    for j in range(len(items)):
        n[m.labels + j] = labels[j]
        n[m.edges + j] = edge * labels[j]


@compiled
def _send(
    net: PrefixNetwork,
    m: Memory,
    table: Float32[np.ndarray, "items width"],
    bias: Reals,
    items: Whole,
    first: int,
    last: int,
    rows: Reals,
) -> None:
    """Write what has moved of columns `first` to `last`, row by row."""
    for j in range(len(items)):
        to = rows[j * (last - first) :]
        moved = m.numbers[m.rows + (j // COLUMNS * net.features + first) * COLUMNS + j % COLUMNS :]
        if first < table.shape[1]:
            received = table[items[j], first:last]
            for i in range(len(received)):
                to[i] = moved[i * COLUMNS] - received[i]
        else:
            to[0] = moved[0] - bias[items[j]]


@compiled
def _read_user(net: PrefixNetwork, m: Memory, blocks: int) -> None:
    """The user's vector as heads read it: itself and, on a graph, the positives' vectors."""
    n, width, block = m.numbers, net.prefixes[-1], net.features * COLUMNS
    _zero(n, m.feature_sums, width * LANES)
    if net.graph != ALONE:
        for b in range(blocks):
            _dots(n, m.feature_sums, m.rows + b * block, m.edges + b * COLUMNS, width)
    for i in range(width):
        n[m.vector + i] = n[m.user + i] + _total(n, m.feature_sums + i * LANES)
        if net.graph == STAR:
            n[m.vector + i] *= HALF
    # The sums that the blocks of a step add to.
    _zero(n, m.feature_sums, width * LANES)
    _zero(n, m.sums, m.packed * LANES)
    _zero(n, m.unit_sums, m.units * LANES)


@compiled
def _pack(net: PrefixNetwork, m: Memory) -> None:
    """Weights of the items' half of the first layers, and of all others, in the order of tiles, for both directions.

    The user's part of a first layer is the same in all columns, and is added to its biases.
    """
    n = m.numbers
    for k in range(len(net.prefixes)):
        ins = net.prefixes[k]
        for l in range(len(net.widths)):
            outs, at = net.widths[l], m.heads + net.offsets[WEIGHTS, k, l]
            base = n[m.base + net.offsets[UNITS, k, l] :]
            bias = n[m.heads + net.offsets[BIASES, k, l] :]
            for o in range(outs):
                base[o] = bias[o]
            if l == 0:
                for i in range(ins):
                    w, u = n[at + i * outs :], n[m.vector + i]
                    for o in range(outs):
                        base[o] += u * w[o]
                at += ins * outs
            forward, backward = n[m.forward + net.offsets[PACKED, k, l] :], n[m.backward + net.offsets[PACKED, k, l] :]
            for i in range(ins):
                w = n[at + i * outs :]
                for o in range(outs):
                    forward[_tiled(i, o, ins)] = w[o]
                    backward[_tiled(o, i, outs)] = w[o]
            ins = outs


@compiled
def padded(size: int) -> int:
    """Whole tiles of that many inputs, or outputs."""
    return (size + INPUTS - 1) // INPUTS * INPUTS


@compiled
def _tiled(i: int, o: int, ins: int) -> int:
    """Place of the weight from input i to output o."""
    tile = o // OUTPUTS * (padded(ins) // INPUTS) + i // INPUTS
    place: int = tile * TILED + o % OUTPUTS * INPUTS + i % INPUTS
    return place


@compiled
def _vectors(net: PrefixNetwork, m: Memory, b: int) -> int:
    """Where the vectors of a block lie as heads read them."""
    place: int = m.spread if net.graph == STAR else m.rows + b * net.features * COLUMNS
    return place


@compiled
def _spread(net: PrefixNetwork, m: Memory, b: int) -> None:
    """Spread the user's vector to the vectors of a block."""
    n, width = m.numbers, net.prefixes[-1]
    _copy(n, m.spread, m.rows + b * net.features * COLUMNS, width * COLUMNS)
    for i in range(width):
        _add(n, m.spread + i * COLUMNS, m.edges + b * COLUMNS, n[m.user + i])
        _scale(n, m.spread + i * COLUMNS, HALF)


@compiled
def _inner_products(net: PrefixNetwork, m: Memory, b: int) -> None:
    """Inner products of a block with the user's vector, for every head's prefix."""
    n, x, low = m.numbers, _vectors(net, m, b), 0
    for k in range(len(net.prefixes)):
        # Prefixes ascend: a head's product is that of the head before and what its own segment adds.
        product = m.inner + k * COLUMNS
        _zero(n, product, COLUMNS)
        if k > 0:
            _add(n, product, product - COLUMNS, ONE)
        for i in range(low, net.prefixes[k]):
            if net.graph == CENTRE:
                _add_own(n, product, x + i * COLUMNS, m.edges + b * COLUMNS, n[m.vector + i])
            else:
                _add(n, product, x + i * COLUMNS, n[m.vector + i])
        low = net.prefixes[k]


@compiled
def _forward(net: PrefixNetwork, m: Memory, count: int, b: int) -> None:
    """Outputs of all units for a block, and the loss's slope at every logit."""
    n, width, heads, layers = m.numbers, net.prefixes[-1], len(net.prefixes), len(net.widths)
    x, bias = _vectors(net, m, b), m.rows + (b * net.features + width) * COLUMNS
    for k in range(heads):
        ins, below = net.prefixes[k], x
        for l in range(layers):
            outs, z = net.widths[l], m.hidden + net.offsets[UNITS, k, l] * COLUMNS
            for o in range(outs):
                _fill(n, z + o * COLUMNS, n[m.base + net.offsets[UNITS, k, l] + o])
            # A tile may reach beyond the last unit.
            _zero(n, z + outs * COLUMNS, (padded(outs) - outs) * COLUMNS)
            _multiply(n, z, outs, below, ins, m.forward + net.offsets[PACKED, k, l])
            if l < layers - 1:
                _activate(n, z, outs * COLUMNS, net.leak)
            below, ins = z, outs
        if net.inner:
            _add(n, below, m.inner + k * COLUMNS, ONE)
        if net.features > width:
            _add(n, below, bias, ONE)
        back = m.back + net.offsets[UNITS, k, -1] * COLUMNS
        _slopes(n, back, below, m.labels + b * COLUMNS, np.divide(ONE, np.float32(count)))
        if (b + 1) * COLUMNS > count:
            _zero(n, back + count - b * COLUMNS, (b + 1) * COLUMNS - count)


@compiled
def _backward(net: PrefixNetwork, m: Memory, b: int, alone: bool) -> None:  # noqa: FBT001 (by position)
    """From a block's slopes to its gradient, and to the sums behind all others."""
    n, width, heads, layers = m.numbers, net.prefixes[-1], len(net.prefixes), len(net.widths)
    x, gradient = _vectors(net, m, b), m.rows + m.row_numbers + b * net.features * COLUMNS
    # A star graph spreads the user's vector to the items, so that its gradient takes theirs.
    items = not alone or net.graph == STAR
    if items:
        _zero(n, gradient, net.features * COLUMNS)
    for k in range(heads):
        for l in range(layers - 1, -1, -1):
            outs, back = net.widths[l], m.back + net.offsets[UNITS, k, l] * COLUMNS
            ins = net.prefixes[k] if l == 0 else net.widths[l - 1]
            packed, h = net.offsets[PACKED, k, l], x if l == 0 else m.hidden + net.offsets[UNITS, k, l - 1] * COLUMNS
            if not alone or l == 0:
                _sum(n, m.unit_sums + net.offsets[UNITS, k, l] * LANES, back, outs)
            if not alone:
                _outer(n, m.sums + packed * LANES, h, ins, back, outs)
            if l > 0:
                below = m.back + net.offsets[UNITS, k, l - 1] * COLUMNS
                _zero(n, below, padded(ins) * COLUMNS)
                _multiply(n, below, ins, back, outs, m.backward + packed)
                _deactivate(n, below, h, ins * COLUMNS, net.leak)
            elif items:
                _multiply(n, gradient, ins, back, outs, m.backward + packed)
        if net.features > width and items:
            _add(n, gradient + width * COLUMNS, m.back + net.offsets[UNITS, k, -1] * COLUMNS, ONE)


@compiled
def _inner_gradients(net: PrefixNetwork, m: Memory, b: int, alone: bool) -> None:  # noqa: FBT001
    """What inner products add to the gradient of a block, and to the sums behind that of the user's vector."""
    n, heads, slope = m.numbers, len(net.prefixes), m.inner
    x, gradient = _vectors(net, m, b), m.rows + m.row_numbers + b * net.features * COLUMNS
    items = not alone or net.graph == STAR
    _zero(n, slope, COLUMNS)
    for k in range(heads - 1, -1, -1):
        # A segment is read by its head and all wider ones, so slopes add up from the last.
        _add(n, slope, m.back + net.offsets[UNITS, k, -1] * COLUMNS, ONE)
        low = net.prefixes[k - 1] if k > 0 else 0
        _dots(n, m.feature_sums + low * LANES, x + low * COLUMNS, slope, net.prefixes[k] - low)
        for i in range(low, net.prefixes[k] if items else low):
            if net.graph == CENTRE:
                to, edges = gradient + i * COLUMNS, m.edges + b * COLUMNS
                _add_own_back(n, to, x + i * COLUMNS, edges, slope, n[m.vector + i])
            else:
                _add(n, gradient + i * COLUMNS, slope, n[m.vector + i])


@compiled
def _gradients(net: PrefixNetwork, m: Memory, alone: bool) -> None:  # noqa: FBT001
    """Gradients of the weights, and of the vector that heads read, from the sums of all blocks."""
    n, width, user = m.numbers, net.prefixes[-1], m.vector_gradient
    for i in range(width):
        n[user + i] = _total(n, m.feature_sums + i * LANES)
    for k in range(len(net.prefixes)):
        ins = net.prefixes[k]
        for l in range(1 if alone else len(net.widths)):
            outs, at, units = (
                net.widths[l],
                m.heads + net.offsets[WEIGHTS, k, l],
                m.unit_sums + net.offsets[UNITS, k, l] * LANES,
            )
            for o in range(outs):
                total = _total(n, units + o * LANES)
                n[m.heads + net.weights + net.offsets[BIASES, k, l] + o] = total
                for i in range(ins if l == 0 else 0):
                    # The user's part of W0^T x is the same in all columns: dL/dW0 = u db^T and dL/du = W0 db.
                    n[user + i] += n[at + i * outs + o] * total
                    n[at + net.weights + i * outs + o] = n[m.vector + i] * total
            if l == 0:
                at += ins * outs
            sums = m.sums + net.offsets[PACKED, k, l] * LANES
            for i in range(ins if not alone else 0):
                for o in range(outs):
                    n[at + net.weights + i * outs + o] = _total(n, sums + _tiled(i, o, ins) * LANES)
            ins = outs


@compiled
def _through_graph(net: PrefixNetwork, m: Memory, blocks: int, alone: bool) -> None:  # noqa: FBT001
    """Gradients of the user's own vector and, on a graph, of the items that it was read with."""
    n, width, block, user = m.numbers, net.prefixes[-1], net.features * COLUMNS, m.vector_gradient
    if net.graph == STAR:
        _zero(n, m.feature_sums, width * LANES)
    for b in range(blocks if net.graph == STAR or (net.graph == CENTRE and not alone) else 0):
        gradient, edges = m.rows + m.row_numbers + b * block, m.edges + b * COLUMNS
        if net.graph == STAR:
            _dots(n, m.feature_sums, gradient, edges, width)
        for i in range(width):
            _add(n, gradient + i * COLUMNS, edges, n[user + i])
            if net.graph == STAR:
                # The propagation is linear and symmetric, so its transpose is itself.
                _scale(n, gradient + i * COLUMNS, HALF)
    for i in range(width):
        if net.graph == STAR:
            n[user + i] = HALF * (n[user + i] + _total(n, m.feature_sums + i * LANES))
        n[m.user + width + i] = n[user + i] + net.user_l2 * n[m.user + i]


@compiled
def _decorrelate(net: PrefixNetwork, m: Memory, count: int) -> None:
    """Add the regulariser's gradient, as `decorrelation` derives it."""
    n, width, rows = m.numbers, net.prefixes[-1], np.float32(count)
    blocks, block = (count + COLUMNS - 1) // COLUMNS, net.features * COLUMNS
    _zero(n, m.feature_sums, width * LANES)
    for b in range(blocks):
        # What is no row is 0, so a sum over all columns is one over the rows.
        _sum(n, m.feature_sums, m.rows + b * block, width)
    for i in range(width):
        n[m.mean + i] = np.divide(_total(n, m.feature_sums + i * LANES), rows)
    _zero(n, m.sums, m.packed * LANES)
    for b in range(blocks):
        _centre(net, m, count, b)
        _outer(n, m.sums, m.spread, width, m.spread, width)
    matrix, deviation = n[m.matrix :], n[m.deviation :]
    for i in range(width):
        for o in range(width):
            matrix[i * width + o] = np.divide(_total(n, m.sums + _tiled(i, o, width) * LANES), rows)
        deviation[i] = np.sqrt(max(matrix[i * width + i], LEAST_VARIANCE))
    norm = np.float32(0)
    for i in range(width):
        for o in range(width):
            matrix[i * width + o] = np.divide(matrix[i * width + o], deviation[i] * deviation[o])
            norm += matrix[i * width + o] * matrix[i * width + o]
    norm = max(np.sqrt(norm), LEAST_VARIANCE)
    weight = np.divide(TWO * net.decorrelation, np.float32(width) * rows)
    packed = n[m.forward : m.forward + m.packed]
    _zero(n, m.forward, m.packed)
    for i in range(width):
        along = np.float32(0)
        for o in range(width):
            along += np.divide(matrix[i * width + o] * matrix[i * width + o], norm)
        for o in range(width):
            value = np.divide(matrix[i * width + o], norm) - (along if i == o else np.float32(0))
            packed[_tiled(o, i, width)] = np.divide(value * weight, deviation[i] * deviation[o])
    for b in range(blocks):
        _centre(net, m, count, b)
        _multiply(n, m.rows + m.row_numbers + b * block, width, m.spread, width, m.forward)
    # Other tiles: what they have beyond the last input or output must be 0 again.
    _zero(n, m.forward, m.packed)


@compiled
def _centre(net: PrefixNetwork, m: Memory, count: int, b: int) -> None:
    """Rows of a block less their mean; 0 where there is no row."""
    width = net.prefixes[-1]
    _copy(m.numbers, m.spread, m.rows + b * net.features * COLUMNS, width * COLUMNS)
    for i in range(width):
        x, mean = m.numbers[m.spread + i * COLUMNS :], m.numbers[m.mean + i]
        for j in range(min(COLUMNS, count - b * COLUMNS)):
            x[j] -= mean


@compiled
def _move(net: PrefixNetwork, m: Memory, blocks: int, t: int, alone: bool) -> None:  # noqa: FBT001
    """Move the user's vector and, unless it is alone, everything else."""
    n, width = m.numbers, net.prefixes[-1]
    _step(n, m.user, width, width, net.adam_user, net.lr_user, t + 1)
    if not alone:
        step = t + 1 - net.user_steps
        _step(n, m.heads, net.weights, net.weights, net.adam, net.lr_heads, step)
        for b in range(blocks):
            at = m.rows + b * net.features * COLUMNS
            size, others = width * COLUMNS, (net.features - width) * COLUMNS
            _step(n, at, m.row_numbers, size, net.adam, net.lr_items, step)
            _step(n, at + size, m.row_numbers, others, net.adam, net.lr_bias, step)


@compiled
def _step(n: Reals, at: int, part: int, size: int, adam: int, lr: float, t: int) -> None:
    """Step number t of Adam from fresh moments (Kingma and Ba, ICLR 2015) or of SGD; parts are `part` numbers apart."""
    p, gradient = n[at : at + size], n[at + part : at + part + size]
    if not adam:
        rate = np.float32(lr)
        for j in range(size):
            p[j] -= rate * gradient[j]
        return
    first, second = n[at + 2 * part : at + 2 * part + size], n[at + 3 * part : at + 3 * part + size]
    keep1, take1 = np.float32(BETA1), np.float32(1 - BETA1)
    keep2, take2, small = np.float32(BETA2), np.float32(1 - BETA2), np.float32(EPSILON)
    # Both bias corrections once per step, in float64, and the loop in float32.
    rate, root = np.float32(lr / (1 - BETA1**t)), np.float32(1 / np.sqrt(1 - BETA2**t))
    for j in range(size):
        g = gradient[j]
        first[j] = keep1 * first[j] + take1 * g
        second[j] = keep2 * second[j] + take2 * g * g
        # `/` would check for zero and keep the loop from being vectorised.
        p[j] -= np.divide(rate * first[j], np.sqrt(second[j]) * root + small)


@compiled
def _zero(n: Reals, at: int, size: int) -> None:
    n[at : at + size] = 0


@compiled
def _copy(n: Reals, to: int, at: int, size: int) -> None:
    out, x = n[to:], n[at:]
    for j in range(size):
        out[j] = x[j]


@compiled
def _activate(n: Reals, at: int, size: int, leak: np.float32) -> None:
    z = n[at:]
    for j in range(size):
        # A choice between two constants is made without a branch.
        z[j] *= ONE if z[j] > 0 else leak


@compiled
def _deactivate(n: Reals, at: int, outputs: int, size: int, leak: np.float32) -> None:
    back, h = n[at:], n[outputs:]
    for j in range(size):
        back[j] *= ONE if h[j] > 0 else leak


# From here on, what is done to a row of a block, whose length the compiler knows.


@compiled
def _fill(n: Reals, to: int, value: np.float32) -> None:
    out = n[to:]
    for j in range(COLUMNS):
        out[j] = value


@compiled
def _scale(n: Reals, at: int, factor: np.float32) -> None:
    x = n[at:]
    for j in range(COLUMNS):
        x[j] *= factor


@compiled
def _add(n: Reals, to: int, at: int, factor: np.float32) -> None:
    out, x = n[to:], n[at:]
    for j in range(COLUMNS):
        out[j] += factor * x[j]


@compiled
def _add_own(n: Reals, to: int, at: int, edges: int, factor: np.float32) -> None:
    """Add an item's product with the user's vector, less a positive's own part in it: its square times its edge."""
    out, x, a = n[to:], n[at:], n[edges:]
    for j in range(COLUMNS):
        out[j] += (factor - a[j] * x[j]) * x[j]


@compiled
def _add_own_back(n: Reals, to: int, at: int, edges: int, slope: int, factor: np.float32) -> None:
    """Add the derivative of that by the item, times the slope."""
    out, x, a, g = n[to:], n[at:], n[edges:], n[slope:]
    for j in range(COLUMNS):
        out[j] += g[j] * (factor - TWO * a[j] * x[j])


@compiled
def _slopes(n: Reals, to: int, logits: int, labels: int, share: np.float32) -> None:
    """The derivative of the mean cross-entropy by every logit."""
    out, z, y = n[to:], n[logits:], n[labels:]
    for j in range(COLUMNS):
        out[j] = (np.divide(ONE, ONE + np.exp(-z[j])) - y[j]) * share


@compiled
def _multiply(n: Reals, to: int, outs: int, at: int, ins: int, packed: int) -> None:
    """Add to every output the inputs times its packed weights."""
    for o in range(0, outs, OUTPUTS):
        # One slice for both outputs and one for all inputs: the compiler then asks once whether they overlap.
        y = n[to + o * COLUMNS :]
        for i in range(0, ins, INPUTS):
            x, w = n[at + i * COLUMNS :], n[packed:]
            a0, a1, a2, a3, b0, b1, b2, b3 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
            for j in range(COLUMNS):
                p, q, r, t = x[j], x[COLUMNS + j], x[2 * COLUMNS + j], x[3 * COLUMNS + j]
                y[j] = y[j] + a0 * p + a1 * q + a2 * r + a3 * t
                y[COLUMNS + j] = y[COLUMNS + j] + b0 * p + b1 * q + b2 * r + b3 * t
            packed += TILED


@compiled
def _outer(n: Reals, sums: int, at: int, ins: int, gradient: int, outs: int) -> None:
    """Add the products of every input with every output's gradient, lane by lane."""
    for o in range(0, outs, OUTPUTS):
        g = n[gradient + o * COLUMNS :]
        for i in range(0, ins, INPUTS):
            _outer_tile(n[sums:], n[at + i * COLUMNS :], g)
            sums += TILED * LANES


# A function of its own: otherwise its loop is not vectorised.
@compiled
def _outer_tile(t: Reals, x: Reals, g: Reals) -> None:
    for l in range(LANES):
        a0, a1, a2, a3 = t[l], t[LANES + l], t[2 * LANES + l], t[3 * LANES + l]
        b0, b1, b2, b3 = t[4 * LANES + l], t[5 * LANES + l], t[6 * LANES + l], t[7 * LANES + l]
        for k in range(COLUMNS // LANES):
            j = l + k * LANES
            p, q, r, s = x[j], x[COLUMNS + j], x[2 * COLUMNS + j], x[3 * COLUMNS + j]
            u, v = g[j], g[COLUMNS + j]
            a0, a1, a2, a3 = a0 + p * u, a1 + q * u, a2 + r * u, a3 + s * u
            b0, b1, b2, b3 = b0 + p * v, b1 + q * v, b2 + r * v, b3 + s * v
        t[l], t[LANES + l], t[2 * LANES + l], t[3 * LANES + l] = a0, a1, a2, a3
        t[4 * LANES + l], t[5 * LANES + l], t[6 * LANES + l], t[7 * LANES + l] = b0, b1, b2, b3


@compiled
def _dots(n: Reals, sums: int, at: int, gradient: int, rows: int) -> None:
    """Add the products of every row with one more row, lane by lane."""
    g = n[gradient:]
    for i in range(rows):
        t, x = n[sums + i * LANES :], n[at + i * COLUMNS :]
        for l in range(LANES):
            total = t[l]
            for k in range(COLUMNS // LANES):
                total += x[l + k * LANES] * g[l + k * LANES]
            t[l] = total


@compiled
def _sum(n: Reals, sums: int, at: int, rows: int) -> None:
    """Add every row, lane by lane."""
    for i in range(rows):
        t, x = n[sums + i * LANES :], n[at + i * COLUMNS :]
        for l in range(LANES):
            total = t[l]
            for k in range(COLUMNS // LANES):
                total += x[l + k * LANES]
            t[l] = total


@compiled
def _total(n: Reals, at: int) -> np.float32:
    """The sum of the lanes, in pairs."""
    x = n[at:]
    a, b = (x[0] + x[1]) + (x[2] + x[3]), (x[4] + x[5]) + (x[6] + x[7])
    c, d = (x[8] + x[9]) + (x[10] + x[11]), (x[12] + x[13]) + (x[14] + x[15])
    total: np.float32 = (a + b) + (c + d)
    return total
