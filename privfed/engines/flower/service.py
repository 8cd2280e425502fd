"""A node as a process of its own, behind a socket in its own folder: what the app that Flower ships cannot reach past.

Flower hands each node the client code of a run (the FAB) and starts a process of it for every message. Code from
outside therefore runs at the node. Kept in a process of its own, under another account of the operating system, the
node shows that code nothing but `handle`: no data, no keys, no policy. It also loads the libraries once instead of at
every message.

One request at a time, over a Unix socket that only its owner and group may open: two length-prefixed byte strings in
(stage, request), one out. No pickle. A caller that goes away costs nothing but its own answer.
"""

import contextlib
import logging
import os
import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from privfed.engines.nodes.transport import Handler

LARGEST = 2**31
"""Bytes that one request or reply may have."""

PATIENCE = 20.0
"""Seconds that a node's process is given to be started again: longer than its start takes."""

_LENGTH = struct.Struct("<Q")
_STAGE_BYTES, _PATH_BYTES, _SLOWEST, _AGAIN = 256, 100, 60.0, 0.2
_log = logging.getLogger(__name__)


class ServiceError(ConnectionError):
    """The node's own process did not answer."""


class NodeService:
    """Serves one node at a socket.

    Args:
        handler: the node.
        path: of the socket, in a folder that only those may enter who may send to this node.
        group_may_query: let the socket's group in, too, for a SuperNode under another account.

    Raises:
        ServiceError: the path is too long for a socket, or another process serves there.
    """

    def __init__(self, handler: Handler, path: Path, *, group_may_query: bool = False) -> None:
        if len(os.fsencode(path)) > _PATH_BYTES:
            raise ServiceError(
                f"{path} is longer than the {_PATH_BYTES} bytes that a socket's path may have: shorten it"
            )
        self._handler, self._path = handler, path
        if _served(path):
            raise ServiceError(f"another process serves a node at {path}: stop it, or name another socket")
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(os.fspath(path))
        path.chmod(0o660 if group_may_query else 0o600)
        self._socket.listen(16)
        self._closed = threading.Event()

    def serve(self) -> None:
        """Answer requests one after the other, until `close`."""
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def close(self) -> None:
        """Stop serving and remove the socket."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_SLOWEST)
        try:
            stage = _receive(connection, _STAGE_BYTES).decode("ascii")
            request = _receive(connection, LARGEST)
            _send(connection, self._handler.handle(stage, request))
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("a request was not answered: %s", type(error).__name__)
        except Exception:
            _log.exception("the node failed")


def query_service(path: Path, stage: str, request: bytes, timeout: float, patience: float = 0.0) -> bytes:
    """Ask the node that serves at `path`.

    Args:
        path: of the socket.
        stage: of the request.
        request: bytes of the server.
        timeout: seconds in which the node must have answered.
        patience: seconds that a node which is down, or dies over the request, is given to be started again. It then
            gets the same request: had it done its work, it would refuse to do it twice.

    Raises:
        ServiceError: nobody serves there, or it went away or was too slow to answer.
    """
    end, enough = time.monotonic() + timeout, time.monotonic() + min(patience, timeout)
    while True:
        try:
            return _asked(path, stage, request, end - time.monotonic())
        except OSError as error:
            if isinstance(error, TimeoutError) or time.monotonic() >= enough:
                raise ServiceError(
                    f"the node at {path} did not answer ({type(error).__name__}): start it with "
                    f"'python -m privfed.engines.flower node' and see its log"
                ) from error
            time.sleep(_AGAIN)


def _asked(path: Path, stage: str, request: bytes, timeout: float) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(timeout, _AGAIN))
        connection.connect(os.fspath(path))
        _send(connection, stage.encode("ascii"))
        _send(connection, request)
        return _receive(connection, LARGEST)


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(content)))
    if content:  # the other side knows an empty one by its length, and may have answered and gone
        connection.sendall(content)


def _receive(connection: socket.socket, max_clients: int) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > max_clients:
        raise ServiceError(f"a message of {length} bytes is longer than {max_clients}")
    return bytes(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytearray:
    """`count` bytes, which take up memory only as they arrive."""
    received = bytearray()
    while len(received) < count:
        part = connection.recv(min(count - len(received), 1 << 20))
        if not part:
            raise ServiceError("the other side went away")
        received += part
    return received
