"""Which version of the messages a server and a node speak: the newest that both do, and at most one back.

Each says in its first message all versions that it speaks. The node chooses by `newest_common`, the server holds the
choice against the same rule, and every request after that names the version in its address. All of this is signed, so
nobody between the two can make them speak an older version than they would; the federation file's `min_protocol` bounds
what a party itself may fall back to. What nodes seal for one another in masked sums has a version of its own.

    1   says nothing about versions; never released, and here for what "one back" means
    2   names the versions that it speaks
"""

from collections.abc import Collection

from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError, OtherProtocolError

OLDEST, PROTOCOL = 1, 2
PROTOCOLS = (PROTOCOL - 1, PROTOCOL)
"""Versions that this software speaks."""

_MOST = 16


def spoken(packet: Packet) -> tuple[int, ...]:
    """Versions that the sender of a first message speaks.

    Raises:
        MessageError: they are no short list of whole numbers.
    """
    given = packet.fields.get("speaks", [OLDEST])
    versions = tuple(one for one in given if type(one) is int) if isinstance(given, list) else ()
    if not isinstance(given, list) or not 0 < len(versions) == len(given) <= _MOST:
        raise MessageError(f"field 'speaks' is no list of at most {_MOST} versions; drop the message")
    return versions


def newest_common(ours: Collection[int], others: Collection[int], at_least: int) -> int:
    """The newest version that both parties speak.

    Raises:
        OtherProtocolError: there is none that the federation allows.
    """
    common = [version for version in {*ours} & {*others} if version >= at_least]
    if not common:
        raise OtherProtocolError(
            f"this party speaks versions {_listed(ours)} of the protocol and the other one {_listed(others)}, and no "
            f"version from {at_least} on is common; update whichever is older"
        )
    return max(common)


def require_newest(packet: Packet, ours: Collection[int], at_least: int) -> int:
    """The version that a node chose in its reply to an announcement.

    Raises:
        OtherProtocolError: there was none to choose, or it did not choose the newest.
        MessageError: the reply does not say it.
    """
    newest, chosen = newest_common(ours, spoken(packet), at_least), packet.fields.get("protocol", OLDEST)
    if chosen != newest:
        raise OtherProtocolError(
            f"the node did not choose version {newest} of the protocol, the newest that both speak"
        )
    return newest


def _listed(versions: Collection[int]) -> str:
    return ", ".join(map(str, sorted(versions)))
