"""Every protected upload by itself, for plans under which the server sees single uploads."""

from collections.abc import Mapping

import torch
from torch import Tensor

from privfed.engines.aggregation.base import SentObserver, stacked, unobserved
from privfed.federation import Call
from privfed.guards import ClientGuard
from privfed.updates import ClientUpdates


class IndividualRelease:
    """Writes protected uploads one after another into a buffer.

    Args:
        guard: of the clients.
        buffer: `[clients, *shape]` by block.
        first: position of the first client in the buffer.
        sent: sees single uploads.

    Attributes:
        steps: step `[clients]` of every real block, where the plan rounds uploads.
    """

    def __init__(
        self, guard: ClientGuard, buffer: Mapping[str, Tensor], first: int = 0, sent: SentObserver = unobserved
    ) -> None:
        self._guard, self._buffer, self._next, self._sent = guard, buffer, first, sent
        rounded = guard.plan.upload_bits is not None
        self.steps = {
            name: torch.empty(len(values))
            for name, values in buffer.items()
            if rounded and values.dtype == torch.float32
        }

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Write the uploads of the clients of one call."""
        self._guard.clip_(updates, call.clip_norm)
        own = slice(self._next, self._next + len(updates))
        uploads, steps = {name: values[own] for name, values in self._buffer.items()}, dict[str, Tensor]()
        self._guard.protect(updates, call, torch.arange(len(updates)), out=uploads, steps=steps)
        for name, values in steps.items():
            self.steps[name][own] = values
        self._sent(call, stacked(uploads), None)
        self._next = own.stop

    def close(self) -> Mapping[str, Tensor]:
        """The uploads of the clients of this process, in the order in which they were added."""
        return self._buffer
