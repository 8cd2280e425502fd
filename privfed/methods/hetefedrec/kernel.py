"""Local training of HeteFedRec as machine code, one client after the other: what `training` does tile by tile.

A client's rows lie in blocks of `COLUMNS` of them, feature by feature, so that every loop runs over neighbouring
numbers of a block and the working set of a block stays in the cache. Each head is computed on its own prefix, in the
order of its weights as the server holds them. Sums over rows are one sum per lane, the lanes added up in pairs
at the end: arithmetic in a fixed order that leaves vector units nothing to choose, and that reads nothing of other
clients.

Products go by tiles of four inputs and two outputs, and their weights lie packed in the order of these tiles; what is
missing in a tile has weight 0. Loops take slices and count from 0, as an index that might be negative is not vectorised.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from privfed.compute.compiled import compiled

COLUMNS = 64
LANES = 16
INPUTS, OUTPUTS = 4, 2
TILED = INPUTS * OUTPUTS
ALONE, STAR, CENTRE = 0, 1, 2
"""How the user's graph is used: not at all, or as `star_graph` describes its two propagations."""
LEAST_VARIANCE = np.float32(1e-12)
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

Reals = Float32[np.ndarray, " n"]
Whole = Int64[np.ndarray, " n"]


class Network(NamedTuple):
    """The model of some clients, and how it is trained.

    Attributes:
        prefixes: width of what each head reads, ascending.
        widths: outputs of a head's layers, the last of which is 1.
        weights, biases: offsets of every head's layers among the weights `[heads, layers]`.
        packed: offsets of their packed weights.
        units: first row of every layer's outputs.
        inner: 1 with the inner product, else 0.
        biased: 1 with item biases, which are one more feature behind the others.
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
    weights: Int64[np.ndarray, "heads layers"]
    biases: Int64[np.ndarray, "heads layers"]
    packed: Int64[np.ndarray, "heads layers"]
    units: Int64[np.ndarray, "heads layers"]
    inner: int
    biased: int
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


class Moved(NamedTuple):
    """Numbers that an optimiser moves.

    Attributes:
        values: themselves.
        gradient: of the loss.
        first, second: moments; empty where they move by SGD.
    """

    values: Reals
    gradient: Reals
    first: Reals
    second: Reals


class Scratch(NamedTuple):
    """Working memory, used by one client after the other.

    Attributes:
        user, heads, rows: what is trained; rows are `[blocks, features, COLUMNS]`.
        labels, edges: of every row.
        forward, backward: packed weights.
        sums: one sum per lane for each packed weight.
        unit_sums: for each unit, of its gradient.
        feature_sums: for each feature of the user's vector.
        base: what every unit adds to its inputs.
        hidden, back: outputs of all layers `[units, COLUMNS]`, and gradients of what goes into their activation.
        vector, vector_gradient: the user's vector as heads read it, and its gradient.
        spread: item vectors of a block as a star graph spreads them, or centred.
        slopes: sums of the slopes of all heads that read a segment `[heads, COLUMNS]`.
        inner: inner products of a block.
        matrix: `[width, width]` of the regulariser.
        mean, deviation: of every feature.
    """

    user: Moved
    heads: Moved
    rows: Moved
    labels: Reals
    edges: Reals
    forward: Reals
    backward: Reals
    sums: Reals
    unit_sums: Reals
    feature_sums: Reals
    base: Reals
    hidden: Reals
    back: Reals
    vector: Reals
    vector_gradient: Reals
    spread: Reals
    slopes: Reals
    inner: Reals
    matrix: Reals
    mean: Reals
    deviation: Reals


@compiled
def train(net: Network, start: Start, out: Outcome, s: Scratch) -> None:
    """Train every client."""
    width = start.table.shape[1]
    features = width + net.biased
    for c in range(len(start.counts)):
        count = start.counts[c]
        items = start.items[start.first[c] : start.first[c] + count]
        blocks = (count + COLUMNS - 1) // COLUMNS
        _receive(net, start, out, s, c, items, blocks)
        for t in range(net.user_steps + net.steps):
            alone = t < net.user_steps
            _gradients(net, s, width, count, alone)
            _step(s.user, width, net.adam_user, net.lr_user, t + 1)
            if not alone:
                step = t + 1 - net.user_steps
                _step(s.heads, len(start.heads), net.adam, net.lr_heads, step)
                for b in range(blocks):
                    at = b * features * COLUMNS
                    _step(_from(s.rows, at), width * COLUMNS, net.adam, net.lr_items, step)
                    if net.biased:
                        _step(_from(s.rows, at + width * COLUMNS), COLUMNS, net.adam, net.lr_bias, step)
        for i in range(width):
            out.user[c, i] = s.user.values[i]
        for i in range(len(start.heads)):
            out.heads[c, i] = s.heads.values[i] - start.heads[i]
        _send(net, start, out, s, c, items)


@compiled
def _receive(
    net: Network, start: Start, out: Outcome, s: Scratch, c: int, items: Whole, blocks: int
) -> None:
    """Lay out what a client starts from."""
    width = start.table.shape[1]
    features = width + net.biased
    labels = start.labels[start.first[c] : start.first[c] + len(items)]
    _copy(s.user.values, out.user[c])
    _copy(s.heads.values, start.heads)
    if net.adam_user:
        _zero(s.user.first, len(s.user.first))
        _zero(s.user.second, len(s.user.second))
    if net.adam:
        _zero(s.heads.first, len(s.heads.first))
        _zero(s.heads.second, len(s.heads.second))
        _zero(s.rows.first, blocks * features * COLUMNS)
        _zero(s.rows.second, blocks * features * COLUMNS)
    # Of the last block; what is no row of the client's stays 0 whatever is trained.
    # A tile may reach beyond the last feature, with weight 0.
    _zero(s.rows.values[(blocks - 1) * features * COLUMNS :], (features + INPUTS) * COLUMNS)
    _zero(s.labels[(blocks - 1) * COLUMNS :], COLUMNS)
    _zero(s.edges[(blocks - 1) * COLUMNS :], COLUMNS)
    positives = np.float32(0)
    for j in range(len(items)):
        row = start.table[items[j]]
        to = s.rows.values[(j // COLUMNS) * features * COLUMNS + j % COLUMNS :]
        for i in range(width):
            to[i * COLUMNS] = row[i]
        if net.biased:
            to[width * COLUMNS] = start.bias[items[j]]
        positives += labels[j]
    edge = np.float32(1) / np.sqrt(max(positives, np.float32(1)))
    for j in range(len(items)):
        s.labels[j] = labels[j]
        s.edges[j] = edge * labels[j]


@compiled
def _send(net: Network, start: Start, out: Outcome, s: Scratch, c: int, items: Whole) -> None:
    """Write what has moved, row by row, into every segment that takes it."""
    width = start.table.shape[1]
    features = width + net.biased
    for segment in range(len(out.places)):
        first, last = out.bounds[segment], out.bounds[segment + 1]
        if out.places[segment, c] < 0:
            continue
        rows = out.rows[out.places[segment, c] :]
        for j in range(len(items)):
            moved = s.rows.values[((j // COLUMNS) * features + first) * COLUMNS + j % COLUMNS :]
            to = rows[j * (last - first) :]
            if first < width:
                received = start.table[items[j], first:last]
                for i in range(len(received)):
                    to[i] = moved[i * COLUMNS] - received[i]
            else:
                to[0] = moved[0] - start.bias[items[j]]


@compiled
def _gradients(net: Network, s: Scratch, width: int, count: int, alone: bool) -> None:  # noqa: FBT001
    """Gradients of the client's loss: of everything, or of the user's vector alone."""
    features, heads = width + net.biased, len(net.prefixes)
    blocks = (count + COLUMNS - 1) // COLUMNS
    # A star graph spreads the user's vector to the items, so that its gradient takes theirs.
    through_items = not alone or net.graph == STAR
    _read_user(net, s, width, blocks)
    _pack(net, s)
    _zero(s.sums, len(s.sums))
    _zero(s.unit_sums, len(s.unit_sums))
    _zero(s.feature_sums, width * LANES)
    share = np.float32(1) / np.float32(count)
    for b in range(blocks):
        values = s.rows.values[b * features * COLUMNS :]
        gradient, edges = s.rows.gradient[b * features * COLUMNS :], s.edges[b * COLUMNS :]
        x = values
        if net.graph == STAR:
            x = s.spread
            _copy(x[: width * COLUMNS], values)
            for i in range(width):
                _add(x[i * COLUMNS :], edges, s.user.values[i])
                _scale(x[i * COLUMNS :], np.float32(0.5))
        if net.inner:
            _inner_products(net, s, x, edges, width)
        for k in range(heads):
            _forward(net, s, k, x, values[width * COLUMNS :])
            _slopes(s.hidden[net.units[k, -1] * COLUMNS :], s.labels[b * COLUMNS :], share, count - b * COLUMNS,
                    s.back[net.units[k, -1] * COLUMNS :])  # fmt: skip
        if through_items:
            _zero(gradient, features * COLUMNS)
        for k in range(heads):
            _backward(net, s, k, x, gradient, alone, through_items)
        if net.biased and not alone:
            for k in range(heads):
                _add(gradient[width * COLUMNS :], s.back[net.units[k, -1] * COLUMNS :], np.float32(1))
        if net.inner:
            _inner_back(net, s, x, edges, width, gradient, through_items)
    _user_gradient(net, s, width, alone)
    if net.graph == STAR:
        _from_star(s, width, features, blocks)
    elif net.graph == CENTRE and not alone:
        for b in range(blocks):
            for i in range(width):
                _add(s.rows.gradient[(b * features + i) * COLUMNS :], s.edges[b * COLUMNS :], s.vector_gradient[i])
    if net.decorrelation > 0 and count >= width and not alone:
        _decorrelate(net, s, width, features, count)
    for i in range(width):
        s.user.gradient[i] = s.vector_gradient[i] + net.user_l2 * s.user.values[i]


@compiled
def _read_user(net: Network, s: Scratch, width: int, blocks: int) -> None:
    """The user's vector as heads read it: itself and, on a graph, the positives' vectors."""
    features = width + net.biased
    _copy(s.vector[:width], s.user.values)
    if net.graph == ALONE:
        return
    _zero(s.feature_sums, width * LANES)
    for b in range(blocks):
        _dots(s.feature_sums, s.rows.values[b * features * COLUMNS :], s.edges[b * COLUMNS :], width)
    for i in range(width):
        s.vector[i] += _total(s.feature_sums[i * LANES :])
        if net.graph == STAR:
            s.vector[i] *= np.float32(0.5)


@compiled
def _pack(net: Network, s: Scratch) -> None:
    """Weights of the items' half of the first layers, and of all others, in the order of tiles, for both directions.

    The user's part of a first layer is the same in all columns, and is added to its biases.
    """
    for k in range(len(net.prefixes)):
        ins = net.prefixes[k]
        for l in range(len(net.widths)):
            outs = net.widths[l]
            p, base = s.heads.values[net.weights[k, l] :], s.base[net.units[k, l] :]
            for o in range(outs):
                base[o] = s.heads.values[net.biases[k, l] + o]
            if l == 0:
                for i in range(ins):
                    for o in range(outs):
                        base[o] += s.vector[i] * p[i * outs + o]
                p = p[ins * outs :]
            forward, backward = s.forward[net.packed[k, l] :], s.backward[net.packed[k, l] :]
            for i in range(ins):
                for o in range(outs):
                    forward[_tiled(i, o, ins)] = p[i * outs + o]
                    backward[_tiled(o, i, outs)] = p[i * outs + o]
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
def _inner_products(net: Network, s: Scratch, x: Reals, edges: Reals, width: int) -> None:
    """Inner products of a block with the user's prefixes, each less what a positive itself gave the user."""
    low = 0
    product = s.inner
    _zero(product, COLUMNS)
    for k in range(len(net.prefixes)):
        for i in range(low, net.prefixes[k]):
            if net.graph == CENTRE:
                _add_own(product, x[i * COLUMNS :], edges, s.vector[i])
            else:
                _add(product, x[i * COLUMNS :], s.vector[i])
        low = net.prefixes[k]
        # Prefixes ascend: the sum so far is this head's, and the next one adds to it.
        _copy(s.slopes[k * COLUMNS :], product)


