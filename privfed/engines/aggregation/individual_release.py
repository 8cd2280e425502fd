"""Every protected upload by itself, for plans under which the server sees single uploads."""

from collections.abc import Mapping

import torch
from torch import Tensor

from privfed.compute.memory import MemoryLimitError, refuse_beyond_memory
from privfed.contracts import Schema, upload_bytes
from privfed.engines.aggregation.base import SentObserver, stacked, unobserved
from privfed.federation import Call
from privfed.guards import ClientGuard
from privfed.updates import ClientUpdates

_SMALLER = "sample fewer clients per round or use a smaller dimension"


class ReleaseBuffer:
    """Memory for the uploads of an individual release, used again by the next one.

    Args:
        limit: bytes that uploads may take; None sets no bound but the memory that there is.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._blocks: dict[str, Tensor] = {}

    def uploads(self, schema: Schema, clients: int) -> dict[str, Tensor]:
        """Blocks `[clients, *shape]`.

        Raises:
            MemoryLimitError: they do not fit.
        """
        needed = upload_bytes(schema) * clients
        if self._limit is not None and needed > self._limit:
            raise MemoryLimitError(
                f"an individual release of {clients} uploads needs {needed / 2**30:.2f} GiB but the memory limit is "
                f"{self._limit / 2**30:.2f} GiB; raise the limit, {_SMALLER}"
            )
        held = sum(block.nbytes for block in self._blocks.values())
        refuse_beyond_memory(needed - held, f"an individual release of {clients} uploads", _SMALLER)
        for name, block in schema.items():
            shape = (clients, *block.shape)
            kept = self._blocks.get(name)
            if kept is None or kept.shape != shape:
                dtype = torch.float32 if block.kind == "real" else torch.int64
                try:
                    self._blocks[name] = torch.empty(shape, dtype=dtype)
                except RuntimeError as error:
                    raise MemoryLimitError(
                        f"there is no memory for an individual release of {clients} uploads, which needs "
                        f"{needed / 2**30:.2f} GiB: {_SMALLER}"
                    ) from error
        return {name: self._blocks[name] for name in schema}


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
