"""One local epoch of linear heads on touched rows of an item table, as machine code.

What `LinearHead` does in single steps (PFedRec, IJCAI 2023, eq. 3; FedMF) client by client and batch by batch, so that
a client's rows stay in the cache for its whole epoch. A client's arithmetic does not depend on other clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.methods.shared.heads import SATURATED
from privfed.methods.shared.samples import Samples, TouchedRows


@dataclass(frozen=True, slots=True)
class LinearRates:
    """Learning rates of linear heads and item rows.

    Attributes:
        head: learning rate of w and b.
        items: learning rate of item rows.
        together: whether items move along w as it was before the step; else the head goes first and items see it.
    """

    head: float
    items: float
    together: bool


def linear_epoch(
    samples: Samples,
    rows: TouchedRows,
    table: Float32[Tensor, "rows dim"],
    heads: Mapping[str, Tensor],
    batch_size: int,
    rates: LinearRates,
) -> dict[str, Tensor]:
    """One pass of mini-batch SGD over every client's samples; `table` is updated in place.

    Args:
        samples: one epoch of every client.
        rows: the (client, item) rows the samples touch.
        table: current value of those rows.
        heads: `w` [clients, dim] and, with a bias, `b` [clients].
        batch_size: samples per step.
        rates: learning rates.

    Returns:
        New heads, in the order of the clients.
    """
    new = {name: values.clone() for name, values in heads.items()}
    bias = new["b"] if "b" in new else torch.zeros(len(new["w"]))
    _epoch(
        table.numpy(),
        rows.of_sample.numpy(),
        samples.labels.numpy(),
        samples.counts.numpy(),
        new["w"].numpy(),
        bias.numpy(),
        "b" in new,
        batch_size,
        np.float32(rates.head),
        np.float32(rates.items),
        rates.together,
    )
    return new


@compiled(reassociate=True)
def _epoch(
    table: Float32[np.ndarray, "rows dim"],
    place: Int64[np.ndarray, " samples"],
    labels: Float32[np.ndarray, " samples"],
    counts: Int64[np.ndarray, " n"],
    w: Float32[np.ndarray, "n dim"],
    b: Float32[np.ndarray, " n"],
    biased: bool,  # noqa: FBT001 (compiled functions take arguments by position)
    batch_size: int,
    lr_head: np.float32,
    lr_items: np.float32,
    together: bool,  # noqa: FBT001
) -> None:
    """Every client's epoch, one after the other."""
    dim = w.shape[1]
    slopes, change, old = np.empty(batch_size, np.float32), np.empty(dim, np.float32), np.empty(dim, np.float32)
    first = 0
    for c in range(len(counts)):
        end, head = first + counts[c], w[c]
        while first < end:
            last = min(first + batch_size, end)
            # float32 constants: a plain float would lift the arithmetic of the whole batch to float64.
            share = np.float32(1) / np.float32(last - first)
            change[:] = 0
            moved = np.float32(0)
            # Where both move together, item rows step along the head as it was before.
            old[:] = head
            for s in range(first, last):
                row = table[place[s]]
                slope = _slope(_score(head, row) + b[c], labels[s]) * share
                slopes[s - first] = slope
                moved += slope
                for j in range(dim):
                    change[j] += slope * row[j]
            for j in range(dim):
                head[j] -= lr_head * change[j]
            if biased:
                b[c] -= lr_head * moved
            # Rows see the new head: slopes again, from the moved head and rows that have not moved yet.
            if not together:
                old[:] = head
                for s in range(first, last):
                    slopes[s - first] = _slope(_score(head, table[place[s]]) + b[c], labels[s]) * share
            for s in range(first, last):
                # Only after all slopes: a batch may hold an item twice, and both samples must see the row of before.
                row, step = table[place[s]], lr_items * slopes[s - first]
                for j in range(dim):
                    row[j] -= step * old[j]
            first = last


@compiled(reassociate=True)
def _score(head: Float32[np.ndarray, " dim"], row: Float32[np.ndarray, " dim"]) -> np.float32:
    # One chain of additions, which vector units may split because it is compiled with `reassociate`.
    total = np.float32(0)
    for j in range(len(head)):
        total += head[j] * row[j]
    return total


@compiled
def _slope(logit: np.float32, label: np.float32) -> np.float32:
    """d/dz of the binary cross-entropy, zero where the sigmoid is saturated."""
    p = np.float32(1) / (np.float32(1) + np.exp(-logit))
    # The factor is 1, and falls to 0 where p (1 - p) does: torch's gradient through a sigmoid, as `heads` takes it.
    spread = p * (np.float32(1) - p)
    slope: np.float32 = (p - label) * (spread / max(spread, SATURATED))
    return slope
