"""Guards run a plan: the client guard clips, noises and encodes uploads; the server guard records, then releases."""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.guards.client_guard import ClientGuard
    from privfed.guards.ring_code import RingCode
    from privfed.guards.server_guard import ServerGuard

__all__ = ["ClientGuard", "RingCode", "ServerGuard"]

load_lazily(__name__)
