"""Mean table of every neighbourhood (GPFedRec, KDD 2024, eq. 5, row-normalised), without a product with the graph.

A graph made by a threshold has hubs: whoever resembles many is a neighbour of nearly everybody, and users with alike
many neighbours have nearly the same ones. Taken in the order of their number, a neighbourhood differs from the one
before in few users, so its sum is the sum before, plus the tables that come and minus those that go.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.vector_lanes import LANES, load, spread, store, widened

_AT_ONCE = 8192
"""Columns of a product."""
_COLUMNS, _GROUPS = 2 * LANES, 16
"""Columns that are summed together, everybody's in a core's cache, and groups of them that are read together."""
_WORTH_A_CHAIN = 0.1
"""Above this share of all pairs, adding tables one at a time takes longer than a matrix product."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourhoodChain:
    """Changes that lead from each neighbourhood's sum to the next.

    Attributes:
        order: users in the order in which their neighbourhoods are summed.
        starts: user `order[k]` takes the changes `starts[k]` to `starts[k + 1] - 1`.
        afresh: whether it starts from an empty sum.
        tables: user whose table each change adds or takes away.
        signs: 1 where it is added, -1 where it is taken away.
        share: 1 / number of neighbours of `order[k]`.
    """

    order: Int64[np.ndarray, " n"]
    starts: Int64[np.ndarray, " n_and_1"]
    afresh: Bool[np.ndarray, " n"]
    tables: Int64[np.ndarray, " changes"]
    signs: Float64[np.ndarray, " changes"]
    share: Float64[np.ndarray, " n"]

    @classmethod
    def from_neighbours(cls, near: Bool[Tensor, "n n"]) -> "NeighbourhoodChain":
        """The chain over users by rising number of neighbours; a user starts afresh where that takes fewer changes."""
        degree = near.sum(1)
        # Stable, so that users of equal degree come in one order and sums are rounded alike everywhere.
        order = degree.argsort(stable=True)
        own = near[order]
        # [n, n]: XOR with the neighbourhood before marks who comes and who goes; the first has none before it.
        changed = own.clone()
        changed[1:] ^= own[:-1]
        # An empty sum costs as many additions as there are neighbours; the first user always starts from one.
        afresh = changed.sum(1) >= degree[order]
        changed[afresh] = own[afresh]
        at, tables = changed.nonzero(as_tuple=True)
        starts = torch.nn.functional.pad(changed.sum(1).cumsum(0), (1, 0))
        # A changed pair that is a neighbour now has come, one that is not has gone.
        signs = own[at, tables].double().mul_(2).sub_(1)
        share = degree[order].double().reciprocal_()
        return cls(*(part.numpy() for part in (order, starts, afresh, tables, signs, share)))


def neighbour_means(
    near: Bool[Tensor, "n n"],
    updates: Float[Tensor, "n size"],
    base: Float[Tensor, " size"],
    out: Float[Tensor, "users size"],
    rows: Int64[Tensor, " n"],
) -> Float[Tensor, " size"]:
    """Mean of the tables base + updates[j] over every neighbourhood j, and the mean of these means.

    Sums are kept in float64, so a table that came and went leaves nothing behind, whatever its size; exact up to
    rounding. Where neighbourhoods share little, or off the processor, the plain product is used.

    Args:
        near: neighbourhoods, none of them empty.
        updates: one upload per user.
        base: what all tables share.
        out: where means go; must not overlap `updates`.
        rows: row of `out` that the mean over each neighbourhood is written to, others stay.

    Returns:
        The mean over the neighbourhoods.

    Raises:
        IndexError: graph, uploads and tables are of other users or items: compiled code reads memory unchecked.
    """
    (users, size), n = out.shape, len(rows)
    fits = near.shape == (n, n) and updates.shape == (n, size) and base.shape == (size,)
    if not (fits and n and 0 <= int(rows.min()) <= int(rows.max()) < users):
        raise IndexError(
            f"a graph of shape {tuple(near.shape)}, uploads {tuple(updates.shape)} and a table of {len(base)} numbers "
            f"do not belong to {n} of {users} users with {size} numbers each; continue from a checkpoint of this run"
        )
    chain, mean = NeighbourhoodChain.from_neighbours(near) if near.is_cpu else None, torch.empty_like(base)
    if chain is None or len(chain.tables) > _WORTH_A_CHAIN * near.numel():
        # [n, n], rows of sum 1. Column blocks keep the means of one block, never a second [n, size] array.
        weights = near / near.sum(1, keepdim=True)
        for columns in (slice(first, first + _AT_ONCE) for first in range(0, len(base), _AT_ONCE)):
            means = torch.addmm(base[columns], weights, updates[:, columns])
            out[:, columns].index_copy_(0, rows, means)
            torch.mean(means, 0, out=mean[columns])
    else:
        _sum_along(
            rows.numpy()[chain.order], chain.starts, chain.afresh, chain.tables, chain.signs, chain.share,
            updates.numpy(), base.numpy(), out.numpy(), mean.numpy(),
        )  # fmt: skip
    return mean


