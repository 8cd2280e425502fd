"""The clients of `private-gram`: unit vectors of the own history go up, recommendations are made on the device.

`queries` says what a history contributes. Scores are max(1, |x|) pi + D^a W y on the head, in its notation, and the
rest of the catalogue follows in the order of popularity; so does everything on a device without items on the head.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.private_gram.config import PrivateGramConfig
from privfed.methods.private_gram.queries import AGAIN, GRAM, centred, factors, unit_rows
from privfed.methods.private_gram.server import BEYOND, BEYOND_SHARES, BEYOND_WEIGHTS
from privfed.methods.shared.popular_head import (
    HEAD,
    ORDER,
    SCALE,
    SHARES,
    WEIGHTS,
    over_catalogue,
    unit_histories,
)
from privfed.methods.shared.vae_clients import UserRows
from privfed.updates import ClientUpdates, Symmetric, packed_size


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

        Beside it, where it is asked for, the unit vector along the own items on the head. Whether the diagonal is part
        of the product shows in the size of its block.
        """
        vectors, mine = centred(self.rows.select(call.clients), message)
        diagonal = call.schema[GRAM].size == packed_size(vectors.shape[1])
        part = Symmetric(GRAM, torch.arange(len(vectors)), factors(vectors, diagonal=diagonal), vectors, diagonal)
        again = [unit_rows(mine)] if AGAIN in call.schema else []
        return ClientUpdates(call.clients, call.schema, [part, *again])

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
        vectors, mine = centred(self.rows.select(clients), message)
        owned = mine.counts
        known = owned.clamp(min=1).unsqueeze(1)
        head = known * shared[SHARES] + (vectors @ shared[WEIGHTS].T) / shared[SCALE]
        scores = over_catalogue(head, owned, shared[HEAD], shared[ORDER])
        if len(shared[BEYOND]):
            beyond = known * shared[BEYOND_SHARES] + vectors @ shared[BEYOND_WEIGHTS].T
            scores[:, shared[BEYOND]] = torch.where(owned.unsqueeze(1) > 0, beyond, scores[:, shared[BEYOND]])
        return scores if candidates is None else torch.gather(scores, 1, candidates)
