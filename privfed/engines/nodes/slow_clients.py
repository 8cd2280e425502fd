"""Reading from and writing to whoever connects, within a number of bytes and a time that trickling cannot stretch.

A timeout of a socket begins anew with every byte. These do not, so a client that sends or takes a byte at a time holds
a connection no longer than any other.
"""

import io
import socket
import time

_PIECE, _SLOWEST = 1 << 16, 1 << 16
"""Bytes that are written at a time, and that a client takes in a second at least."""


class BoundedReader(io.RawIOBase):
    """What a client sends, up to so many bytes within so many seconds.

    Args:
        connection: with the client.
        max_bytes: what comes after them is not read.
        seconds: until they have to be there.

    Attributes:
        exceeded: whether more was to be read.
    """

    def __init__(self, connection: socket.socket, max_bytes: int, seconds: float) -> None:
        self._connection, self._left, self._end = connection, max_bytes, time.monotonic() + seconds
        self.exceeded = False

    def readable(self) -> bool:
        """It is."""
        return True

    def allow(self, more: int) -> None:
        """Read so many bytes more, in as much time as a slow client needs for them."""
        self._left += more
        self._end = max(self._end, time.monotonic()) + more / _SLOWEST

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read what is there, at least a byte unless that was all.

        Raises:
            TimeoutError: the time is over.
        """
        if not self._left:
            self.exceeded = True
            return 0
        self._connection.settimeout(_left_until(self._end))
        received = self._connection.recv_into(buffer[: self._left])
        self._left -= received
        return received


def send(connection: socket.socket, content: bytes, seconds: float) -> None:
    """Write everything to a client that takes it at no less than a slow pace.

    Args:
        connection: with the client.
        content: what it gets.
        seconds: besides the time that this pace takes.

    Raises:
        OSError: the client went away, or is too slow.
    """
    end = time.monotonic() + seconds + len(content) / _SLOWEST
    for start in range(0, len(content), _PIECE):
        connection.settimeout(min(seconds, _left_until(end)))
        connection.sendall(memoryview(content)[start : start + _PIECE])


def _left_until(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
