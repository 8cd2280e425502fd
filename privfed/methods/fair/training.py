"""`DeviceTraining`: a round's training of some users on devices of one tier, from what they downloaded to what changed.

`privfed.methods.fair.kernel` does the work; here its arrays are laid out. What a device itself would have to hold of
them, `privfed.methods.fair.memory` counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64, UInt32
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.received import refuse_shape
from privfed.data import Histories
from privfed.methods.client_data import ClientData
from privfed.methods.fair import kernel
from privfed.methods.fair.config import FairConfig
from privfed.methods.fair.spaces import TableSpace


class RatingsError(ValueError):
    """Ratings are to be predicted of data that have none."""


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedTables:
    """The item tables that devices of one tier downloaded.

    Attributes:
        stored: their tables.
        kept: stored values of a row of each table.
        factors: of rows that are products `[tables, k, dim]`; empty where they are not.
    """

    stored: kernel.Stored
    kept: Int64[np.ndarray, " tables"]
    factors: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TableChange:
    """Changes of one table's stored values by local training.

    Attributes:
        counts: how many entries each client has.
        slots: of the entries, client after client; distinct within a client.
        values: trained minus received.
    """

    counts: Int64[Tensor, " clients"]
    slots: Int32[Tensor, " entries"]
    values: Float[Tensor, " entries"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingOutcome:
    """The result of a tier's training.

    Attributes:
        tables: changes of every table.
        users: trained user rows `[clients, tables, dim]`.
        layers: trained layers, flat in the model's order.
        factors: trained factors; none where rows are not products.
    """

    tables: Mapping[str, TableChange]
    users: Float[Tensor, "clients tables dim"]
    layers: Float[Tensor, "clients numbers"]
    factors: Float[Tensor, "clients tables k dim"]


class DeviceTraining:
    """Trains any users of a population.

    Args:
        config: settings.
        data: what the users know.

    Raises:
        RatingsError: ratings are to be predicted and there are none.
    """

    def __init__(self, config: FairConfig, data: ClientData) -> None:
        self.config, self.model, self.n_items = config, config.model, data.n_items
        positives = data.positives
        # By owner, then item: the kernel finds a negative by bisection among ascending barred items, and positives
        # serve as these where nothing else is barred.
        order = np.lexsort((positives.items, positives.owners))
        self.counts, self._start = positives.counts, positives.indptr[:-1]
        self._items = positives.items[order].astype(np.int32)
        self._targets = np.empty(0, np.float32)
        self._barred_counts, self._barred_start, self._barred = self.counts, self._start, self._items
        if config.task == "rating":
            if data.ratings is None:
                raise RatingsError(
                    "task 'rating' predicts explicit ratings and these data have none: load data with ratings, or use "
                    "task 'ranking'"
                )
            self._targets = data.ratings[order] - np.float32(config.rating_offset)
        else:
            self._bar(data.excluded)
        self._laid_out: dict[tuple[TableSpace, ...], tuple[np.ndarray, np.ndarray]] = {}

    def _bar(self, excluded: Histories) -> None:
        """Keep the items that are never negatives; they are the positives themselves where nothing else is barred.

        Somebody with no item left to draw sits out.
        """
        pairs = excluded.pairs(self.n_items)
        owners, barred = pairs // self.n_items, (pairs % self.n_items).astype(np.int32)
        counts = np.bincount(owners, minlength=excluded.n_users)
        # Both are sorted by (user, item), so equal sets are equal arrays and the second one need not be kept.
        if not np.array_equal(barred, self._items):
            self._barred_counts, self._barred_start, self._barred = counts, np.cumsum(counts) - counts, barred
        self.counts = np.where(counts < self.n_items, self.counts, 0)

    def words_needed(self, users: Int64[np.ndarray, " clients"]) -> int:
        """Number of random words for the user with most interactions."""
        most = int(self.counts[users].max()) if len(users) else 0
        return self.config.epochs * (kernel.KEY_WORDS + most)

    def receive(
        self, spaces: Mapping[str, TableSpace], tables: Mapping[str, Float[Tensor, "items dim"]]
    ) -> ReceivedTables:
        """The download of devices that keep tables in `spaces`.

        Raises:
            IndexError: the server sent a table of another shape.
        """
        for name in spaces:
            refuse_shape(f"items.{name}", tables[name], (self.n_items, self.config.dim))
        reduced = {name: space.reduce(tables[name]) for name, space in spaces.items()}
        sizes = [space.size for space in spaces.values()]
        slots, signs = self._layout(tuple(spaces.values()))
        # [slots of all tables], one table after another: the numbering that the kernel works in.
        values = torch.cat([stored for stored, _ in reduced.values()])
        factors = [factor for _, factor in reduced.values() if factor is not None]
        dim = self.config.dim
        return ReceivedTables(
            kernel.Stored(on_host(values), np.cumsum([0, *sizes]), slots, signs),
            np.array([space.kept for space in spaces.values()]),
            torch.stack(factors) if factors else torch.empty(len(spaces), 0, dim, dtype=values.dtype),
        )

    def _layout(self, spaces: tuple[TableSpace, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Slots and signs of all elements; hashed once."""
        if spaces not in self._laid_out:
            self._laid_out[spaces] = (
                _stacked([space.slots() for space in spaces], np.int32),
                _stacked([space.signs() for space in spaces], np.int8),
            )
        return self._laid_out[spaces]

    def train(
        self,
        users: Int64[np.ndarray, " clients"],
        received: ReceivedTables,
        layers: Float[Tensor, " numbers"],
        rows: Float[Tensor, "clients tables dim"],
        uints: UInt32[np.ndarray, "clients words"],
    ) -> TrainingOutcome:
        """Train every user's device.

        Args:
            users: who.
            received: their tier's tables.
            layers: shared ones, flat.
            rows: the users' own.
            uints: random ones, `words_needed` of them.
        """
        refuse_shape("the shared layers", layers, (self.config.model.size,))
        n, dtype = len(users), received.stored.values.dtype
        factors = received.factors.flatten()
        # [clients, numbers]: user rows | layers | factors. Shared ones are copied per client, as each trains its own.
        dense = on_host(torch.cat([rows.flatten(1), layers.expand(n, -1), factors.expand(n, -1)], 1).contiguous())
        net, stored = network(self.config, received.kept, factored=bool(received.factors.numel())), received.stored
        counts = self.counts[users]
        # Ragged: a client lists as many slots as it touched, so unequal clients waste no memory.
        room = slots_needed(self.config, np.diff(stored.offset), received.kept, counts, self.n_items)
        tables, entries = len(received.kept), int(room.sum(0).max(initial=0))
        changes = kernel.Changes(
            room, np.empty((n, tables), np.int64), np.empty((tables, entries), np.int32),
            np.empty((tables, entries), dtype), dense,
        )  # fmt: skip
        # Histories stay in the population's arrays; a client is a start and a count in them.
        known = kernel.KnownInteractions(
            self._start[users], counts, self._items, self._targets.astype(dtype), self._barred_start[users],
            self._barred_counts[users], self._barred, self.n_items, np.ascontiguousarray(uints),
        )  # fmt: skip
        # The list of slots and the map from slots to positions are needed only where some device keeps touched slots.
        slots, total = room.sum(1), len(stored.values)
        touched = int(slots.max(initial=0, where=slots < total))
        scratch = scratch_for(
            net, int(slots.max(initial=0)), touched, total if touched else 0, dense.shape[1],
            signed=stored.signs.shape[1] > 0, dtype=dtype,
        )  # fmt: skip
        kernel.train(net, layout(net), known, stored, changes, scratch)
        # The three pieces of `dense` again.
        numbers = self.model.size
        sizes = [tables * net.dim, numbers, dense.shape[1] - tables * net.dim - numbers]
        own, shared, rest = torch.split(placed(dense), sizes, 1)
        own, rest = own.reshape(n, tables, net.dim), rest.reshape(n, *received.factors.shape)
        changed = {name: _change(changes, t) for t, name in enumerate(self.model.tables)}
        return TrainingOutcome(changed, own, shared, rest)