@compiled
def _forward(net: Network, s: Scratch, k: int, x: Reals, bias: Reals) -> None:
    """Outputs of one head's layers for a block; those of the last are its logits."""
    layers, ins, below = len(net.widths), net.prefixes[k], x
    for l in range(layers):
        outs = net.widths[l]
        z = s.hidden[net.units[k, l] * COLUMNS :]
        for o in range(outs):
            _fill(z[o * COLUMNS :], s.base[net.units[k, l] + o])
        # A tile may reach beyond the last unit.
        _zero(z[outs * COLUMNS :], (padded(outs) - outs) * COLUMNS)
        _multiply(z, outs, below, ins, s.forward[net.packed[k, l] :])
        if l < layers - 1:
            _activate(z, outs * COLUMNS, net.leak)
        below, ins = z, outs
    if net.inner:
        _add(below, s.slopes[k * COLUMNS :], np.float32(1))
    if net.biased:
        _add(below, bias, np.float32(1))


@compiled
def _slopes(logits: Reals, labels: Reals, share: np.float32, rows: int, out: Reals) -> None:
    """The loss's slope at every logit of a block; 0 where there is no row."""
    one = np.float32(1)
    for j in range(COLUMNS):
        out[j] = (np.divide(one, one + np.exp(-logits[j])) - labels[j]) * share
    for j in range(max(rows, 0), COLUMNS):
        out[j] = 0


