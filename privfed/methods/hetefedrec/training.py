"""Local training of one tile of clients: full-batch steps on user vectors, item rows, heads and item bias.

The loss of a client is the mean binary cross-entropy over its samples, summed over the prefixes it trains (eq. 2 and
11), plus the decorrelation of its item rows (eq. 14). Gradients are written out by hand; everything of a client moves
at once, after steps on the user vector alone where they are configured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from privfed.methods.hetefedrec.config import HeteFedRecConfig
from privfed.methods.hetefedrec.decorrelation import Decorrelation
from privfed.methods.hetefedrec.local_adam import arena, local_optimiser
from privfed.methods.hetefedrec.padding import Tile
from privfed.methods.hetefedrec.prefix_heads import Forward, PrefixHeads
from privfed.methods.hetefedrec.star_graph import (
    add_gathered_gradient_,
    edges,
    gather,
    own_part,
    propagate,
    proximal_step,
)


@dataclass(frozen=True, slots=True)
class ReceivedModel:
    """The model that the clients of a tile start from.

    Attributes:
        user: their own vectors.
        rows: item rows, feature by feature, zero at padding.
        bias: item biases of these rows; None without item bias.
        heads: the stacked heads they train, `[1, *shape]`.
    """

    user: Float[Tensor, "clients width"]
    rows: Float[Tensor, "clients width rows"]
    bias: Float[Tensor, "clients rows"] | None
    heads: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TrainedTile:
    """The result: new user vectors, and changes of everything else."""

    user: Float[Tensor, "clients width"]
    rows: Float[Tensor, "clients width rows"]
    bias: Float[Tensor, "clients rows"] | None
    heads: list[dict[str, Tensor]]


class TileTraining:
    """One tile's training.

    Args:
        config: settings.
        heads: the stacked heads of the tile's model.
        decorrelated: whether its item rows are decorrelated.
        tile: the samples.
        received: the start.
    """

    def __init__(
        self, config: HeteFedRecConfig, heads: PrefixHeads, tile: Tile, received: ReceivedModel, *, decorrelated: bool
    ) -> None:
        self.config, self.heads, self.received = config, heads, received
        # [clients, 1, rows]: the axis of 1 spreads over the heads.
        self.labels = tile.labels.unsqueeze(1)
        # [clients, 1, rows]: 1 / samples, and 0 at padding, so that a sum over rows is a mean over samples.
        self.weight = (tile.real / tile.count.clamp(min=1).unsqueeze(1)).unsqueeze(1)
        self.edges = edges(tile.labels) if config.base == "lightgcn" else None
        self.gathers = config.propagation == "centre"
        self.decorrelation = (
            Decorrelation(config.decorrelation, tile.real.float(), tile.count) if decorrelated else None
        )
        clients = len(tile.count)
        # One flat buffer with named views: an optimiser steps once for all heads, and in whole vector registers.
        self.flat, self.weights = arena(heads.shapes(clients))
        self.flat_gradient, self.gradient = arena(heads.shapes(clients))
        for name, values in self.weights.items():
            values.copy_(received.heads[name])
        self.flat_user, user = arena({"user": (clients, heads.width)})
        self.user = user["user"].copy_(received.user)
        self.rows = received.rows.clone()
        self.bias = None if received.bias is None else received.bias.clone()

    def run(self, steps: int) -> TrainedTile:
        """`user_steps` on the user vector, then `steps` on everything."""
        c = self.config
        start = self.flat.clone()
        by_user = local_optimiser(c.user_optimiser, self.flat_user, c.lr_user)
        by_head = local_optimiser(c.local_optimiser, self.flat, c.lr_heads)
        by_row = local_optimiser(c.local_optimiser, self.rows, c.lr_items)
        by_bias = None if self.bias is None else local_optimiser(c.local_optimiser, self.bias, c.lr_bias)
        # The gradient of user vectors, laid out like the vectors themselves because the optimiser steps on the buffer.
        flat_user, user = arena({"user": tuple(self.user.shape)})
        # Item rows stand still during these steps, so this is computed once.
        own = self._own() if c.user_steps else None
        for _ in range(c.user_steps):
            user["user"].copy_(self._by_user(own))
            by_user.step_(flat_user)
        for _ in range(steps):
            d_user, d_rows, d_bias = self._gradients()
            # All gradients were taken at one point, so the steps that follow may come in any order.
            user["user"].copy_(d_user)
            by_user.step_(flat_user)
            by_head.step_(self.flat_gradient)
            by_row.step_(d_rows)
            if by_bias is not None:
                by_bias.step_(d_bias)
        # `weights` are views of this buffer, so from here on they hold changes.
        self.flat.sub_(start)
        bias = None if self.bias is None or self.received.bias is None else self.bias.sub_(self.received.bias)
        return TrainedTile(self.user, self.rows.sub_(self.received.rows), bias, self.heads.unpack(self.weights))

    def _by_user(self, own: Tensor | None) -> Tensor:
        """The gradient by user vectors alone; a star graph spreads the user vector to the items and needs theirs."""
        if self.edges is not None and not self.gathers:
            return self._gradients()[0]
        # The own parts a_j |v_j|^2 contain items only, so `own` holds while user vectors move.
        user = self.user if self.edges is None else gather(self.user, self.rows, self.edges)
        forward = self.heads.forward(self.weights, user, self.rows)
        d_user = self.heads.user_gradient(self.weights, self.rows, forward, self._by_logit(forward, own))
        return self._penalised_(d_user)

    def _gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by user vectors, rows and bias; those by the heads are written to their arena."""
        user, rows, own = self.user, self.rows, self._own()
        if self.edges is not None and self.gathers:
            user = gather(user, rows, self.edges)
        elif self.edges is not None:
            user, rows = propagate(user, rows, self.edges)
        forward = self.heads.forward(self.weights, user, rows)
        dlogits = self._by_logit(forward, own)
        d_user, d_rows = self.heads.backward(self.weights, user, rows, forward, dlogits, self.gradient)
        if self.edges is not None and self.gathers:
            # reach [width, heads] spreads gradients of heads over the prefixes that they read.
            d_own = None if own is None else torch.matmul(self.heads.reach(), dlogits)
            add_gathered_gradient_(d_rows, d_user, rows, self.edges, d_own)
        elif self.edges is not None:
            # The propagation is linear and symmetric, so its transpose is itself.
            d_user, d_rows = proximal_step(d_user, d_rows, self.edges)
        if self.decorrelation is not None:
            self.decorrelation.add_gradient_(d_rows, self.rows)
        # [clients, heads, rows] summed over heads: the item bias is in the logits of all of them.
        return self._penalised_(d_user), d_rows, dlogits.sum(1)

    def _own(self) -> Float[Tensor, "clients heads rows"] | None:
        """The share of positives in their own inner products with the gathered user vector."""
        if self.edges is None or not (self.gathers and self.heads.inner):
            return None
        return own_part(self.rows, self.edges, self.heads.reach())

    def _penalised_(self, d_user: Float[Tensor, "clients width"]) -> Float[Tensor, "clients width"]:
        return d_user.add_(self.user, alpha=self.config.user_l2) if self.config.user_l2 else d_user

    def _by_logit(self, forward: Forward, own: Tensor | None) -> Float[Tensor, "clients heads rows"]:
        """The derivative of the cross-entropies by every logit."""
        logits = forward.logits if self.bias is None else forward.logits + self.bias.unsqueeze(1)
        if own is not None:
            logits = logits - own
        # d/dz of the cross-entropy is sigmoid(z) - label; the weight makes it one of the mean.
        return logits.sigmoid().sub_(self.labels).mul_(self.weight)
