"""Public half of DFMR: item codes, decided bit by bit from sums over clients.

One round, with M and q2 from the first ask, and for every bit f (and block of items)

    V_if = sign( q2_f + g_f - (M V_i)_f + M_ff V_if + sum_u C_uif + 4 d^2 K beta Y_if ),     a zero keeping the bit.

Within one bit, items that share a user's pairs are coupled, with weights that are never negative, so deciding them all
at once descends but for rare instances. The objective is summed before and after; where it rose, the sweep is repeated
with V*_if + D V_if, D the sum of the clients' inertias, which cannot raise it.

An item that too few clients send is decided from what all clients say of the catalogue, as if nobody had it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float64, Int8, Int64
from torch import Tensor

from privfed.data import Histories
from privfed.federation import PUBLIC, Cohort, Federation, Message, Purpose, Streams, Total
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
    bit_schema,
    loss_shift,
    products_of,
    statistics_schema,
    symmetric,
    upper,
)
from privfed.methods.method import Facts
from privfed.models.als import Feedback, Objective, popularity_weights
from privfed.models.codes import pack, unpack
from privfed.models.discrete import balanced_rows, binarise, binarise_items, inverse_root, server_field
from privfed.updates import Schema

_START_C0, _START_EXPONENT, _START_REG, _START_SCALE = 100.0, 0.5, 0.1, 0.01
"""Least squares behind the first codes: weights of missing purchases, regularisation, scale of first factors."""


class NoPurchasesError(ValueError):
    """There are no public purchases to start from."""


class DFMRServer:
    """Public half: public purchases, item codes, and the moments of user codes.

    Attributes:
        items: item codes.
        repeated: sweeps that the guard had repeated.

    Raises:
        NoPurchasesError: nobody purchased anything, or purchases are not public.
        GridError: hyper-parameters that no integer grid holds.
    """

    def __init__(self, config: DFMRConfig, facts: Facts, streams: Streams) -> None:
        if facts.public is None or not len(facts.public):
            raise NoPurchasesError(
                "DFMR starts from everybody's purchases, which its problem declares public, and there are none in "
                "training: choose data and a split.target that have them"
            )
        self.config, self.grid = config, config.grid(facts.public)
        self.items, self._users = _first_codes(config, facts.public, streams)
        self.mean, self.root = np.zeros(config.d), np.zeros((config.d, config.d))
        self.schema = statistics_schema(config, self.grid)
        self.repeated = 0

    def round(self, federation: Federation, t: int) -> None:
        """Statistics of the clients' updated codes, then one sweep over the bits of all items."""
        cohort = federation.draw(t)
        message = self.public()
        if t == 0 and self._users is not None:
            message = Message(message.shared, {"start": torch.from_numpy(self._users)})
        statistics = federation.ask("update", cohort, message, self.schema)
        self._remember_moments(statistics)
        before = self.items.copy()
        self._sweep(federation, cohort, statistics, inertia=0)
        if self.config.guard and self._rose(federation, cohort, statistics, before):
            self.items, self.repeated = before, self.repeated + 1
            self._sweep(federation, cohort, statistics, inertia=int(statistics.sums[INERTIA]))

    def public(self) -> Message:
        """Packed item codes with their products and totals, and what balances user codes."""
        shared = {
            "codes": torch.from_numpy(pack(self.items)),
            "products": torch.from_numpy(upper(products_of(self.items)).astype(np.int32)),
            "totals": torch.from_numpy(self.items.sum(0, dtype=np.int32)),
        }
        if self.config.alpha:
            shared |= {"mean": torch.from_numpy(self.mean), "root": torch.from_numpy(self.root)}
        return Message(shared)

    def state(self) -> dict[str, Tensor]:
        """Item codes, packed, and the moments of user codes."""
        return {
            "codes": torch.from_numpy(pack(self.items)),
            "mean": torch.from_numpy(self.mean.copy()),
            "root": torch.from_numpy(self.root.copy()),
            "repeated": torch.tensor(self.repeated),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.items = unpack(state["codes"].numpy(), self.config.d)
        self.mean, self.root = state["mean"].numpy().copy(), state["root"].numpy().copy()
        self.repeated = int(state["repeated"])

    def program(self) -> Sequence[Schema]:
        """Schemas of all asks of a round, one after the other."""
        bits = [bit_schema(self.grid)] * (self.config.d * self.config.blocks)
        return [self.schema, *bits, *([{LOSS: self.schema[LOSS]}] if self.config.guard else [])]

    def _sweep(self, federation: Federation, cohort: Cohort, statistics: Total, *, inertia: int) -> None:
        """Decide every bit of all items, bit after bit, in blocks of items.

        A message brings the column that was decided last. Before a repeated sweep it brings the whole table, because
        clients hold codes that were given up.
        """
        coupling, field = symmetric(statistics.sums[COUPLING].numpy(), self.config.d), statistics.sums[FIELD]
        balance, schema = self._balance(), bit_schema(self.grid)
        news: dict[str, Tensor] = {"codes": torch.from_numpy(pack(self.items))} if inertia else {}
        decided = -1
        for bit in range(self.config.d):
            for block in np.array_split(np.arange(len(self.items)), self.config.blocks):
                message = Message(news, config={"bit": bit, "decided": decided})
                release = federation.ask("bit", cohort, message, schema)
                values = server_field(int(field[bit]), int(release.sums[PULL]), coupling, self.items, bit)
                values += release.sums[ITEMS][:, 0].numpy()
                if balance is not None:
                    values += balance[:, bit]
                old = self.items[block, bit]
                sign = np.sign(values[block] + inertia * old.astype(np.int64)).astype(np.int8)
                self.items[block, bit] = np.where(sign == 0, old, sign)
                news, decided = self._column(bit), bit

    def _column(self, bit: int) -> dict[str, Tensor]:
        return {"column": torch.from_numpy(np.packbits(self.items[:, bit] > 0, bitorder="little"))}

    def _rose(self, federation: Federation, cohort: Cohort, statistics: Total, before: Int8[np.ndarray, "m d"]) -> bool:
        """Whether the summed objective is larger after a sweep than before it."""
        last = self.config.d - 1
        message = Message(self._column(last), config={"decided": last})
        after = federation.ask("weigh", cohort, message, {LOSS: self.schema[LOSS]})
        rise = int(after.sums[LOSS]) - int(statistics.sums[LOSS])
        balance = self._balance(before)
        if balance is not None:
            gained = 2 * int((balance * (self.items.astype(np.int64) - before)).sum())
            rise -= gained >> loss_shift(self.grid)
        return rise > 0

    def _remember_moments(self, statistics: Total) -> None:
        """What balances user codes in the next round: their mean, and the inverse root of their centred products."""
        if not self.config.alpha:
            return
        rows = round(statistics.denominator)
        self.mean = statistics.sums[MEAN].numpy() / rows
        products = symmetric(statistics.sums[PRODUCTS].numpy(), self.config.d, rows)
        self.root = np.sqrt(rows) * inverse_root(self.mean, products.astype(np.float64))

    def _balance(self, items: Int8[np.ndarray, "m d"] | None = None) -> Int64[np.ndarray, "m d"] | None:
        """4 d^2 K beta Y of the item codes in whole numbers; None where beta is 0."""
        if not self.config.beta:
            return None
        codes = self.items if items is None else items
        mean = codes.mean(0)
        rows = balanced_rows(codes, mean, inverse_root(mean, products_of(codes).astype(np.float64)), len(codes))
        return np.rint(4 * self.grid.d**2 * 2.0**self.grid.bits * self.config.beta * rows).astype(np.int64)


def _first_codes(
    config: DFMRConfig, purchases: Histories, streams: Streams
) -> tuple[Int8[np.ndarray, "m d"], Int8[np.ndarray, "n d"] | None]:
    """Item codes from public purchases alone, and user codes where the server makes them too."""
    n_items, d = purchases.n_items, config.d
    if not config.start_sweeps:
        coins = streams.words(Purpose.INITIALISE, 0, 0, [PUBLIC], n_items * d)[0].reshape(n_items, d)
        return (coins & 1).astype(np.int8) * np.int8(2) - np.int8(1), None
    feedback = Feedback.of(purchases)
    items = _START_SCALE * streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], n_items * d).double().view(n_items, d)
    factors: Float64[np.ndarray, "m d"] = items.numpy()
    missing = popularity_weights(purchases.popularity(), _START_C0, _START_EXPONENT)
    objective = Objective(missing, np.zeros_like(missing), 0.0, 0.0, (0.0, 0.0), _START_REG)
    users = objective.users(factors, feedback)
    for _ in range(config.start_sweeps):
        factors = objective.items(users, factors, feedback)
        users = objective.users(factors, feedback)
    seed = int(streams.words(Purpose.INITIALISE, 0, 1, [PUBLIC], 1)[0, 0])
    if config.start == "own":
        return binarise_items(factors, seed), None
    user_codes, item_codes = binarise(users, factors, seed)
    return item_codes, user_codes
