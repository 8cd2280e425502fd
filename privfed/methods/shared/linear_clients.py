"""The clients of methods with a linear private head on one shared item table (FedMF, PFedRec)."""

from typing import Protocol

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients
from privfed.methods.client_data import ClientData
from privfed.methods.shared.heads import LinearHead
from privfed.methods.shared.linear_epoch import LinearRates, linear_changes, linear_epoch
from privfed.methods.shared.local_training import Parameters, draw_samples, local_epoch, local_tables, whole_catalogue
from privfed.methods.shared.samples import NegativeSampler, Samples, TouchedRows, touched_rows
from privfed.updates import ClientUpdates, Rows


class LocalTableConfig(Protocol):
    """Settings of local training on a table."""

    @property
    def lr(self) -> float:
        """Base learning rate."""

    @property
    def item_lr_factor(self) -> float:
        """Item learning rate = lr x this x number of items."""

    @property
    def negatives(self) -> int:
        """Distinct negatives per positive."""

    @property
    def batch_size(self) -> int:
        """Samples per step."""


class LinearClients(StatefulClients):
    """One linear head per user.

    Args:
        config: settings of local training.
        data: what the hosted users know.
        head: the head, stacked over clients.
        private: its parameters for every user.
        lr_head: learning rate of the head.
        together: whether items step by the head as it was, together with it, or by the one that has stepped.
    """

    steps = frozenset({"train"})

    def __init__(
        self,
        config: LocalTableConfig,
        data: ClientData,
        head: LinearHead,
        private: PrivateState,
        *,
        lr_head: float,
        together: bool,
    ) -> None:
        self.head, self.private, self.n_items = head, private, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        self.rates = LinearRates(lr_head, config.lr * config.item_lr_factor * data.n_items, together)
        self._batch_size = config.batch_size

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """One local epoch on the head and the touched item rows."""
        samples = draw_samples(self.sampler, call)
        rows = touched_rows(samples, self.n_items)
        start, places = message.places("items", rows.owner, rows.ids)
        heads = self.private.rows(call.clients)
        if compiled_for(start):
            changes, heads = linear_changes(samples, rows, (start, places), heads, self._batch_size, self.rates)
        else:
            changes = start.index_select(0, places)
            before = changes.clone()
            heads = linear_pass(self.head, samples, rows, changes, heads, self._batch_size, self.rates)
            changes.sub_(before)
        self.private.stage(call.clients, heads)
        update = Rows("items", rows.owner, rows.ids, changes)
        return ClientUpdates(call.clients, call.schema, [update])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the private head on the client's own copy of the table."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        heads = self.private.rows(clients) if updates is None else self.private.staged(clients)
        return self.head.logits(heads, local_tables(message, updates, candidates))


def linear_pass(
    head: LinearHead,
    samples: Samples,
    rows: TouchedRows,
    table: Float[Tensor, "rows dim"],
    heads: Parameters,
    batch_size: int,
    rates: LinearRates,
) -> Parameters:
    """One local pass over every client's samples: `table` is updated in place, and the new heads are returned."""
    if compiled_for(table):
        return linear_epoch(samples, rows, table, heads, batch_size, rates)

    def step(p: Parameters, q: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """A step of a tile of heads, in place, off the processor; returns dL/dq `[n, batch, dim]`."""
        if rates.together:
            dq = head.item_gradient(p, q, y, weight)
            head.step_head_(p, q, y, weight, rates.head)
            return dq
        head.step_head_(p, q, y, weight, rates.head)
        return head.item_gradient(p, q, y, weight)

    return local_epoch(samples, rows, table, heads, step, batch_size=batch_size, lr_items=rates.items)


def compiled_for(table: Tensor) -> bool:
    """Whether a whole epoch on the table runs as machine code of the processor, and not step by step."""
    return table.is_cpu