def network(config: FairConfig, kept: Int64[np.ndarray, " tables"], *, factored: bool) -> kernel.Network:
    """The kernel's view of the settings, and of how a tier keeps rows.

    Raises:
        ValueError: tables whose rows keep unequal numbers of values, which the kernel would read wrongly.
    """
    if (kept != kept[:1]).any():
        raise ValueError(f"rows of a tier's tables keep {kept.tolist()} values; the kernel reads as many of each")
    model = config.model
    return kernel.Network(
        config.dim, int(model.gmf), int(model.bias), np.array(model.widths), kept, int(factored),
        int(config.task == "ranking"), config.batch_size, config.epochs, int(config.shuffle), config.lr,
    )  # fmt: skip


def layout(net: kernel.Network) -> kernel.DenseLayout:
    """Offsets of a client's dense numbers: user rows, layers, last layer, bias, factors."""
    # Torch's order of the flat layers: W0, b0, W1, b1, ..., then the last layer's weights of the product and of the
    # hidden values, and its bias.
    at, weights, biases = len(net.kept) * net.dim, [], []
    for fan_in, fan_out in zip(net.widths[:-1], net.widths[1:], strict=True):
        weights.append(at)
        biases.append(at + int(fan_in * fan_out))
        at = biases[-1] + int(fan_out)
    last = at + net.product * net.dim
    bias = last + int(net.widths[-1])
    return kernel.DenseLayout(np.array(weights), np.array(biases), at, last, bias, bias + net.bias)


