"""What a server knows of the organisations of a federation: how they are reached, who answers, who has lied."""

from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np
from jaxtyping import Int64

from privfed.engines.nodes.errors import RefusalCode
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.node_data import renumbered
from privfed.engines.nodes.transport import NodeId

ANNOUNCE = "train.announce"
_MAX_RESTED = 15

Users = Int64[np.ndarray, " _"]


class NodeRoster:
    """The organisations of a federation in a run.

    Args:
        federation: who they are, and whom they host.
        session: number of the latest masked sum.
        donors: users who take no part, ascending.

    Attributes:
        users: by seat, numbers in the run of the users that the organisation hosts.
        routes: by seat, the connection of the transport.
        nonces: by seat that takes part, the nonce of its requests.
        protocols: by seat, the version of the messages that it chose.
        refused: connections of organisations that refuse the run, with their seats.
        strangers: connections behind which no organisation signed.
        excluded: by seat that was proven to lie, what it did.
        misses: by seat, number of requests in a row that it did not answer.
        rests: by seat, number of queries that it is still left out of.
        session: number of the latest masked sum.
    """

    def __init__(self, federation: FederationFile, session: int, donors: Users) -> None:
        self._federation = federation
        self.seats = len(federation.organisations)
        self.users = [renumbered(federation.users(seat), donors) for seat in range(self.seats)]
        self.routes: dict[int, NodeId] = {}
        self.nonces: dict[int, str] = {}
        self.protocols: dict[int, int] = {}
        self.refused: dict[NodeId, int] = {}
        self.strangers: set[NodeId] = set()
        self.excluded: dict[int, str] = {}
        self.misses: Counter[int] = Counter()
        self.rests: Counter[int] = Counter()
        self._suspected: Counter[int] = Counter()
        self._unheard: Counter[NodeId] = Counter()
        self._pauses: Counter[NodeId] = Counter()
        self.session = session

    def unknown(self, connected: Iterable[NodeId]) -> list[NodeId]:
        """Connections that the run has to be announced to; counts down the pauses of those that answered nothing."""
        known = {self.routes[seat] for seat in self.nonces} | self.refused.keys()
        return sorted(node for node in set(connected) - known if not _counted_down(self._pauses, node))

    def unheard(self, node: NodeId) -> None:
        """A connection did not answer an announcement; each is waited for, so it is told ever less often."""
        self._unheard[node] += 1
        self._pauses[node] = _pause(self._unheard[node])

    def strange(self, node: NodeId) -> None:
        """No organisation signed a reply: a stranger, or bytes that were damaged once, so it is told again later."""
        self.strangers.add(node)
        self._pauses[node] = _MAX_RESTED

    def heard(self, node: NodeId) -> None:
        """An organisation signed the reply to an announcement."""
        self.strangers.discard(node)
        del self._unheard[node]

    def present(self, connected: Collection[NodeId]) -> list[int]:
        """Seats that take part and are connected."""
        return [
            seat
            for seat in sorted(self.nonces)
            if self.routes[seat] in connected and seat < self.seats and seat not in self.excluded
        ]

    def helper_present(self, connected: Collection[NodeId]) -> bool:
        """Whether the helper takes part and is connected."""
        seat = self._federation.helper_seat
        return seat in self.nonces and self.routes[seat] in connected

    def accept(self, seat: int, nonce: str) -> None:
        """Let an organisation take part."""
        self.nonces[seat] = nonce

    def exclude(self, seats: Iterable[int], reason: str) -> None:
        """Leave organisations out of the rest of the run."""
        self.excluded |= dict.fromkeys(seats, reason)

    def hosted(self, seats: Iterable[int]) -> Users:
        """Users of some organisations, ascending."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *(self.users[seat] for seat in seats)]))

    def silent(self, seat: int) -> None:
        """A node did not answer; one that is silent again and again rests for some queries."""
        self.misses[seat] += 1
        self.rests[seat] = _pause(self.misses[seat])

    def suspected(self, seat: int) -> None:
        """A sum was lost and this organisation may be why, without proof: it rests for ever more queries."""
        self._suspected[seat] += 1
        self.rests[seat] = _pause(self._suspected[seat] + 1)

    def answered(self, seat: int) -> None:
        """A node answered."""
        self.misses[seat] = 0

    def refuses(self, seat: int, stage: str, code: RefusalCode) -> None:
        """A node refused a request of a run that it does not know: it is announced again."""
        if stage != ANNOUNCE and code is RefusalCode.UNKNOWN_RUN:
            self.nonces.pop(seat, None)

    def rests_now(self, seat: int) -> bool:
        """Whether a node is left out of the next query; counts the rest down."""
        return _counted_down(self.rests, seat)


def _pause(misses: int) -> int:
    """How many turns somebody is left out who was silent so often in a row: 0, 1, 3, 7, 15."""
    return min((1 << min(misses - 1, 30)) - 1, _MAX_RESTED)


def _counted_down(rests: Counter[int], who: int) -> bool:
    """Whether somebody is left out of this turn."""
    if not rests[who]:
        return False
    rests[who] -= 1
    return True
