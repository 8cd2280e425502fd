"""Messages between a server and people's devices, in bytes that a page reads without a library.

    request   "PFDM", version (2 bytes), seat (4), counter (8), stage (64, ASCII, padded), content, signature (64)
    reply     "PFDM", version, seat, SHA-256 of the request without its signature (32), content, signature

Numbers are big-endian. Signatures are those of a `Party` under the federation file. A device answers no counter that is
not above its last; a reply names the request that it answers, so none can be played back.
"""

import hashlib
import struct

from privfed.engines.nodes.errors import MessageError
from privfed.engines.nodes.federation_file import SERVER_SEAT
from privfed.engines.nodes.party import Party
from secure_agg.primitives.keys import SIGNATURE_BYTES

MAGIC, VERSION, STAGE_BYTES = b"PFDM", 1, 64
_REQUEST = struct.Struct(f">4sHIQ{STAGE_BYTES}s")
_REPLY = struct.Struct(">4sHI32s")


def request(party: Party, seat: int, counter: int, stage: str, content: bytes) -> bytes:
    """A signed request of the server to the device at a seat."""
    named = stage.encode("ascii").ljust(STAGE_BYTES)
    return party.frame("device request", _REQUEST.pack(MAGIC, VERSION, seat, counter, named) + content)


def request_content(party: Party, frame: bytes, stage: str, last: int) -> tuple[int, bytes]:
    """Counter and content of a request to this party's own seat.

    Raises:
        MessageError: the server did not sign it, for this seat and stage, above the last counter.
    """
    message = party.unframe("device request", frame, SERVER_SEAT)
    if len(message) < _REQUEST.size or bytes(message[:6]) != MAGIC + VERSION.to_bytes(2, "big"):
        raise MessageError(f"the request is not of version {VERSION}; it is not answered")
    _, _, seat, counter, named = _REQUEST.unpack_from(message)
    if (seat, named.rstrip(b" ")) != (party.seat, stage.encode()) or counter <= last:
        raise MessageError("the request is to another seat or stage, or was sent before; it is not answered")
    return counter, bytes(message[_REQUEST.size :])


def reply(party: Party, frame: bytes, content: bytes) -> bytes:
    """A signed reply of this party to the request in a frame."""
    return party.frame("device reply", _REPLY.pack(MAGIC, VERSION, party.seat, _digest(frame)) + content)


def reply_content(party: Party, seat: int, frame: bytes, answer: bytes) -> bytes:
    """What the device at a seat said to the request in a frame.

    Raises:
        MessageError: that device did not sign it, or to another request.
    """
    message = party.unframe("device reply", answer, seat)
    if bytes(message[: _REPLY.size]) != _REPLY.pack(MAGIC, VERSION, seat, _digest(frame)):
        raise MessageError("the reply is of another version, or to another request; it is dropped")
    return bytes(message[_REPLY.size :])


def _digest(frame: bytes) -> bytes:
    return hashlib.sha256(memoryview(frame)[:-SIGNATURE_BYTES]).digest()
