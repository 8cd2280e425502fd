"""Who takes part in a run over nodes: it is announced to connections, and organisations answer under their keys."""

import numpy as np

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.channel import Channel
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.engines.nodes.roster import ANNOUNCE, NodeRoster, Users
from privfed.engines.nodes.two_servers import SealingKey
from privfed.privacy import LedgerError
from privfed.privacy.user_ranges import from_ranges

_LONGEST_NONCE = 64


class Membership:
    """Announces a run to nodes and keeps who takes part.

    Args:
        channel: to the nodes.
        roster: of the nodes.
        announced: the run.
        party: the server.
    """

    _sealing: SealingKey | None

    def __init__(self, channel: Channel, roster: NodeRoster, announced: Announcement, party: Party) -> None:
        self._channel, self.roster, self._announced = channel, roster, announced
        self._party, self._sealing = party, None

    def joined(self) -> list[int]:
        """Seats that take part and are connected; the run is announced to new connections first."""
        connected = set(self._channel.transport.nodes())
        new = self.roster.unknown(connected)
        if new:
            self._announce(new)
        return self.roster.present(connected)

    @property
    def helper(self) -> SealingKey | None:
        """The key that parts for the helper are sealed to; None where it takes no part or is not connected."""
        return self._sealing if self.roster.helper_present(self._channel.transport.nodes()) else None

    def everybody(self) -> tuple[int, ...]:
        """Seats to query now, and that of the helper where it takes part."""
        seats, helper = self.available(), self._party.federation.helper_seat
        return seats if helper is None or self.helper is None else (*seats, helper)

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
                if seat == self._party.federation.helper_seat:
                    self._sealing = SealingKey.read(packet, self._party, self._announced.run)
                self.roster.accept(seat, packet.text("nonce", _LONGEST_NONCE))
            except MessageError as refused:
                self._channel.note(seat, ANNOUNCE, str(refused))