@compiled
def _backward(
    net: Network, s: Scratch, k: int, x: Reals, gradient: Reals, alone: bool, through_items: bool  # noqa: FBT001
) -> None:
    """From a head's slopes to the sums behind its gradients, and to those of the items."""
    for l in range(len(net.widths) - 1, -1, -1):
        outs, ins = net.widths[l], net.prefixes[k] if l == 0 else net.widths[l - 1]
        back = s.back[net.units[k, l] * COLUMNS :]
        if not alone or l == 0:
            _sum(s.unit_sums[net.units[k, l] * LANES :], back, outs)
        if l > 0:
            below, h = s.back[net.units[k, l - 1] * COLUMNS :], s.hidden[net.units[k, l - 1] * COLUMNS :]
            if not alone:
                _outer(s.sums[net.packed[k, l] * LANES :], h, ins, back, outs)
            _zero(below, padded(ins) * COLUMNS)
            _multiply(below, ins, back, outs, s.backward[net.packed[k, l] :])
            _deactivate(below, h, ins * COLUMNS, net.leak)
        else:
            if not alone:
                _outer(s.sums[net.packed[k, l] * LANES :], x, ins, back, outs)
            if through_items:
                _multiply(gradient, ins, back, outs, s.backward[net.packed[k, l] :])


