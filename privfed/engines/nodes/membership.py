"""Who takes part in a run over nodes: it is announced to connections, and organisations answer under their keys."""

import numpy as np

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.channel import Channel
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.engines.nodes.roster import ANNOUNCE, NodeRoster, Users
from privfed.privacy import LedgerError
from privfed.privacy.user_ranges import from_ranges

_LONGEST_NONCE = 64


class Membership:
    """Announces a run to nodes and keeps who takes part.

    Args:
        channel: to the nodes.
        roster: of the nodes.
        announced: the run.
    """

    def __init__(self, channel: Channel, roster: NodeRoster, announced: Announcement) -> None:
        self._channel, self.roster, self._announced = channel, roster, announced

    def joined(self) -> list[int]:
        """Seats that take part and are connected; the run is announced to new connections first."""
        connected = set(self._channel.transport.nodes())
        new = self.roster.unknown(connected)
        if new:
            self._announce(new)
        return self.roster.present(connected)

    def available(self) -> tuple[int, ...]:
        """Seats to query now: those that were silent again and again rest."""
        return tuple(seat for seat in self.joined() if not self.roster.rests_now(seat))

    def took_part(self, seat: int, packet: Packet, query: Query) -> Users:
        """The organisation's users in its reply.

        Raises:
            MessageError: they are not ones that it hosts.
        """
        hosted = self.roster.users[seat]
        if query.step == MEASURE:
            return hosted
        if query.members is not None:
            return query.members
        try:
            users = from_ranges(packet.text("members"), limit=self._announced.n_users)
        except LedgerError as error:
            raise MessageError("the reply names no users; it is dropped") from error
        if not np.isin(users, hosted).all():
            raise MessageError("the reply names users that the node does not host; it is dropped")
        return users

    def _announce(self, new: list[int]) -> None:
        announcement = self._announced.model_dump(mode="json")
        for seat, packet in sorted(self._channel.announce(new, {"announcement": announcement}).items()):
            try:
                self.roster.accept(seat, packet.text("nonce", _LONGEST_NONCE))
            except MessageError as refused:
                self._channel.note(seat, ANNOUNCE, str(refused))
