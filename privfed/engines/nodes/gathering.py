"""What nodes send in the clear: partial sums, or single protected uploads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privfed.contracts import Schema
from privfed.engines.nodes.channel import Channel, NodeRequest
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.membership import Membership
from privfed.engines.nodes.queries import Query, coded_tensors_of, tensors_of
from privfed.engines.nodes.roster import Users
from privfed.engines.simulation import TooFewClientsError
from privfed.guards import ServerGuard

QueryOf = Callable[[int], Query]
"""The query as the organisation at a seat is sent it."""

_CLEAR = "train.clear"


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """What came of one query.

    Attributes:
        nodes: seats whose users are in it.
        members: these users, ascending.
        blocks: sums; single uploads where these were collected.
        within: users within the clip norm.
    """

    nodes: tuple[int, ...]
    members: Users
    blocks: dict[str, Tensor]
    within: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _ClearReply:
    """What one node sent: its members, their blocks, and how many of them were within the clip norm."""

    members: Users
    blocks: dict[str, Tensor]
    within: int


class Gathering:
    """Queries nodes in the clear.

    Args:
        channel: to the nodes.
        membership: of the nodes.
        guard: decides whether a release of so many users is opened.
    """

    def __init__(self, channel: Channel, membership: Membership, guard: ServerGuard) -> None:
        self._channel, self._membership, self._guard = channel, membership, guard

    def gather(self, nodes: Sequence[int], query: QueryOf, schema: Schema, *, each: bool) -> Gathered:
        """Partial sums added in the order of seats, or all uploads in the order of users.

        Raises:
            TooFewClientsError: too few nodes or users answered.
        """
        replies = self._replies({node: query(node) for node in nodes}, schema, each=each)
        order = sorted(replies)
        parts = [replies[node] for node in order]
        members = together([part.members for part in parts])
        if not order or not self._guard.reveals(len(members)):
            raise TooFewClientsError(f"{len(order)} of {len(nodes)} nodes answered, with {len(members)} users")
        if each:
            ascending = torch.from_numpy(np.argsort(np.concatenate([part.members for part in parts]), kind="stable"))
            blocks = {name: torch.cat([part.blocks[name] for part in parts])[ascending] for name in schema}
        else:
            blocks = {name: torch.stack([part.blocks[name] for part in parts]).sum(0) for name in schema}
        return Gathered(tuple(order), members, blocks, sum(part.within for part in parts))

    def _replies(self, queries: dict[int, Query], schema: Schema, *, each: bool) -> dict[int, _ClearReply]:
        requests = {node: NodeRequest(query=query, values={"each": each}) for node, query in queries.items()}
        bits, replies = self._guard.plan.upload_bits, dict[int, _ClearReply]()
        for node, packet in self._channel.exchange(_CLEAR, requests).items():
            try:
                members = self._membership.took_part(node, packet, queries[node])
                if each and bits is not None:
                    blocks = coded_tensors_of(packet, schema, len(members), bits)
                else:
                    blocks = tensors_of(packet, schema, (len(members),) if each else ())
                replies[node] = _ClearReply(members, blocks, packet.whole("within", 0, len(members)))
            except MessageError as refused:
                self._channel.note(node, _CLEAR, str(refused))
        return replies


def together(parts: Sequence[Users]) -> Users:
    """Users of several nodes, ascending."""
    return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
