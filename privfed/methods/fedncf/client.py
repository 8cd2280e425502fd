"""Clients of FedNCF: a private user vector, trained together with copies of the table and the perceptron."""

from functools import partial

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.fedncf.config import FedNCFConfig
from privfed.methods.shared.heads import NeuralHead
from privfed.methods.shared.interaction_dp import InteractionTrainer
from privfed.methods.shared.local_training import (
    Parameters,
    draw_samples,
    local_epoch,
    local_tables,
    whole_catalogue,
)
from privfed.methods.shared.record_gradients import clipped_neural
from privfed.methods.shared.samples import NegativeSampler, touched_rows
from privfed.updates import ClientUpdates, Dense, Part, Rows


class FedNCFClients(StatefulClients):
    """Clients: one vector per user, drawn by the user's own key."""

    steps = frozenset({"train"})

    noisy = frozenset({"train"})

    def __init__(self, config: FedNCFConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head = NeuralHead(config.dim, config.hidden)
        rates = dict.fromkeys(self.head.shapes(), config.lr)
        rates |= {"user": config.lr * config.user_lr_factor, "items": config.lr * config.item_lr_factor * data.n_items}
        gradients = partial(clipped_neural, self.head)
        self.noisily = InteractionTrainer(data.positives, config.negatives, gradients, rates, config.lr)

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            vectors = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.dim)
            return {"user": vectors.mul_(config.initial_scale)}

        self.private = data.private_state(start)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch of joint SGD on user vector, perceptron and touched item rows, or the plan's noisy steps."""
        shared = self._perceptron(message, len(call.clients))
        everyone = call.clients.new_tensor(range(len(call.clients)))
        items: Part
        if call.noisy_steps is None:
            new, items = self._epoch(call, message, shared)
        else:
            parameters = self.private.rows(call.clients) | shared
            new, changes = self.noisily.train(call, parameters, message.shared["items"])
            items = Dense("items", everyone, changes)
        self.private.stage(call.clients, {"user": new.pop("user")})
        weights = [Dense(name, everyone, value.sub_(shared[name])) for name, value in new.items()]
        return ClientUpdates(call.clients, call.schema, [items, *weights])

    def _epoch(self, call: Call, message: Message, shared: Parameters) -> tuple[Parameters, Rows]:
        """Mini-batch SGD over every sample: new parameters, and what the touched rows changed by."""
        c = self.config
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        start = message.rows("items", rows.owner, rows.ids)
        table = start.clone()
        lr_user = c.lr * c.user_lr_factor

        def step(p: Parameters, q: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return self.head.step_(p, q, y, weight, c.lr, lr_user)

        new = local_epoch(
            samples,
            rows,
            table,
            self.private.rows(call.clients) | shared,
            step,
            batch_size=c.batch_size,
            lr_items=c.lr * c.item_lr_factor * self.n_items,
        )
        return new, Rows("items", rows.owner, rows.ids, table.sub_(start))

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the client's own perceptron on its own copy of the item table."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        p = self._perceptron(message, len(clients))
        if updates is None:
            p |= self.private.rows(clients)
        else:
            p = {name: value + updates.stacked(name) for name, value in p.items()}
            p |= self.private.staged(clients)
        return self.head.logits(p, local_tables(message, updates, candidates))

    def _perceptron(self, message: Message, clients: int) -> Parameters:
        names = self.head.shapes()
        return {name: message.shared[name].expand(clients, *message.shared[name].shape) for name in names}
