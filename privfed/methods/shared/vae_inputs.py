"""The input of a variational autoencoder, kept ragged: a client's row holds its own items and nothing else.

Mult-VAE (Liang et al., WWW 2018) normalises the row of ones to unit length and drops entries at random. A cohort's
rows are `OwnRows`; what one client reads in every local step is `Inputs`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import embedding_bag

from privfed.compute.devices import on_host, placed


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
        out[rows.owner.unsqueeze(1), torch.arange(steps), rows.items.unsqueeze(1)] = self.values.T
        return out

    def times(
        self, table: Float[Tensor, "rows width"], row: Int64[Tensor, " k"]
    ) -> Float[Tensor, "steps clients width"]:
        """Sum of value x `table[row]` over every client's entries: the first layer, for all steps at once."""
        steps, clients = len(self.values), len(self.rows.counts)
        flat = placed(np.flatnonzero(on_host(self.values)))
        step = flat // max(self.values.shape[1], 1)
        entry = flat - step * self.values.shape[1]
        sizes = torch.bincount(step * clients + self.rows.owner[entry], minlength=steps * clients)
        values = self.values.flatten()[flat]
        sums = embedding_bag(row[entry], table, sizes.cumsum(0) - sizes, mode="sum", per_sample_weights=values)
        return sums.view(steps, clients, -1)
