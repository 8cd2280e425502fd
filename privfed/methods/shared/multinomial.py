"""The multinomial likelihood of interaction rows: its gradient by the logits of the whole catalogue."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import HOST, on_host
from privfed.compute.received import refuse_shape
from privfed.compute.vector_lanes import LANES, exp, filled, load, store, total
from privfed.methods.shared.vae_inputs import OwnRows


def multinomial_gradient(
    logits: Float[Tensor, "clients items"], rows: OwnRows, scale: Float[Tensor, " clients"]
) -> Float[Tensor, "clients items"]:
    """Gradient of -scale sum_i r_i log softmax_i by the logits: scale (m softmax - r), m the number of own items.

    It is written over the logits: a fresh tensor of this size costs as much as the exponentials.

    Raises:
        IndexError: the server's decoder has another number of items.
    """
    refuse_shape("what the decoder gives", logits, (len(rows.counts), rows.n_items))
    largest, weight = logits.amax(1), rows.counts * scale
    if logits.device == HOST:
        rest = torch.empty(LANES, dtype=logits.dtype)
        arrays = logits, largest, weight, scale, rows.counts, rows.items, rest
        _gradient(*map(on_host, arrays))
        return logits
    out = logits.sub_(largest.unsqueeze(1)).exp_()
    out.mul_((weight / out.sum(1)).unsqueeze(1))
    out.view(-1).index_add_(0, rows.owner * rows.n_items + rows.items, -scale[rows.owner])
    return out


@compiled(borrow=True)
def _gradient(
    logits: Float[np.ndarray, "clients items"],
    largest: Float[np.ndarray, " clients"],
    weight: Float[np.ndarray, " clients"],
    scale: Float[np.ndarray, " clients"],
    counts: Int64[np.ndarray, " clients"],
    items: Int64[np.ndarray, " k"],
    rest: Float[np.ndarray, " lanes"],
) -> None:
    """The same row after row, each of which stays in the processor's cache; `rest` is room for the end of one."""
    n_items, first = logits.shape[1], 0
    whole = n_items // LANES * LANES
    for client in range(len(counts)):
        row, top = logits[client], largest[client]
        sums = filled(logits.dtype.type(0))
        for i in range(0, whole, LANES):
            powers = exp(load(row, (i,)) - filled(top))
            store(row, (i,), powers)
            sums = sums + powers
        norm = total(sums)
        for i in range(whole, n_items):
            rest[i - whole] = row[i] - top
        store(rest, (0,), exp(load(rest, (0,))))
        for i in range(whole, n_items):
            row[i] = rest[i - whole]
            norm += row[i]
        factor = weight[client] / norm
        for i in range(n_items):
            row[i] *= factor
        for k in range(first, first + counts[client]):
            row[items[k]] -= scale[client]
        first += counts[client]
