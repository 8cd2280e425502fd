"""HTTP to nodes that ask: the same bits as any transport, and mailboxes that no stranger reads or fills."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.http_transport import FRAME, HttpTransport, answer
from privfed.engines.nodes.transport import Handler

TOKENS = {7: "a" * 32, 8: "b" * 32}
PAGE = "https://page.example"


class Echo:
    """A handler that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def handle(self, stage: str, request: bytes) -> bytes:
        self.asked += 1
        return stage.encode() + b":" + request


class Nodes:
    """Threads in which nodes ask."""

    def __init__(self, transport: HttpTransport, handlers: dict[int, Handler]) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(
                target=answer, args=(transport.address, node, transport.tokens[node], handler, self._over.is_set)
            )
            for node, handler in handlers.items()
        ]
        for thread in self._threads:
            thread.start()
        while len(transport.nodes()) < len(handlers):
            time.sleep(0.005)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def transport() -> Iterator[HttpTransport]:
    with HttpTransport(TOKENS, origins=[PAGE], patience=0.2, max_reply=1000) as transport:
        yield transport


@pytest.fixture
def call(transport: HttpTransport) -> Callable[..., tuple[int, bytes, dict[str, str]]]:
    def ask(method: str, path: str, body: bytes | None = None, token: str = TOKENS[7], **headers: str):
        connection = HTTPConnection("127.0.0.1", int(transport.address.rpartition(":")[2]), timeout=5)
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} | headers)
        found = connection.getresponse()
        content = found.read()
        connection.close()
        return found.status, content, dict(found.headers)

    return ask


def test_a_run_over_http_has_the_bits_of_the_run_in_one_process(federation: Callable) -> None:
    over = federation(rounds=1)
    simulated, ledger = over.simulated()
    tokens = {node: str(node) * 32 for node in over.nodes}
    with HttpTransport(tokens, patience=0.2) as transport:
        nodes = Nodes(transport, over.nodes)
        result = over.train(transport)
        nodes.end()
    expected = simulated.server.public().shared
    assert all(bool((result.server.public().shared[name] == value).all()) for name, value in expected.items())
    assert over.ledger_lines() == ledger


def test_requests_reach_their_node_and_whoever_does_not_ask_is_missing(transport: HttpTransport) -> None:
    assert list(transport.nodes()) == []
    nodes = Nodes(transport, {7: Echo()})
    assert list(transport.nodes()) == [7]
    assert transport.exchange("train.x", {7: b"one", 8: b"two"}, 0.3) == {7: b"train.x:one"}
    assert transport.exchange("train.y", {7: b""}, 5) == {7: b"train.y:"}
    nodes.end()


def test_a_request_waits_until_it_is_answered_and_the_first_reply_counts(
    transport: HttpTransport, call: Callable
) -> None:
    replies: dict[int, bytes] = {}
    asking = threading.Thread(target=lambda: replies.update(transport.exchange("s", {7: b"r"}, 5)))
    asking.start()
    status, frame, _ = call("GET", "/v1/7")
    while status == 204:
        status, frame, _ = call("GET", "/v1/7")
    assert call("GET", "/v1/7")[1] == frame
    magic, version, exchange, stage = FRAME.unpack_from(frame)
    assert (magic, version, stage.rstrip(), frame[FRAME.size :]) == (b"PFHT", 1, b"s", b"r")
    assert call("POST", f"/v1/7/{exchange + 1}", b"late")[0] == 410
    assert call("POST", f"/v1/8/{exchange}", b"another's", TOKENS[8])[0] == 410
    assert call("POST", f"/v1/7/{exchange}", b"reply")[0] == 204
    assert call("POST", f"/v1/7/{exchange}", b"again")[0] == 410
    asking.join()
    assert replies == {7: b"reply"}
    assert call("GET", "/v1/7")[:2] == (204, b"")


@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("GET", "/v1/7", TOKENS[8], 401),
        ("GET", "/v1/7", "", 401),
        ("GET", "/v1/9", "", 401),
        ("POST", "/v1/7/1", TOKENS[8], 401),
        ("GET", "/v1/", TOKENS[7], 404),
        ("GET", "/v1/seven", TOKENS[7], 404),
        ("GET", "/v2/7", TOKENS[7], 404),
        ("GET", "/v1/7/1", TOKENS[7], 404),
        ("PUT", "/v1/7", TOKENS[7], 501),
    ],
)
def test_strangers_and_other_paths_are_refused(
    call: Callable, capfd: pytest.CaptureFixture[str], method: str, path: str, token: str, status: int
) -> None:
    assert call(method, path, token=token)[:2] == (status, b"")
    assert capfd.readouterr() == ("", "")


