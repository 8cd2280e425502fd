"""The server of LightGCN: vectors of nodes, and the graph that they are smoothed over."""

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from privfed.data import Histories
from privfed.methods.references.lightgcn.graph import Edges
from privfed.methods.references.shared.factors import FactorConfig, FactorServer


class LightGCNConfig(FactorConfig):
    """Settings of LightGCN, chosen on the validation items of MovieLens-100K, for 30 rounds."""

    lr: float = Field(2e-2, gt=0, description="learning rate of Adam")
    layers: int = Field(3, ge=0, description="steps of propagation; 0 is matrix factorisation")


class LightGCNServer(FactorServer):
    """Server: learned vectors, whose mean over steps of propagation makes the scores."""

    config: LightGCNConfig

    def keep(self, lists: Histories) -> None:
        """Keep the lists and their graph."""
        super().keep(lists)
        self.edges = Edges(lists)
        self.graph = self.edges.graph(self.config.layers)

    def final(self, vectors: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """The propagated vectors."""
        return self.graph.propagate(vectors)
