"""What faces the network: a gateway that passes the Fleet calls of registered SuperNodes to a SuperLink on loopback.

A SuperLink serves everything at one address: the Fleet API, which SuperNodes call and sign, and beside it the Control
and Runtime APIs, which ask nobody who they are. `--enable-supernode-auth` changes the first only. So the SuperLink
listens on loopback, and organisations reach this process, which

    knows ten paths (`FLEET`), forwards each under its own constant address, and answers 403 to all others
    reads no body before the caller has proved a registered key (401), and none without a length or above `LARGEST`
    refuses a message that a node sends in another's name, or as the server: Flower compares a node's key with the node
        of the call, not with the sender of the messages in it
    gives a node `CALLS` calls at a time and every call `SECONDS`, so that a slow node slows itself

It ends TLS with the server's certificate and opens a connection of its own to the SuperLink, whose certificate it
checks. That a signature is fresh, and that the node of a call is the one of the key, the SuperLink checks.
"""

import asyncio
import base64
import logging
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

FLEET = frozenset(
    f"/v1/fleet/{call}"
    for call in (
        "activate-node",
        "confirm-message-received",
        "deactivate-node",
        "get-fab",
        "get-run",
        "pull-messages",
        "pull-object",
        "push-messages",
        "push-object",
        "send-node-heartbeat",
    )
)
"""Paths that a SuperNode with a key of its own calls. Nodes are registered at the SuperLink, not over the Fleet API."""

LARGEST = 8 << 20
"""Bytes that one call may have: Flower cuts arrays into objects of 5 MiB."""

CALLS = 8
"""Calls of one node at a time; more of them wait."""

SECONDS = 30.0
"""Seconds that a call may take, which is also how long a SuperNode waits for its answer."""

CONNECTIONS = 512
"""Connections at a time; further ones are answered 503, which SuperNodes try again."""

_SILENT, _DISCARDED, _LOGGED = 10.0, 1 << 20, 200
_PUSH = "/v1/fleet/push-messages"
_log = logging.getLogger(__name__)

NodeKeys = Mapping[bytes, ec.EllipticCurvePublicKey]
"""Public keys by the bytes under which SuperNodes send them."""


class GatewayError(ValueError):
    """A gateway cannot be started as asked."""