def test_long_replies_are_not_read(call: Callable) -> None:
    assert call("POST", "/v1/7/1", None, **{"Content-Length": "1001"})[0] == 413


def test_pages_of_named_origins_alone_may_call(call: Callable) -> None:
    assert call("OPTIONS", "/v1/7", token="", Origin=PAGE)[2]["Access-Control-Allow-Origin"] == PAGE
    assert "Access-Control-Allow-Origin" not in call("OPTIONS", "/v1/7", Origin="https://other.example")[2]
    assert "Access-Control-Allow-Origin" not in call("GET", "/v1/7", Origin="https://other.example")[2]


def test_short_tokens_long_stages_and_wrong_tokens_are_named(transport: HttpTransport) -> None:
    with pytest.raises(NodesError, match="token of node 1 is short"):
        HttpTransport({1: "secret"})
    with pytest.raises(NodesError, match="65 letters"):
        transport.exchange("x" * 65, {7: b""}, 1)
    with pytest.raises(NodesError, match="does not know the token of node 7"):
        answer(transport.address, 7, "c" * 32, Echo(), lambda: False)


def test_a_lost_reply_is_sent_again_and_not_made_again(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, lost, take = Echo(), [True], transport.take

    def losing(node: int, exchange: int, reply: bytes) -> bool:
        return lost.pop() and False if lost else take(node, exchange, reply)

    monkeypatch.setattr(transport, "take", losing)
    nodes = Nodes(transport, {7: handler})
    assert transport.exchange("s", {7: b"r"}, 5) == {7: b"s:r"}
    assert handler.asked == 1
    nodes.end()


@pytest.fixture
def served() -> Iterator[Callable[[bytes], str]]:
    """The address of a server that answers every call with these bytes."""
    with contextlib.ExitStack() as servers:

        def serve(content: bytes) -> str:
            class Hostile(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(content)

                def log_message(self, *_: object) -> None: ...

            server = servers.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Hostile))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            servers.callback(thread.join)
            servers.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield serve


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "did not send a frame of version 1"),
        (b"PFHT", "did not send a frame of version 1"),
        (FRAME.pack(b"PFHT", 2, 1, b"s"), "did not send a frame of version 1"),
        (FRAME.pack(b"HTTP", 1, 1, b"s"), "did not send a frame of version 1"),
        (FRAME.pack(b"PFHT", 1, 1, b"s") + bytes(11), "more than 10 bytes"),
    ],
)
def test_what_is_no_frame_ends_a_node_with_one_sentence(
    served: Callable[[bytes], str], content: bytes, reason: str
) -> None:
    echo = Echo()
    with pytest.raises(NodesError, match=reason):
        answer(served(content), 7, TOKENS[7], echo, lambda: False, max_request=10)
    assert echo.asked == 0


def test_a_stage_of_any_bytes_reaches_the_handler_which_refuses_it(served: Callable[[bytes], str]) -> None:
    stages: list[str] = []

    class Refusing:
        def handle(self, stage: str, request: bytes) -> bytes:
            stages.append(stage)
            return request

    answer(served(FRAME.pack(b"PFHT", 1, 2**64 - 1, b"\xff" * 64)), 7, TOKENS[7], Refusing(), lambda: bool(stages))
    assert stages == ["\N{REPLACEMENT CHARACTER}" * 64]


def test_a_node_answers_a_server_that_began_anew() -> None:
    echo = Echo()
    with HttpTransport(TOKENS, patience=0.2) as first:
        nodes = Nodes(first, {7: echo})
        assert first.exchange("s", {7: b"one"}, 5) == {7: b"s:one"}
        port = int(first.address.rpartition(":")[2])
    with HttpTransport(TOKENS, port=port, patience=0.2) as second:
        assert second.exchange("s", {7: b"two"}, 5) == {7: b"s:two"}
        nodes.end()
