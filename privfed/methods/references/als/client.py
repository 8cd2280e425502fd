"""Clients of the least squares references: each user's lists, and no parameters."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.references.als.config import EALSConfig
from privfed.methods.references.als.server import HISTORY
from privfed.updates import ClientUpdates, Rows


class ALSClients(StatefulClients):
    """Reveal the lists once; a device that recommends solves for its own factors."""

    steps = frozenset({"reveal"})

    def __init__(self, config: EALSConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.config, self.feedback = config, config.feedback(data)
        self.private = PrivateState({})

    def reveal(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The whole row: 1 for every purchase, -1 for every examination."""
        mine = self.feedback.subset(on_host(call.clients))
        owner = np.concatenate([mine.purchased.owners, mine.examined.owners])
        items = np.concatenate([mine.purchased.items, mine.examined.items])
        marks = np.repeat(np.array([1, -1], np.float32), [len(mine.purchased), len(mine.examined)])
        order = np.lexsort((items, owner))
        ids, values = placed(items[order]), placed(marks[order]).unsqueeze(1)
        return ClientUpdates(call.clients, call.schema, [Rows(HISTORY, placed(owner[order]), ids, values)])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Inner products with the factors that minimise the user's own part of the objective, given the items'."""
        items, mine = message.shared["items"], self.feedback.subset(on_host(clients))
        users = self.config.objective(message.shared).users(on_host(items.double()), mine)
        scores = placed(users).float() @ items.T
        return scores if candidates is None else torch.gather(scores, 1, candidates)
