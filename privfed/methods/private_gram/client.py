"""The clients of `private-gram`: unit vectors of the own history go up, recommendations are made on the device.

With x the 0/1 row of own items on the head, |x| of them, pi the head's noisy popularity and D its damping:

    y = D^-a (x - min(1, |x| pi)),  what the history has beyond what popularity expects of so long a one.

The Gram matrix gets y y^T / |y|^2, of norm 1; without its diagonal, y_i y_j times the smaller of 1 over the norm of
what is left and 1.5 / |y|^2. Scores are max(1, |x|) pi + D^a W y on the head, and the rest of the catalogue follows in
the order of popularity; so does everything on a device without items on the head.
"""

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.private_gram.config import PrivateGramConfig
from privfed.methods.private_gram.server import BEYOND, BEYOND_SHARES, BEYOND_WEIGHTS, GRAM
from privfed.methods.shared.popular_head import (
    HEAD,
    ORDER,
    SCALE,
    SHARES,
    WEIGHTS,
    WITHIN,
    on_head,
    over_catalogue,
    unit_histories,
)
from privfed.methods.shared.vae_clients import UserRows
from privfed.updates import ClientUpdates, Symmetric, packed_size
from privfed.updates.symmetric import squared_norms

_MOST_LIFTED = 1.5


class PrivateGramClients(StatefulClients):
    """Each user's items, and no parameters."""

    steps = frozenset({"gram", "popularity"})

    def __init__(self, config: PrivateGramConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.rows = UserRows(data.positives)
        self.private = PrivateState({})

    def popularity(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The unit vector along the own items: 1 over the root of how many there are, for each."""
        return unit_histories(self.rows.select(call.clients), call)

    def gram(self, call: Call, message: Message) -> ClientUpdates:
        """The outer product of the centred history, of norm 1; nothing of a device whose history says nothing.

        Whether the diagonal is part of it shows in the size of the block.
        """
        centred = self._centred(call.clients, message)[0]
        diagonal = call.schema[GRAM].size == packed_size(centred.shape[1])
        part = Symmetric(GRAM, torch.arange(len(centred)), _weights(centred, diagonal=diagonal), centred, diagonal)
        return ClientUpdates(call.clients, call.schema, [part])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Predictions from the own whole history on the head, popularity below it."""
        shared = message.shared
        if not len(shared[HEAD]):
            order = shared[ORDER].expand(len(clients), -1)
            return order if candidates is None else torch.gather(order, 1, candidates)
        centred, owned = self._centred(clients, message)
        known = owned.clamp(min=1).unsqueeze(1)
        head = known * shared[SHARES] + (centred @ shared[WEIGHTS].T) / shared[SCALE]
        scores = over_catalogue(head, owned, shared[HEAD], shared[ORDER])
        if len(shared[BEYOND]):
            beyond = known * shared[BEYOND_SHARES] + centred @ shared[BEYOND_WEIGHTS].T
            scores[:, shared[BEYOND]] = torch.where(owned.unsqueeze(1) > 0, beyond, scores[:, shared[BEYOND]])
        return scores if candidates is None else torch.gather(scores, 1, candidates)

    def _centred(
        self, clients: Int64[Tensor, " clients"], message: Message
    ) -> tuple[Float[Tensor, "clients side"], Int64[Tensor, " clients"]]:
        """The vector y of every client, and how many of its items are on the head."""
        head, shares, scale = (message.shared[name] for name in (HEAD, SHARES, SCALE))
        mine = on_head(self.rows.select(clients), head)
        own = torch.zeros(len(clients), len(head))
        own[mine.owner, mine.items] = 1
        owned = mine.counts
        return (own - (owned.unsqueeze(1) * shares).clamp(max=1)).mul_(scale), owned


def _weights(centred: Float[Tensor, "clients side"], *, diagonal: bool) -> Float64[Tensor, " clients"]:
    """Factor of y y^T for a norm of 1 (or less); 0 for y = 0."""
    whole = squared_norms(centred).sqrt()
    weights = WITHIN / whole
    if not diagonal:
        left = squared_norms(centred, diagonal=False).sqrt()
        weights = torch.minimum(WITHIN / left, _MOST_LIFTED / whole)
    return torch.where(whole > 0, weights, 0.0)
