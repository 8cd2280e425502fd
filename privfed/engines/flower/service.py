"""A node as a process of its own, behind a socket in its own folder: what the app that Flower ships cannot reach past.

Flower hands each node the client code of a run (the FAB) and starts a process of it for every message. Code from
outside therefore runs at the node. Kept in a process of its own, under another account of the operating system, the
node shows that code nothing but `handle`: no data, no keys, no policy. It also loads the libraries once instead of at
every message.

Over a Unix socket that only its owner and group may open: two length-prefixed byte strings in (stage, request), one
out. No pickle. Every connection has a thread and deadlines of its own, so who is slow waits alone; the node itself
answers one request at a time. Lengths are compared with the node's limit before a body is read, and connections beyond
the allowed number are closed at once. A caller that goes away costs nothing but its own answer.
"""

import contextlib
import logging
import os
import re
import socket
import stat
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from privfed.engines.nodes.files import make_folder
from privfed.engines.nodes.printable import printable
from privfed.engines.nodes.transport import Handler

LARGEST = 2**30
"""Bytes that one reply may have, where a SuperNode's configuration says nothing else."""

PATIENCE = 20.0
"""Seconds that a node's process is given to be started again: longer than its start takes."""

_LENGTH = struct.Struct("<Q")
_STAGE = re.compile(rb"[a-z0-9_.]{1,64}")
_STAGE_BYTES, _PATH_BYTES, _PIECE, _AGAIN = 64, 100, 1 << 20, 0.2
_log = logging.getLogger(__name__)


class ServiceError(ConnectionError):
    """The node's own process did not answer."""


class TooLongError(ServiceError):
    """The other side announced, or would be sent, more bytes than are accepted; it will not be better later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller may take up.

    Attributes:
        max_bytes: of a request.
        connections: that are open at a time; more are closed at once.
        idle: seconds in which something must arrive, or be taken.
        total: seconds in which a whole request must arrive, and in which a whole reply must be taken.
    """

    max_bytes: int
    connections: int = 32
    idle: float = 10.0
    total: float = 60.0


class NodeService:
    """Serves one node at a socket.

    Args:
        handler: the node.
        path: of the socket, in a folder that only those may enter who may send to this node; made where it is missing.
        limits: of every caller; the largest request is the policy's `max_message_mib`.
        group_may_query: let the socket's group in, too, for a SuperNode under another account.

    Raises:
        ServiceError: the path is too long for a socket or names another file, its folder is open to others, or another
            process serves there.
        StateError: its folder cannot be made.
    """

    def __init__(self, handler: Handler, path: Path, limits: Limits, *, group_may_query: bool = False) -> None:
        _accept_path(path, 0o027 if group_may_query else 0o077)
        self._handler, self._path, self._limits = handler, path, limits
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(os.fspath(path))
        path.chmod(0o660 if group_may_query else 0o600)
        self._socket.listen(socket.SOMAXCONN)
        self._closed, self._node = threading.Event(), threading.Lock()
        self._free = threading.BoundedSemaphore(limits.connections)
        self._reading: set[socket.socket] = set()
        self._full = False

    def serve(self) -> None:
        """Answer requests until `close`, and then those that the node has begun."""
        with ThreadPoolExecutor(self._limits.connections, "node-connection") as threads:
            while not self._closed.is_set():
                connection = self._accepted()
                if connection is None:
                    continue
                if self._free.acquire(blocking=False):
                    self._full = False
                    self._reading.add(connection)
                    threads.submit(self._serve_one, connection)
                else:
                    self._turn_away(connection)

    def close(self) -> None:
        """Stop serving and remove the socket; nobody's request is waited for any more."""
        self._closed.set()
        for connection in (self._socket, *tuple(self._reading)):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accepted(self) -> socket.socket | None:
        """The next connection; None where there is none after all."""
        try:
            return self._socket.accept()[0]
        except OSError as error:
            if not self._closed.wait(_AGAIN):
                _log.warning("a connection was not accepted: %s", type(error).__name__)
            return None

    def _turn_away(self, connection: socket.socket) -> None:
        connection.close()
        if not self._full:  # one line for all of a flood
            _log.warning("%d connections are open; others are closed at once", self._limits.connections)
        self._full = True

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                if not self._closed.is_set():  # it may have come while `close` was looking at the others
                    self._answer(connection)
        except OSError as error:
            _log.warning("a request was not answered: %s", type(error).__name__)
        except Exception:
            _log.exception("the node failed")
        finally:
            self._reading.discard(connection)
            self._free.release()

    def _answer(self, connection: socket.socket) -> None:
        line = _Line(connection, self._limits.idle, self._limits.total)
        stage = line.receive(_STAGE_BYTES)
        if not _STAGE.fullmatch(stage):
            raise ServiceError(f"{printable(stage.decode('latin-1'))} names no stage")
        request = line.receive(self._limits.max_bytes)
        self._reading.discard(connection)
        with self._node:  # whoever holds it has sent its whole request, and nobody is sent anything meanwhile
            if self._closed.is_set():
                return
            reply = self._handler.handle(stage.decode(), request)
        _Line(connection, self._limits.idle, self._limits.total).send(reply)


