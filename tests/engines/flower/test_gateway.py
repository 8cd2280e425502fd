"""The gateway: calls of registered nodes pass unchanged, and nothing else does, whatever it looks like."""

import asyncio
import base64
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

import httpx
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from privfed.engines.flower.__main__ import main
from privfed.engines.flower.gateway import CALLS, FLEET, LARGEST, Gateway, GatewayError, node_keys_at
from privfed.engines.flower.keys import make_keys
from privfed.engines.flower.strangers import PROBES, StrangersError, check_strangers
from privfed.engines.flower.trial import free_port

CONF = Path(__file__).parents[3] / "examples" / "deployment" / "nginx-gateway.conf"
PULL, PUSH = "/v1/fleet/pull-messages", "/v1/fleet/push-messages"
FOREIGN = sorted(path for _, path in PROTOBUF_REQUEST_TYPES if path not in FLEET)
DISGUISED = [
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/pull-messages/../../control/list-runs",
    "/v1/control/list-runs/../../fleet/pull-messages",
    "/v1/control/list-runs#/../../fleet/pull-messages",
    "/v1/control/list-runs?/../../fleet/pull-messages",
    "/v1/control/list-runs;/../../fleet/pull-messages",
    "/v1/control/list-runs%00/v1/fleet/pull-messages",
    "/v1/control/list-runs%3f/../../../fleet/pull-messages",
    "//v1/control/list-runs",
    "/./v1/control/list-runs",
    "/v1//control/list-runs",
    "/V1/Control/list-runs",
    "/v1/fleet/",
    "/v1/fleet/pull-messages/",
    "/v1/fleet/pull-messages%0a",
    "https://127.0.0.1/v1/control/list-runs",
    "/docs",
    "/openapi.json",
    "/health",
    "/",
    "*",
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys") / "trial", ["alpha", "beta"])


@pytest.fixture(scope="module")
def nodes(keys):
    return node_keys_at([keys.folder / "nodes"])


@pytest.fixture
def calls(nodes):
    """A gateway whose SuperLink notes what reaches it, without a network."""
    return Calls(nodes)


class Calls:
    def __init__(self, nodes):
        self.seen, self.answer = [], httpx.Response(200, content=b"answer")
        superlink = httpx.AsyncClient(base_url="https://superlink", transport=httpx.MockTransport(self._note))
        self.gateway = Gateway(superlink, nodes)

    def _note(self, request):
        self.seen.append((request.method, request.url.path, request.read(), request.headers))
        return self.answer

    async def post(self, path, headers, content=b""):
        transport = httpx.ASGITransport(app=self.gateway, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://gateway") as client:
            return await client.post(path, headers=headers, content=content)

    def __call__(self, path, headers, content=b""):
        return asyncio.run(self.post(path, headers, content))


def signed(keys, name, **others):
    """Headers that a SuperNode sends."""
    private = load_ssh_private_key(keys.private(name).read_bytes(), None)
    return headers_of(private, "2026-01-01T00:00:00+00:00") | others


def headers_of(private, timestamp):
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return {
        "flwr-public-key": base64.b64encode(public).decode(),
        "flwr-timestamp": timestamp,
        "flwr-signature": base64.b64encode(private.sign(timestamp.encode(), ec.ECDSA(SHA256()))).decode(),
        "content-type": "application/protobuf",
    }


def push(sender=7, reply_to="request", node=7, more=()):
    about = [Metadata(src_node_id=s, reply_to_message_id=r) for s, r in [(sender, reply_to), *more]]
    messages = [Message(metadata=metadata) for metadata in about]
    return PushMessagesRequest(node=Node(node_id=node), messages_list=messages).SerializeToString()


def test_what_a_node_may_call_is_what_supernodes_call():
    assert {path for _, path in PROTOBUF_REQUEST_TYPES if path.startswith("/v1/fleet/")} - FLEET == {
        "/v1/fleet/register-node", "/v1/fleet/unregister-node",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(FLEET))
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_call_of_a_registered_node_passes_unchanged(calls, keys, path, name):
    body = push() if path == PUSH else bytes(range(256)) * 100
    calls.answer = httpx.Response(418, content=b"\0answer", headers={"flwr-note": "n", "set-cookie": "c"})
    answer = calls(path, signed(keys, name, cookie="c", authorization="Bearer b", host="elsewhere"), body)
    assert (answer.status_code, answer.content, answer.headers["flwr-note"]) == (418, b"\0answer", "n")
    assert "set-cookie" not in answer.headers
    ((method, reached, content, headers),) = calls.seen
    assert (method, reached, content) == ("POST", path, body)
    assert {**headers, **signed(keys, name, **{"flwr-signature": headers["flwr-signature"]})} == dict(headers)
    assert not {"cookie", "authorization"} & set(headers)
    assert headers["host"] == "superlink"


@pytest.mark.parametrize("path", FOREIGN)
def test_a_path_that_is_not_a_supernodes_is_refused_even_to_a_registered_node(calls, keys, path):
    assert calls(path, signed(keys, "alpha")).status_code == 403
    assert not calls.seen


def test_another_method_is_refused(calls, keys):
    async def get():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=calls.gateway), base_url="https://g") as client:
            return await client.get(PULL, headers=signed(keys, "alpha"))

    assert asyncio.run(get()).status_code == 403
    assert not calls.seen


