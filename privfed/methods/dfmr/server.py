"""The server of DFMR: item codes, decided bit by bit from sums over clients.

One round, with M and q2 from the first query, and for every bit f (and block of items)

    V_if = sign( q2_f + g_f - (M V_i)_f + M_ff V_if + sum_u C_uif + 4 d^2 K beta Y_if ),     a zero keeping the bit.

Within one bit, items that share a user's pairs are coupled, with weights that are never negative, so deciding them all
at once descends but for rare instances. The objective is summed before and after; where it rose, the sweep is repeated
with V*_if + D V_if, D the sum of the clients' inertias, which cannot raise it.

An item that too few clients send is decided from what all clients say of the catalogue, as if nobody had it. Nothing
proves that this lowers the objective, so a repeated sweep leaves such an item alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64, Int8, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.data import Histories
from privfed.federation import PUBLIC, Cohort, Federation, Message, Purpose, Streams
from privfed.methods.dfmr.balance import Balance, unit
from privfed.methods.dfmr.codes import pack, unpack
from privfed.methods.dfmr.config import DFMRConfig
from privfed.methods.dfmr.discrete import balanced_rows, binarise, binarise_items, inverse_root, server_field
from privfed.methods.dfmr.overflow import check_overflow
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
    bit_schema,
    loss_shift,
    products_of,
    statistics_schema,
    symmetric,
)
from privfed.methods.method import PlannedQuery, PublicInfo
from privfed.methods.shared.als import ALSObjective, Feedback, popularity_weights

_START_C0, _START_EXPONENT, _START_REG, _START_SCALE = 100.0, 0.5, 0.1, 0.01
"""Least squares behind the first codes: weights of missing purchases, regularisation, scale of first factors."""


class NoPurchasesError(ValueError):
    """There are no public purchases to start from."""


class BlocksError(ValueError):
    """More blocks of items than items."""


class DFMRServer:
    """Server: public purchases, item codes, and what balances user codes.

    Attributes:
        items: item codes.
        balance: for user codes, from their moments in the latest round.
        repeated: sweeps that the guard had repeated.

    Raises:
        NoPurchasesError: nobody purchased anything, or purchases are not public.
        GridError: hyper-parameters that no integer grid holds.
        RoomError: hyper-parameters whose sums may leave 64 bits.
        BlocksError: more blocks than items.
    """

    def __init__(self, config: DFMRConfig, public_info: PublicInfo, streams: Streams) -> None:
        if public_info.public is None or not len(public_info.public):
            raise NoPurchasesError(
                "DFMR starts from everybody's purchases, which its problem declares public, and there are none in "
                "training: choose data and a split.target that have them"
            )
        self.config, self.grid = config, config.grid(public_info.public)
        check_overflow(config, self.grid, public_info.n_users)
        if config.blocks > public_info.n_items:
            raise BlocksError(
                f"blocks = {config.blocks} exceeds the {public_info.n_items} items there are: use as many at most, "
                f"or 1, which decides all items at once"
            )
        self.items, self._users = _first_codes(config, public_info.public, streams)
        self.balance = Balance.none(config.d)
        self.schema = statistics_schema(config, self.grid)
        self.begun, self.repeated = False, 0
        together = np.array_split(np.arange(len(self.items)), config.blocks)
        self._blocks = [slice(int(block[0]), int(block[-1]) + 1) for block in together]

    def round(self, federation: Federation, t: int) -> None:
        """Statistics of the clients' updated codes, then one sweep over the bits of all items."""
        cohort = federation.sample_cohort(t)
        message = self.public()
        if self._users is not None and not self.begun:
            message = Message(message.shared, {"start": placed(self._users)})
        sums = federation.aggregate("update", cohort, message, self.schema).sums
        self.begun = True
        self._remember_moments(sums)
        before = self.items.copy()
        self._sweep(federation, cohort, sums, again=False)
        if self.config.guarded and self._rose(federation, cohort, sums, before):
            self.items, self.repeated = before, self.repeated + 1
            self._sweep(federation, cohort, sums, again=True)

    def public(self) -> Message:
        """Packed item codes, and what balances user codes."""
        codes = {"codes": placed(pack(self.items))}
        return Message(codes | self.balance.shared() if self.config.alpha else codes)

    def state(self) -> dict[str, Tensor]:
        """Item codes, packed, the balance of user codes, and what happened so far."""
        return {
            "codes": placed(pack(self.items)),
            **{name: value.clone() for name, value in self.balance.shared().items()},
            "begun": torch.tensor(self.begun),
            "repeated": torch.tensor(self.repeated),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        self.items = unpack(on_host(state["codes"]), self.config.d)
        self.balance = Balance(on_host(state["balance"]).copy(), on_host(state["centre"]).copy())
        self.begun, self.repeated = bool(state["begun"]), int(state["repeated"])

    def program(self) -> Sequence[PlannedQuery]:
        """All queries of a round that repeats nothing, in order; all but that of the first bit send a column down."""
        column = -(-len(self.items) // 8)
        first = PlannedQuery(self.schema, self.public().bytes_per_client())
        bits = [PlannedQuery(bit_schema(self.grid), column)] * (self.config.d * len(self._blocks))
        weigh = [PlannedQuery({LOSS: self.schema[LOSS]}, column)] if self.config.guarded else []
        return [first, replace(bits[0], down_bytes=0), *bits[1:], *weigh]

    def _sweep(self, federation: Federation, cohort: Cohort, sums: Mapping[str, Tensor], *, again: bool) -> None:
        """Decide every bit of all items, bit after bit, in blocks of items.

        A message brings the column that was decided last. One that is to decide again brings the whole table first,
        because clients hold codes that were given up; then inertia holds items back, and an item that too few send
        stays as it is, so that nothing can rise.
        """
        coupling, totals = symmetric(on_host(sums[COUPLING]), self.config.d), sums[FIELD]
        inertia = int(sums[INERTIA]) if again else 0
        balance, schema = self._item_balance(self.items), bit_schema(self.grid)
        news = {"codes": placed(pack(self.items))} if again else {}
        decided = -1
        for bit in range(self.config.d):
            for block in self._blocks:
                message = Message(news, config={"bit": bit, "decided": decided})
                release = federation.aggregate("bit", cohort, message, schema)
                old = self.items[block, bit]
                star = server_field(int(totals[bit]), int(release.sums[PROXIMAL]), coupling, self.items[block], bit)
                star += on_host(release.sums[ITEMS][:, 0])[block] + inertia * old.astype(np.int64)
                if balance is not None:
                    star += balance[block, bit]
                if again and ITEMS in release.revealed:
                    star[~on_host(release.revealed[ITEMS])[block]] = 0
                self.items[block, bit] = np.where(star == 0, old, np.sign(star))
                news, decided = self._column(bit), bit

    def _column(self, bit: int) -> dict[str, Tensor]:
        return {"column": placed(np.packbits(self.items[:, bit] > 0, bitorder="little"))}

    def _rose(
        self, federation: Federation, cohort: Cohort, sums: Mapping[str, Tensor], before: Int8[np.ndarray, "m d"]
    ) -> bool:
        """Whether the summed objective is larger after a sweep than before it."""
        last = self.config.d - 1
        message = Message(self._column(last), config={"decided": last})
        after = federation.aggregate("weigh", cohort, message, {LOSS: self.schema[LOSS]}).sums
        rise = int(after[LOSS]) - int(sums[LOSS])
        balance = self._item_balance(before)
        if balance is not None:
            gained = float((balance.astype(np.float64) * (self.items - before)).sum())
            rise -= math.floor(math.ldexp(2 * gained, -loss_shift(self.grid)))
        return rise > 0

    def _remember_moments(self, sums: Mapping[str, Tensor]) -> None:
        """What balances user codes in the next round."""
        if not self.config.alpha or not int(sums[CLIENTS]):
            return
        clients = int(sums[CLIENTS])
        products = symmetric(on_host(sums[PRODUCTS]), self.config.d, clients)
        self.balance = Balance.from_moments(self.grid, self.config.alpha, on_host(sums[TOTALS]), products, clients)

    def _item_balance(self, items: Int8[np.ndarray, "m d"]) -> Int64[np.ndarray, "m d"] | None:
        """4 d^2 K beta Y of item codes in whole numbers; None where beta is 0."""
        if not self.config.beta:
            return None
        mean = items.mean(0)
        rows = balanced_rows(items, mean, inverse_root(mean, products_of(items).astype(np.float64)), len(items))
        return np.rint(unit(self.grid, self.config.beta) * rows).astype(np.int64)


def _first_codes(
    config: DFMRConfig, purchases: Histories, streams: Streams
) -> tuple[Int8[np.ndarray, "m d"], Int8[np.ndarray, "n d"] | None]:
    """Item codes from public purchases alone, and user codes where the server makes them too."""
    n_items, d = purchases.n_items, config.d
    if not config.start_sweeps:
        inclusion = streams.words(Purpose.INITIALISE, 0, 0, [PUBLIC], n_items * d)[0].reshape(n_items, d)
        return (inclusion & 1).astype(np.int8) * np.int8(2) - np.int8(1), None
    feedback = Feedback.from_histories(purchases)
    items = _START_SCALE * streams.normal(Purpose.INITIALISE, 0, 0, [PUBLIC], n_items * d).double().view(n_items, d)
    factors: Float64[np.ndarray, "m d"] = on_host(items)
    missing = popularity_weights(purchases.popularity(), _START_C0, _START_EXPONENT)
    objective = ALSObjective(missing, np.zeros_like(missing), 0.0, 0.0, (0.0, 0.0), _START_REG)
    users = objective.users(factors, feedback)
    for _ in range(config.start_sweeps):
        factors = objective.items(users, factors, feedback)
        users = objective.users(factors, feedback)
    seed = int(streams.words(Purpose.INITIALISE, 0, 1, [PUBLIC], 1)[0, 0])
    if config.start == "own":
        return binarise_items(factors, seed), None
    user_codes, item_codes = binarise(users, factors, seed)
    return item_codes, user_codes
