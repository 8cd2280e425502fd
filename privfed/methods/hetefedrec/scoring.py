"""Scores on a device: its own head on its own copy of its group's table, over the whole catalogue.

A client's copy is what it received plus, right after training, its own update. Fed-LightGCN propagates over the
client's star graph first, so its user vector needs the rows of all training positives whatever the candidates are.
"""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.tiles import TILE
from privfed.federation import Message
from privfed.methods.client_data import ClientData
from privfed.methods.hetefedrec.layout import ModelLayout
from privfed.methods.hetefedrec.star_graph import edges, gather, propagate
from privfed.updates import ClientUpdates

_NUMBERS_AT_ONCE = 2**21
"""Entries of item tables that are laid out together."""


class Scorer:
    """Scores of clients that all received one message.

    Args:
        layout: who holds what.
        data: what the hosted users know; Fed-LightGCN reads their positives.
        message: what they received.
    """

    def __init__(self, layout: ModelLayout, data: ClientData, message: Message) -> None:
        self.layout, self.data, self.message = layout, data, message

    def received(
        self,
        users: Int64[Tensor, " n"],
        model: Int64[Tensor, " n"],
        vectors: Float[Tensor, "n width"],
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "n c"] | None,
    ) -> Float[Tensor, "n c"]:
        """Logits of `users` on what they received, plus `updates`, which are theirs in this order.

        Args:
            users: users to score for.
            model: of every one of them.
            vectors: their user vectors, of which each uses its own width.
            updates: of their latest step, or None.
            candidates: items to score; None for all.
        """
        scores = torch.empty(len(users), self.data.n_items if candidates is None else candidates.shape[1])
        for which, some in self._portions(model):
            table, bias = self._tables(which, len(some))
            weights = self.layout.head_of(self.message.shared, which)
            if updates is not None:
                self._add_(which, updates, some, table, bias)
                weights = {
                    name: value + updates.stacked(f"{self.layout.head_name(which)}.{name}")[some]
                    for name, value in weights.items()
                }
            width = self.layout.models[which].width
            scores[some] = self._logits(
                which, users[some], vectors[some, :width], table, bias, weights,
                None if candidates is None else candidates[some],
            )  # fmt: skip
        return scores

    def _portions(self, model: Tensor) -> Iterator[tuple[int, Tensor]]:
        for which, mine in enumerate(self.layout.models):
            at_once = max(1, min(TILE, _NUMBERS_AT_ONCE // (self.data.n_items * mine.width)))
            for some in torch.split((model == which).nonzero().squeeze(1), at_once):
                if len(some):
                    yield which, some

    def _tables(self, model: int, clients: int) -> tuple[Tensor, Tensor | None]:
        """Every client's copy of what it received: item rows and, where there is one, item bias."""
        table = self.message.shared[f"items.{self.layout.models[model].name}"]
        bias = None
        if self.layout.config.item_bias:
            bias = self.message.shared[self.layout.bias_name(model)].view(-1).repeat(clients, 1)
        return table.repeat(clients, 1, 1), bias

    def _add_(self, model: int, updates: ClientUpdates, some: Tensor, table: Tensor, bias: Tensor | None) -> None:
        """Add the clients' own updates to their copies."""
        segments = {segment.block: segment for segment in self.layout.held(model)}
        out = {name: torch.empty(*table.shape[:2], segment.width) for name, segment in segments.items()}
        if bias is not None:
            out[self.layout.bias_name(model)] = torch.empty(*table.shape[:2], 1)
        for name, moved in updates.materialise(some, out).items():
            if name in segments:
                table[..., segments[name].start : segments[name].stop] += moved
            elif bias is not None:
                bias += moved.squeeze(2)

    def _logits(
        self,
        model: int,
        users: Tensor,
        vectors: Tensor,
        table: Tensor,
        bias: Tensor | None,
        weights: Mapping[str, Tensor],
        candidates: Tensor | None,
    ) -> Tensor:
        items = table.transpose(1, 2)
        if self.layout.config.base == "lightgcn":
            positive = placed(self.data.positives.mask(on_host(users))).float()
            if self.layout.config.propagation == "centre":
                vectors = gather(vectors, items, edges(positive))
            else:
                vectors, items = propagate(vectors, items, edges(positive))
        if candidates is not None:
            items = items.gather(2, candidates.unsqueeze(1).expand(-1, items.shape[1], -1))
            bias = None if bias is None else bias.gather(1, candidates)
        head = self.layout.head(model)
        stacked = {name: torch.zeros(shape) for name, shape in head.shapes(len(users)).items()}
        head.pack_(stacked, [weights])
        logits = head.forward(stacked, vectors, items).logits[:, 0]
        return logits if bias is None else logits + bias
