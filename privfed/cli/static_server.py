"""A read-only HTTP service of files that are in memory: what is not among them does not exist for it.

It reads the request line and headers of a GET or HEAD, within bytes and seconds, and never a body; it writes no log, so
it keeps no record of who asked for what. Parts of files are not given: a request for one gets the whole. It speaks HTTP
without TLS on loopback: a proxy stands before it.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from threading import BoundedSemaphore
from typing import Any

from privfed.engines.nodes.slow_clients import BoundedReader, send

FOREVER, SHORTLY = "public, max-age=31536000, immutable", "public, max-age=60"
SIGNATURES = "signatures"
_LONGEST_LINE, _LONGEST_HEAD, _MOST_HEADERS, _SECONDS, _AT_ONCE = 2048, 16_384, 64, 10, 64
_TYPES = {"json": "application/json", "html": "text/html; charset=utf-8", "pdf": "application/pdf"}
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Access-Control-Allow-Origin": "*",
}


class _Handler(BaseHTTPRequestHandler):
    """One connection, one answer."""

    raw_requestline: bytes
    timeout = _SECONDS

    def __init__(self, server: "_Files", *args: Any) -> None:
        self._files = server
        super().__init__(*args)

    def setup(self) -> None:
        """Read within bounds."""
        super().setup()
        self.rfile.close()
        self._head = BoundedReader(self.connection, _LONGEST_HEAD, _SECONDS)
        self.rfile = io.BufferedReader(self._head)

    def parse_request(self) -> bool:
        """Refuse long lines and many headers before anything looks at them."""
        if len(self.raw_requestline) > _LONGEST_LINE:
            self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return False
        if not super().parse_request():
            return False
        if self.request_version == "HTTP/0.9":
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        if len(self.headers) > _MOST_HEADERS or self._head.exceeded:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        if self.command not in ("GET", "HEAD"):
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            return False
        return True

    def do_GET(self) -> None:
        """A file, or that the reader has it already."""
        name = self.path.removeprefix("/") if self.path.startswith("/") else ""
        content, tag = self._files.contents.get(name), self._files.tags.get(name)
        if content is None or tag is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        known = {one.strip().removeprefix("W/") for one in self.headers.get("If-None-Match", "").split(",")}
        status = HTTPStatus.NOT_MODIFIED if known & {tag, "*"} else HTTPStatus.OK
        self.send_response_only(status)
        self._send_always()
        self.send_header("ETag", tag)
        self.send_header("Cache-Control", FOREVER if self._files.lasts(name) else SHORTLY)
        if status is HTTPStatus.OK:
            kind = _TYPES.get(self.path.rpartition(".")[2], "application/octet-stream")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status is HTTPStatus.OK and self.command == "GET":
            send(self.connection, content, _SECONDS)

    do_HEAD = do_GET  # noqa: N815 (the name is http.server's)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """A status and nothing else: what was asked for is not repeated."""
        self.close_connection, self.request_version = True, "HTTP/1.0"
        self.send_response_only(code)
        self._send_always()
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written down."""

    def _send_always(self) -> None:
        for name, value in _ALWAYS.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")


class _Files:
    """Contents by path, each with its tag, and which of them never change."""

    def __init__(self, contents: Mapping[str, bytes], lasting: Sequence[str]) -> None:
        self.contents = dict(contents)
        self.tags = {path: f'"{hashlib.sha256(content).hexdigest()}"' for path, content in contents.items()}
        self._lasting = tuple(f"{folder}/" for folder in lasting)

    def lasts(self, path: str) -> bool:
        """Whether it may be kept forever: signatures are added to what is there."""
        return path.startswith(self._lasting) and f"/{SIGNATURES}/" not in path


class StaticServer(ThreadingHTTPServer):
    """The service on loopback.

    Args:
        files: content by path, without the first `/`.
        lasting: folders whose files never change.
        port: 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes], lasting: Sequence[str], port: int) -> None:
        self._free = BoundedSemaphore(_AT_ONCE)
        super().__init__(("127.0.0.1", port), partial(_Handler, _Files(files, lasting)))

    @property
    def address(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin an answer, or close the connection where too many are being given."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Whoever goes away in the middle of an answer is no event."""
