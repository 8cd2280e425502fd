"""Clients that the references share: a list that is revealed once, and scored on the device ever after."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import embedding_bag

from privfed.federation import Call, Message, PrivateState, StatefulClients, Streams
from privfed.methods.client_data import ClientData
from privfed.methods.method import MethodConfig
from privfed.methods.references.shared.collecting import HISTORY
from privfed.methods.shared.vae_clients import UserRows
from privfed.methods.shared.vae_inputs import OwnRows
from privfed.updates import ClientUpdates, Rows


class RevealingClients(StatefulClients, ABC):
    """Each user's list, and no parameters."""

    steps = frozenset({"reveal"})

    def __init__(self, config: MethodConfig, data: ClientData, streams: Streams) -> None:  # noqa: ARG002
        self.rows = UserRows(data.positives)
        self.private = PrivateState({})

    @abstractmethod
    def predict(self, rows: OwnRows, model: Mapping[str, Tensor]) -> Float[Tensor, "clients items"]:
        """Scores of the whole catalogue, from the users' own lists and what the server published, or sent to each."""

    def reveal(self, call: Call, message: Message) -> ClientUpdates:  # noqa: ARG002
        """The whole list: a one for every training item."""
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
        """Scores that the model predicts from the device's list."""
        scores = self.predict(self.rows.select(clients), {**message.shared, **message.personal})
        return scores if candidates is None else torch.gather(scores, 1, candidates)


def sums_of_own(table: Float[Tensor, "items width"], rows: OwnRows) -> Float[Tensor, "clients width"]:
    """The sum, for every client, of the table's rows of its own items."""
    return embedding_bag(rows.items, table, rows.counts.cumsum(0) - rows.counts, mode="sum")


def or_popular(scores: Float[Tensor, "clients k"], popularity: Float[Tensor, " k"]) -> Float[Tensor, "clients k"]:
    """The scores, and popularity for users to whom the model gives none: all theirs are zero."""
    return torch.where(scores.any(1, keepdim=True), scores, popularity)
