"""The clients of `dpals`: a device solves for its own vector, sends sums of it, and recommends with it.

With v_j the factors of the head and I the own items there, a device's vector minimises

    sum_{j in I} (1 - u . v_j)^2 + a sum_j (u . v_j)^2 + l (|I| + a |head|) |u|^2.

A pass is sent from the unit vector u / |u|: its outer product with itself, and for every own item the vector times
c_j, where c is popularity^-balance on the own items, of norm 1 (and c_j times the outer product, where Gram
matrices per item are collected). Each of these blocks then has norm 1. A device that has nothing on the head sends
zeros.
"""

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from privfed.compute.devices import on_host
from privfed.data import Histories
from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.dpals.config import DPALSConfig
from privfed.methods.dpals.server import BALANCE, GRAM, ITEMS, SQUARES, SUMS
from privfed.methods.shared.popular_head import HEAD, ORDER, WITHIN, on_head, over_catalogue, unit_histories
from privfed.methods.shared.vae_clients import UserRows
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.updates import ClientUpdates, Part, Rows, Symmetric


class DPALSClients(StatefulClients):
    """Each user's items, and no parameters: a vector follows from the items' factors."""

    steps = frozenset({"popularity", "statistics"})

    def __init__(self, config: DPALSConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.config, self.rows = config, UserRows(data.positives)
        self.private = PrivateState({})

    def popularity(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The unit vector along the own items."""
        return unit_histories(self.rows.select(call.clients), call)

    def statistics(self, call: Call, message: Message) -> ClientUpdates:
        """Statistics for the item step, from each user's unit vector."""
        mine = on_head(self.rows.select(call.clients), message.shared[HEAD])
        vectors = self._vectors(mine, message)
        lengths = vectors.norm(dim=1, keepdim=True)
        # Written so that NaN stays NaN: the guard then refuses the upload of a model that diverged.
        units = torch.where(lengths == 0, 0.0, WITHIN * vectors / lengths)
        own = self._weights(mine, message)
        each = (own.unsqueeze(1) * units[mine.owner]).float()
        parts: list[Part] = [
            Symmetric(GRAM, torch.arange(len(units)), torch.ones(len(units), dtype=torch.float64), units.float()),
            Rows(SUMS, mine.owner, mine.items, each),
        ]
        if SQUARES in call.schema:
            parts.append(Rows(SQUARES, mine.owner, mine.items, _outer(units)[mine.owner] * own.float().unsqueeze(1)))
        return ClientUpdates(call.clients, call.schema, parts)

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Products of the own vector with the head's factors; popularity below, and where the vector says nothing."""
        shared = message.shared
        mine = on_head(self.rows.select(clients), shared[HEAD])
        vectors = self._vectors(mine, message).float()
        known = mine.counts * vectors.any(1)
        scores = over_catalogue(vectors @ shared[ITEMS].T, known, shared[HEAD], shared[ORDER])
        return scores if candidates is None else torch.gather(scores, 1, candidates)

    def _vectors(self, mine: OwnRows, message: Message) -> Float64[Tensor, "clients dim"]:
        """The vectors that fit the own items on the head."""
        offsets = np.concatenate([[0], on_host(mine.counts.cumsum(0))])
        lists = Histories(offsets, on_host(mine.items), mine.n_items)
        return self.config.objective.solve(message.shared[ITEMS].double(), lists)

    def _weights(self, mine: OwnRows, message: Message) -> Float64[Tensor, " k"]:
        """Weights c of the own items: popularity^-balance, brought to norm 1 for every client."""
        raw = message.shared[BALANCE].double()[mine.items]
        squares = torch.zeros(len(mine.counts), dtype=torch.float64).index_add_(0, mine.owner, raw.square())
        return WITHIN * raw / squares.sqrt()[mine.owner]


def _outer(units: Float64[Tensor, "clients dim"]) -> Float[Tensor, "clients packed"]:
    """Outer products u u^T, packed as `Symmetric` packs them."""
    row, column = torch.triu_indices(units.shape[1], units.shape[1])
    scale = torch.where(row == column, 1.0, 2.0**0.5)
    return (units[:, row] * units[:, column] * scale).float()
