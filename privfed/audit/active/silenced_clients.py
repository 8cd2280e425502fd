"""`SilencedClients`: devices of which some are sent a broken model, so that they add nothing to a sum."""

import torch
from jaxtyping import Int64
from torch import Tensor

from attacks.active import broken
from privfed.audit.active.honest_run import HonestQuery
from privfed.audit.active.tampered_clients import Step, TamperedClients
from privfed.federation import Call, Clients, FederationError, Message, Streams, begin_query, perform
from privfed.updates import ClientUpdates


class SilencedClients(TamperedClients):
    """Devices to which a lying server speaks.

    Whoever is not heard sends zeros, as a node has users do whose training fails (`privfed.engines.nodes.answering`);
    `stays_silent` says whether a broken model does that to a method. What a probe teaches a device is forgotten, so
    that all probes start from the same devices.

    Args:
        clients: of the whole population.

    Attributes:
        heard: who is sent a model that works; None for everybody.
    """

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        self.heard: Int64[Tensor, " heard"] | None = None

    def answer(self, step: Step, call: Call, message: Message) -> ClientUpdates:
        """Updates of those who are heard, and zeros."""
        updates = step(call, message)
        return updates if self.heard is None else updates.scale_(torch.isin(call.clients, self.heard).float())

    def commit(self) -> None:
        """A probe leaves nothing behind."""
        self.clients.discard()


def broken_message(message: Message) -> Message:
    """The message with NaN for every real number."""
    parts = [
        broken({name: values.numpy() for name, values in part.items()}) for part in (message.shared, message.personal)
    ]
    shared, personal = ({name: torch.from_numpy(values) for name, values in part.items()} for part in parts)
    return Message(shared, personal, message.config)


def stays_silent(
    clients: Clients, query: HonestQuery, users: Int64[Tensor, " users"], streams: Streams, round: int
) -> bool:
    """Whether a broken model silences all of these users: training fails, or gives no finite upload.

    Args:
        clients: of the whole population; nothing of theirs changes.
        query: that a broken model would travel with.
        users: to try it on, each alone.
        streams: addressed randomness.
        round: of the call.

    Raises:
        FederationError: the query is wrong, whatever the data.
    """
    message = broken_message(query.message)
    begin_query(clients, query.step, message)
    try:
        return all(_fails(clients, query, user, message, streams, round) for user in torch.split(users, 1))
    finally:
        clients.discard()


def _fails(
    clients: Clients, query: HonestQuery, user: Int64[Tensor, " 1"], message: Message, streams: Streams, round: int
) -> bool:
    call = Call(round, -1, query.step, 0, user, streams, query.schema)
    try:
        norms = perform(clients, call, message.addressed_to(user)).norms(2)
    except FederationError:
        raise
    except Exception:  # as at a node, whatever a broken model makes of training is a failure
        return True
    return not bool(norms.isfinite().any())