class RefusalError(Exception):
    """A call that is not passed on.

    Args:
        status: of HTTP.
        reason: for the log and the caller.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Gateway:
    """An ASGI application that passes Fleet calls on.

    Args:
        superlink: client of the SuperLink.
        keys: of the nodes that may call.
    """

    def __init__(self, superlink: httpx.AsyncClient, keys: NodeKeys) -> None:
        self._superlink, self._keys = superlink, keys
        self._free = {key: asyncio.Semaphore(CALLS) for key in keys}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except RefusalError as refused:
            response = await _refused(request, refused)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = _path(request)
        key = authenticated(request.headers, self._keys)
        length = _length(request)
        try:
            async with asyncio.timeout(SECONDS), self._free[key]:
                body = await _read(request, length)
                if path == _PUSH:
                    check_sender(body)
                return await self._passed_on(path, request.headers, body)
        except TimeoutError as error:
            raise RefusalError(504, "a call took too long") from error

    async def _passed_on(self, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        try:
            answer = await self._superlink.post(path, content=body, headers=_flowers(headers))
        except httpx.HTTPError as error:
            raise RefusalError(502, f"the SuperLink does not answer ({type(error).__name__})") from error
        return Response(answer.content, answer.status_code, _flowers(answer.headers))


def node_keys_at(places: Iterable[Path]) -> NodeKeys:
    """Read the public keys of nodes, as `node-key` makes and `flwr supernode register` reads them.

    Args:
        places: files, or folders with a file `*.pub` for each node, at any depth.

    Raises:
        GatewayError: there is no key, or a file holds something else.
    """
    files = [file for place in places for file in (sorted(place.rglob("*.pub")) if place.is_dir() else [place])]
    if not files:
        raise GatewayError("the gateway knows no node: name the files of their public keys, or a folder of *.pub")
    return dict(map(_node_key, files))


def authenticated(headers: Mapping[str, str], keys: NodeKeys) -> bytes:
    """Find the registered key that signed a call's timestamp.

    Raises:
        RefusalError: there is none.
    """
    try:
        key = base64.b64decode(headers["flwr-public-key"], validate=True)
        signature = base64.b64decode(headers["flwr-signature"], validate=True)
        keys[key].verify(signature, headers["flwr-timestamp"].encode("ascii"), ec.ECDSA(SHA256()))
    except (KeyError, ValueError, InvalidSignature) as error:
        raise RefusalError(401, "no registered node signed this call") from error
    return key


def check_sender(body: bytes) -> None:
    """Check that a node sends replies only, and in its own name.

    Raises:
        RefusalError: it does not.
    """
    try:
        push = PushMessagesRequest.FromString(body)
    except DecodeError as error:
        raise RefusalError(400, "messages that cannot be read") from error
    for message in push.messages_list:
        about = message.metadata
        if about.src_node_id != push.node.node_id or not about.reply_to_message_id:
            raise RefusalError(403, f"node {push.node.node_id} sends a message that is not its own reply")


async def serve(
    listen: tuple[str, int], superlink: str, certificate: Path, key: Path, authority: Path, nodes: NodeKeys
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        listen: host and port that the nodes reach.
        superlink: address of the SuperLink, which its certificate names.
        certificate: that this gateway shows.
        key: the certificate's private key.
        authority: certificate that the SuperLink is verified with.
        nodes: public keys that may call.
    """
    trusted = ssl.create_default_context(cafile=str(authority))
    # The SuperLink drops connections that were idle for five seconds; those that are reused must be younger.
    limits = httpx.Limits(max_connections=CONNECTIONS, keepalive_expiry=2.0)
    async with httpx.AsyncClient(
        base_url=f"https://{superlink}", verify=trusted, timeout=SECONDS, limits=limits, trust_env=False
    ) as client:
        served = uvicorn.Config(
            Gateway(client, nodes),
            *listen,
            http=_Impatient,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=round(SECONDS),
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        await uvicorn.Server(served).serve()


class _Impatient(H11Protocol):
    """Hangs up on callers that connect and call nothing."""

    def connection_made(self, transport: Any) -> None:
        """Begin a connection."""
        super().connection_made(transport)
        self.loop.call_later(_SILENT, self._hang_up)

    def _hang_up(self) -> None:
        if not self.cycle:
            self.transport.close()


def _path(request: Request) -> str:
    if request.method != "POST" or request.url.path not in FLEET:
        raise RefusalError(403, "nothing but calls of SuperNodes is served here")
    return request.url.path


def _length(request: Request) -> int:
    given = request.headers.get("content-length", "")
    if not (given.isascii() and given.isdigit()):
        raise RefusalError(411, "a call does not say how long it is")
    if len(given) > len(str(LARGEST)) or int(given) > LARGEST:
        raise RefusalError(413, f"a call is longer than {LARGEST} bytes")
    return int(given)


async def _read(request: Request, length: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
    if len(body) != length:
        raise RefusalError(400, "a call is not as long as it says")
    return bytes(body)


def _flowers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that Flower's Fleet API reads or writes; no others pass."""
    return {name: v for name, v in headers.items() if name in ("accept", "content-type") or name.startswith("flwr-")}


async def _refused(request: Request, refused: RefusalError) -> Response:
    caller = request.client.host if request.client else "?"
    # %a: whatever a stranger puts into a path, it is one line of ASCII here.
    _log.warning("%s: refused %a %a (%d): %s", caller, request.method[:_LOGGED], request.url.path[:_LOGGED],
                 refused.status, refused)  # fmt: skip
    await _discard(request)
    return PlainTextResponse(f"{refused}\n", refused.status, {"connection": "close"})


async def _discard(request: Request) -> None:
    """Read what is left of a small call: a connection closed over unread bytes loses the answer, too."""
    seen = 0
    try:
        async with asyncio.timeout(1.0):
            async for part in request.stream():
                if (seen := seen + len(part)) > _DISCARDED:
                    return
    except (TimeoutError, ClientDisconnect, RuntimeError):
        return  # RuntimeError: the call was read already


def _node_key(file: Path) -> tuple[bytes, ec.EllipticCurvePublicKey]:
    try:
        key = load_ssh_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise GatewayError(f"{file} holds no public key of a node: take the node.pub that node-key makes")
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), key
