"""The server of SGL: LightGCN, and two views of its graph that should agree on every node."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from privfed.data import Histories
from privfed.methods.references.lightgcn.graph import Graph
from privfed.methods.references.lightgcn.server import LightGCNConfig, LightGCNServer
from privfed.methods.references.shared.training import Draws
from privfed.methods.references.shared.triples import Triples


class SGLConfig(LightGCNConfig):
    """Settings of SGL; its contrast is the better of two on validation items of MovieLens-100K, for 10 rounds."""

    batch_size: int = Field(8192, ge=1, description="interactions per gradient step, each of which compares all nodes")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of edges dropped from each of the two views")
    contrast: float = Field(0.005, ge=0, description="weight of the contrast between the views")
    temperature: float = Field(0.5, gt=0, description="divides cosines of the contrast")


class SGLServer(LightGCNServer):
    """Server: two views are drawn in every pass, each without some of the edges."""

    config: SGLConfig
    views: Sequence[Graph] = ()

    def epoch(self, lists: Histories, draws: Draws) -> None:
        """Draw the views, then every interaction once."""
        c = self.config
        self.views = [self.edges.graph(c.layers, draws.kept(len(lists), c.dropout)) for _ in range(2)]
        super().epoch(lists, draws)

    def loss(self, vectors: Float[Tensor, "nodes dim"], triples: Triples) -> Float[Tensor, ""]:
        """LightGCN's, and the contrast of users and of taken items."""
        sides = [torch.split(view.propagate(vectors), [self.n_items, self.n_users]) for view in self.views]
        (items, users), (other_items, other_users) = sides
        t = self.config.temperature
        contrasts = contrast(users, other_users, triples.users, t) + contrast(
            items, other_items, triples.items[:, 0], t
        )
        return super().loss(vectors, triples) + self.config.contrast * contrasts


def contrast(
    one: Float[Tensor, "nodes dim"], other: Float[Tensor, "nodes dim"], batch: Int64[Tensor, " b"], temperature: float
) -> Float[Tensor, ""]:
    """InfoNCE: mean over a batch's nodes of -log softmax, over all nodes of the other view, of their cosines."""
    # A batch names many a node more than once: their common row is computed once and counted so often.
    nodes, times = torch.unique(batch, return_counts=True)
    cosines = normalize(one)[nodes] @ normalize(other).T
    losses = cross_entropy(cosines / temperature, nodes, reduction="none")
    mean: Tensor = (losses * times).sum() / len(batch)
    return mean
