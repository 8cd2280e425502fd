"""CoLR's clients: a private vector each, and a local factor of the item table's update."""

from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.colr.config import CoLRConfig
from privfed.methods.shared.heads import LinearHead, bce_gradient
from privfed.methods.shared.local_training import Parameters, draw_samples, local_epoch, whole_catalogue
from privfed.methods.shared.samples import NegativeSampler, touched_rows
from privfed.updates import ClientUpdates, Rows


class CoLRClients(StatefulClients):
    """One vector per user, drawn by the user's own key; it steps together with the factor rows of sampled items."""

    steps = frozenset({"train"})

    def __init__(self, config: CoLRConfig, data: ClientData, streams: Streams) -> None:
        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            vectors = streams.normal(Purpose.INITIALISE, 0, 0, users.tolist(), config.dim)
            return {"w": vectors.mul_(config.initial_scale)}

        self.config, self.n_items = config, data.n_items
        self.private = data.private_state(start)
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head = LinearHead(config.dim, bias=False)
        # The released code damps factors so, by its analysis of how far a random basis is off.
        self.lr_factors = config.lr * config.item_lr_factor * data.n_items * (config.rank / config.dim) ** 0.5

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local passes on the vector and on factors, which start at zero."""
        c = self.config
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        fixed = message.rows("items", rows.owner, rows.ids)
        # [rows, dim + rank]: the fixed row of Q, then the row of A.
        table = torch.cat([fixed, torch.zeros(len(fixed), c.rank)], 1)
        step = partial(self._step, message.shared["basis"])
        vectors = self.private.rows(call.clients)
        for _ in range(c.epochs):
            vectors = local_epoch(
                samples, rows, table, vectors, step, batch_size=c.batch_size, lr_items=self.lr_factors
            )
        self.private.stage(call.clients, vectors)
        factors = table[:, c.dim :].contiguous()
        return ClientUpdates(call.clients, call.schema, [Rows("factors", rows.owner, rows.ids, factors)])

    def _step(self, basis: Float[Tensor, "rank dim"], p: Parameters, rows: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """A step of a tile of vectors, in place; returns dL/d[Q, A], zero for Q, `[n, batch, dim + rank]`."""
        fixed, factors = rows[:, :, : self.config.dim], rows[:, :, self.config.dim :]
        q = fixed + factors @ basis
        slope = bce_gradient(self.head.logits(p, q), y, weight)
        of_factors = slope.unsqueeze(2) * (p["w"] @ basis.T).unsqueeze(1)
        p["w"].sub_(torch.bmm(slope.unsqueeze(1), q).squeeze(1), alpha=self.config.lr * self.config.user_lr_factor)
        return torch.cat([torch.zeros_like(fixed), of_factors], 2)

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the private vector on the client's own copy of the table, Q + A B after training."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        own = self.private.rows(clients) if updates is None else self.private.staged(clients)
        owner, ids = torch.arange(len(clients)).repeat_interleave(candidates.shape[1]), candidates.reshape(-1)
        q = message.rows("items", owner, ids)
        if updates is not None:
            q.add_(updates.rows_at("factors", owner, ids) @ message.shared["basis"])
        return self.head.logits(own, q.view(*candidates.shape, -1))
