"""`MaliciousClients`: devices of which some send rows of their own making in the place of what training gives."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.audit.active.tampered_clients import Step, TamperedClients
from privfed.federation import Call, Clients, FederationError, Message
from privfed.updates import ClientUpdates, Dense, Part, Rows

Poison = Callable[[Message, int, int], Float[Tensor, "k width"]]
"""(message, round, malicious clients among those called) -> rows of the targets that each of them sends."""


class MaliciousClients(TamperedClients):
    """Devices some of which promote target items by the item rows that they upload; they send nothing else.

    Args:
        clients: of the whole population.
        malicious: who promotes.
        block: of item rows.
        targets: rows that they send, ascending.
        poison: what they send.
    """

    def __init__(
        self,
        clients: Clients,
        malicious: Int64[Tensor, " malicious"],
        block: str,
        targets: Int64[Tensor, " k"],
        poison: Poison,
    ) -> None:
        super().__init__(clients)
        self.malicious, self.block, self.targets, self.poison = malicious, block, targets, poison

    def answer(self, step: Step, call: Call, message: Message) -> ClientUpdates:
        """Updates of honest clients, and the target rows of the malicious ones."""
        lies = torch.isin(call.clients, self.malicious)
        bad, good = lies.nonzero().squeeze(1), (~lies).nonzero().squeeze(1)
        if not len(bad):
            return step(call, message)
        own = {name: values[good] for name, values in message.personal.items()}
        honest = step(replace(call, clients=call.clients[good]), Message(message.shared, own, message.config))
        rows = self.poison(message, call.round, len(bad))
        owner = bad.repeat_interleave(len(self.targets))
        made = Rows(self.block, owner, self.targets.repeat(len(bad)), rows.repeat(len(bad), 1))
        return ClientUpdates(call.clients, call.schema, [*(_owned(part, good) for part in honest.parts), made])


def _owned(part: Part, places: Int64[Tensor, " n"]) -> Part:
    """The part where the clients of a call are at these places of a larger one."""
    if isinstance(part, Rows):
        return Rows(part.block, places[part.owner], part.ids, part.values)
    if isinstance(part, Dense):
        return replace(part, owner=places[part.owner])
    raise FederationError(
        f"block {part.block!r} comes as {type(part).__name__}, and malicious clients are simulated among uploads of "
        f"rows and dense blocks; choose a method that sends these"
    )
