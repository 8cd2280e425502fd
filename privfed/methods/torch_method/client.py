"""The clients: every client's own parameters, and local SGD of a whole tile of clients at once.

Item tables that a module reads only at the items it scores are trained as rows, as in the native methods: a
client holds the rows its samples touch, and each batch sees one row per sample. Everything else is stacked whole.
Tables travel as `Rows`, all else (one number per item included) as `Dense`.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.tiles import padded, tile_size
from privfed.federation import Call, Message, Purpose, StatefulClients, Streams, alike
from privfed.methods.client_data import ClientData
from privfed.methods.shared.local_training import Parameters, draw_samples, whole_catalogue
from privfed.methods.shared.samples import NegativeSampler, Samples, TouchedRows, touched_rows
from privfed.methods.torch_method.batched import client_batches
from privfed.methods.torch_method.parameters import ParameterLayout
from privfed.methods.torch_method.spec import TorchConfig, TorchMethodSpec, public_words
from privfed.updates import ClientUpdates, Dense, Part, Rows, add_rows_

_ITEMS_AT_ONCE = 2048
"""Items of each client that are scored together: bounds what a module may keep in memory at once."""


class TorchClients(StatefulClients):
    """Clients of a module's users.

    Args:
        spec: what the author gave.
        config: settings.
        data: what the hosted users know.
        streams: addressed randomness.

    Raises:
        TorchMethodError: the module cannot be trained.
    """

    steps = frozenset({"train"})

    def __init__(self, spec: TorchMethodSpec, config: TorchConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.n_items = config, data.n_items
        self.sampler = NegativeSampler(data.positives, data.excluded, config.negatives)
        layout = ParameterLayout.from_spec(spec, config, data.n_items, public_words(streams))
        self.module = layout.stacked(spec)
        self._period = layout.period(self.module, padded(config.batch_size))
        self.lr = spec.rates(config, data.n_items, [*layout.private, *layout.shared])
        by_row = layout.tables if layout.by_row else ()
        self._row_shapes = {name: layout.shared[name].shape[1:] for name in by_row}
        self._whole = [name for name in layout.shared if name not in by_row]
        same = alike(layout.private)

        def start(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            own = same(users)
            if spec.per_user_start and own:
                words = streams.words(Purpose.INITIALISE, 0, 0, users.tolist(), 2)
                for place, key in enumerate(words):
                    drawn = dict(spec.build(config, data.n_items, key).named_parameters())
                    for name, values in own.items():
                        values[place] = drawn[name].detach()
            return own

        self.private = data.private_state(start)

    def train(self, call: Call, message: Message) -> ClientUpdates:
        """Local SGD on private and shared parameters together, all from their old values."""
        samples, clients = draw_samples(self.sampler, call), len(call.clients)
        received = self._received(message, None, clients)
        new = self.private.rows(call.clients) | {name: value.clone() for name, value in received.items()}
        rows = touched_rows(samples, self.n_items) if self._row_shapes else _no_rows()
        start = {name: _flat(message.shared[name]).index_select(0, rows.ids) for name in self._row_shapes}
        tables = {name: table.clone() for name, table in start.items()}
        self._descend_(samples, call.clients, rows, new, tables)
        self.private.stage(call.clients, {name: new[name] for name in self.private.names})
        everyone = torch.arange(clients)
        parts: list[Part] = [Dense(name, everyone, new[name].sub_(value)) for name, value in received.items()]
        for name, table in tables.items():
            moved = table.sub_(start[name])
            if self._row_shapes[name]:
                parts.append(Rows(name, rows.owner, rows.ids, moved))
            else:
                numbers = moved.new_zeros(clients, self.n_items)
                numbers[rows.owner, rows.ids] = moved[:, 0]
                parts.append(Dense(name, everyone, numbers))
        return ClientUpdates(call.clients, call.schema, parts)

    def _descend_(
        self,
        samples: Samples,
        users: Int64[Tensor, " clients"],
        rows: TouchedRows,
        new: Parameters,
        tables: Parameters,
    ) -> None:
        """Every client's SGD steps, in place: `new` is `[clients, *shape]`, a table `[rows, width]`."""
        for clients, batches in client_batches(samples, users, self._period, self.config.batch_size):
            real = clients >= 0
            tile = {name: values.index_select(0, clients.clamp(min=0)) for name, values in new.items()}
            for batch in [batch for _ in range(self.config.epochs) for batch in batches]:
                at = rows.of_sample[batch.samples.view(-1)] if tables else rows.of_sample
                q = {
                    name: table.index_select(0, at).view(*batch.samples.shape, *self._row_shapes[name])
                    for name, table in tables.items()
                }
                items, labels = samples.items[batch.samples], samples.labels[batch.samples]
                gradients = self.module.gradients(tile | q, items, labels, batch.real)
                for name, values in tile.items():
                    values.sub_(gradients[name], alpha=self.lr[name])
                for name, table in tables.items():
                    add_rows_(table, at, gradients[name].reshape(len(at), -1) * -self.lr[name])
            for name, values in tile.items():
                new[name].index_copy_(0, clients[real], values[real])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of each device's own model, some clients and some items at a time."""
        if candidates is None:
            candidates = whole_catalogue(len(clients), self.n_items)
        parameters = self._received(message, updates, len(clients))
        parameters |= self.private.rows(clients) if updates is None else self.private.staged(clients)
        scores = torch.empty(candidates.shape)
        with torch.no_grad():
            for some in torch.split(torch.arange(len(clients)), tile_size()):
                own = {name: values[some] for name, values in parameters.items()}
                for columns in torch.split(torch.arange(candidates.shape[1]), _ITEMS_AT_ONCE):
                    items = candidates[some][:, columns]
                    q = self._rows(message, updates, some, items)
                    scores[some.unsqueeze(1), columns] = self.module.logits(own | q, items).float()
        return scores

    def _received(self, message: Message, updates: ClientUpdates | None, clients: int) -> dict[str, Tensor]:
        """Every client's copy of the parameters that are stacked whole: the message's, plus its update."""
        whole = {name: message.shared[name].expand(clients, *message.shared[name].shape) for name in self._whole}
        if updates is None:
            return whole
        return {name: value + updates.stacked(name).to(value.dtype) for name, value in whole.items()}

    def _rows(
        self, message: Message, updates: ClientUpdates | None, positions: Tensor, items: Int64[Tensor, "n c"]
    ) -> dict[str, Tensor]:
        """The rows of `items` in every client's copy of the tables, `[n, c, *row]`."""
        ids, owner = items.reshape(-1), positions.repeat_interleave(items.shape[1])
        found = {}
        for name, shape in self._row_shapes.items():
            q = _flat(message.shared[name]).index_select(0, ids)
            if updates is not None:
                q.add_(updates.rows_at(name, owner, ids) if shape else updates.stacked(name)[owner, ids].unsqueeze(1))
            found[name] = q.view(*items.shape, *shape)
        return found


def _flat(table: Tensor) -> Float[Tensor, "items width"]:
    return table.reshape(len(table), -1)


def _no_rows() -> TouchedRows:
    return TouchedRows(*(torch.empty(0, dtype=torch.int64) for _ in range(3)))
