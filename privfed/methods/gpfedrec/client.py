"""GPFedRec's clients: a user vector and a perceptron each, and a local copy of the item table."""

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import PUBLIC, Call, Message, Purpose, StatefulClients, Streams, alike
from privfed.methods.client_data import ClientData
from privfed.methods.gpfedrec.config import GPFedRecConfig
from privfed.methods.gpfedrec.proximal import ProximalTables
from privfed.methods.shared.heads import NeuralHead, initial_perceptron
from privfed.methods.shared.local_training import (
    Decay,
    Parameters,
    ProximalTerm,
    draw_samples,
    local_epoch,
    local_tables,
    whole_catalogue,
)
from privfed.methods.shared.samples import NegativeSampler, steps_taken, touched_rows
from privfed.updates import ClientUpdates


class GPFedRecClients(StatefulClients):
    """All clients start from one public copy of user vector and perceptron, as in the released code."""

    steps = frozenset({"train"})

    def __init__(self, config: GPFedRecConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head = NeuralHead(config.dim, config.hidden)
        unit = streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], self.head.size)[0]
        user = streams.normal(Purpose.INITIALISE, 0, 2, [PUBLIC], config.dim)[0].mul_(config.initial_scale)
        self.private = data.private_state(alike({"user": user, **initial_perceptron(self.head, unit)}))

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
        lr_user = c.lr * (c.eta - 1)

        def step(p: Parameters, q: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return self.head.step_(p, q, y, weight, c.lr, lr_user)

        new = local_epoch(
            samples,
            rows,
            table,
            self.private.rows(call.clients),
            step,
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
