"""Private halves of DFMR: examinations and user codes, which never leave, and the sums they add to.

A device updates its own code whenever it receives item codes (`update`, and before it shows scores), then answers for
every bit with C_uif of the items in its support and g_uf. Items of a cover answer zero.

Pair scores U_u . V_i are kept from ask to ask within a round and brought up to date by the column that was decided.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int8, Int32, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateHalves, PrivateState, Purpose, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.dfmr.config import DFMRConfig
from privfed.methods.dfmr.schemas import (
    COUPLING,
    FIELD,
    INERTIA,
    ITEMS,
    LOSS,
    MEAN,
    PRODUCTS,
    PULL,
    loss_shift,
    products_of,
)
from privfed.models.codes import pack, unpack
from privfed.models.codes import scores as hamming_scores
from privfed.models.discrete import (
    Support,
    balanced_rows,
    field,
    inertia,
    item_terms,
    objective,
    pair_scores,
    update_codes,
    weights_of,
)
from privfed.updates import ClientUpdates, CodeProducts, Dense, Part, RowPattern

_CODES = "codes"


@dataclass(slots=True, eq=False)
class _Received:
    """Item codes as the devices hold them, and what the latest message changed."""

    items: Int8[np.ndarray, "items d"]
    totals: Int64[np.ndarray, "d"]
    products: Int64[np.ndarray, "d d"]
    changed: int = -1
    change: Int8[np.ndarray, "items"] | None = None
    afresh: bool = False

    @classmethod
    def of(cls, packed: Tensor, d: int) -> "_Received":
        items = unpack(packed.numpy(), d)
        return cls(items, items.sum(0, dtype=np.int64), products_of(items))


class DFMRClients(PrivateHalves):
    """Stacked private halves of a population."""

    def __init__(self, config: DFMRConfig, data: ClientData, streams: Streams) -> None:
        self.config, self.grid = config, config.grid(data.positives)
        self.support = Support.of(data.positives, data.examined(config.examinations), data.fakes)
        self.weights = weights_of(self.grid, self.support)
        users = range(data.n_users)
        coins = streams.words(Purpose.INITIALISE, 0, 0, users, config.d)
        self.private = PrivateState({_CODES: torch.from_numpy((coins & 1).astype(np.int8) * np.int8(2) - np.int8(1))})
        self._inertia = inertia(self.grid, self.support, np.arange(data.n_users))
        self._scores: Int32[np.ndarray, entries] = np.zeros(len(self.support.items), np.int32)
        self._codes: Int8[np.ndarray, "population d"] = self.private.current[_CODES].numpy().copy()
        self._asked: tuple[int, int] = (-1, -1)
        self._received: _Received | None = None
        self._shown: tuple[Tensor, _Received] | None = None
        self._patterns: dict[tuple[int, int], tuple[Tensor, RowPattern]] = {}

    def update(self, call: Call, message: Message) -> ClientUpdates:
        """Receive item codes, update the own code, and send what it says of the whole catalogue."""
        if self._first_of(call):
            self._received = _Received.of(message.shared["codes"], self.config.d)
            self._codes = self.private.current[_CODES].numpy().copy()
        users = call.clients.numpy()
        if "start" in message.personal:
            self._codes[users] = message.personal["start"].numpy()
        self._codes[users] = self._updated(users, self._codes, self._current, message)
        codes = torch.from_numpy(self._codes[users])
        self.private.stage(call.clients, {_CODES: codes})
        return self._statistics(call, users, codes)

    def bit(self, call: Call, message: Message) -> ClientUpdates:
        """Answer for one bit of all items, after the column that was decided last."""
        received, users = self._after(call, message), call.clients.numpy()
        if received.afresh:
            pair_scores(self.grid, self.support, users, self._codes, received.items, self._scores)
        values, pull = self._terms(users, received, int(message.config["bit"]))
        rows = self._pattern(call.clients).with_values(ITEMS, torch.from_numpy(values).unsqueeze(1))
        everybody = torch.arange(len(users))
        return ClientUpdates(
            call.clients, call.schema, [rows, Dense(PULL, everybody, torch.from_numpy(pull).unsqueeze(1))]
        )

    def weigh(self, call: Call, message: Message) -> ClientUpdates:
        """The own share of the objective after the last column."""
        received, users = self._after(call, message), call.clients.numpy()
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
        packed, users = message.shared["codes"], clients.numpy()
        if self._shown is None or not torch.equal(self._shown[0], packed):
            self._shown = packed, _Received.of(packed, self.config.d)
        codes = self._updated(users, self.private.current[_CODES].numpy(), self._shown[1], message)
        scores = torch.from_numpy(hamming_scores(pack(codes), packed.numpy(), self.config.d)).float()
        return scores if candidates is None else torch.gather(scores, 1, candidates)

    @property
    def _current(self) -> _Received:
        if self._received is None:
            raise RuntimeError("a bit was asked about before item codes were sent")
        return self._received

    def _first_of(self, call: Call) -> bool:
        """Whether this is the first chunk of an ask, which moves the item codes for all chunks."""
        asked, self._asked = self._asked, (call.draw, call.ask)
        return asked != self._asked

    def _after(self, call: Call, message: Message) -> _Received:
        """The item codes after a message about the column decided last, or after the whole table."""
        received = self._current
        if not self._first_of(call):
            return received
        if "codes" in message.shared:
            received = self._received = _Received.of(message.shared["codes"], self.config.d)
            received.afresh = True
            return received
        received.afresh, received.changed, received.change = False, int(message.config["decided"]), None
        if received.changed >= 0:
            bit, n_items = received.changed, len(received.items)
            decided = np.unpackbits(message.shared["column"].numpy(), count=n_items, bitorder="little").view(np.int8)
            column = decided * np.int8(2) - np.int8(1)
            received.change = column - received.items[:, bit]
            received.items[:, bit] = column
            received.totals[bit] += int(received.change.sum(dtype=np.int64))
        return received

    def _terms(
        self, users: Int64[np.ndarray, "n"], received: _Received, bit: int
    ) -> tuple[Int64[np.ndarray, "rows"], Int64[np.ndarray, "n"]]:
        change = np.zeros(len(received.items), np.int8) if received.change is None else received.change
        changed = -1 if received.change is None else received.changed
        column = np.ascontiguousarray(received.items[:, bit])
        return item_terms(
            self.grid, self.support, users, self._codes, self._scores, received.totals, column, bit, changed, change
        )

    def _updated(
        self,
        users: Int64[np.ndarray, "n"],
        codes: Int8[np.ndarray, "population d"],
        received: _Received,
        message: Message,
    ) -> Int8[np.ndarray, "n d"]:
        """One sweep over the own bits, under the pull that the message brings."""
        balance = None
        if "root" in message.shared:
            rows = balanced_rows(codes[users], message.shared["mean"].numpy(), message.shared["root"].numpy(), 1)
            balance = np.rint(4 * self.grid.d**2 * 2.0**self.grid.bits * self.config.alpha * rows).astype(np.int64)
        pair_scores(self.grid, self.support, users, codes, received.items, self._scores)
        new, _ = update_codes(
            self.grid, self.support, users, codes, received.items, self._scores, received.products, received.totals,
            balance,
        )  # fmt: skip
        return new

    def _statistics(self, call: Call, users: Int64[np.ndarray, "n"], codes: Int8[Tensor, "n d"]) -> ClientUpdates:
        everybody, ones = torch.arange(len(users)), torch.ones(len(users), dtype=torch.int64)
        kappa = torch.from_numpy(self.weights.kappa[users])
        makers: dict[str, Callable[[], Part]] = {
            FIELD: lambda: Dense(FIELD, everybody, torch.from_numpy(field(self._codes, self.weights, users))),
            COUPLING: lambda: CodeProducts(COUPLING, everybody, kappa, codes),
            MEAN: lambda: Dense(MEAN, everybody, codes.long()),
            PRODUCTS: lambda: CodeProducts(PRODUCTS, everybody, ones, codes),
            LOSS: lambda: self._loss(users, self._current),
            INERTIA: lambda: Dense(INERTIA, everybody, torch.from_numpy(self._inertia[users]).unsqueeze(1)),
        }
        return ClientUpdates(call.clients, call.schema, [makers[name]() for name in call.schema])

    def _loss(self, users: Int64[np.ndarray, "n"], received: _Received) -> Dense:
        products = products_of(received.items)
        exact = objective(self.grid, self.support, users, self._codes, self._scores, products, received.totals)
        steps = np.floor(np.ldexp(exact, -loss_shift(self.grid))).astype(np.int64)
        return Dense(LOSS, torch.arange(len(users)), torch.from_numpy(steps).unsqueeze(1))

    def _pattern(self, clients: Int64[Tensor, " clients"]) -> RowPattern:
        """Rows of the called clients' supports, checked once for every chunk."""
        whose = int(clients[0]), len(clients)
        known = self._patterns.get(whose)
        if known is None or not torch.equal(known[0], clients):
            owner, entry = self.support.of_users(clients.numpy())
            ids = torch.from_numpy(self.support.items[entry])
            pattern = RowPattern(len(clients), self.grid.n_items, torch.from_numpy(owner), ids)
            known = self._patterns[whose] = clients.clone(), pattern
        return known[1]
