"""The clients of one model through the compiled loop of `kernel`: its arrays are laid out here."""

from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from privfed.compute.received import refuse_shape
from privfed.methods.hetefedrec import kernel
from privfed.methods.hetefedrec.kernel import (
    COLUMNS,
    INPUTS,
    LANES,
    PARTS,
    Memory,
    Outcome,
    PrefixNetwork,
    Start,
    padded,
)
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.hetefedrec.local_adam import aligned
from privfed.methods.hetefedrec.prefix_heads import LEAK, Parameters
from privfed.methods.hetefedrec.sampling import DistinctSamples
from privfed.methods.hetefedrec.uploads import RowPlaces


def train_model(
    layout: ModelLayout,
    model: int,
    clients: Int64[Tensor, " n"],
    samples: DistinctSamples,
    shared: Mapping[str, Tensor],
    user: Float32[Tensor, "n width"],
    rows: RowPlaces,
    steps: int,
) -> list[Parameters]:
    """Train clients of one model; `user` moves in place, changes of rows go where they belong.

    Args:
        layout: who holds what.
        model: theirs.
        clients: their positions in the call.
        samples: of everybody in the call.
        shared: public parameters.
        user: their vectors.
        rows: where changes of item vectors and biases go.
        steps: local steps on everything.

    Returns:
        Changes of every head that the model trains, `[n, *shape]`.
    """
    weights = [layout.head_of(shared, head) for head in layout.models[model].heads]
    _refuse_others(layout, model, samples, shared, weights)
    first = samples.counts.cumsum(0) - samples.counts
    start = Start(
        np.ascontiguousarray(shared[f"items.{layout.models[model].name}"].numpy()),
        shared[layout.bias_name(model)].flatten().numpy() if layout.config.item_bias else np.empty(0, np.float32),
        torch.cat([value.flatten() for head in weights for value in head.values()]).numpy(),
        first[clients].numpy(),
        samples.counts[clients].numpy(),
        samples.items.numpy(),
        samples.labels.numpy(),
    )
    changes = torch.empty(len(clients), len(start.heads))
    net, packed, units = _network(layout, model, weights, steps)
    memory = _memory(net, packed, units, int(start.counts.max()))
    kernel.train(net, start, Outcome(user.numpy(), changes.numpy(), rows.values, rows.bounds, rows.places), memory)
    found, at = [], 0
    for head in weights:
        views = {}
        for name, value in head.items():
            views[name] = changes[:, at : at + value.numel()].view(-1, *value.shape)
            at += value.numel()
        found.append(views)
    return found


def _refuse_others(
    layout: ModelLayout, model: int, samples: DistinctSamples, shared: Mapping[str, Tensor], heads: list[Parameters]
) -> None:
    """Refuse parameters of other shapes than the model's."""
    mine = layout.models[model]
    table, last = shared[f"items.{mine.name}"], int(samples.items.max()) if len(samples.items) else -1
    refuse_shape(f"items.{mine.name}", table, (max(len(table), last + 1), mine.width))
    if layout.config.item_bias:
        refuse_shape(layout.bias_name(model), shared[layout.bias_name(model)].flatten(), (len(table),))
    for k, head in zip(mine.heads, heads, strict=True):
        for name, shape in layout.head(k).head(0).shapes().items():
            refuse_shape(f"{layout.head_name(k)}.{name}", head[name], shape)


def _network(layout: ModelLayout, model: int, heads: list[Parameters], steps: int) -> tuple[PrefixNetwork, int, int]:
    """The network, and how many packed weights and units it has."""
    c, mine, widths = layout.config, layout.models[model], (*layout.config.hidden, 1)
    prefixes = [layout.models[head].width for head in mine.heads]
    offsets = np.zeros((4, len(heads), len(widths)), np.int64)
    at = packed = units = 0
    for k, head in enumerate(heads):
        ins = prefixes[k]
        for l, outs in enumerate(widths):
            weights, biases = head[f"W{l}"].numel(), head[f"b{l}"].numel()
            offsets[:, k, l] = at, at + weights, packed, units
            at, packed, units = at + weights + biases, packed + padded(ins) * padded(outs), units + padded(outs)
            ins = outs
    net = PrefixNetwork(
        prefixes=np.array(prefixes),
        widths=np.array(widths),
        offsets=offsets,
        weights=at,
        features=mine.width + c.item_bias,
        inner=int(c.inner),
        graph=kernel.ALONE if c.base == "ncf" else kernel.STAR if c.propagation == "star" else kernel.CENTRE,
        leak=np.float32(0 if c.activation == "relu" else LEAK),
        decorrelation=np.float32(c.decorrelation if mine.decorrelated else 0),
        user_l2=np.float32(c.user_l2),
        steps=steps,
        user_steps=c.user_steps,
        adam_user=int(c.user_optimiser == "adam"),
        adam=int(c.local_optimiser == "adam"),
        lr_user=c.lr_user,
        lr_items=c.lr_items,
        lr_heads=c.lr_heads,
        lr_bias=c.lr_bias,
    )
    # The regulariser's matrix is packed where the first layers' weights are.
    return net, max(packed, padded(mine.width) ** 2 if mine.decorrelated else 0), units


def _memory(net: PrefixNetwork, packed: int, units: int, most: int) -> Memory:
    """Working memory for clients of at most so many rows."""
    width, blocks, parts = int(net.prefixes[-1]), -(-most // COLUMNS), PARTS if net.adam else 2
    # A tile may reach beyond the last row, with weight 0.
    row_numbers = (blocks * net.features + INPUTS) * COLUMNS
    sizes = {
        "user": PARTS * width,
        "heads": parts * net.weights,
        "rows": parts * row_numbers,
        "labels": blocks * COLUMNS,
        "edges": blocks * COLUMNS,
        "forward": packed,
        "backward": packed,
        "sums": packed * LANES,
        "unit_sums": units * LANES,
        "feature_sums": width * LANES,
        "base": units,
        "hidden": units * COLUMNS,
        "back": units * COLUMNS,
        "vector": width,
        "vector_gradient": width,
        "spread": padded(width) * COLUMNS,
        "inner": len(net.prefixes) * COLUMNS,
        "matrix": width * width if net.decorrelation else 0,
        "mean": width,
        "deviation": width,
    }
    at = dict(zip(sizes, accumulate(map(aligned, sizes.values()), initial=0), strict=False))
    numbers = np.zeros(sum(map(aligned, sizes.values())), np.float32)
    return Memory(numbers=numbers, row_numbers=row_numbers, packed=packed, units=units, **at)
