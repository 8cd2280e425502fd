"""What the clients of FedVAE and FedDAE share: rows, addressed randomness, uploads and changes of layers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt32
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import on_host, placed
from privfed.data import Histories
from privfed.federation import Call, Purpose
from privfed.methods.shared.vae import Architecture
from privfed.methods.shared.vae_config import VAEConfig
from privfed.methods.shared.vae_inputs import Inputs, OwnRows
from privfed.methods.shared.vae_layers import LayerChange
from privfed.methods.shared.vae_server import COUNTS
from privfed.updates import ClientUpdates, Dense, LowRank, Part


class UserRows:
    """The training rows of all hosted users: distinct items, ascending within a user."""

    def __init__(self, positives: Histories) -> None:
        owner, items = np.divmod(positives.pairs(positives.n_items), positives.n_items)
        self.n_items = positives.n_items
        self.items = placed(items)
        self.counts = placed(np.bincount(owner, minlength=positives.n_users))
        self._first = self.counts.cumsum(0) - self.counts

    def entries(self, users: Int64[Tensor, " n"]) -> Int64[Tensor, " k"]:
        """Positions, in `items`, of the entries of `users`, in that order."""
        return self._ragged(users)[1]

    def select(self, users: Int64[Tensor, " n"]) -> OwnRows:
        """The rows of `users`, in that order."""
        owner, entries = self._ragged(users)
        return OwnRows(owner, self.items[entries], self.counts[users], self.n_items)

    def _ragged(self, users: Int64[Tensor, " n"]) -> tuple[Int64[Tensor, " k"], Int64[Tensor, " k"]]:
        """Of every entry of `users`: whose it is, by position in `users`, and its position in `items`."""
        counts = self.counts[users]
        owner = torch.arange(len(users)).repeat_interleave(counts)
        # Entries of one user follow each other here as there.
        shift = self._first[users] - (counts.cumsum(0) - counts)
        return owner, torch.arange(len(owner)) + shift[owner]


@dataclass(frozen=True, slots=True, eq=False)
class LocalRound:
    """Everything random or fixed beforehand in a cohort's local training.

    Attributes:
        rows: own items.
        inputs: what is read in every step.
        noise: standard normal draws of the latent vectors.
        scale: factor of each client's loss.
        beta: weight of the KL term.
        coefficients: what each gradient does to later weights and to the upload.
    """

    rows: OwnRows
    inputs: Inputs
    noise: Float[Tensor, "clients steps latent"]
    scale: Float[Tensor, " clients"]
    beta: float
    coefficients: Float[Tensor, "steps_and_one steps"]

    @classmethod
    def from_call(cls, config: VAEConfig, rows: OwnRows, call: Call, dtype: torch.dtype) -> "LocalRound":
        """The round of `call`; every random number is at an address of its client's own."""
        users, steps = call.clients.tolist(), config.local_steps
        noise = call.streams.normal(Purpose.LATENT, call.round, call.query_id, users, steps * config.latent)
        keep = kept(rows, call, steps, config.dropout)
        own = rows.counts.clamp(min=1).to(dtype)
        return cls(
            rows,
            rows.inputs(keep, config.dropout, dtype),
            noise.view(len(users), steps, config.latent).to(dtype),
            torch.ones_like(own) if config.loss_scale == "sum" else 1 / own,
            config.beta(call.round),
            config.coefficients(dtype),
        )


def kept(rows: OwnRows, call: Call, steps: int, dropout: float) -> Bool[Tensor, "steps k"]:
    """Which entries survive dropout in each step: word e m + i of its client decides on entry i of m in step e."""
    if not dropout:
        return torch.ones(steps, len(rows.owner), dtype=torch.bool)
    count = steps * int(rows.counts.max()) if len(rows.owner) else 0
    words = call.streams.words(Purpose.DROPOUT, call.round, call.query_id, call.clients.tolist(), count)
    keep = np.empty((steps, len(rows.owner)), np.bool_)
    _compare(words, on_host(rows.counts), np.uint32(dropout * 2**32), keep)
    return placed(keep)


@compiled
def _compare(
    words: UInt32[np.ndarray, "clients words"],
    counts: Int64[np.ndarray, " clients"],
    threshold: np.uint32,
    keep: Bool[np.ndarray, "steps k"],
) -> None:
    """Keep the entries whose word reaches the threshold; every client's stand together."""
    first = 0
    for client in range(len(counts)):
        own = counts[client]
        for step in range(len(keep)):
            for i in range(own):
                keep[step, first + i] = words[client, step * own + i] >= threshold
        first += own


def whole(rows: OwnRows, dtype: torch.dtype) -> Inputs:
    """The rows with nothing dropped, as a device reads them to recommend."""
    return rows.inputs(torch.ones(1, len(rows.owner), dtype=torch.bool), 0.0, dtype)


def counted(rows: OwnRows, call: Call) -> ClientUpdates:
    """The answer to the server's `count`: a one for every own item."""
    clients = len(call.clients)
    ones = torch.zeros(clients, rows.n_items)
    ones[rows.owner, rows.items] = 1
    return ClientUpdates(call.clients, call.schema, [Dense(COUNTS, torch.arange(clients), ones)])


def uploaded(architecture: Architecture, call: Call, changes: Mapping[str, LayerChange]) -> ClientUpdates:
    """Changes of layers as an update: weights as outer products, biases dense."""
    everyone = torch.arange(len(call.clients))
    parts: list[Part] = []
    for name, change in changes.items():
        sides = (change.right, change.left) if name == architecture.last else (change.left, change.right)
        weight = LowRank(f"{name}.weight", everyone, *sides, sparse=change.sparse)
        parts += [weight, Dense(f"{name}.bias", everyone, change.bias)]
    return ClientUpdates(call.clients, call.schema, parts)


def changes_in(architecture: Architecture, updates: ClientUpdates | None) -> dict[str, LayerChange]:
    """The way back: what an update of `uploaded` makes of each layer; nothing without an update."""
    if updates is None:
        return {}
    weights = {p.block.removesuffix(".weight"): p for p in updates.parts if isinstance(p, LowRank)}
    biases = {p.block.removesuffix(".bias"): p.values for p in updates.parts if isinstance(p, Dense)}
    return {
        name: LayerChange(*((p.right, p.left) if name == architecture.last else (p.left, p.right)), biases[name])
        for name, p in weights.items()
    }
