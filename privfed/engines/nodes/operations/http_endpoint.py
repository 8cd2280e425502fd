"""`/health` and `/metrics` of a process over HTTP/1.1, for a monitoring system on the same machine or in the same pod.

Nobody has to be believed who connects: a request has a bounded head and a deadline, as many as `MAX_AT_ONCE` are served
at the same time, each in a thread of its own, and whoever comes beyond that is closed at once. So a slow client costs
itself a few seconds and nobody else anything. There is no authentication: the address is loopback unless another one is
named, and then a firewall has to decide who may read it.
"""

import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Protocol

from privfed.engines.nodes.operations.health import Health
from privfed.engines.nodes.operations.metrics import CONTENT_TYPE

LOOPBACK = "127.0.0.1"
MAX_HEAD, MAX_LINE, MAX_AT_ONCE = 8192, 1024, 16
"""Bytes of a request's head and of its first line; connections at the same time."""
DEADLINE = 5.0
"""Seconds in which a request must be there, and in which its answer must be taken."""

_END, _REFUSED = b"\r\n\r\n", b"-\r\n\r\n"
_JSON, _PLAIN = "application/json", "text/plain; charset=utf-8"
_log = logging.getLogger("privfed.monitor")


class MonitorAddressError(ValueError):
    """No address to serve health and metrics at."""


class Monitored(Protocol):
    """What is served: both are called in threads of the endpoint, at any time."""

    def health(self) -> Health:
        """Says whether the process is healthy."""
        ...

    def metrics(self) -> str:
        """Says what it did, in the exposition format."""
        ...


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9400`, `[::1]:9400`, or `9400`, which is a port of loopback.

    Raises:
        MonitorAddressError: the text is none of these.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    with suppress(ValueError):
        ipaddress.ip_address(host)
        if port.isascii() and port.isdigit() and int(port) < 2**16:
            return host, int(port)
    raise MonitorAddressError(
        f"{text!r} is no address to serve health and metrics at: name an IP address and a port, such as {LOOPBACK}:9400"
    )


class Endpoint:
    """Serves health and metrics until `close`.

    Args:
        monitored: what is served.
        address: as `parse_address` reads it; port 0 takes a free one.
        deadline: seconds for a request, and again for its answer.

    Raises:
        MonitorAddressError: the address is none, or cannot be served at.
    """

    def __init__(self, monitored: Monitored, address: str, *, deadline: float = DEADLINE) -> None:
        host, port = parse_address(address)
        if not ipaddress.ip_address(host).is_loopback:
            _log.warning("health and metrics are served at %s to whoever reaches it, without authentication", host)
        try:
            self._server = _Server((host, port), monitored, deadline)
        except OSError as error:
            raise MonitorAddressError(
                f"health and metrics cannot be served at {address} ({error.strerror}): name another address"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="monitor", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serve_monitor(monitored: Monitored, address: str | None) -> Iterator[None]:
    """Serve health and metrics while the block runs; None serves nothing.

    Raises:
        MonitorAddressError: the address is none, or cannot be served at.
    """
    endpoint = None if address is None else Endpoint(monitored, address)
    try:
        yield
    finally:
        if endpoint is not None:
            endpoint.close()


class _Server(ThreadingHTTPServer):
    """Threads for a bounded number of connections."""

    daemon_threads, block_on_close, request_queue_size = True, False, 64
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], monitored: Monitored, deadline: float) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.monitored, self.deadline = monitored, deadline
        self._free = threading.BoundedSemaphore(MAX_AT_ONCE)
        super().__init__(address, _Requests)

    def server_bind(self) -> None:
        """Bind without asking any name service for the host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it where too many are open."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or was too slow is its own affair; anything else is ours."""
        del request, client_address
        _log.debug("a request for health or metrics was not answered", exc_info=True)


class _Requests(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: _Server
    server_version, sys_version, default_request_version = "privfed", "", "HTTP/1.0"

    def setup(self) -> None:
        """Read the whole head first, within its bounds; what it says is parsed afterwards."""
        super().setup()
        self.rfile.close()
        self.rfile = BytesIO(_head(self.connection, time.monotonic() + self.server.deadline))
        self.connection.settimeout(self.server.deadline)

    def do_GET(self) -> None:
        """Health, metrics, or nothing."""
        try:
            self._answer(self.path.partition("?")[0])
        except OSError:
            raise
        except Exception:
            _log.exception("health or metrics failed")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _answer(self, path: str) -> None:
        if path == "/health":
            health = self.server.monitored.health()
            status = HTTPStatus.OK if health.healthy else HTTPStatus.SERVICE_UNAVAILABLE
            self._send(status, json.dumps(health.document()) + "\n", _JSON)
        elif path == "/metrics":
            self._send(HTTPStatus.OK, self.server.monitored.metrics(), CONTENT_TYPE)
        else:
            self._send(HTTPStatus.NOT_FOUND, "nothing is here: get /health or /metrics\n", _PLAIN)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One line, which repeats nothing of the request."""
        del message, explain
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(code, f"{HTTPStatus(code).phrase.lower()}\n", _PLAIN)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: requests of a monitoring system are no events."""

    def _send(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.close_connection = True
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        self.wfile.write(body)


def _head(connection: socket.socket, end: float) -> bytes:
    """The head of a request; a line that no request is where it is too long or breaks off, so that it is refused.

    Raises:
        OSError: it did not come in time.
    """
    head = b""
    while _END not in head and len(head) < MAX_HEAD:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(MAX_HEAD - len(head))
        if not part:
            break
        head += part
    return head if _END in head and head.index(b"\r\n") <= MAX_LINE else _REFUSED