@compiled
def _inner_back(
    net: Network, s: Scratch, x: Reals, edges: Reals, width: int, gradient: Reals, through_items: bool  # noqa: FBT001
) -> None:
    """What inner products say about the user's vector and the items."""
    heads = len(net.prefixes)
    slope = s.slopes[(heads - 1) * COLUMNS :]
    for k in range(heads - 1, -1, -1):
        # A number of the vectors is read by all heads from its segment on, so slopes add up from the last one.
        if k == heads - 1:
            _copy(slope, s.back[net.units[k, -1] * COLUMNS :][:COLUMNS])
        else:
            _add(slope, s.back[net.units[k, -1] * COLUMNS :], np.float32(1))
        low = net.prefixes[k - 1] if k > 0 else 0
        high = net.prefixes[k]
        _dots(s.feature_sums[low * LANES :], x[low * COLUMNS :], slope, high - low)
        if through_items:
            for i in range(low, high):
                if net.graph == CENTRE:
                    _add_own_back(gradient[i * COLUMNS :], x[i * COLUMNS :], edges, slope, s.vector[i])
                else:
                    _add(gradient[i * COLUMNS :], slope, s.vector[i])


@compiled
def _user_gradient(net: Network, s: Scratch, width: int, alone: bool) -> None:  # noqa: FBT001
    """Gradients of the vector that heads read and, from the sums of all blocks, of the heads' weights."""
    p, g = s.heads.values, s.heads.gradient
    for i in range(width):
        s.vector_gradient[i] = _total(s.feature_sums[i * LANES :])
    for k in range(len(net.prefixes)):
        ins = net.prefixes[k]
        for l in range(len(net.widths)):
            outs = net.widths[l]
            at, units = net.weights[k, l], s.unit_sums[net.units[k, l] * LANES :]
            if alone and l > 0:
                break
            for o in range(outs):
                total = _total(units[o * LANES :])
                g[net.biases[k, l] + o] = total
                if l == 0:
                    # The user's part of W0^T x is the same in all columns: dL/dW0 = u db^T and dL/du = W0 db.
                    for i in range(ins):
                        g[at + i * outs + o] = s.vector[i] * total
                        s.vector_gradient[i] += p[at + i * outs + o] * total
            if alone:
                break
            if l == 0:
                at += ins * outs
            for i in range(ins):
                for o in range(outs):
                    g[at + i * outs + o] = _total(s.sums[(net.packed[k, l] + _tiled(i, o, ins)) * LANES :])
            ins = outs


