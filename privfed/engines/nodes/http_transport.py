"""HTTP to nodes that nobody can reach from outside: a person's browser or laptop, which asks for what waits for it.

    GET  /v1/NODE             200 and the frame that waits for this node, or 204 after some seconds without one
    POST /v1/NODE/EXCHANGE    the reply to that exchange: 204, or 410 where nobody waits for it any more

    frame   magic "PFHT" (4 bytes), version (2), exchange (8), stage (64, ASCII, padded with spaces), the request

Numbers are big-endian. Every call carries `Authorization: Bearer TOKEN`, a secret of that node which only keeps
strangers from reading or filling its mailbox: who says what is settled by signatures in the messages, as over every
transport. A request stays until it is answered or its time is over, so one that got lost is fetched again; the first
reply counts.
Without TLS, on loopback: a proxy stands before it. No call is written down.
"""

import hmac
import io
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from urllib.parse import urlsplit

from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.slow_clients import BoundedReader, send
from privfed.engines.nodes.transport import Handler, NodeId

VERSION = 1
STAGE_BYTES = 64
FRAME = struct.Struct(f">4sHQ{STAGE_BYTES}s")
MAGIC = b"PFHT"
_SHORTEST_TOKEN, _SECONDS, _LONGEST_LINE, _LONGEST_HEAD = 32, 30, 2048, 16_384
_SPARE_CONNECTIONS = 16
_PAUSE = 0.05

_Connection = socket.socket | tuple[bytes, socket.socket]


@dataclass(slots=True)
class _Mailbox:
    """What waits for one node, what it answered, and when it last asked.

    Exchanges are counted from a random number: a node that outlives this server takes none for one it has answered.
    """

    exchange: int = field(default_factory=lambda: secrets.randbits(62))
    frame: bytes | None = None
    reply: bytes | None = None
    seen: float = float("-inf")


class HttpTransport:
    """A federation's way to nodes that ask.

    Args:
        tokens: by node, its secret of 32 characters or more.
        port: on this machine; 0 takes a free one.
        origins: of pages that may take part from a browser, as `https://example.org`.
        patience: seconds for which a call waits when nothing waits for its node.
        present: seconds since its last call for which a node counts as connected.
        max_reply: bytes of the longest reply.

    Raises:
        NodesError: a token is too short.
    """

    def __init__(
        self,
        tokens: Mapping[NodeId, str],
        *,
        port: int = 0,
        origins: Sequence[str] = (),
        patience: float = 15.0,
        present: float = 60.0,
        max_reply: int = 1 << 26,
    ) -> None:
        if short := [node for node, token in tokens.items() if len(token) < _SHORTEST_TOKEN]:
            raise NodesError(f"the token of node {short[0]} is short: give {_SHORTEST_TOKEN} characters or more")
        self.tokens, self.origins = dict(tokens), frozenset(origins)
        self.patience, self.max_reply, self._present = patience, max_reply, present
        self._mail = {node: _Mailbox() for node in tokens}
        self._changed = threading.Condition()
        self._closed = False
        self._server = _Server(self, port, len(tokens) + _SPARE_CONNECTIONS)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where nodes call."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def nodes(self) -> Sequence[NodeId]:
        """Those that called lately."""
        since = time.monotonic() - self._present
        with self._changed:
            return [node for node, mail in self._mail.items() if mail.seen >= since]

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Put every request into its mailbox, and take what was answered in time."""
        name = stage.encode("ascii")
        if len(name) > STAGE_BYTES:
            raise NodesError(f"the stage {stage[:80]} has {len(name)} letters, and a frame has room for {STAGE_BYTES}")
        with self._changed:
            boxes = {node: self._mail[node] for node in requests}
            for node, mail in boxes.items():
                mail.exchange, mail.reply = mail.exchange + 1, None
                mail.frame = FRAME.pack(MAGIC, VERSION, mail.exchange, name.ljust(STAGE_BYTES)) + requests[node]
            self._changed.notify_all()
            self._changed.wait_for(lambda: all(mail.reply is not None for mail in boxes.values()), timeout)
            for mail in boxes.values():
                mail.frame = None
            return {node: mail.reply for node, mail in boxes.items() if mail.reply is not None}

    def close(self) -> None:
        """Stop listening."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "HttpTransport":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def knows(self, node: NodeId, token: str) -> bool:
        """Whether a call is of that node."""
        return hmac.compare_digest(self.tokens.get(node, "").encode(), token.encode()) and node in self.tokens

    def fetch(self, node: NodeId) -> bytes | None:
        """What waits for a node; None where nothing came in time."""
        mail = self._mail[node]
        with self._changed:
            mail.seen = time.monotonic()
            self._changed.wait_for(
                lambda: self._closed or (mail.frame is not None and mail.reply is None), self.patience
            )
            mail.seen = time.monotonic()
            return mail.frame if mail.reply is None else None

    def take(self, node: NodeId, exchange: int, reply: bytes) -> bool:
        """Keep a reply; False where nobody waits for it."""
        with self._changed:
            mail = self._mail[node]
            if mail.frame is None or mail.exchange != exchange or mail.reply is not None:
                return False
            mail.reply, mail.seen = reply, time.monotonic()
            self._changed.notify_all()
            return True