@compiled
def _sum_along(
    rows: Int64[np.ndarray, " n"],
    starts: Int64[np.ndarray, " n_and_1"],
    afresh: Bool[np.ndarray, " n"],
    tables: Int64[np.ndarray, " changes"],
    signs: Float64[np.ndarray, " changes"],
    share: Float64[np.ndarray, " n"],
    updates: Float32[np.ndarray, "n size"],
    base: Float32[np.ndarray, " size"],
    out: Float32[np.ndarray, "users size"],
    mean: Float32[np.ndarray, " size"],
) -> None:
    """Some columns after the others, everybody's copied next to each other."""
    near = np.zeros((_GROUPS, len(updates), _COLUMNS), np.float32)
    means = np.empty((len(rows), _GROUPS * _COLUMNS), np.float32)
    # float64: subtracting a table takes out what adding it put in, but for 2^-53 of the sum.
    total, all_means = np.zeros(_COLUMNS), np.zeros(_COLUMNS)
    # A row of a table is far from the next one in memory, so a piece of some length is read and written at once.
    for first in range(0, len(base), _GROUPS * _COLUMNS):
        shared = base[first : first + _GROUPS * _COLUMNS]
        for user in range(len(updates)):
            _copy(updates[user, first : first + len(shared)], near[:, user])
        for begin in range(0, len(shared), _COLUMNS):
            all_means[:] = 0.0
            for k in range(len(rows)):
                if afresh[k]:
                    total[:] = 0.0
                changes = slice(starts[k], starts[k + 1])
                _change(near[begin // _COLUMNS], tables[changes], signs[changes], total)
                weight, found = share[k], means[k, begin : begin + _COLUMNS]
                for c in range(_COLUMNS):
                    found[c] = total[c] * weight
                    all_means[c] += total[c] * weight
            for c in range(min(_COLUMNS, len(shared) - begin)):
                mean[first + begin + c] = shared[c + begin] + np.float32(all_means[c] / len(rows))
        for k in range(len(rows)):
            # The sums hold updates only: the base is the same in every table, so a mean contains it once.
            _add(shared, means[k], out[rows[k], first : first + len(shared)])


@compiled
def _copy(piece: Float32[np.ndarray, " width"], to: Float32[np.ndarray, "groups columns"]) -> None:
    for begin in range(0, len(piece), _COLUMNS):
        group = to[begin // _COLUMNS]
        for c in range(min(_COLUMNS, len(piece) - begin)):
            group[c] = piece[begin + c]


@compiled
def _add(
    shared: Float32[np.ndarray, " width"],
    means: Float32[np.ndarray, " columns"],
    out: Float32[np.ndarray, " width"],
) -> None:
    for c in range(len(out)):
        out[c] = shared[c] + means[c]


@compiled
def _change(
    near: Float32[np.ndarray, "n columns"],
    tables: Int64[np.ndarray, " changes"],
    signs: Float64[np.ndarray, " changes"],
    total: Float64[np.ndarray, " columns"],
) -> None:
    """Add tables to the sum and take others away; it stays in registers."""
    one, two = load(total, (0,)), load(total, (LANES,))
    for change in range(len(tables)):
        table, sign = tables[change], spread(signs, (change,))
        one = one + sign * widened(load(near, (table, 0)))
        two = two + sign * widened(load(near, (table, LANES)))
    store(total, (0,), one)
    store(total, (LANES,), two)