@compiled
def _from_star(s: Scratch, width: int, features: int, blocks: int) -> None:
    """Gradients of what was spread over a star graph, which is its own transpose."""
    _zero(s.feature_sums, width * LANES)
    half = np.float32(0.5)
    for b in range(blocks):
        gradient = s.rows.gradient[b * features * COLUMNS :]
        _dots(s.feature_sums, gradient, s.edges[b * COLUMNS :], width)
        for i in range(width):
            _add(gradient[i * COLUMNS :], s.edges[b * COLUMNS :], s.vector_gradient[i])
            _scale(gradient[i * COLUMNS :], half)
    for i in range(width):
        s.vector_gradient[i] = half * (s.vector_gradient[i] + _total(s.feature_sums[i * LANES :]))


@compiled
def _decorrelate(net: Network, s: Scratch, width: int, features: int, count: int) -> None:
    """Add the regulariser's gradient, as `decorrelation` derives it."""
    blocks, rows = (count + COLUMNS - 1) // COLUMNS, np.float32(count)
    _zero(s.feature_sums, width * LANES)
    for b in range(blocks):
        # What is no row is 0, so a sum over all columns is one over the rows.
        _sum(s.feature_sums, s.rows.values[b * features * COLUMNS :], width)
    for i in range(width):
        s.mean[i] = np.divide(_total(s.feature_sums[i * LANES :]), rows)
    sums = s.sums
    _zero(sums, len(sums))
    for b in range(blocks):
        _centre(s, b, width, features, count)
        _outer(sums, s.spread, width, s.spread, width)
    for i in range(width):
        for o in range(width):
            s.matrix[i * width + o] = np.divide(_total(sums[_tiled(i, o, width) * LANES :]), rows)
    for i in range(width):
        s.deviation[i] = np.sqrt(max(s.matrix[i * width + i], LEAST_VARIANCE))
    norm = np.float32(0)
    for i in range(width):
        for o in range(width):
            s.matrix[i * width + o] = np.divide(s.matrix[i * width + o], s.deviation[i] * s.deviation[o])
            norm += s.matrix[i * width + o] * s.matrix[i * width + o]
    norm = max(np.sqrt(norm), LEAST_VARIANCE)
    weight = np.divide(2 * net.decorrelation, np.float32(width) * rows)
    packed = s.forward
    _zero(packed, len(packed))
    for i in range(width):
        along = np.float32(0)
        for o in range(width):
            along += np.divide(s.matrix[i * width + o] * s.matrix[i * width + o], norm)
        for o in range(width):
            m = np.divide(s.matrix[i * width + o], norm)
            if i == o:
                m -= along
            packed[_tiled(o, i, width)] = np.divide(m * weight, s.deviation[i] * s.deviation[o])
    for b in range(blocks):
        _centre(s, b, width, features, count)
        _multiply(s.rows.gradient[b * features * COLUMNS :], width, s.spread, width, packed)
    _zero(packed, len(packed))


