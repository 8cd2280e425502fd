"""The clients of FedCIA: an outer product of the own history goes up, and the history is filtered on the device.

With x the 0/1 row of L own items, the released graph filter of one history is x x^T / L, of Frobenius norm 1, plus the
low pass of its one singular vector, which is x x^T / L again. Scores are x W, with W what the server published. The
released code adds the device's own filter to them; of one history that moves own items only, which are not recommended.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.fedcia.config import FedCIAConfig
from privfed.methods.fedcia.server import POPULARITY, SIMILARITY, WEIGHTS
from privfed.methods.references.shared.revealing import or_popular, sums_of_own
from privfed.methods.shared.popular_head import WITHIN
from privfed.methods.shared.vae_clients import UserRows
from privfed.updates import ClientUpdates, Symmetric


class FedCIAClients(StatefulClients):
    """Each user's items, and no parameters."""

    steps = frozenset({"relate"})

    def __init__(self, config: FedCIAConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.rows = UserRows(data.positives)
        self.private = PrivateState({})
        self.weight = WITHIN * (1 + config.low_pass if config.filtered_on == "device" else 1)

    def relate(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The item-item matrix of the own history, packed; zeros without any item."""
        mine = self.rows.select(call.clients)
        own = torch.zeros(len(call.clients), mine.n_items)
        own[mine.owner, mine.items] = 1
        weights = self.weight / mine.counts.clamp(min=1).double()
        part = Symmetric(SIMILARITY, torch.arange(len(own)), weights, own)
        return ClientUpdates(call.clients, call.schema, [part])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """The own history, filtered; popularity for a device without any item."""
        filtered = sums_of_own(message.shared[WEIGHTS], self.rows.select(clients))
        scores = or_popular(filtered, message.shared[POPULARITY])
        return scores if candidates is None else torch.gather(scores, 1, candidates)