@pytest.mark.parametrize("missing", ["flwr-public-key", "flwr-timestamp", "flwr-signature"])
def test_a_call_without_a_signature_is_refused(calls, keys, missing):
    headers = signed(keys, "alpha")
    del headers[missing]
    assert calls(PULL, headers).status_code == 401
    assert not calls.seen


@pytest.mark.parametrize("header", ["flwr-public-key", "flwr-timestamp", "flwr-signature"])
@pytest.mark.parametrize("value", ["", "!", "AAAA", "\N{SUPERSCRIPT TWO}".encode(), b"\xff", b"A" * 10_000])
def test_a_malformed_signature_is_refused(calls, keys, header, value):
    assert calls(PULL, signed(keys, "alpha") | {header: value}).status_code == 401
    assert not calls.seen


def test_a_key_that_is_not_registered_is_refused_and_another_nodes_key_is_of_no_use(calls, keys):
    stranger = headers_of(ec.generate_private_key(ec.SECP384R1()), "2026-01-01T00:00:00+00:00")
    borrowed = signed(keys, "beta") | {"flwr-public-key": signed(keys, "alpha")["flwr-public-key"]}
    for headers in (stranger, borrowed):
        assert calls("/v1/fleet/activate-node", headers).status_code == 401
    assert not calls.seen


@pytest.mark.parametrize(("length", "status"), [
    (str(LARGEST + 1), 413), ("9" * 5000, 413), ("-1", 411), ("", 411), ("1e3", 411), ("\N{SUPERSCRIPT TWO}", 411),
    ("5", 400), ("7", 400),
])  # fmt: skip
def test_a_call_of_another_length_than_it_may_have_or_says_is_refused(calls, keys, length, status):
    assert calls(PULL, signed(keys, "alpha", **{"content-length": length.encode()}), b"sixsix").status_code == status
    assert not calls.seen


def test_a_call_without_a_length_is_refused(calls, keys):
    async def parts():
        yield b"part"

    assert calls(PULL, signed(keys, "alpha"), parts()).status_code == 411
    assert not calls.seen


def test_the_largest_call_passes(calls, keys):
    assert calls(PULL, signed(keys, "alpha"), bytes(LARGEST)).status_code == 200


@pytest.mark.parametrize(("body", "status"), [
    (push(), 200), (push(more=[(7, "another")]), 200),
    (push(sender=8), 403), (push(sender=1, reply_to=""), 403), (push(reply_to=""), 403), (push(node=8), 403),
    (push(more=[(8, "another")]), 403), (push(more=[(1, "")]), 403), (b"\xff", 400),
])  # fmt: skip
def test_a_node_sends_replies_in_its_own_name_only(calls, keys, body, status):
    assert calls(PUSH, signed(keys, "alpha"), body).status_code == status
    assert len(calls.seen) == (status == 200)


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError])
def test_a_superlink_that_does_not_answer_is_an_error_that_supernodes_try_again(calls, keys, error, monkeypatch):
    def fails(request):
        raise error("no", request=request)

    calls.gateway._superlink = httpx.AsyncClient(base_url="https://superlink", transport=httpx.MockTransport(fails))
    assert calls(PULL, signed(keys, "alpha")).status_code == 502


