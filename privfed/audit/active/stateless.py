"""`StatelessServer` and `StatelessClients`: parties of an audit that make or answer queries, and learn nothing."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Message, Ranges
from privfed.updates import ClientUpdates


class StatelessServer:
    """All of a `Server` but its schema and its rounds."""

    def public(self) -> Message:
        """Nothing."""
        return Message({})

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Nothing."""
        del state


class StatelessClients:
    """All of `Clients` but their steps."""

    def receive(self, step: str, message: Message) -> None:
        """Nothing is kept of a message."""
        del step, message

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Nothing is recommended."""
        del message, updates
        return torch.zeros(len(clients), 0 if candidates is None else candidates.shape[1])

    def commit(self) -> None:
        """There is no state."""

    def discard(self) -> None:
        """Nor anything staged."""

    def state(self) -> dict[str, Tensor]:
        """Empty."""
        return {}

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Nothing to continue from."""
        del state