def query_service(
    path: Path, stage: str, request: bytes, timeout: float, patience: float = 0.0, max_bytes: int = LARGEST
) -> bytes:
    """Ask the node that serves at `path`.

    Args:
        path: of the socket.
        stage: of the request.
        request: bytes of the server.
        timeout: seconds in which the node must have answered.
        patience: seconds that a node which is down, or dies over the request, is given to be started again. It then
            gets the same request: had it done its work, it would refuse to do it twice.
        max_bytes: of the request and of the reply.

    Raises:
        ServiceError: nobody serves there, or it went away, was too slow to answer, or answers too much.
    """
    if len(request) > max_bytes:
        raise TooLongError(f"the request has {len(request)} bytes and {max_bytes} are accepted; send less at once")
    end, enough = time.monotonic() + timeout, time.monotonic() + min(patience, timeout)
    while True:
        try:
            return _asked(path, stage, request, end - time.monotonic(), max_bytes)
        except OSError as error:
            if isinstance(error, TimeoutError | TooLongError) or time.monotonic() >= enough:
                raise ServiceError(
                    f"the node at {path} did not answer ({type(error).__name__}): start it with "
                    f"'python -m privfed.engines.flower node' and see its log"
                ) from error
            time.sleep(_AGAIN)


def _asked(path: Path, stage: str, request: bytes, timeout: float, max_bytes: int) -> bytes:
    left = max(timeout, _AGAIN)
    with socket.socket(socket.AF_UNIX) as connection:
        line = _Line(connection, left, left)
        connection.settimeout(left)
        connection.connect(os.fspath(path))
        line.send(stage.encode("ascii"))
        line.send(request)
        return line.receive(max_bytes)


class _Line:
    """Length-prefixed byte strings over a connection, under deadlines.

    Args:
        connection: that is open.
        idle: seconds in which something must arrive, or be taken.
        total: seconds in which everything must.
    """

    def __init__(self, connection: socket.socket, idle: float, total: float) -> None:
        self._connection, self._idle, self._end = connection, idle, time.monotonic() + total

    def send(self, content: bytes) -> None:
        """Send a byte string."""
        self._send(_LENGTH.pack(len(content)))
        whole = memoryview(content)
        for at in range(0, len(content), _PIECE):
            self._send(whole[at : at + _PIECE])

    def receive(self, max_bytes: int) -> bytes:
        """Receive a byte string, whose length is looked at before any of it is read.

        Raises:
            TooLongError: it is longer than `max_bytes`.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > max_bytes:
            raise TooLongError(f"a message of {length} bytes is longer than {max_bytes}")
        return bytes(self._exactly(length))

    def _send(self, piece: bytes | memoryview) -> None:
        self._wait()
        self._connection.sendall(piece)

    def _exactly(self, count: int) -> bytearray:
        """`count` bytes, which take up memory only as they arrive."""
        received = bytearray()
        while len(received) < count:
            self._wait()
            part = self._connection.recv(min(count - len(received), _PIECE))
            if not part:
                raise ServiceError("the other side went away")
            received += part
        return received

    def _wait(self) -> None:
        """Let the next bytes take no longer than both deadlines allow.

        Raises:
            TimeoutError: the time is up.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(min(self._idle, left))


def _accept_path(path: Path, closed: int) -> None:
    """Return quietly where a socket may be bound at `path`, in a folder without the `closed` permissions.

    Raises:
        ServiceError: it may not.
    """
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise ServiceError(f"{path} is longer than the {_PATH_BYTES} bytes that a socket's path may have: shorten it")
    make_folder(path.parent)
    if (mode := stat.S_IMODE(path.parent.stat().st_mode)) & closed:
        raise ServiceError(
            f"{path.parent} has mode {mode:o} and lets others at the socket: chmod {0o777 & ~closed:o} it, or name a "
            f"folder of the node's own"
        )
    if path.exists() and not path.is_socket():
        raise ServiceError(f"{path} is another file than a socket: name one that does not exist")
    if _served(path):
        raise ServiceError(f"another process serves a node at {path}: stop it, or name another socket")


def _served(path: Path) -> bool:
    """Whether anybody listens at `path`, however busy."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(_AGAIN)
        try:
            caller.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