def test_a_node_that_is_slow_holds_up_itself_alone(calls, keys, monkeypatch):
    monkeypatch.setattr("privfed.engines.flower.gateway.SECONDS", 0.5)

    async def slow():
        await asyncio.sleep(30)
        yield b"sixsix"

    async def all_at_once():
        stalled = signed(keys, "alpha", **{"content-length": "6"})
        held = [asyncio.create_task(calls.post(PULL, stalled, slow())) for _ in range(CALLS)]
        await asyncio.sleep(0)
        quick = await calls.post(PULL, signed(keys, "beta"))
        assert not any(task.done() for task in held)
        return quick, await asyncio.gather(*held)

    quick, held = asyncio.run(all_at_once())
    assert quick.status_code == 200
    assert [answer.status_code for answer in held] == [504] * CALLS


def test_keys_of_nodes_are_read_from_files_and_folders(keys, nodes, tmp_path):
    assert node_keys_at([keys.public("alpha"), keys.node("beta")]).keys() == nodes.keys()
    with pytest.raises(GatewayError, match="knows no node"):
        node_keys_at([tmp_path])
    with pytest.raises(FileNotFoundError):
        node_keys_at([tmp_path / "none"])
    other = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    for wrong in (b"", b"ssh-ed25519 nonsense", keys.private("alpha").read_bytes(), other):
        (tmp_path / "other.pub").write_bytes(wrong)
        with pytest.raises(GatewayError, match="no public key of a node"):
            node_keys_at([tmp_path])


def test_what_is_asked_of_the_command_wrongly_is_one_sentence(tmp_path, capsys):
    files = [word for name in ("certificate", "key", "authority") for word in (f"--{name}", str(tmp_path / name))]
    given = ["gateway", "127.0.0.1:1", "--superlink", "127.0.0.1:2", "--nodes", str(tmp_path), *files]
    assert main(given) == 2
    assert "the gateway knows no node" in capsys.readouterr().err


