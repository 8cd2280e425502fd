"""Who takes part in a run over nodes: it is announced to nodes that connect, and they answer which users they host."""

import numpy as np

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.channel import Channel, NodeRequest
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.queries import MEASURE, Query
from privfed.engines.nodes.roster import ANNOUNCE, NodeRoster, Users
from privfed.engines.nodes.transport import NodeId
from privfed.privacy import LedgerError
from privfed.privacy.ledger import from_ranges


class Membership:
    """Announces a run to nodes and keeps who takes part.

    Args:
        channel: to the nodes.
        roster: of the nodes.
        announced: the run.
    """

    def __init__(self, channel: Channel, roster: NodeRoster, announced: Announcement) -> None:
        self._channel, self.roster, self._announced = channel, roster, announced

    def joined(self) -> list[NodeId]:
        """Nodes that take part and are connected, by seat; the run is announced to new ones first."""
        connected = sorted(set(self._channel.transport.nodes()) - self.roster.refused)
        new = [node for node in connected if node not in self.roster.users]
        if new:
            self._announce(new)
        present = [node for node in connected if node in self.roster.users]
        return sorted(present, key=self.roster.seats.__getitem__)

    def available(self) -> tuple[NodeId, ...]:
        """Nodes to query now: those that were silent again and again rest."""
        return tuple(node for node in self.joined() if not self.roster.rests_now(node))

    def took_part(self, node: NodeId, packet: Packet, query: Query) -> Users:
        """The node's users in its reply.

        Raises:
            MessageError: they are not ones that it hosts.
        """
        hosted = self.roster.users[node]
        if query.step == MEASURE:
            return hosted
        if query.members is not None:
            return query.members
        try:
            users = from_ranges(packet.text("members"), limit=self._announced.population)
        except LedgerError as error:
            raise MessageError("the reply names no users; it is dropped") from error
        if not np.isin(users, hosted).all():
            raise MessageError("the reply names users that the node does not host; it is dropped")
        return users

    def _announce(self, new: list[NodeId]) -> None:
        self.roster.seat_all(new)
        announcement = self._announced.model_dump(mode="json")
        requests = {
            node: NodeRequest(values={"announcement": announcement, "seat": self.roster.seats[node]}) for node in new
        }
        for node, packet in sorted(self._channel.exchange(ANNOUNCE, requests).items()):
            try:
                users = from_ranges(packet.text("users"), limit=self._announced.population)
                self.roster.accept(node, users, packet.whole("session", -1))
            except (MessageError, LedgerError) as refused:
                self.roster.refused.add(node)
                self._channel.note(node, ANNOUNCE, str(refused))
