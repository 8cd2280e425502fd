"""The graph of LightGCN (He et al., SIGIR 2020): users and items, an edge for every interaction.

With A the adjacency matrix of items and users and D its degrees, one step is E -> D^-1/2 A D^-1/2 E, and the final
vectors are the mean over 0 to L steps. That mean is a symmetric matrix times E, so a gradient goes back through it as
vectors go forward.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import embedding_bag

from privfed.compute.devices import placed
from privfed.data import Histories


@dataclass(frozen=True, slots=True, eq=False)
class SortedEdges:
    """Edges sorted by the side that they lead to.

    Attributes:
        sources: other end of every edge.
        offsets: first edge of every target.
        weights: 1 / sqrt(degree of the one end x degree of the other).
    """

    sources: Int64[Tensor, " edges"]
    offsets: Int64[Tensor, " targets"]
    weights: Float[Tensor, " edges"]

    def sums(self, table: Float[Tensor, "sources dim"]) -> Float[Tensor, "targets dim"]:
        """Weighted sums of the sources' rows."""
        return embedding_bag(self.sources, table, self.offsets, mode="sum", per_sample_weights=self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Edges in both directions; nodes are the items and behind them the users.

    Attributes:
        to_items: edges by item.
        to_users: edges by user.
        layers: L.
    """

    to_items: SortedEdges
    to_users: SortedEdges
    layers: int

    def mean(self, vectors: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """The mean over 0 to L steps, without gradients."""
        total = vectors.clone()
        for _ in range(self.layers):
            items, users = torch.split(vectors, [len(self.to_items.offsets), len(self.to_users.offsets)])
            vectors = torch.cat([self.to_items.sums(users), self.to_users.sums(items)])
            total += vectors
        return total.div_(self.layers + 1)

    def propagate(self, vectors: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """The same, with gradients."""
        if not vectors.requires_grad:
            return self.mean(vectors)
        # Zero, through which gradients pass; the hook takes them through the symmetric matrix, which is many times
        # faster than torch's own way back through a weighted sum.
        passing = vectors.clone()
        add_hook: Callable[[Callable[[Tensor], Tensor]], object] = passing.register_hook
        add_hook(self.mean)
        return self.mean(vectors.detach()) + (passing - passing.detach())


class Edges:
    """All interactions in both orders, from which graphs are made.

    Args:
        lists: whose interactions are the edges.
    """

    def __init__(self, lists: Histories) -> None:
        self.users, self.items = placed(lists.owners), placed(lists.items)
        self.by_item = placed(np.argsort(lists.items, kind="stable"))
        self.sides = lists.n_users, lists.n_items

    def graph(self, layers: int, kept: Bool[Tensor, " edges"] | None = None) -> Graph:
        """The graph of all edges, or of those that are kept, with the degrees that they leave."""
        users, items, by_item = self.users, self.items, self.by_item
        if kept is not None:
            number = kept.cumsum(0) - 1
            users, items, by_item = users[kept], items[kept], number[by_item[kept[by_item]]]
        degrees = [torch.bincount(ends, minlength=side) for ends, side in zip((users, items), self.sides, strict=True)]
        weights = (degrees[0][users] * degrees[1][items]).float().rsqrt()
        of_user, of_item = (degree.cumsum(0) - degree for degree in degrees)
        return Graph(
            SortedEdges(users[by_item], of_item, weights[by_item]), SortedEdges(items, of_user, weights), layers
        )