@compiled
def _centre(s: Scratch, b: int, width: int, features: int, count: int) -> None:
    """Rows of a block less their mean; 0 where there is no row."""
    _copy(s.spread[: width * COLUMNS], s.rows.values[b * features * COLUMNS :])
    for i in range(width):
        x = s.spread[i * COLUMNS :]
        for j in range(min(COLUMNS, count - b * COLUMNS)):
            x[j] -= s.mean[i]


@compiled
def _step(moved: Moved, size: int, adam: int, lr: float, t: int) -> None:
    """Step number t of Adam from fresh moments (Kingma and Ba, ICLR 2015) or of SGD."""
    if adam:
        # Both bias corrections once per step, in float64, and the loop in float32.
        _adam(moved.values[:size], moved.gradient, moved.first, moved.second,
              np.float32(lr / (1 - BETA1**t)), np.float32(1 / np.sqrt(1 - BETA2**t)))  # fmt: skip
    else:
        _descend(moved.values[:size], moved.gradient, np.float32(lr))


@compiled
def _adam(p: Reals, gradient: Reals, first: Reals, second: Reals, size: np.float32, root: np.float32) -> None:
    keep1, take1 = np.float32(BETA1), np.float32(1 - BETA1)
    keep2, take2, small = np.float32(BETA2), np.float32(1 - BETA2), np.float32(EPSILON)
    for j in range(len(p)):
        g = gradient[j]
        m = keep1 * first[j] + take1 * g
        v = keep2 * second[j] + take2 * g * g
        first[j] = m
        second[j] = v
        # `/` would check for zero and keep the loop from being vectorised.
        p[j] -= np.divide(size * m, np.sqrt(v) * root + small)


@compiled
def _descend(p: Reals, gradient: Reals, lr: np.float32) -> None:
    for j in range(len(p)):
        p[j] -= lr * gradient[j]


@compiled
def _from(moved: Moved, at: int) -> Moved:
    """What lies from a place on."""
    return Moved(moved.values[at:], moved.gradient[at:], moved.first[at:], moved.second[at:])


@compiled
def _copy(out: Reals, x: Reals) -> None:
    for j in range(min(len(out), len(x))):
        out[j] = x[j]


@compiled
def _zero(out: Reals, size: int) -> None:
    for j in range(size):
        out[j] = 0


# From here on, what is done to a block, whose length the compiler knows.


@compiled
def _fill(out: Reals, value: np.float32) -> None:
    for j in range(COLUMNS):
        out[j] = value


@compiled
def _scale(out: Reals, factor: np.float32) -> None:
    for j in range(COLUMNS):
        out[j] *= factor


@compiled
def _add(out: Reals, x: Reals, factor: np.float32) -> None:
    for j in range(COLUMNS):
        out[j] += factor * x[j]


