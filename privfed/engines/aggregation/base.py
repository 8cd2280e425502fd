"""What every aggregation strategy offers: `add` for each chunk of clients, and `close` once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from jaxtyping import Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.federation import Call, Cohort
from privfed.updates import ClientUpdates

Result_co = TypeVar("Result_co", covariant=True)

LookUp = Callable[[Int64[Tensor, " n"]], Mapping[str, Tensor]]
"""Positions -> blocks `[n, *shape]` of the uploads at these positions."""

SentObserver = Callable[[Call, LookUp, Int64[Tensor, " n"] | None], None]
"""Sees single protected uploads: (call, uploads, positions of their clients in the call; None for all)."""


class Aggregation(Protocol[Result_co]):
    """Protects and adds up the updates of one query, chunk by chunk; clients are added once and in order."""

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Clip, protect and add the updates of the clients of one call."""

    def close(self) -> Result_co:
        """The result over all clients, of all processes; nothing can be added afterwards."""


@dataclass(frozen=True, slots=True)
class QueryContext:
    """One query of a round.

    Attributes:
        step: of the clients.
        query_id: running number within the cohort.
        cohort: that is queried.
        schema: blocks that a client may upload.
    """

    step: str
    query_id: int
    cohort: Cohort
    schema: Schema


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Sums of all blocks of a query, before the server's noise.

    Attributes:
        sums: `[*shape]` by block, float64 or int64.
        revealed: rows of a block that are revealed, where only some are.
        within: number of clients whose norm was within the clip norm, where the aggregation counts them.
    """

    sums: dict[str, Tensor]
    revealed: dict[str, Tensor] = field(default_factory=dict)
    within: int = 0


def unobserved(call: Call, uploads: LookUp, positions: Int64[Tensor, " n"] | None) -> None:
    """A `SentObserver` that sees nothing."""
    del call, uploads, positions


def stacked(uploads: Mapping[str, Tensor]) -> LookUp:
    """Look-up of some clients' uploads in stacked ones."""
    return lambda positions: {name: values[positions] for name, values in uploads.items()}
