"""Attack rows for tap "sum": what the released sums say about everybody who is in them.

The whole sum is always attacked. Where clients hold different blocks, so is every group of blocks by itself that not
everybody holds (a size's own columns, a tier's table): its sum is over fewer clients, and says more about each of them.
Under `held` blocks the server knows who they are; where all send all blocks it does not, and these rows are what it
would read if it did.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from attacks import ServerView, SumView
from privfed.audit.report import formatting
from privfed.contracts import Schema
from privfed.engines.transcript import HELD_BY, HOLDERS, HOLDS, SENDERS, Observation
from privfed.methods import ItemBlocks

_NAMED = 2
"""Blocks of a group that are named; the others are counted."""


@dataclass(slots=True, eq=False)
class SumSeen:
    """The sums of the same blocks over the rounds, as far as audited users are in them.

    Attributes:
        blocks: the group by name; "" for everything.
        views: by round, of those rounds in which there was something to see.
        clients: how many clients are in each.
    """

    blocks: str
    views: list[SumView] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)

    @property
    def rounds(self) -> list[int]:
        """Rounds seen, counted from 1."""
        return [view.total.round + 1 for view in self.views]

    @property
    def note(self) -> str:
        """What a reader must know of how many are in a sum."""
        low, high = min(self.clients), max(self.clients)
        many = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return f"sums over {many} client{'' if high == 1 else 's'}"


def sums_seen(
    observations: Sequence[Observation], users: np.ndarray, blocks: ItemBlocks, schema: Schema
) -> list[SumSeen]:
    """The whole sum, then every group of blocks that only some participants hold and that says something about items.

    Args:
        observations: of tap `sum`, by round; those of other queries than the schema's are left out.
        users: audited users, ascending.
        blocks: which block plays which role.
        schema: of the training step.
    """
    sums: dict[tuple[str, ...], SumSeen] = {}
    for seen in observations:
        if not schema.keys() <= seen.tensors.keys() or len(seen.users) == 0:
            continue
        for names, here, clients in _groups(seen, schema):
            if (total := _view(seen, names, blocks, schema)) is None or not here.any():
                continue
            members = np.isin(users, seen.users[here].numpy())
            of_blocks = sums.setdefault(names, SumSeen(_named(names) if len(names) < len(schema) else ""))
            of_blocks.views.append(SumView(total, members, clients))
            of_blocks.clients.append(clients)
    return sorted(sums.values(), key=lambda one: one.blocks != "")


def _groups(seen: Observation, schema: Schema) -> Iterator[tuple[tuple[str, ...], Bool[Tensor, " n"], int]]:
    """Blocks, which of the observed users sent any of them, and how many clients did: all blocks, then each group."""
    names = sorted(seen.tensors.keys() - {HOLDS, HELD_BY, HOLDERS, SENDERS})
    holds, held_by, holders = (seen.tensors[name] for name in (HOLDS, HELD_BY, HOLDERS))
    senders = int(seen.tensors[SENDERS])
    yield tuple(schema), holds.any(1), senders
    for number in sorted(set(holders.tolist())):
        indices = [index for index, name in enumerate(names) if int(holders[index]) == number]
        if (clients := int(held_by[indices[0]])) < senders:
            here = {names[index] for index in indices}
            yield tuple(name for name in schema if name in here), holds[:, indices[0]], clients


def _view(seen: Observation, names: Sequence[str], blocks: ItemBlocks, schema: Schema) -> ServerView | None:
    """The sum of some blocks as one upload, the others zero; None where it says nothing about items."""
    sums: Mapping[str, Tensor] = {
        name: (seen.tensors[name] if name in names else torch.zeros_like(seen.tensors[name])).float().unsqueeze(0)
        for name in schema
    }
    view = ServerView(seen.round, **{role: values.float().numpy() for role, values in blocks.read(sums).items()})
    return view if view.present().any() else None


def _named(names: Sequence[str]) -> str:
    if len(names) <= _NAMED + 1:
        return formatting.listed(list(names))
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more blocks"
