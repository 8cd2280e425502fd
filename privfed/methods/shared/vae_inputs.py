"""The input of a variational autoencoder, kept ragged: a client's row holds its own items and nothing else.

Mult-VAE (Liang et al., WWW 2018) normalises the row of ones to unit length and drops entries at random. A cohort's
rows are `OwnRows`; what one client reads in every local step is `Inputs`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import embedding_bag


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """The items of `clients` clients as a ragged list of entries, in ascending order of the owner.

    Attributes:
        owner: position of the entry's client in the cohort.
        items: the entry's item; no client has an item twice.
        counts: entries of each client.
        n_items: size of the catalogue.
    """

    owner: Int64[Tensor, " k"]
    items: Int64[Tensor, " k"]
    counts: Int64[Tensor, " clients"]
    n_items: int

    @property
    def place(self) -> Int64[Tensor, " k"]:
        """Running number of each entry among its owner's."""
        return torch.arange(len(self.owner)) - (self.counts.cumsum(0) - self.counts)[self.owner]

    def inputs(self, keep: Bool[Tensor, "steps k"], dropout: float, dtype: torch.dtype) -> "Inputs":
        """Rows of unit length with entries dropped where `keep` is False and the rest scaled by 1 / (1 - dropout)."""
        size = (self.counts.to(dtype).sqrt() * (1 - dropout))[self.owner]
        return Inputs(self, keep / size)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs of each client in each step: the value of every entry of its row, zero where dropped."""

    rows: OwnRows
    values: Float[Tensor, "steps k"]

    def dense(self) -> Float[Tensor, "clients steps items"]:
        """The same over the whole catalogue."""
        rows, steps = self.rows, len(self.values)
        out = self.values.new_zeros(len(rows.counts), steps, rows.n_items)
        # [steps, k]: where every entry stands in `out`, laid out flat.
        at = (rows.owner * steps + torch.arange(steps).unsqueeze(1)) * rows.n_items + rows.items
        out.view(-1).scatter_(0, at.view(-1), self.values.view(-1))
        return out

    def times(
        self, table: Float[Tensor, "rows width"], row: Int64[Tensor, " k"]
    ) -> Float[Tensor, "steps clients width"]:
        """Sum of value x `table[row]` over every client's entries: the first layer, for all steps at once."""
        (steps, entries), counts = self.values.shape, self.rows.counts
        # [steps, clients]: where the entries of each client begin. To leave out what was dropped takes longer.
        first = torch.arange(steps).unsqueeze(1) * entries + counts.cumsum(0) - counts
        values = self.values.view(-1)
        sums = embedding_bag(row.repeat(steps), table, first.view(-1), mode="sum", per_sample_weights=values)
        return sums.view(steps, len(counts), -1)
