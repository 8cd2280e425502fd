"""Clients of Mult-VAE: each reveals its row once."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.references.multvae.config import MultVAEConfig
from privfed.methods.references.multvae.server import HISTORY
from privfed.methods.shared.vae import decode, encode
from privfed.methods.shared.vae_clients import UserRows, whole
from privfed.updates import ClientUpdates, Rows


class MultVAEClients(StatefulClients):
    """Clients: each user's row, and no parameters."""

    steps = frozenset({"reveal"})

    def __init__(self, config: MultVAEConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.architecture, self.rows = config.architecture(data.n_items), UserRows(data.positives)
        self.private = PrivateState({})

    def reveal(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The whole row: a one for every training item."""
        mine = self.rows.select(call.clients)
        ones = torch.ones(len(mine.items), 1)
        return ClientUpdates(call.clients, call.schema, [Rows(HISTORY, mine.owner, mine.items, ones)])

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,  # noqa: ARG002
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Logits of the decoder at the posterior mean of the device's own row, nothing dropped."""
        read = whole(self.rows.select(clients), message.shared["encoder.0.weight"].dtype)
        mean, _ = encode(self.architecture, message.shared, read, {}).chunk(2, 1)
        logits = decode(self.architecture, message.shared, mean, {})
        return logits if candidates is None else torch.gather(logits, 1, candidates)
