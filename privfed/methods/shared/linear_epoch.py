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
from privfed.compute.received import refuse_shape
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
    nothing = table.new_empty(0, table.shape[1]), rows.ids.new_empty(0)
    return _trained(samples, rows, table, nothing, heads, batch_size, rates)


def linear_changes(
    samples: Samples,
    rows: TouchedRows,
    start: tuple[Float32[Tensor, "items dim"], Int64[Tensor, " rows"]],
    heads: Mapping[str, Tensor],
    batch_size: int,
    rates: LinearRates,
) -> tuple[Float32[Tensor, "rows dim"], dict[str, Tensor]]:
    """The same pass from rows of a table that stays: by how much every touched row moves, and new heads.

    A client's rows are read where it trains and differences taken while they are in the cache.

    Args:
        samples: one epoch of every client.
        rows: the (client, item) rows the samples touch.
        start: a table, and the place in it of every touched row.
        heads: `w` [clients, dim] and, with a bias, `b` [clients].
        batch_size: samples per step.
        rates: learning rates.
    """
    table = start[0].new_empty(len(rows.owner), start[0].shape[1])
    return table, _trained(samples, rows, table, start, heads, batch_size, rates)


def _refuse_others(
    start: tuple[Float32[Tensor, "items dim"], Int64[Tensor, " starts"]], heads: Mapping[str, Tensor]
) -> None:
    """Refuse a table without some of the rows or of another width: compiled code reads memory unchecked.

    Raises:
        IndexError: a server, which chooses the table, sent too small a one, or one that does not fit the heads.
    """
    (rows, width), places = start[0].shape, start[1]
    last = int(places.max()) if len(places) else -1
    if last >= rows or width != heads["w"].shape[1]:
        raise IndexError(
            f"a table of {rows} rows of width {width} came, and row {last} of width {heads['w'].shape[1]} is trained; "
            "drop the message"
        )


def _trained(
    samples: Samples,
    rows: TouchedRows,
    table: Float32[Tensor, "rows dim"],
    start: tuple[Float32[Tensor, "items dim"], Int64[Tensor, " starts"]],
    heads: Mapping[str, Tensor],
    batch_size: int,
    rates: LinearRates,
) -> dict[str, Tensor]:
    _refuse_others(start, heads)
    refuse_shape("a table of touched rows", table, (len(rows.owner), heads["w"].shape[1]))
    new = {name: values.clone() for name, values in heads.items()}
    bias = new["b"] if "b" in new else torch.zeros(len(new["w"]))
    _epoch(
        table.numpy(),
        start[0].numpy(),
        start[1].numpy(),
        rows.owner.numpy(),
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
    start: Float32[np.ndarray, "items dim"],
    started: Int64[np.ndarray, " starts"],
    owner: Int64[np.ndarray, " rows"],
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
    """Every client's epoch, one after the other; with starts, `table` is written and not read."""
    dim = w.shape[1]
    room, change, old = np.empty(batch_size, np.float32), np.empty(dim, np.float32), np.empty(dim, np.float32)
    first, row, changes = 0, 0, len(started) > 0
    for c in range(len(counts)):
        end, head, begin = first + counts[c], w[c], row
        while row < len(owner) and owner[row] == c:
            row += 1
        if changes:
            _read(table[begin:row], start, started[begin:row])
        while first < end:
            last = min(first + batch_size, end)
            # float32 constants: a plain float would lift the arithmetic of the whole batch to float64.
            share = np.float32(1) / np.float32(last - first)
            at, wanted, slopes = place[first:last], labels[first:last], room[: last - first]
            # Where both move together, item rows step along the head as it was before.
            old[:] = head
            _slopes(table, at, head, b[c], wanted, share, slopes)
            moved = _gradient(table, at, slopes, change)
            for j in range(dim):
                head[j] -= lr_head * change[j]
            if biased:
                b[c] -= lr_head * moved
            # Rows see the new head: slopes again, from the moved head and rows that have not moved yet.
            if not together:
                old[:] = head
                _slopes(table, at, head, b[c], wanted, share, slopes)
            # Only after all slopes: a batch may hold an item twice, and both samples must see the row of before.
            _move(table, at, slopes, lr_items, old)
            first = last
        if changes:
            _subtract(table[begin:row], start, started[begin:row])


# A function of its own for each loop over rows, which are taken before they are read: the compiler then knows that no
# other array moves in it, and uses vector units.
@compiled
def _read(
    table: Float32[np.ndarray, "rows dim"],
    start: Float32[np.ndarray, "items dim"],
    started: Int64[np.ndarray, " rows"],
) -> None:
    """Every row as it starts."""
    for r in range(len(table)):
        row, origin = table[r], start[started[r]]
        for j in range(len(row)):
            row[j] = origin[j]


@compiled
def _subtract(
    table: Float32[np.ndarray, "rows dim"],
    start: Float32[np.ndarray, "items dim"],
    started: Int64[np.ndarray, " rows"],
) -> None:
    """By how much every row has moved."""
    for r in range(len(table)):
        row, origin = table[r], start[started[r]]
        for j in range(len(row)):
            row[j] -= origin[j]


@compiled(reassociate=True)
def _slopes(
    table: Float32[np.ndarray, "rows dim"],
    place: Int64[np.ndarray, " batch"],
    head: Float32[np.ndarray, " dim"],
    bias: np.float32,
    labels: Float32[np.ndarray, " batch"],
    share: np.float32,
    out: Float32[np.ndarray, " batch"],
) -> None:
    """The loss's slope at every logit of a batch, as a share of the mean over it."""
    for s in range(len(place)):
        out[s] = _score(head, table[place[s]]) + bias
    for s in range(len(place)):
        out[s] = _slope(out[s], labels[s]) * share


@compiled(reassociate=True)
def _gradient(
    table: Float32[np.ndarray, "rows dim"],
    place: Int64[np.ndarray, " batch"],
    slopes: Float32[np.ndarray, " batch"],
    out: Float32[np.ndarray, " dim"],
) -> np.float32:
    """The gradient of the head, and that of its bias as the result."""
    moved = np.float32(0)
    out[:] = 0
    for s in range(len(place)):
        row, slope = table[place[s]], slopes[s]
        moved += slope
        for j in range(len(out)):
            out[j] += slope * row[j]
    return moved


@compiled(reassociate=True)
def _move(
    table: Float32[np.ndarray, "rows dim"],
    place: Int64[np.ndarray, " batch"],
    slopes: Float32[np.ndarray, " batch"],
    lr: np.float32,
    head: Float32[np.ndarray, " dim"],
) -> None:
    """One step of the rows along the head."""
    for s in range(len(place)):
        row, step = table[place[s]], lr * slopes[s]
        for j in range(len(head)):
            row[j] -= step * head[j]


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
