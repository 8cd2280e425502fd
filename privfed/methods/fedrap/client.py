"""FedRAP's clients: a linear score of the sum of a common item row and a personal one."""

from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import PUBLIC, Call, Message, Purpose, Ranges, StatefulClients, Streams, alike
from privfed.methods.client_data import ClientData
from privfed.methods.fedrap.config import FedRAPConfig
from privfed.methods.shared.heads import LinearHead, bce_gradient, kaiming_uniform
from privfed.methods.shared.local_training import Parameters, draw_samples, local_epoch, local_tables, whole_catalogue
from privfed.methods.shared.samples import NegativeSampler, touched_rows
from privfed.updates import ClientUpdates, Rows


class PersonalTablesError(ValueError):
    """The personal tables of all users do not fit the memory they were given."""


class FedRAPClients(StatefulClients):
    """A vector, a bias and an item table per user, all from one public copy; only common rows are uploaded.

    `private` has one entry per user, `personal` one per user and item, so that a round reads and stages only the rows
    that it samples.

    Raises:
        PersonalTablesError: the personal tables need more than `personal_memory_gib`.
    """

    steps = frozenset({"train"})

    def __init__(self, config: FedRAPConfig, data: ClientData, streams: Streams) -> None:
        _refuse_what_does_not_fit(config, data)
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.head, self.common_lr = LinearHead(config.dim), config.common_lr_factor * data.n_items
        unit = streams.uniform(Purpose.INITIALISE, 0, 1, [PUBLIC], config.dim + 1)[0]
        head = {
            "w": kaiming_uniform((config.dim,), config.dim, unit[:-1]),
            "b": kaiming_uniform((1,), config.dim, unit[-1:])[0],
        }
        flat = streams.normal(Purpose.INITIALISE, 0, 2, [PUBLIC], data.n_items * config.dim)[0]
        table = flat.mul_(config.initial_scale).view(data.n_items, config.dim)
        self.private = data.private_state(alike(head))
        # Row user x items + item, all from one table.
        self.personal = data.storage.keep(
            "personal", data.n_users * data.n_items, lambda places: {"personal": table[places % data.n_items]}
        )

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local passes on vector, common and personal rows at once; rows that nobody sampled stay as they are."""
        c = self.config
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        places = call.clients[rows.owner] * self.n_items + rows.ids
        start = message.rows("items", rows.owner, rows.ids)
        # [rows, 2 dim]: the common row, then the personal one.
        table = torch.cat([start, self.personal.rows(places)["personal"]], 1)
        heads = self.private.rows(call.clients)
        for epoch in range(c.epochs):
            decay = c.round_decay**call.round * c.epoch_decay**epoch
            step = partial(self._step, decay, c.grown(call.round))
            # The step scales gradients itself, because both halves of a row have learning rates of their own.
            heads = local_epoch(samples, rows, table, heads, step, batch_size=c.batch_size, lr_items=1.0)
        common, personal = table[:, : c.dim], table[:, c.dim :]
        self.private.stage(call.clients, heads)
        self.personal.stage(places, {"personal": personal.contiguous()})
        return ClientUpdates(call.clients, call.schema, [Rows("items", rows.owner, rows.ids, common - start)])

    def _step(self, decay: float, grown: float, p: Parameters, q: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """One step of a tile on w and b, in place; returns the steps of common and personal rows `[n, batch, 2 dim]`.

        The loss of a batch is its cross-entropy - distance * mean((personal - common)^2) + sparsity * mean(|common|).
        """
        c = self.config
        common, personal = q[:, :, : c.dim], q[:, :, c.dim :]
        both = common + personal
        slope = bce_gradient(self.head.logits(p, both), y, weight)
        gradient = slope.unsqueeze(2) * p["w"].unsqueeze(1)
        p["w"].sub_(torch.bmm(slope.unsqueeze(1), both).squeeze(1), alpha=decay * c.lr)
        p["b"].sub_(slope.sum(1), alpha=decay * c.lr)
        # [n, batch, 1]: padding has weight 0, so that it moves nothing.
        share = weight.unsqueeze(2) * (grown / c.dim)
        apart = (personal - common).mul_(share * (2 * c.distance))
        of_common = gradient + apart + common.sign() * (share * c.sparsity)
        return torch.cat([of_common.mul_(decay * self.common_lr), (gradient - apart).mul_(decay * c.personal_lr)], 2)

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the sums of the client's common and personal rows."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        heads = self.private.rows(clients) if updates is None else self.private.staged(clients)
        both = local_tables(message, updates, candidates)
        both.add_(self._personal_rows(clients, updates, candidates).view_as(both))
        return self.head.logits(heads, both)

    def commit(self) -> None:
        """The release was confirmed: staged state becomes current."""
        super().commit()
        self.personal.commit()

    def discard(self) -> None:
        """Forget staged state after an aborted round."""
        super().discard()
        self.personal.discard()

    def state(self) -> dict[str, Tensor]:
        """Committed heads and personal tables."""
        return super().state() | self.personal.state()

    def ranges(self) -> Mapping[str, Ranges]:
        """The same, to be written away range by range."""
        return {**super().ranges(), **self.personal.ranges()}

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Continue from `state()`."""
        super().load({name: state[name] for name in self.private.names})
        self.personal.load({name: state[name] for name in self.personal.names})

    def _personal_rows(
        self,
        clients: Int64[Tensor, " clients"],
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"],
    ) -> Float[Tensor, "rows dim"]:
        """Personal rows of all candidates, those of an update as the step that made it staged them."""
        wanted = (clients.unsqueeze(1) * self.n_items + candidates).flatten()
        rows = self.personal.rows(wanted)["personal"]
        for part in updates.parts if updates is not None else ():
            if isinstance(part, Rows) and len(part.ids):
                trained = clients[part.owner] * self.n_items + part.ids
                # Pairs of a part ascend with the position of their client, which numbers of clients need not do.
                order = trained.argsort()
                found = torch.searchsorted(trained[order], wanted).clamp_(max=len(trained) - 1)
                place = order[found]
                staged = self.personal.staged(trained)["personal"][place]
                rows = torch.where((trained[place] == wanted).unsqueeze(1), staged, rows)
        return rows


def _refuse_what_does_not_fit(config: FedRAPConfig, data: ClientData) -> None:
    """Users x items x dim numbers of 4 bytes, measured before they are made; files are bounded by their disk."""
    needed = data.n_users * data.n_items * config.dim * 4
    if data.storage.in_memory and needed > config.personal_memory_gib * 2**30:
        raise PersonalTablesError(
            f"personal tables of {data.n_users} users, {data.n_items} items and dim {config.dim} need "
            f"{needed / 2**30:.3g} GiB, more than personal_memory_gib = {config.personal_memory_gib:g}: raise it, "
            f"lower dim, or keep them in files (privfed run --client-state disk)"
        )
