"""Clients of FedPerGNN: a private user vector, a graph of the own items, and one gradient a round.

Devices do not train the shared parameters: they send minus the gradient of their loss, by real and by made-up items,
and get what the server makes of everybody's. Only the user vector steps on the device.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from privfed.compute.devices import placed
from privfed.compute.tiles import rungs_of, tile_size
from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.fedpergnn.config import FedPerGNNConfig
from privfed.methods.fedpergnn.model import GraphNetwork
from privfed.methods.fedpergnn.pseudo import with_pseudo_items
from privfed.methods.shared.local_training import draw_samples, whole_catalogue
from privfed.methods.shared.samples import (
    NegativeSampler,
    Samples,
    TouchedRows,
    full_batches,
    padded_one,
    touched_rows,
)
from privfed.methods.shared.vae_clients import UserRows
from privfed.updates import ClientUpdates, Dense, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """Histories of some clients: items, where there is one, and the width that its own length pads each to."""

    items: Int64[Tensor, "n h"]
    present: Bool[Tensor, "n h"]
    width: Int64[Tensor, " n"]


class FedPerGNNClients(StatefulClients):
    """Clients: one vector per user, drawn by the user's own key."""

    steps = frozenset({"train"})

    def __init__(self, config: FedPerGNNConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.network = GraphNetwork(config.dim, config.predictor, config.activation)
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.rows = UserRows(data.positives)
        self._streams = streams

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            vectors = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.dim)
            return {"user": vectors.mul_(config.initial_scale)}

        self.private = data.private_state(start)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Minus the gradient by everything shared, cut where a clip is set; the user vector takes a step."""
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        gradients = self._gradients(call.clients, samples, rows, message)
        user, by_row = gradients.pop("user"), gradients.pop("items")
        before = self.private.rows(call.clients)["user"]
        self.private.stage(call.clients, {"user": before.sub(user, alpha=self.config.user_lr)})
        owner, ids = rows.owner, rows.ids
        if self.config.pseudo_items:
            owner, ids, by_row = with_pseudo_items(call, rows, by_row, self.n_items, self.config.pseudo_items)
        keep = self._kept(owner, by_row, gradients)
        everyone = torch.arange(len(call.clients))
        parts = [
            Dense(name, everyone, value.mul_(-keep.view(-1, *(1 for _ in value.shape[1:]))))
            for name, value in gradients.items()
        ]
        return ClientUpdates(
            call.clients, call.schema, [Rows("items", owner, ids, by_row.mul(-keep[owner].unsqueeze(1))), *parts]
        )

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of what was downloaded, with the own user vector and graph."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        user = (self.private.rows(clients) if updates is None else self.private.staged(clients))["user"]
        graphs, items = self._graphs(clients), message.shared["items"]
        scores = torch.empty(candidates.shape)
        for some in torch.split(torch.arange(len(clients)), tile_size()):
            weights = self._stacked(message, len(some))
            scores[some] = self.network.logits(
                weights, user[some], items[graphs.items[some]], graphs.present[some], items[candidates[some]]
            )
        return scores

    def _gradients(
        self, users: Int64[Tensor, " n"], samples: Samples, rows: TouchedRows, message: Message
    ) -> dict[str, Tensor]:
        """Gradients of every client's mean loss: `user` `[n, dim]`, `items` `[rows, dim]` and stacked weights."""
        table = padded_one(message.rows("items", rows.owner, rows.ids)).requires_grad_()
        user = padded_one(self.private.rows(users)["user"]).requires_grad_()
        graphs = self._graphs(users)
        # Every item of a graph is a sample too, so it is found among the touched rows; padding finds the row of zeros.
        keys = rows.owner * self.n_items + rows.ids
        wanted = torch.arange(len(users)).unsqueeze(1) * self.n_items + graphs.items
        nodes = padded_one(torch.where(graphs.present, torch.searchsorted(keys, wanted), len(keys)), len(keys))
        present = padded_one(graphs.present)
        of_sample, labels = padded_one(rows.of_sample, len(keys)), padded_one(samples.labels)
        found = {name: torch.zeros(len(users), *shape) for name, shape in self.network.shapes().items()}
        for tile in full_batches(samples, graphs.width):
            width = int(graphs.width[tile.clients[0]])
            stacked = {name: value.requires_grad_() for name, value in self._stacked(message, len(tile.lanes)).items()}
            logits = self.network.logits(
                stacked,
                user[tile.lanes],
                table[nodes[tile.lanes, :width]],
                present[tile.lanes, :width],
                table[of_sample[tile.samples]],
            )
            loss = binary_cross_entropy_with_logits(logits, labels[tile.samples], tile.weight, reduction="sum")
            torch.autograd.backward(loss)
            for name, value in stacked.items():
                if value.grad is not None:
                    found[name][tile.clients] = value.grad[: len(tile.clients)]
        gradients = {"user": user, "items": table}
        return found | {n: (torch.zeros_like(v) if v.grad is None else v.grad)[:-1] for n, v in gradients.items()}

    def _kept(
        self, owner: Int64[Tensor, " rows"], by_row: Float[Tensor, "rows dim"], weights: dict[str, Tensor]
    ) -> Float[Tensor, " n"]:
        """Factor that cuts every client's gradient to the clip; 1 without one."""
        clients = len(next(iter(weights.values())))
        if self.config.gradient_clip is None:
            return torch.ones(clients)
        squares = torch.zeros(clients).index_add_(0, owner, by_row.square().sum(1))
        for value in weights.values():
            squares += value.flatten(1).square().sum(1)
        return (self.config.gradient_clip / squares.sqrt()).clamp_(max=1)

    def _stacked(self, message: Message, clients: int) -> dict[str, Tensor]:
        """A copy of the network's weights for each client."""
        names = self.network.shapes()
        return {name: message.shared[name].expand(clients, *message.shared[name].shape).clone() for name in names}

    def _graphs(self, users: Int64[Tensor, " n"]) -> Graphs:
        """The users' items; of longer histories than `max_history` a draw of the user's own, the same in all rounds."""
        mine = self.rows.select(users)
        longest = int(mine.counts.max()) if len(users) else 0
        # No word below 2^32 is as large as what fills up short histories, so real items come first.
        held = mine.counts.clamp(max=self.config.max_history)
        width = rungs_of(held)
        words = torch.full((len(users), max(longest, int(width.max()) if len(users) else 1)), 2**32)
        drawn = self._streams.words(Purpose.INITIALISE, 0, 2, users.tolist(), longest)
        words[mine.owner, mine.place] = placed(drawn.astype(np.int64))[mine.owner, mine.place]
        items = torch.zeros_like(words).index_put_((mine.owner, mine.place), mine.items)
        order = words.argsort(dim=1, stable=True)[:, : int(width.max()) if len(users) else 1]
        present = torch.arange(order.shape[1]) < held.unsqueeze(1)
        return Graphs(items.gather(1, order), present, width)
