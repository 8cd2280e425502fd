"""`HostedClients`: the clients of a part of a population, behind the numbers of the whole.

Inside, users are numbered from 0, so private tensors are as tall as the part; outside they keep the numbers that
everybody else knows them by. Randomness is that of the number in the population.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import placed
from privfed.federation import Call, Clients, FederationError, Message, Ranges, StatefulClients, Streams
from privfed.updates import ClientUpdates


class HostedClients:
    """`Clients` over the users of one process.

    Args:
        clients: of these users, numbered from 0.
        users: their numbers in the population, ascending.
    """

    def __init__(self, clients: Clients, users: Int64[np.ndarray, " hosted"]) -> None:
        self.clients, self.users = clients, users
        self._users = placed(np.ascontiguousarray(users))
        self._known: tuple[Streams, Streams] | None = None

    def __getattr__(self, name: str) -> Any:
        """A step of the hosted clients, or another attribute of theirs."""
        found = getattr(self.__dict__["clients"], name)
        return self._step(found) if name in self.__dict__["clients"].steps else found

    @property
    def steps(self) -> frozenset[str]:
        """Steps that the hosted clients answer."""
        return self.clients.steps

    def receive(self, step: str, message: Message) -> None:
        """A query begins."""
        self.clients.receive(step, message)

    def score(
        self,
        clients: Int64[Tensor, " clients"],
        message: Message,
        updates: ClientUpdates | None,
        candidates: Int64[Tensor, "clients c"] | None,
    ) -> Float[Tensor, "clients c"]:
        """Scores on the devices of `clients`."""
        return self.clients.score(self._inside(clients), message, updates, candidates)

    def commit(self) -> None:
        """The release was confirmed."""
        self.clients.commit()

    def discard(self) -> None:
        """The round was aborted."""
        self.clients.discard()

    def state(self) -> dict[str, Tensor]:
        """Committed private tensors of the hosted users, `[hosted, ...]` each."""
        return self.clients.state()

    def ranges(self) -> Mapping[str, Ranges]:
        """The same, to be written away range by range, where the hosted clients' state can be."""
        found: Mapping[str, Ranges] = (
            self.clients.ranges() if isinstance(self.clients, StatefulClients) else self.state()
        )
        return found

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Continue from `state()`."""
        self.clients.load(state)

    def _step(self, step: Callable[[Call, Message], ClientUpdates]) -> Callable[[Call, Message], ClientUpdates]:
        def renumbered(call: Call, message: Message) -> ClientUpdates:
            inside = self._inside(call.clients)
            updates = step(replace(call, clients=inside, streams=self._streams(call.streams)), message)
            if updates.clients.equal(inside):
                updates.clients = call.clients
            return updates

        return renumbered

    def _streams(self, streams: Streams) -> Streams:
        if self._known is None or self._known[0] is not streams:
            self._known = streams, streams.numbered(self.users)
        return self._known[1]

    def _inside(self, clients: Int64[Tensor, " clients"]) -> Int64[Tensor, " clients"]:
        inside = torch.searchsorted(self._users, clients)
        known = inside < len(self._users)
        if not bool(known.all()) or not self._users[inside].equal(clients):
            own = f"{int(self.users[0])} to {int(self.users[-1])}" if len(self.users) else "nobody"
            raise FederationError(
                f"users {int(clients.min())} to {int(clients.max())} were queried in a process that hosts {own}, "
                f"{len(self.users)} in all; query each process for its own"
            )
        return inside
