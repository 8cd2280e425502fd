"""Clients of federated LightGCN: a private user vector, and a graph of the own items around it."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.fedlightgcn.config import FedLightGCNConfig
from privfed.methods.fedlightgcn.model import StarGraph, sums_of_edges
from privfed.methods.shared.local_training import draw_samples, local_epoch, local_tables, whole_catalogue
from privfed.methods.shared.samples import NegativeSampler, touched_rows
from privfed.methods.shared.vae_clients import UserRows
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.updates import ClientUpdates, Rows


class FedLightGCNClients(StatefulClients):
    """Clients: one vector per user, drawn by the user's own key; it moves together with the item rows."""

    steps = frozenset({"train"})

    def __init__(self, config: FedLightGCNConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.rows = UserRows(data.positives)
        lr_items = config.lr * config.item_lr_factor * data.n_items
        self.graph = StarGraph(config.propagation, config.lr * config.user_lr_factor, lr_items)

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            vectors = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.dim)
            return {"user": vectors.mul_(config.initial_scale)}

        self.private = data.private_state(start)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch on the user vector and the item rows of the graph and of the negatives."""
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        start = message.rows("items", rows.owner, rows.ids)
        table, count = start.clone(), len(call.clients)
        edge = _edge(self.rows.counts[call.clients])
        # 1 where a row is that of a training item; every one of them is among the samples.
        positive = torch.zeros(len(start)).index_add_(0, rows.of_sample, samples.labels).clamp_(max=1)
        edges = positive * edge[rows.owner]
        parameters = self.private.rows(call.clients) | {
            "star": sums_of_edges(rows.owner, edges, start, count),
            "shift": torch.zeros(count, self.config.dim),
            "edge": edge,
        }
        batch, lr = self.config.batch_size, self.graph.lr_items
        new = local_epoch(samples, rows, table, parameters, self.graph.step_, batch_size=batch, lr_items=lr)
        table.addcmul_(edges.unsqueeze(1), new["shift"][rows.owner])
        self.private.stage(call.clients, {"user": new["user"]})
        return ClientUpdates(call.clients, call.schema, [Rows("items", rows.owner, rows.ids, table.sub_(start))])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits on the client's own graph and its own copy of the table."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        user = (self.private.rows(clients) if updates is None else self.private.staged(clients))["user"]
        mine = self.rows.select(clients)
        edge = _edge(mine.counts)
        vectors = message.rows("items", mine.owner, mine.items)
        if updates is not None:
            vectors = vectors + updates.rows_at("items", mine.owner, mine.items)
        star = sums_of_edges(mine.owner, edge[mine.owner], vectors, len(clients))
        a = _mask(mine, len(clients)).gather(1, candidates) * edge.unsqueeze(1)
        centre, leaves = self.graph.propagated(user, star, local_tables(message, updates, candidates), a)
        return self.graph.logits(centre, leaves, a)


def _edge(counts: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """A of a training item: 1 over the root of how many there are."""
    return counts.clamp(min=1).float().rsqrt()


def _mask(mine: OwnRows, clients: int) -> Float[Tensor, "clients items"]:
    mask = torch.zeros(clients, mine.n_items)
    mask[mine.owner, mine.items] = 1
    return mask
