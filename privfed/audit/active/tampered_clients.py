"""`TamperedClients`: the base of devices some of whose answers are not what their training gives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jaxtyping import Float, Int64
from torch import Tensor

from privfed.federation import Call, Clients, Message, Ranges
from privfed.updates import ClientUpdates

Step = Callable[[Call, Message], ClientUpdates]


class TamperedClients(ABC):
    """`Clients` whose every step goes through `answer`.

    Args:
        clients: of the whole population.
    """

    def __init__(self, clients: Clients) -> None:
        self.clients = clients

    @abstractmethod
    def answer(self, step: Step, call: Call, message: Message) -> ClientUpdates:
        """What comes back of a call, where `step` is what the clients would have answered."""

    def __getattr__(self, name: str) -> Any:
        """A step, or another attribute of the clients."""
        found = getattr(self.__dict__["clients"], name)
        return partial(self.answer, found) if name in self.__dict__["clients"].steps else found

    @property
    def steps(self) -> frozenset[str]:
        """Steps that the clients answer."""
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
        return self.clients.score(clients, message, updates, candidates)

    def commit(self) -> None:
        """The release was confirmed."""
        self.clients.commit()

    def discard(self) -> None:
        """The round was aborted."""
        self.clients.discard()

    def state(self) -> dict[str, Tensor]:
        """Committed private tensors."""
        return self.clients.state()

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Continue from `state()`."""
        self.clients.load(state)