@compiled
def _add_own(out: Reals, x: Reals, edges: Reals, factor: np.float32) -> None:
    """Add an item's products with the user's vector, of which a positive's own part is its square times its edge."""
    for j in range(COLUMNS):
        out[j] += (factor - edges[j] * x[j]) * x[j]


@compiled
def _add_own_back(out: Reals, x: Reals, edges: Reals, slope: Reals, factor: np.float32) -> None:
    """Add the derivative of that by the item, times the slope."""
    for j in range(COLUMNS):
        out[j] += slope[j] * (factor - np.float32(2) * edges[j] * x[j])


@compiled
def _activate(z: Reals, size: int, leak: np.float32) -> None:
    for j in range(size):
        z[j] = z[j] if z[j] > 0 else leak * z[j]


@compiled
def _deactivate(back: Reals, h: Reals, size: int, leak: np.float32) -> None:
    for j in range(size):
        back[j] = back[j] if h[j] > 0 else leak * back[j]


@compiled
def _multiply(y: Reals, outs: int, x: Reals, ins: int, packed: Reals) -> None:
    """Add to every output the inputs times its packed weights."""
    tile = packed
    for o in range(0, outs, OUTPUTS):
        to = y[o * COLUMNS :]
        for i in range(0, ins, INPUTS):
            _multiply_tile(
                to, x[i * COLUMNS :], tile[0], tile[1], tile[2], tile[3], tile[4], tile[5], tile[6], tile[7]
            )
            tile = tile[TILED:]


@compiled
def _multiply_tile(
    y: Reals, x: Reals,
    a0: np.float32, a1: np.float32, a2: np.float32, a3: np.float32,
    b0: np.float32, b1: np.float32, b2: np.float32, b3: np.float32,
) -> None:  # fmt: skip
    # One slice for all inputs and one for both outputs: the compiler then asks once whether they overlap.
    for j in range(COLUMNS):
        p, q, r, t = x[j], x[COLUMNS + j], x[2 * COLUMNS + j], x[3 * COLUMNS + j]
        y[j] = y[j] + a0 * p + a1 * q + a2 * r + a3 * t
        y[COLUMNS + j] = y[COLUMNS + j] + b0 * p + b1 * q + b2 * r + b3 * t


@compiled
def _outer(sums: Reals, x: Reals, ins: int, g: Reals, outs: int) -> None:
    """Add the products of every input with every output's gradient, lane by lane."""
    tile = sums
    for o in range(0, outs, OUTPUTS):
        back = g[o * COLUMNS :]
        for i in range(0, ins, INPUTS):
            _outer_tile(tile, x[i * COLUMNS :], back)
            tile = tile[TILED * LANES :]


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
def _dots(sums: Reals, x: Reals, g: Reals, rows: int) -> None:
    """Add the products of every row with `g`, lane by lane."""
    for i in range(rows):
        _dot(sums[i * LANES :], x[i * COLUMNS :], g)


@compiled
def _dot(sums: Reals, x: Reals, g: Reals) -> None:
    for l in range(LANES):
        for k in range(COLUMNS // LANES):
            sums[l] += x[l + k * LANES] * g[l + k * LANES]


@compiled
def _sum(sums: Reals, x: Reals, rows: int) -> None:
    """Add every row, lane by lane."""
    for i in range(rows):
        _sum_row(sums[i * LANES :], x[i * COLUMNS :])


@compiled
def _sum_row(sums: Reals, x: Reals) -> None:
    for l in range(LANES):
        for k in range(COLUMNS // LANES):
            sums[l] += x[l + k * LANES]


@compiled
def _total(x: Reals) -> np.float32:
    """The sum of the lanes, in pairs."""
    total: np.float32 = (_quarter(x) + _quarter(x[4:])) + (_quarter(x[8:]) + _quarter(x[12:]))
    return total


@compiled
def _quarter(x: Reals) -> np.float32:
    quarter: np.float32 = (x[0] + x[1]) + (x[2] + x[3])
    return quarter
