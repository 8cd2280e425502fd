"""Health and metrics over HTTP: two pages for everybody who may connect, and no way to hold them up."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from privfed.engines.nodes.operations.health import Health, HealthCode
from privfed.engines.nodes.operations.http_endpoint import (
    MAX_AT_ONCE,
    MAX_HEAD,
    MAX_LINE,
    Endpoint,
    MonitorAddressError,
    parse_address,
    serve_monitor,
)

PATIENT = 30.0


class Process:
    """Something that is monitored."""

    def __init__(self) -> None:
        self.reason: HealthCode | None = None
        self.fails = False

    def health(self) -> Health:
        return Health("node", self.reason, {"active_runs": 2})

    def metrics(self) -> str:
        if self.fails:
            raise RuntimeError("/srv/secret is unreadable")
        return "# TYPE privfed_x gauge\nprivfed_x 1\n"


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def endpoint(process: Process) -> Iterator[Endpoint]:
    endpoint = Endpoint(process, "127.0.0.1:0", deadline=PATIENT)
    yield endpoint
    endpoint.close()


def get(endpoint: Endpoint, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=PATIENT)
    connection.request(method, path)
    answer = connection.getresponse()
    out = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
    connection.close()
    return out


def raw(endpoint: Endpoint, sent: bytes) -> bytes:
    """What comes back for these bytes, once the sender has no more to say."""
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENT) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def test_metrics_are_text_of_the_exposition_format(endpoint: Endpoint) -> None:
    status, headers, body = get(endpoint, "/metrics")
    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert body == "# TYPE privfed_x gauge\nprivfed_x 1\n"
    assert int(headers["content-length"]) == len(body)


def test_health_is_json_with_a_status_for_machines(endpoint: Endpoint, process: Process) -> None:
    status, headers, body = get(endpoint, "/health")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "role": "node", "active_runs": 2}
    process.reason = HealthCode.LEDGER_REFUSED
    status, _, body = get(endpoint, "/health")
    assert status == 503
    assert json.loads(body) == {"status": "failing", "reason": "ledger_refused", "role": "node", "active_runs": 2}


@pytest.mark.parametrize("path", ["/", "/health/", "/metrics/../health", "/Health", "/%2e", "*", "/metrics%00"])
def test_nothing_else_is_there(endpoint: Endpoint, path: str) -> None:
    status, _, body = get(endpoint, path)
    assert status == 404
    assert body.count("\n") == 1
    assert path == "/" or path not in body


def test_a_query_is_ignored(endpoint: Endpoint) -> None:
    assert get(endpoint, "/health?full=1")[0] == 200


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "X"])
def test_only_get_is_answered(endpoint: Endpoint, method: str) -> None:
    answer = raw(endpoint, f"{method} /metrics HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 405 ")
    assert b"Allow: GET\r\n" in answer
    assert b"privfed_x" not in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health\n\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * MAX_LINE + b" HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: ".ljust(MAX_HEAD, b"a"),
        b"GET /health HTTP/1.1\r\n" + b"a:b\r\n" * 200 + b"\r\n",
        b"GET /<script>\x1b[2J HTTP/1.1 extra\r\n\r\n",
    ],
    ids=[
        "empty", "no path", "bare line feeds", "cut", "version", "tls", "long line", "long head", "many headers",
        "markup",
    ],
)  # fmt: skip
def test_malformed_requests_get_one_line_that_repeats_nothing(endpoint: Endpoint, sent: bytes) -> None:
    head, _, body = raw(endpoint, sent).partition(b"\r\n\r\n")
    if head:
        assert int(head.split()[1]) in {400, 414, 431, 505}
        assert body.count(b"\n") == 1
        assert b"<" not in body
        assert b"\x1b" not in head + body
    assert get(endpoint, "/health")[0] == 200


def test_a_process_that_fails_is_said_without_its_reason(
    endpoint: Endpoint, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    process.fails = True
    status, _, body = get(endpoint, "/metrics")
    assert (status, body) == (500, "internal server error\n")
    assert "health or metrics failed" in caplog.text


def test_slow_clients_cost_themselves_only(process: Process) -> None:
    endpoint = Endpoint(process, "127.0.0.1:0", deadline=PATIENT)
    try:
        slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(MAX_AT_ONCE - 1)]
        for one in slow:
            one.sendall(b"GET /health HTTP/1.1\r\nX-")
        assert get(endpoint, "/health")[0] == 200
        for one in slow:
            one.close()
    finally:
        endpoint.close()


def test_whoever_comes_beyond_the_bound_is_closed_and_comes_in_when_another_one_leaves(process: Process) -> None:
    endpoint = Endpoint(process, "127.0.0.1:0", deadline=PATIENT)
    try:
        slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(MAX_AT_ONCE)]
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENT) as refused:
            assert refused.recv(1) == b""
        for one in slow:
            one.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.0 200"
            while one.recv(65536):
                pass
            one.close()
        closed = 0
        while True:  # the thread gives its place back a moment after the other side sees the end
            try:
                assert get(endpoint, "/health")[0] == 200
                break
            except (ConnectionError, http.client.HTTPException):
                closed += 1
                assert closed < 10_000
    finally:
        endpoint.close()


def test_a_client_that_sends_a_byte_now_and_then_is_closed_at_the_deadline(process: Process) -> None:
    endpoint = Endpoint(process, "127.0.0.1:0", deadline=0.3)
    stop = threading.Event()
    try:
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENT) as connection:

            def trickle() -> None:
                while not stop.wait(0.02):
                    try:
                        connection.sendall(b"a")
                    except OSError:
                        return

            sending = threading.Thread(target=trickle)
            sending.start()
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                pass
            finally:
                stop.set()
                sending.join()
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9400", ("127.0.0.1", 9400)), ("9400", ("127.0.0.1", 9400)), ("[::1]:0", ("::1", 0)),
     ("0.0.0.0:80", ("0.0.0.0", 80))],
)  # fmt: skip
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":9400", "localhost:9400", "127.0.0.1", "127.0.0.1:", "1.2.3.4:65536", "::1", "9 4", "-1", "٣"]
)
def test_no_address(text: str) -> None:
    with pytest.raises(MonitorAddressError, match=r"127\.0\.0\.1:9400"):
        parse_address(text)


def test_an_address_in_use_is_said_in_a_sentence(endpoint: Endpoint, process: Process) -> None:
    with pytest.raises(MonitorAddressError, match="name another address"):
        Endpoint(process, f"127.0.0.1:{endpoint.port}")


def test_an_address_beyond_this_machine_is_warned_of(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    Endpoint(process, "0.0.0.0:0").close()
    assert "without authentication" in caplog.text


def test_a_closed_endpoint_answers_nobody(process: Process) -> None:
    endpoint = Endpoint(process, "127.0.0.1:0")
    port = endpoint.port
    endpoint.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_no_address_serves_nothing(process: Process) -> None:
    before = threading.active_count()
    with serve_monitor(process, None):
        assert threading.active_count() == before
    with serve_monitor(process, "0"):
        assert threading.active_count() == before + 1
