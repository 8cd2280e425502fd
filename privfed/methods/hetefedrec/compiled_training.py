"""The clients of one model through the compiled loop of `kernel`: its arrays are laid out here."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from privfed.methods.hetefedrec import kernel
from privfed.methods.hetefedrec.kernel import COLUMNS, INPUTS, LANES, Moved, Network, Outcome, Scratch, Start, padded
from privfed.methods.hetefedrec.layout import ModelLayout
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
    net, numbers, units = _network(layout, model, weights, steps)
    scratch = _scratch(net, numbers, units, start)
    kernel.train(net, start, Outcome(user.numpy(), changes.numpy(), rows.values, rows.bounds, rows.places), scratch)
    found, at = [], 0
    for head in weights:
        views = {}
        for name, value in head.items():
            views[name] = changes[:, at : at + value.numel()].view(-1, *value.shape)
            at += value.numel()
        found.append(views)
    return found


def _network(
    layout: ModelLayout, model: int, weights: list[dict[str, Tensor]], steps: int
) -> tuple[Network, int, int]:
    """The network, and how many packed weights and units it has."""
    c, mine, widths = layout.config, layout.models[model], (*layout.config.hidden, 1)
    offset = {name: np.zeros((len(weights), len(widths)), np.int64) for name in ("W", "b", "packed", "units")}
    at = packed = units = 0
    for k, head in enumerate(weights):
        ins = layout.models[mine.heads[k]].width
        for l, outs in enumerate(widths):
            for kind in ("W", "b"):
                offset[kind][k, l] = at
                at += head[f"{kind}{l}"].numel()
            offset["packed"][k, l], offset["units"][k, l] = packed, units
            packed, units, ins = packed + padded(ins) * padded(outs), units + padded(outs), outs
    net = Network(
        prefixes=np.array([layout.models[head].width for head in mine.heads]),
        widths=np.array(widths),
        weights=offset["W"],
        biases=offset["b"],
        packed=offset["packed"],
        units=offset["units"],
        inner=int(c.inner),
        biased=int(c.item_bias),
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
    return net, max(packed, padded(mine.width) ** 2 if net.decorrelation else 0), units


def _scratch(net: Network, packed: int, units: int, start: Start) -> Scratch:
    width, heads = start.table.shape[1], len(net.prefixes)
    blocks = -(-int(start.counts.max()) // COLUMNS)
    # A tile may reach beyond the last row, with weight 0.
    rows = (blocks * (width + net.biased) + INPUTS) * COLUMNS

    def zeros(size: int) -> Float32[np.ndarray, " size"]:
        return np.zeros(size, np.float32)

    def moved(size: int, adam: int) -> Moved:
        return Moved(zeros(size), zeros(size), zeros(size * adam), zeros(size * adam))

    return Scratch(
        user=moved(width, net.adam_user),
        heads=moved(len(start.heads), net.adam),
        rows=moved(rows, net.adam),
        labels=zeros(blocks * COLUMNS),
        edges=zeros(blocks * COLUMNS),
        forward=zeros(packed),
        backward=zeros(packed),
        sums=zeros(packed * LANES),
        unit_sums=zeros(units * LANES),
        feature_sums=zeros(width * LANES),
        base=zeros(units),
        hidden=zeros(units * COLUMNS),
        back=zeros(units * COLUMNS),
        vector=zeros(width),
        vector_gradient=zeros(width),
        spread=zeros(padded(width) * COLUMNS),
        slopes=zeros(heads * COLUMNS),
        inner=zeros(COLUMNS),
        matrix=zeros(width * width),
        mean=zeros(width),
        deviation=zeros(width),
    )
