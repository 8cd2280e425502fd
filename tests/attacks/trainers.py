"""A tiny federated recommender whose local training can be repeated: item rows under a linear head.

The logit of (user, item) is row . head. A user's own head is the broadcast one plus a private deviation, which a replay
does not know. Local training takes gradient steps of the binary cross-entropy on rows and head.
"""

from dataclasses import dataclass

import numpy as np

from attacks import ServerView


@dataclass(eq=False)
class LinearHead:
    """Implements `attacks.Recipe`; `shared=False` gives every user, and every newcomer, a direction of their own."""

    table: np.ndarray
    head: np.ndarray
    private: float = 0.3
    shared: bool = True
    negatives: int = 4
    steps: int = 3
    rate: float = 0.5

    @classmethod
    def drawn(cls, rng, n_items, width=8, **settings):
        return cls(0.3 * rng.normal(size=(n_items, width)), rng.normal(size=width), **settings)

    def heads(self, rng, n_users):
        return self.head * self.shared + self.private * rng.normal(size=(n_users, len(self.head)))

    def train(self, rng, positives, candidates, heads):
        """Row updates [users, items, width]; zero for users without positives."""
        key = np.where(candidates & ~positives, rng.random(positives.shape), np.inf)
        drawn = key.argsort(axis=1).argsort(axis=1) < self.negatives * positives.sum(axis=1, keepdims=True)
        chosen = positives | (drawn & np.isfinite(key))
        heads, rows = heads.copy(), np.repeat(self.table[None], len(positives), axis=0)
        for _ in range(self.steps):
            logits = np.einsum("uiw,uw->ui", rows, heads)
            error = np.where(chosen, positives - 1 / (1 + np.exp(-logits)), 0.0)
            step = error[:, :, None] * heads[:, None]
            heads += self.rate * np.einsum("ui,uiw->uw", error, rows) / chosen.sum(axis=1).clip(min=1)[:, None]
            rows += self.rate * step
        return np.where(positives.any(axis=1)[:, None, None], rows - self.table, 0).astype(np.float32)

    def round(self, rng, members, number=0):
        """What the users really send."""
        heads = self.heads(rng, len(members))
        return ServerView(number, self.train(rng, members, np.ones_like(members), heads))

    def simulate_uploads(self, round, positives, candidates, world):
        rng = np.random.default_rng([round, world, 77])
        newcomer = self.head if self.shared else self.heads(rng, 1)[0]
        return ServerView(round, self.train(rng, positives, candidates, np.repeat(newcomer[None], len(positives), 0)))

    def public_scores(self, view):
        return np.einsum("uiw,w->ui", self.table + view.uploads, self.head)
