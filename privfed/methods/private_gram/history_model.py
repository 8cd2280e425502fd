"""Scores of `private-gram` from a history alone, as one module of plain tensor operations, for other runtimes."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from privfed.methods.private_gram.server import BEYOND, BEYOND_SHARES, BEYOND_WEIGHTS
from privfed.methods.shared.popular_head import HEAD, ORDER, SCALE, SHARES, WEIGHTS, HeadModel


class GramModel(HeadModel):
    """Popularity and weights on the head, and what is ranked among it by content."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors[HEAD], tensors[ORDER])
        self.shares, self.scale = nn.Buffer(tensors[SHARES]), nn.Buffer(tensors[SCALE])
        self.weights = nn.Buffer(tensors[WEIGHTS].T.contiguous())
        self.beyond, self.beyond_shares = nn.Buffer(tensors[BEYOND]), nn.Buffer(tensors[BEYOND_SHARES])
        self.beyond_weights = nn.Buffer(tensors[BEYOND_WEIGHTS].T.contiguous())

    def forward(self, histories: Float[Tensor, "n items"]) -> Float[Tensor, "n items"]:
        """Scores of every item for histories of 0 and 1."""
        if not len(self.head):
            return self.order.expand(histories.shape[0], -1)
        own = histories[:, self.head]
        owned = own.sum(1, keepdim=True)
        centred = (own - (owned * self.shares).clamp(max=1)) * self.scale
        known = owned.clamp(min=1)
        scores = self.over_catalogue(known * self.shares + centred @ self.weights / self.scale, owned)
        if not len(self.beyond):
            return scores
        beyond = known * self.beyond_shares + centred @ self.beyond_weights
        places = self.beyond.expand(histories.shape[0], -1)
        return torch.where(owned > 0, scores.scatter(1, places, beyond), scores)