class SuperLink:
    """Notes what reaches it over TLS."""

    def __init__(self, keys):
        self.paths, self.port = [], free_port()
        config = uvicorn.Config(
            self, "127.0.0.1", self.port, ssl_certfile=keys.certificate, ssl_keyfile=keys.key, log_config=None,
            lifespan="off", ws="none",
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)

    async def __call__(self, scope, receive, send):
        self.paths.append(scope["raw_path"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def superlink(keys):
    with SuperLink(keys) as superlink:
        yield superlink


@pytest.fixture(scope="module", params=["own", "nginx"])
def gateway(request, keys, superlink, tmp_path_factory):
    """Port and log of a gateway as it is deployed."""
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    if request.param == "nginx":
        command, log = nginx(keys, superlink.port, port, folder), folder / "nginx.log"
    else:
        command, log = own(keys, superlink.port, port), folder / "stderr.log"
    with (folder / "stderr.log").open("wb") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            while not listening(port):
                assert process.poll() is None, (folder / "stderr.log").read_text()
                time.sleep(0.05)
            yield port, log
        finally:
            process.terminate()


def own(keys, superlink, port):
    names = [word for n in ("certificate", "key", "authority") for word in (f"--{n}", str(getattr(keys, n)))]
    command = [sys.executable, "-m", "privfed.engines.flower", "gateway", f"127.0.0.1:{port}"]
    return [*command, "--superlink", f"127.0.0.1:{superlink}", "--nodes", str(keys.folder / "nodes"), *names]


def nginx(keys, superlink, port, folder):
    if not (program := shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")):
        pytest.skip("nginx is not installed")
    text = CONF.read_text()
    for name, place in {
        "10.0.0.5:8443": f"127.0.0.1:{port}", "127.0.0.1:8000": f"127.0.0.1:{superlink}",
        "/srv/keys": str(keys.folder), "/run/nginx-gateway.pid": str(folder / "pid"),
        "/var/log/nginx/gateway.log": str(folder / "nginx.log"),
    }.items():  # fmt: skip
        assert name in text
        text = text.replace(name, place)
    temporary = "".join(f"{n}_temp_path {folder / n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(text.replace("http {", "http {" + temporary, 1))
    command = [program, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "error.log")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    return [*command, "-g", "daemon off;"]


def listening(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def raw(port, keys, path, method="POST", headers=(), body=b""):
    """Status of a call whose path nobody tidies up on the way."""
    given = {"host": "gateway", "content-length": str(len(body)), **dict(headers)}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    trusted = ssl.create_default_context(cafile=str(keys.authority))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as caller,
    ):
        caller.sendall("\r\n".join(lines).encode() + body)
        return int(caller.recv(1 << 16).split(b" ", 2)[1])


@pytest.mark.process
@pytest.mark.parametrize("path", [*PROBES.values(), *DISGUISED])
def test_no_way_of_writing_a_path_reaches_anything_but_the_fleet(gateway, superlink, keys, path):
    superlink.paths.clear()
    status = raw(gateway[0], keys, path, headers=signed(keys, "alpha").items())
    assert set(superlink.paths) <= FLEET
    assert 400 <= status < 500 or superlink.paths


@pytest.mark.process
@pytest.mark.parametrize("path", sorted(FLEET))
def test_a_registered_node_reaches_the_superlink(gateway, superlink, keys, path):
    superlink.paths.clear()
    assert raw(gateway[0], keys, path, headers=signed(keys, "alpha").items(), body=push()) == 200
    assert superlink.paths == [path]
    assert raw(gateway[0], keys, path, "GET", signed(keys, "alpha").items()) == 403
    assert superlink.paths == [path]


@pytest.mark.process
def test_a_call_that_is_too_long_is_refused_before_it_is_read(gateway, superlink, keys):
    superlink.paths.clear()
    long = {"content-length": str(LARGEST + 1), **signed(keys, "alpha")}
    assert raw(gateway[0], keys, PULL, headers=long.items()) == 413
    assert not superlink.paths


@pytest.mark.process
def test_what_a_stranger_writes_cannot_forge_a_line_of_the_log(gateway, keys):
    port, log = gateway
    before = log.read_text() if log.exists() else ""
    forged = "/%0A2026-01-01%20INFO%20forged%1B[31m%E2%80%A8line%22"
    assert raw(port, keys, forged) == 403
    end = time.monotonic() + 30
    while (after := log.read_text()) == before and time.monotonic() < end:
        time.sleep(0.05)
    (line,) = after.removeprefix(before).splitlines()
    assert "forged" in line
    assert "403" in line
    assert line.isprintable()
    if log.name == "nginx.log":
        assert json.loads(line)["status"] == 403


@pytest.mark.process
def test_who_calls_nothing_is_hung_up_on(gateway, keys):
    """Both gateways wait ten seconds."""
    trusted = ssl.create_default_context(cafile=str(keys.authority))
    with (
        socket.create_connection(("127.0.0.1", gateway[0]), timeout=60) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as caller,
    ):
        caller.sendall(b"POST /v1/fl")
        assert b"200" not in caller.recv(1024)


@pytest.mark.process
def test_the_check_passes_at_a_gateway_and_fails_at_an_open_superlink(gateway, superlink, keys, monkeypatch, capsys):
    port, _ = gateway
    monkeypatch.setattr(superlink, "__class__", Answering)
    assert check_strangers(f"127.0.0.1:{port}", keys.authority) == list(PROBES)
    assert main(["strangers", f"127.0.0.1:{port}", "--authority", str(keys.authority)]) == 0
    assert "list runs" in capsys.readouterr().out
    assert main(["strangers", f"127.0.0.1:{superlink.port}", "--authority", str(keys.authority)]) == 2
    assert "run an app" in capsys.readouterr().err


def test_the_check_does_not_take_silence_or_another_server_for_a_refusal(superlink, keys):
    with pytest.raises(StrangersError, match="does not answer"):
        check_strangers(f"127.0.0.1:{free_port()}", keys.authority)
    with pytest.raises(StrangersError, match="answers 200 to a node without a key"):
        check_strangers(f"127.0.0.1:{superlink.port}", keys.authority)


class Answering(SuperLink):
    """Asks SuperNodes for a signature and nobody else for anything, as Flower's does."""

    async def __call__(self, scope, receive, send):
        status = 401 if scope["path"].startswith("/v1/fleet/") else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
