"""What a client sends: one part for each server, sealed to it and signed, byte for byte.

    part    magic "SA2S", version (1 byte), server (1), client (4), run (16), round (8), query (4),
            ephemeral X25519 key (32), sealed share, Ed25519 signature (64)
    share   as `shares` makes it: of server 1 a seed (32), and what a proof needs besides

Numbers are big-endian. Both parts carry the same ephemeral key, which names the upload: two parts that were not made
together are told apart by it. The key that seals a part is derived from the agreement of the ephemeral key with the
server's, under the context of the terms, the client and the server, and encrypts nothing else.
"""

import hashlib
import struct
from dataclasses import dataclass

from secure_agg.errors import MalformedMessage, MessageRefused, RoundAborted, StaleMessage, WrongParty
from secure_agg.primitives.keys import KEY_BYTES, SIGNATURE_BYTES, Aead, Identity, KeyPair, derive, seal, unseal, verify
from secure_agg.primitives.keys import TAG_BYTES as _AEAD_BYTES
from secure_agg.two_server.terms import PROTOCOL_VERSION, SumTerms

TAG_BYTES = 16

_MAGIC = b"SA2S"
_HEADER = struct.Struct(">4sBBI16sQI32s")
OVERHEAD = _HEADER.size + _AEAD_BYTES + SIGNATURE_BYTES
"""Bytes of a part besides the share in it."""


@dataclass(frozen=True, slots=True)
class UploadPart:
    """One server's part of one upload.

    Attributes:
        client: who signed it.
        tag: 16 bytes that name the upload, the same in both parts.
        share: what was sealed.
    """

    client: int
    tag: bytes
    share: bytes


def make_parts(terms: SumTerms, client: int, identity: Identity, shares: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Seal and sign the two shares of one upload."""
    ephemeral = KeyPair.generate()
    parts = []
    for server, share in enumerate(shares):
        header = _header(terms, client, server, ephemeral.public)
        key = _sealing_key(terms, client, server, ephemeral.public, ephemeral.agree(terms.servers[server]))
        body = header + seal(Aead.AES256_GCM, key, share, header)
        parts.append(body + identity.sign(_signed(terms, body)))
    return parts[0], parts[1]


def claimed_client(part: bytes, terms: SumTerms, server: int) -> int:
    """The client that a part names, not verified yet; its run, round, query and server are those expected.

    Raises:
        MessageRefused: another length, version, run, round, query or server.
    """
    if len(part) < OVERHEAD:
        raise MalformedMessage(f"{len(part)} bytes arrived; a part of an upload has at least {OVERHEAD}")
    magic, version, to, client, run, number, query, _ = _HEADER.unpack_from(part)
    if (magic, version) != (_MAGIC, PROTOCOL_VERSION):
        raise MalformedMessage(f"the bytes are no part of an upload of version {PROTOCOL_VERSION}; drop them")
    if (run, number, query) != (terms.run, terms.round, terms.query):
        raise StaleMessage(
            f"the part is for run {run.hex()}, round {number}, query {query}; due is run {terms.run.hex()}, round "
            f"{terms.round}, query {terms.query}, so it is dropped"
        )
    if to != server:
        raise WrongParty(f"the part is for server {to}; this is server {server}, so it is dropped")
    return int(client)


def open_part(part: bytes, terms: SumTerms, server: int, keys: KeyPair, identity: bytes) -> UploadPart:
    """Verify and open a part.

    Args:
        part: as it arrived.
        terms: of the sum.
        server: whose part it is.
        keys: the server's key pair.
        identity: Ed25519 public key of the client that the part names.

    Raises:
        MessageRefused: it is not what this client sent this server for this sum.
    """
    client = claimed_client(part, terms, server)
    body, signature = part[:-SIGNATURE_BYTES], part[-SIGNATURE_BYTES:]
    header, ephemeral = part[: _HEADER.size], part[_HEADER.size - KEY_BYTES : _HEADER.size]
    try:
        verify(identity, signature, _signed(terms, body))
        key = _sealing_key(terms, client, server, ephemeral, keys.agree(ephemeral))
        share = unseal(Aead.AES256_GCM, key, body[_HEADER.size :], header)
    except RoundAborted as refused:
        raise MessageRefused(
            f"the part of client {client} was altered, or made under other terms or by somebody else; drop it"
        ) from refused
    return UploadPart(client, hashlib.sha256(ephemeral).digest()[:TAG_BYTES], share)


def _header(terms: SumTerms, client: int, server: int, ephemeral: bytes) -> bytes:
    return _HEADER.pack(
        _MAGIC, PROTOCOL_VERSION, server, client, terms.run, terms.round, terms.query, ephemeral
    )  # fmt: skip


def _signed(terms: SumTerms, body: bytes) -> bytes:
    return b"secure_agg two servers upload" + terms.context + hashlib.sha256(body).digest()


def _sealing_key(terms: SumTerms, client: int, server: int, ephemeral: bytes, agreed: bytes) -> bytes:
    parts = [client.to_bytes(4, "big"), bytes([server]), ephemeral, terms.servers[server]]
    return derive(agreed, KEY_BYTES, label="two-server share", context=terms.context, parts=parts)
