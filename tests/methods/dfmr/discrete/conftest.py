"""A small federation in plain arrays, with the objective written out term by term as the oracle."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest


def summed(items: Any, values: Any, n_items: int) -> Any:
    """Sum of the values of each item."""
    sums = np.zeros(n_items, np.int64)
    np.add.at(sums, items, values)
    return sums


def coupling_sum(codes: Any, kappa: Any, users: Any) -> Any:
    """M over the given users."""
    wide = codes[users].astype(np.int64)
    return wide.T @ (wide * kappa[users][:, None])


@dataclass
class Toy:
    """Kinds [users, items] (0 rest, 1 purchased, 2 examined), hyper-parameters, and codes of both sides."""

    kinds: Any
    grid: Any
    users: Any
    items: Any
    x: Any = None
    y: Any = None
    padding: Any = None
    support: Any = field(init=False)

    def __post_init__(self) -> None:
        from privfed.methods.dfmr.discrete import ItemSupport

        self.support = ItemSupport.from_histories(self.histories(1), self.histories(2), self.padding)
        self.x = np.zeros(self.users.shape, np.int64) if self.x is None else self.x
        self.y = np.zeros(self.items.shape, np.int64) if self.y is None else self.y

    @classmethod
    def random(cls, seed: int, n: int = 3, m: int = 7, d: int = 3, **settings: Any) -> "Toy":
        from privfed.methods.dfmr.discrete import IntegerGrid

        rng = np.random.default_rng(seed)
        chosen = {
            "w": rng.uniform(0, 2), "s": rng.uniform(0, 0.5), "lam": rng.uniform(), "c": rng.uniform(0, 1, m),
            "gammas": tuple(rng.integers(0, 2 * d + 1, 3) / (2 * d)), "bits": int(rng.integers(4, 20)),
        } | settings  # fmt: skip
        shares = rng.dirichlet([1, 1, 1])  # now and then nobody has examinations, or purchases
        return cls(
            kinds=rng.choice(3, (n, m), p=shares),
            grid=IntegerGrid.from_parameters(m, d, **chosen),
            users=rng.choice(np.array([-1, 1], np.int8), (n, d)),
            items=rng.choice(np.array([-1, 1], np.int8), (m, d)),
            x=rng.integers(-(2**10), 2**10, (n, d)),
            y=rng.integers(-(2**10), 2**10, (m, d)),
        )

    def histories(self, kind: int) -> Any:
        from privfed.data import Histories

        user, item = np.nonzero(self.kinds == kind)
        return Histories.from_pairs(user, item, *self.kinds.shape)

    @property
    def everybody(self) -> Any:
        return np.arange(len(self.kinds))

    def losses(self, users: Any, items: Any) -> list[int]:
        """4 d^2 K times each user's loss without balance, term by term as in the note, in int64."""
        g, d = self.grid, self.grid.d
        out = []
        for kinds, row in zip(self.kinds, users.astype(np.int64) @ items.T.astype(np.int64), strict=True):
            total = 0
            p, e, o = (np.flatnonzero(kinds == kind) for kind in (1, 2, 0))
            for i in range(g.n_items):
                total += g.w * (d - row[i]) ** 2 if kinds[i] == 1 else g.s * (d + row[i]) ** 2
            for i in p:
                total += g.purchase[i] * ((g.g1 - row[i] + row[e]) ** 2).sum()
                total += g.purchase[i] * ((g.g2 - row[i] + row[o]) ** 2).sum()
            for j in e:
                total += g.examine[j] * ((g.g3 - row[j] + row[o]) ** 2).sum()
            out.append(int(total))
        return out

    def loss(self, users: Any, items: Any) -> int:
        """4 d^2 K times the whole objective."""
        return sum(self.losses(users, items)) - 2 * int((users * self.x).sum()) - 2 * int((items * self.y).sum())

    def naive_bit(self, side: str, row: int, bit: int) -> int:
        """2 d^2 K times the field of one bit, as L(+1) - L(-1) = -2 V* times 4 d^2 K: a difference of -4 x this."""
        change = []
        for sign in (1, -1):
            users, items = self.users.copy(), self.items.copy()
            (users if side == "user" else items)[row, bit] = sign
            change.append(self.loss(users, items))
        assert (change[0] - change[1]) % 4 == 0
        return (change[1] - change[0]) // 4

    def scores(self) -> Any:
        from privfed.methods.dfmr.discrete import pair_scores

        scores = np.zeros(len(self.support.items), np.int32)
        pair_scores(self.grid, self.support, self.everybody, self.users, self.items, scores)
        return scores

    def sweep_items(self, block: int | None = None, inertia: int = 0, watch: Any = None) -> Any:
        """A cached item phase over all bits; `block` items decide at once. Returns the new item codes."""
        from privfed.methods.dfmr import discrete

        g, everybody, m = self.grid, self.everybody, self.grid.n_items
        items, scores, block = self.items.copy(), self.scores(), block or m
        weights = discrete.weights_of(g, self.support)
        q2 = discrete.field(self.users, weights, everybody).sum(0)
        coupling = coupling_sum(self.users, weights.kappa, everybody)
        previous, change = -1, np.zeros(m, np.int8)
        for bit in range(g.d):
            for first in range(0, m, block):
                values, pull = discrete.item_terms(
                    g, self.support, everybody, self.users, scores, items.sum(0, dtype=np.int64),
                    items[:, bit], bit, previous, change,
                )  # fmt: skip
                star = discrete.server_field(int(q2[bit]), int(pull.sum()), coupling, items, bit)
                star += summed(self.support.items, values, m) + self.y[:, bit]
                star += inertia * items[:, bit].astype(np.int64)
                new = items[:, bit].copy()
                here = slice(first, first + block)
                new[here] = np.where(star[here] == 0, new[here], np.sign(star[here]))
                change, previous = new - items[:, bit], bit
                items[:, bit] = new
                if watch is not None:
                    watch(star, items)
        return items

    def stars(self) -> Any:
        """The cached field of every item bit at the current codes."""
        return np.stack([self.star(bit) for bit in range(self.grid.d)], axis=1)

    def star(self, bit: int, users: Any = None) -> Any:
        from privfed.methods.dfmr import discrete

        g = self.grid
        users = self.everybody if users is None else users
        weights = discrete.weights_of(g, self.support)
        values, pull = discrete.item_terms(
            g, self.support, users, self.users, self.scores(), self.items.sum(0, dtype=np.int64),
            self.items[:, bit], bit, -1, np.zeros(g.n_items, np.int8),
        )  # fmt: skip
        entries = self.support.of_users(users)[1]
        return (
            discrete.server_field(
                int(discrete.field(self.users, weights, users).sum(0)[bit]), int(pull.sum()),
                coupling_sum(self.users, weights.kappa, users), self.items, bit,
            )
            + summed(self.support.items[entries], values, g.n_items)
            + self.y[:, bit]
        )  # fmt: skip

    def sums(self) -> Any:
        """V^T V and p1."""
        items = self.items.astype(np.int64)
        return items.T @ items, items.sum(0)


@pytest.fixture(scope="session")
def toy() -> type[Toy]:
    return Toy
