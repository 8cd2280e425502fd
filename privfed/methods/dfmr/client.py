"""Clients of DFMR: examinations and user codes, which never leave, and the sums they add to.

A device updates its own code whenever it receives item codes (`update`, and before it shows scores), then answers for
every bit with C_uif of the items in its support and g_uf. Fake items answer zero.

Pair scores U_u . V_i are kept from query to query within a round and brought up to date by the column that was decided.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int8, Int32, Int64, UInt8
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.received import refuse_shape
from privfed.federation import Call, FederationError, Message, PrivateState, Purpose, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.dfmr.balance import Balance
from privfed.methods.dfmr.codes import ItemCodes, pack, unpack
from privfed.methods.dfmr.codes import scores as hamming_scores
from privfed.methods.dfmr.config import DFMRConfig
from privfed.methods.dfmr.discrete import (
    ItemSupport,
    field,
    inertia,
    item_terms,
    objective,
    pair_scores,
    update_codes,
    weights_of,
)
from privfed.methods.dfmr.schemas import (
    CLIENTS,
    COUPLING,
    FIELD,
    INERTIA,
    ITEMS,
    LOSS,
    PRODUCTS,
    PROXIMAL,
    TOTALS,
    loss_shift,
    products_of,
)
from privfed.updates import ClientUpdates, CodeProducts, Dense, Part, RowPattern

_CODES = "codes"


@dataclass(slots=True, eq=False)
class ReceivedCodes:
    """Item codes as the devices hold them, and what the latest message changed.

    Attributes:
        items: V.
        totals: p1, sum of all item codes.
        products: V^T V when the whole table was received last, or where the objective is needed.
        bit: the column that the latest message replaced; -1 where it replaced none.
        change: new less old codes of that column.
        afresh: whether the latest message brought the whole table, so that scores must be made anew.
    """

    items: Int8[np.ndarray, "items d"]
    totals: Int64[np.ndarray, "d"]
    products: Int64[np.ndarray, "d d"]
    change: Int8[np.ndarray, "items"]
    bit: int = -1
    afresh: bool = True

    @classmethod
    def unpacked(cls, packed: Tensor, d: int) -> "ReceivedCodes":
        """From packed codes of `d` bits each."""
        items = unpack(on_host(packed), d)
        return cls(items, items.sum(0, dtype=np.int64), products_of(items), np.zeros(len(items), np.int8))

    def replace(self, bit: int, packed: Tensor) -> None:
        """Take over one column.

        Raises:
            IndexError: the server sent bits of fewer or more items.
        """
        refuse_shape("a column of item codes", packed, (-(-len(self.items) // 8),))
        decided = np.unpackbits(on_host(packed), count=len(self.items), bitorder="little").view(np.int8)
        column = decided * np.int8(2) - np.int8(1)
        self.bit, self.change = bit, column - self.items[:, bit]
        self.items[:, bit] = column
        self.totals[bit] += int(self.change.sum(dtype=np.int64))


class DFMRClients(StatefulClients):
    """The stacked clients of a population."""

    steps = frozenset({"bit", "update", "weigh"})

    def __init__(self, config: DFMRConfig, data: ClientData, streams: Streams) -> None:
        everybody = data.everybody.positives
        self.config, self.grid = config, config.grid(everybody)
        examined = config.learned(data.examined(config.examinations), everybody)
        self.support = ItemSupport.from_histories(data.positives, examined, data.fake_items)
        self.weights = weights_of(self.grid, self.support)
        users = range(data.n_users)
        inclusion = streams.words(Purpose.INITIALISE, 0, 0, users, config.d)
        self.private = PrivateState({_CODES: placed((inclusion & 1).astype(np.int8) * np.int8(2) - np.int8(1))})
        self._inertia = inertia(self.grid, self.support, np.arange(data.n_users))
        self._codes = on_host(self.private.current[_CODES]).copy()
        self._scores = self._blank_scores()
        self._received: ReceivedCodes | None = None
        self._shown: tuple[Tensor, ReceivedCodes] | None = None
        self._chunk = -1
        self._patterns: dict[int, tuple[Tensor, RowPattern]] = {}

    def receive(self, step: str, message: Message) -> None:
        """Move the item codes, once for all chunks of a query."""
        self._chunk = -1
        if step == "update":
            self._received = ReceivedCodes.unpacked(message.shared["codes"], self.config.d)
            self._codes = on_host(self.private.current[_CODES]).copy()
            return
        received = self._current
        if "codes" in message.shared:
            received = self._received = ReceivedCodes.unpacked(message.shared["codes"], self.config.d)
        else:
            received.afresh, received.bit = False, -1
            if "column" in message.shared:
                received.replace(int(message.config["decided"]), message.shared["column"])
        if step == "weigh":
            received.products = products_of(received.items)

    def update(self, call: Call, message: Message) -> ClientUpdates:
        """Receive item codes, update the own code, and send what it says of the whole catalogue.

        A code that the server made fits its item codes as it is, and waits for the next round.
        """
        users = on_host(call.clients)
        if "start" in message.personal:
            self._codes[users] = on_host(message.personal["start"])
            pair_scores(self.grid, self.support, users, self._codes, self._current.items, self._scores)
        else:
            self._codes[users] = self._updated(users, self._codes, self._current, self._scores, message)
        codes = placed(self._codes[users])
        self.private.stage(call.clients, {_CODES: codes})
        return self._statistics(call, users, codes)

    def bit(self, call: Call, message: Message) -> ClientUpdates:
        """Answer for one bit of all items, after the column that was decided last."""
        self._chunk += 1
        received, users = self._current, on_host(call.clients)
        values, pull = self._terms(users, received, int(message.config["bit"]))
        rows = self._pattern(call.clients).with_values(ITEMS, placed(values).unsqueeze(1))
        everybody = torch.arange(len(users))
        return ClientUpdates(call.clients, call.schema, [rows, Dense(PROXIMAL, everybody, placed(pull).unsqueeze(1))])

    def weigh(self, call: Call, message: Message) -> ClientUpdates:
        """The own share of the objective after the last column."""
        del message
        received, users = self._current, on_host(call.clients)
        self._terms(users, received, 0)
        return ClientUpdates(call.clients, call.schema, [self._loss(users, received)])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """U_u . V_i by counting bits that differ, after the device has brought its code up to date with V."""
        packed = on_host(message.shared["codes"])
        mine = self.ready_codes(clients, message)
        scores = placed(hamming_scores(pack(mine), packed, self.config.d)).float()
        return scores if candidates is None else torch.gather(scores, 1, candidates)

    def ready_codes(self, clients: Int64[Tensor, " clients"], message: Message) -> Int8[np.ndarray, "clients d"]:
        """User codes with which devices recommend: the committed ones after one more update, to the items received."""
        packed, users = message.shared["codes"], on_host(clients)
        if self._shown is None or not torch.equal(self._shown[0], packed):
            self._shown = packed.clone(), ReceivedCodes.unpacked(packed, self.config.d)
        codes = on_host(self.private.current[_CODES])
        return self._updated(users, codes, self._shown[1], self._blank_scores(), message)

    def packed_codes(self, clients: Int64[Tensor, " clients"], message: Message) -> UInt8[np.ndarray, "clients bytes"]:
        """The codes with one bit per sign."""
        return pack(self.ready_codes(clients, message))

    def item_codes(self, message: Message, ids: Sequence[str]) -> ItemCodes:
        """The catalogue as a device downloads it to recommend with, under the original `ids`."""
        return ItemCodes(on_host(message.shared["codes"]), self.config.d, tuple(ids))

    def discard(self) -> None:
        """Forget staged state and received messages after an aborted round."""
        super().discard()
        self._received = None

    @property
    def _current(self) -> ReceivedCodes:
        if self._received is None:
            raise FederationError("clients were queried for a bit before item codes were sent; query 'update' first")
        return self._received

    def _blank_scores(self) -> Int32[np.ndarray, "entries"]:
        return np.zeros(len(self.support.items), np.int32)

    def _terms(
        self, users: Int64[np.ndarray, "n"], received: ReceivedCodes, bit: int
    ) -> tuple[Int64[np.ndarray, "rows"], Int64[np.ndarray, "n"]]:
        """The users' upload for a bit; their scores follow the received items."""
        if received.afresh:
            pair_scores(self.grid, self.support, users, self._codes, received.items, self._scores)
        column = np.ascontiguousarray(received.items[:, bit])
        return item_terms(
            self.grid, self.support, users, self._codes, self._scores, received.totals, column, bit, received.bit,
            received.change,
        )  # fmt: skip

    def _updated(
        self,
        users: Int64[np.ndarray, "n"],
        codes: Int8[np.ndarray, "population d"],
        received: ReceivedCodes,
        scores: Int32[np.ndarray, "entries"],
        message: Message,
    ) -> Int8[np.ndarray, "n d"]:
        """One sweep over the users' bits, under the balance of the message; leaves the users' new scores."""
        balance = Balance.received(message.shared)
        pair_scores(self.grid, self.support, users, codes, received.items, scores)
        new, _ = update_codes(
            self.grid, self.support, users, codes, received.items, scores, received.products, received.totals,
            None if balance is None else balance.on(codes[users]),
        )  # fmt: skip
        return new

    def _statistics(self, call: Call, users: Int64[np.ndarray, "n"], codes: Int8[Tensor, "n d"]) -> ClientUpdates:
        everybody, ones = torch.arange(len(users)), torch.ones(len(users), dtype=torch.int64)
        kappa = placed(self.weights.kappa[users])
        makers: dict[str, Callable[[], Part]] = {
            FIELD: lambda: Dense(FIELD, everybody, placed(field(self._codes, self.weights, users))),
            COUPLING: lambda: CodeProducts(COUPLING, everybody, kappa, codes),
            CLIENTS: lambda: Dense(CLIENTS, everybody, ones.unsqueeze(1)),
            TOTALS: lambda: Dense(TOTALS, everybody, codes.long()),
            PRODUCTS: lambda: CodeProducts(PRODUCTS, everybody, ones, codes),
            LOSS: lambda: self._loss(users, self._current),
            INERTIA: lambda: Dense(INERTIA, everybody, placed(self._inertia[users]).unsqueeze(1)),
        }
        return ClientUpdates(call.clients, call.schema, [makers[name]() for name in call.schema])

    def _loss(self, users: Int64[np.ndarray, "n"], received: ReceivedCodes) -> Dense:
        exact = objective(self.grid, self.support, users, self._codes, self._scores, received.products, received.totals)
        steps = np.floor(np.ldexp(exact, -loss_shift(self.grid))).astype(np.int64)
        return Dense(LOSS, torch.arange(len(users)), placed(steps).unsqueeze(1))

    def _pattern(self, clients: Int64[Tensor, " clients"]) -> RowPattern:
        """Rows of the called clients' supports, made once for as long as a chunk stays the same."""
        known = self._patterns.get(self._chunk)
        if known is None or not torch.equal(known[0], clients):
            owner, entry = self.support.of_users(on_host(clients))
            ids = placed(self.support.items[entry])
            pattern = RowPattern(len(clients), self.grid.n_items, placed(owner), ids)
            known = self._patterns[self._chunk] = clients.clone(), pattern
        return known[1]
