"""What a server knows of its nodes: seats, users, and who answers."""

from collections import Counter

import numpy as np
from jaxtyping import Int64

from privfed.engines.nodes.errors import MessageError, RefusalCode
from privfed.engines.nodes.transport import NodeId

ANNOUNCE = "train.announce"
_MAX_RESTED = 15

Users = Int64[np.ndarray, " _"]


class NodeRoster:
    """The nodes of a run.

    Args:
        population: users of the federation.

    Attributes:
        seats: ids of nodes in masked sums; they stay for a run.
        users: by node that takes part, the users that it hosts.
        refused: nodes that do not take part.
        misses: by node, number of requests in a row that it did not answer.
        rests: by node, number of cohorts that it is still left out of.
        session: number of the latest masked sum that a node was in.
    """

    def __init__(self, population: int) -> None:
        self._population = population
        self.seats: dict[NodeId, int] = {}
        self.users: dict[NodeId, Users] = {}
        self.refused: set[NodeId] = set()
        self.misses: Counter[NodeId] = Counter()
        self.rests: Counter[NodeId] = Counter()
        self.session = 0

    def seat_all(self, nodes: list[NodeId]) -> None:
        """Give every node that has none the next free seat."""
        free = max(self.seats.values(), default=-1) + 1
        for node in nodes:
            if node not in self.seats:
                self.seats[node], free = free, free + 1

    def accept(self, node: NodeId, users: Users, session: int) -> None:
        """Let a node take part.

        Raises:
            MessageError: it hosts users that nobody or another node hosts.
        """
        if len(users) and users[-1] >= self._population:
            raise MessageError("the node hosts users beyond the population; it does not take part")
        if any(np.isin(users, others).any() for others in self.users.values()):
            raise MessageError("the node hosts users that another node hosts; it does not take part")
        self.session = max(self.session, session)
        self.users[node] = users

    def silent(self, node: NodeId) -> None:
        """A node did not answer; one that is silent again and again rests for some cohorts."""
        self.misses[node] += 1
        if self.misses[node] > 1:
            self.rests[node] = min(2 ** (self.misses[node] - 1) - 1, _MAX_RESTED)

    def answered(self, node: NodeId) -> None:
        """A node answered."""
        self.misses[node] = 0

    def refuses(self, node: NodeId, stage: str, code: RefusalCode) -> None:
        """A node refused: a run for good, or a request of a run that it does not know and that is announced again."""
        if stage == ANNOUNCE:
            self.refused.add(node)
        elif code is RefusalCode.UNKNOWN_RUN:
            self.users.pop(node, None)

    def rests_now(self, node: NodeId) -> bool:
        """Whether a node is left out of the next query; counts the rest down."""
        if not self.rests[node]:
            return False
        self.rests[node] -= 1
        return True

    def in_seats(self, nodes: "list[NodeId] | tuple[NodeId, ...]") -> dict[int, NodeId]:
        """Nodes by seat."""
        return {self.seats[node]: node for node in nodes}