def slots_needed(
    config: FairConfig,
    sizes: Int64[np.ndarray, " tables"],
    kept: Int64[np.ndarray, " tables"],
    counts: Int64[np.ndarray, " clients"],
    n_items: int,
) -> Int64[np.ndarray, "clients tables"]:
    """Slots of each table that each client makes room for: those it can touch at most, or all where that takes less.

    A device that keeps all has five numbers for a slot: received, trained, gradient and two moments. One that keeps
    touched ones has two for every slot, received and the place, and five for each touched one, with the slot's own
    number in place of the received value.

    Args:
        config: settings.
        sizes: slots of each table.
        kept: stored values of a row of each table.
        counts: interactions of each client.
        n_items: of the catalogue.
    """
    # A positive is the same item in every epoch, while its negative may be a new one each time.
    rows = np.minimum(n_items, counts * (1 + config.epochs if config.task == "ranking" else 1))
    # Hashing may merge the slots of some rows, but never adds any.
    touched = np.minimum(sizes, rows[:, None] * kept)
    total = int(sizes.sum())
    few = 2 * total + 5 * touched.sum(1, keepdims=True) < 5 * total
    # Whoever has no interactions trains nothing, and gets no slots even where all would be kept.
    return np.where(few, touched, sizes * (counts[:, None] > 0))


def scratch_for(
    net: kernel.Network, slots: int, touched: int, places: int, numbers: int, *, signed: bool, dtype: np.dtype
) -> kernel.Scratch:
    """Memory of a device.

    Args:
        net: the network.
        slots: that the device makes room for.
        touched: length of its list of them, where only touched ones are kept, else 0.
        places: of all slots, likewise.
        numbers: dense ones.
        signed: whether elements have signs.
        dtype: of all numbers.
    """
    columns, tables, kept = kernel.COLUMNS, len(net.kept), int(net.kept.max())
    layers, wide = len(net.widths) - 1, int(net.widths[1:].max())

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, dtype)

    return kernel.Scratch(
        gradient=zeros(slots),
        first_moment=zeros(slots),
        second_moment=zeros(slots),
        dense_gradient=zeros(numbers),
        dense_first=zeros(numbers),
        dense_second=zeros(numbers),
        trained=zeros(slots),
        slots=np.zeros(touched, np.int32),
        slot_position=np.zeros(places, np.int32),
        begin=np.zeros(tables, np.int64),
        end=np.zeros(tables, np.int64),
        listed=np.zeros(tables, np.int64),
        user=zeros(int(net.widths[1])),
        scale=zeros(net.dim),
        totals=zeros(net.dim),
        samples=np.zeros(columns, np.int64),
        items=np.zeros(columns, np.int32),
        places=np.zeros((tables, kept, columns), np.uint32),
        signs=zeros(tables, kept, columns if signed else 0),
        values=zeros(tables, kept, columns),
        rows=zeros(tables, net.dim, columns),
        row_gradients=zeros(tables, net.dim, columns),
        hidden=zeros(layers, wide, columns),
        back=zeros(layers, wide, columns),
        scores=zeros(1, columns),
        slopes=zeros(1, columns),
    )


def _change(changes: kernel.Changes, table: int) -> TableChange:
    counts = np.ascontiguousarray(changes.counts[:, table])
    entries = int(counts.sum())
    slots, values = changes.slots[table, :entries], changes.values[table, :entries]
    return TableChange(placed(counts), placed(slots), placed(values))


def _stacked(arrays: Sequence[np.ndarray | None], dtype: type) -> np.ndarray:
    """`[tables, elements]`, with no columns where there is nothing to say."""
    found = [array for array in arrays if array is not None]
    return np.stack(found) if found else np.empty((len(arrays), 0), dtype)
