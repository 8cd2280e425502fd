"""FedRecon's clients, which keep nothing: the user vector is rebuilt whenever it is needed."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.fedrecon.config import FedReconConfig
from privfed.methods.shared.heads import LinearHead
from privfed.methods.shared.linear_clients import linear_pass
from privfed.methods.shared.linear_epoch import LinearRates
from privfed.methods.shared.local_training import Parameters, draw_samples, local_tables, whole_catalogue
from privfed.methods.shared.samples import NegativeSampler, Samples, touched_rows
from privfed.updates import ClientUpdates, Rows

RECOMMENDING = 2**32 - 1
"""Number of the query at whose address a device draws negatives to recommend; no round makes so many queries."""


class FedReconClients(StatefulClients):
    """Stateless clients: rebuild the vector on one half of the samples with items fixed, train items on the other."""

    steps = frozenset({"train"})

    def __init__(self, config: FedReconConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items, self._streams = config, data.n_items, streams
        self.private = PrivateState({})
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head = LinearHead(config.dim, bias=False)
        item_lr = config.item_lr_factor * data.n_items
        self._rebuilding = LinearRates(config.recon_lr, 0.0, together=True)
        self._training = LinearRates(config.recon_lr if config.joint else 0.0, item_lr, together=True)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Rebuild, then train the touched item rows, which alone are uploaded."""
        samples = draw_samples(self.sampler, call)
        support, query = parted(samples) if self.config.split else (samples, samples)
        vectors = self._rebuilt(support, message, None)
        rows = touched_rows(query, self.n_items)
        start = message.rows("items", rows.owner, rows.ids)
        table = start.clone()
        for _ in range(self.config.epochs):
            vectors = linear_pass(self.head, query, rows, table, vectors, self.config.batch_size, self._training)
        return ClientUpdates(call.clients, call.schema, [Rows("items", rows.owner, rows.ids, table.sub_(start))])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of a vector that is rebuilt from all training items on the client's own copy of the table."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        vectors = self._rebuilt(self.samples_to_recommend(clients), message, updates)
        return self.head.logits(vectors, local_tables(message, updates, candidates))

    def samples_to_recommend(self, clients: Int64[Tensor, " clients"]) -> Samples:
        """All training items and negatives that are the same whenever a client recommends."""
        return draw_samples(self.sampler, Call(0, 0, "score", RECOMMENDING, clients, self._streams, {}))

    def _rebuilt(self, samples: Samples, message: Message, updates: ClientUpdates | None) -> Parameters:
        """User vectors by gradient descent from zero while item rows stay fixed."""
        rows = touched_rows(samples, self.n_items)
        table = message.rows("items", rows.owner, rows.ids)
        if updates is not None:
            table.add_(updates.rows_at("items", rows.owner, rows.ids))
        vectors = {"w": torch.zeros(len(samples.counts), self.config.dim)}
        for _ in range(self.config.recon_epochs):
            vectors = linear_pass(self.head, samples, rows, table, vectors, self.config.batch_size, self._rebuilding)
        return vectors


def parted(samples: Samples) -> tuple[Samples, Samples]:
    """The first half of every client's samples, rounded up, and the rest; samples come shuffled."""
    first = samples.counts.cumsum(0) - samples.counts
    rank = torch.arange(len(samples.owner)) - first[samples.owner]
    support = 2 * rank < samples.counts[samples.owner]
    return _part(samples, support), _part(samples, ~support)


def _part(samples: Samples, chosen: Bool[Tensor, " samples"]) -> Samples:
    owner = samples.owner[chosen]
    counts = torch.bincount(owner, minlength=len(samples.counts))
    return Samples(counts, owner, samples.items[chosen], samples.labels[chosen])