class _Server(ThreadingHTTPServer):
    """As many calls at a time as there are nodes, and some."""

    daemon_threads = True

    def __init__(self, transport: HttpTransport, port: int, at_once: int) -> None:
        self._free = threading.BoundedSemaphore(at_once)
        super().__init__(("127.0.0.1", port), partial(_Call, transport))

    def process_request(self, request: _Connection, client_address: object) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: _Connection, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: _Connection, client_address: object) -> None:
        """Whoever goes away in the middle of a call dropped out."""


class _Call(BaseHTTPRequestHandler):
    """One call of a node."""

    timeout = _SECONDS

    def __init__(
        self, transport: HttpTransport, request: _Connection, client_address: tuple[str, int], server: BaseServer
    ) -> None:
        self._transport = transport
        super().__init__(request, client_address, server)

    def setup(self) -> None:
        """Read within bounds: whoever has no token yet may hold a connection for a while only."""
        super().setup()
        self.rfile.close()
        self._read = BoundedReader(self.connection, _LONGEST_HEAD, _SECONDS)
        self.rfile = io.BufferedReader(self._read)

    def do_OPTIONS(self) -> None:
        """A browser asks whether a page may call."""
        self._answer(HTTPStatus.NO_CONTENT)

    def do_GET(self) -> None:
        """What waits for the node."""
        found = self._node(parts=1)
        if found is not None:
            frame = self._transport.fetch(found[0])
            self._answer(HTTPStatus.NO_CONTENT if frame is None else HTTPStatus.OK, frame or b"")

    def do_POST(self) -> None:
        """A reply."""
        found = self._node(parts=2)
        if found is None:
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > self._transport.max_reply:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        self._read.allow(int(length))
        reply = self.rfile.read(int(length))
        taken = len(reply) == int(length) and self._transport.take(found[0], found[1], reply)
        self._answer(HTTPStatus.NO_CONTENT if taken else HTTPStatus.GONE)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """A status and nothing else."""
        self.request_version = "HTTP/1.0"
        self._answer(HTTPStatus(code))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is written down."""

    def _node(self, *, parts: int) -> list[int] | None:
        """Numbers of the path, of a node that showed its token; otherwise the call is answered."""
        given = self.path.split("/")
        right = (
            len(self.path) < _LONGEST_LINE
            and not self._read.exceeded
            and given[:2] == ["", "v1"]
            and len(given) == 2 + parts
        )
        if not right or not all(one.isdecimal() for one in given[2:]):
            self._answer(HTTPStatus.NOT_FOUND)
            return None
        numbers = [int(one) for one in given[2:]]
        if not self._transport.knows(numbers[0], self.headers.get("Authorization", "").removeprefix("Bearer ")):
            self._answer(HTTPStatus.UNAUTHORIZED)
            return None
        return numbers

    def _answer(self, status: HTTPStatus, content: bytes = b"") -> None:
        self.close_connection = True
        self.send_response_only(status)
        origin = self.headers.get("Origin") if hasattr(self, "headers") else None
        if origin in self._transport.origins:
            self.send_header("Access-Control-Allow-Origin", str(origin))
            self.send_header("Access-Control-Allow-Methods", "GET, POST")
            self.send_header("Access-Control-Allow-Headers", "authorization, content-type")
        for name, value in {
            "Vary": "Origin", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close",
        }.items():  # fmt: skip
            self.send_header(name, value)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        send(self.connection, content, _SECONDS)


def answer(
    address: str, node: NodeId, token: str, handler: Handler, until: Callable[[], bool], max_request: int = 1 << 26
) -> None:
    """The life of a node that asks: fetch, handle, reply. A reply that got lost is sent again, not made again.

    Args:
        address: of the transport.
        node: its number.
        token: its secret.
        handler: what answers requests.
        until: asked between calls whether it is time to end.
        max_request: bytes of the longest request that is read.

    Raises:
        NodesError: the server sent what is no frame of this version or is too long, or does not know the token.
    """
    place, last, reply = urlsplit(address).netloc, -1, b""
    while not until():
        try:
            status, frame = _call(place, "GET", f"/v1/{node}", token, longest=FRAME.size + max_request)
            if status == HTTPStatus.OK:
                exchange, stage = _opened(frame, address, max_request)
                if exchange != last:
                    last, reply = exchange, handler.handle(stage, frame[FRAME.size :])
                _call(place, "POST", f"/v1/{node}/{exchange}", token, reply)
                continue
        except (OSError, HTTPException):
            status = 0
        if status == HTTPStatus.UNAUTHORIZED:
            raise NodesError(f"{address} does not know the token of node {node}: ask its operator")
        time.sleep(_PAUSE)


def _opened(frame: bytes, address: str, max_request: int) -> tuple[int, str]:
    """The number of an exchange and its stage."""
    if len(frame) > FRAME.size + max_request:
        raise NodesError(f"{address} sent a request of more than {max_request} bytes; accept more, or ask its operator")
    if len(frame) < FRAME.size or frame[:6] != MAGIC + VERSION.to_bytes(2, "big"):
        raise NodesError(f"{address} did not send a frame of version {VERSION}: ask its operator which version it runs")
    _, _, exchange, stage = FRAME.unpack_from(frame)
    return exchange, stage.rstrip(b" ").decode("ascii", errors="replace")


def _call(
    netloc: str, method: str, path: str, token: str, body: bytes | None = None, longest: int = 0
) -> tuple[int, bytes]:
    """A status, and one byte more than `longest` of what came with it."""
    connection = HTTPConnection(netloc, timeout=2 * _SECONDS)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
        found = connection.getresponse()
        return found.status, found.read(longest + 1)
    finally:
        connection.close()
