"""GPFedRec's clients: a user vector and a perceptron each, and a local copy of the item table."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.federation import Call, Message, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.proximal import ProximalTables
from privfed.methods.gpfedrec.score_heads import ScoreHead, score_head
from privfed.methods.shared.local_training import (
    Decay,
    ProximalTerm,
    draw_samples,
    local_epoch,
    local_tables,
    whole_catalogue,
)
from privfed.methods.shared.samples import NegativeSampler, steps_taken, touched_rows
from privfed.updates import ClientUpdates, Rows


class GPFedRecClients(StatefulClients):
    """All clients start from one public copy of user vector and perceptron, as in the released code."""

    def __init__(self, config: GPFedRecConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.positives = data.positives
        self.head: ScoreHead = score_head(config)
        self.private = data.private_state(self.head.start(streams))

    @property
    def steps(self) -> frozenset[str]:
        """A history is shown only where the graph is made from histories."""
        return frozenset({"train", "history"} if self.config.reads_histories else {"train"})

    def history(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """A one for every training item."""
        own = self.positives.subset(on_host(call.clients))
        order = placed(own.pairs(own.n_items))
        owner, ids = order // own.n_items, order % own.n_items
        return ClientUpdates(call.clients, call.schema, [Rows("history", owner, ids, torch.ones(len(ids), 1))])

    @property
    def lr_items(self) -> float:
        """Learning rate of item rows."""
        return self.config.lr * (self.config.eta * self.n_items - 1)

    @property
    def proximal_strength(self) -> float:
        """Share of its distance to the target that every row moves per step: 2 lr_items reg / (items x dim)."""
        return 2 * self.lr_items * self.config.reg / (self.n_items * self.config.dim)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch with the proximal term towards the personal target; every row of the table moves."""
        c = self.config
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        table = message.rows("items", rows.owner, rows.ids)
        pull = ProximalTerm(message.rows("targets", rows.owner, rows.ids), self.proximal_strength)
        new = local_epoch(
            samples,
            rows,
            table,
            self.head.prepared(self.private.rows(call.clients), samples, rows, table),
            self.head.step_,
            batch_size=c.batch_size,
            lr_items=self.lr_items,
            proximal=pull,
        )
        self.private.stage(call.clients, new)
        base = message.shared["items"]
        update = ProximalTables(
            "items",
            message.personal["targets"],
            base,
            1 - Decay(self.proximal_strength, steps_taken(samples, c.batch_size)).untouched(),
            rows.owner * self.n_items + rows.ids,
            table.sub_(base.index_select(0, rows.ids)),
        )
        return ClientUpdates(call.clients, call.schema, [update])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the private perceptron on the client's own copy of the table."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        p = self.private.rows(clients) if updates is None else self.private.staged(clients)
        return self.head.logits(p, local_tables(message, updates, candidates))
