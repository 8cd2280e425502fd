"""One of two servers that add shares: it receives, proposes a set of uploads, and releases its share of one sum.

    receive    parts of uploads, in any order, until `propose`
    propose    commit to the uploads that this server holds: their list and its hash, sealed to the other server, with
               what their proofs open
    release    with the other's proposal: the sum of this server's shares over the uploads that both accept, once
    result     with the other's release: the sum

The set is the intersection of the two proposals less the uploads whose proofs fail, so it is settled once both are
made; every release names the hash of the set and of both proposals, and `result` opens none that names another. So one
server may answer the other's proposal with its own proposal and release in one reply.
"""

import hashlib
import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from secure_agg.checks import check_integer
from secure_agg.errors import (
    ConfigurationError,
    DuplicateMessage,
    MalformedMessage,
    MessageRefused,
    RoundAborted,
    StaleMessage,
    TermsRefused,
    TooFewClients,
    UnexpectedStage,
    WrongParty,
)
from secure_agg.noise.shares import DistributedNoise
from secure_agg.primitives.keys import KEY_BYTES, Aead, KeyPair, derive, length_prefixed, seal, unseal
from secure_agg.primitives.prg import RingElements
from secure_agg.two_server.terms import SumTerms, roster_digest
from secure_agg.two_server.uploads import TAG_BYTES, UploadPart, claimed_client, open_part

_SALT_BYTES = 16
_AGREED = struct.Struct(f">I{TAG_BYTES}s")
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class SumResult:
    """What both servers open together.

    Attributes:
        total: sum of the clients' vectors, and of the servers' noise, ring elements of shape (length,).
        clients: ids of the clients in it, rising.
    """

    total: RingElements
    clients: tuple[int, ...]


class SumServer:
    """One server's side of one sum.

    It must not be built twice for one number: two releases over sets that differ in one client differ by its vector.
    `last` is the number of the last sum that this server released, kept where it does not go back; `store` is called
    with the new one before a release is returned.

    Args:
        terms: of the sum.
        server: 0, which receives elements, or 1, which receives seeds.
        keys: this server's key pair, the public part of which is in the terms.
        directory: Ed25519 public keys of all clients that may take part, as this server knows them.
        min_clients: this server's own minimum; that of the terms may not be below it.
        noise: noise that this server adds to its share, sized to suffice alone; `None` adds none.
        last: round and query of the last sum that this server released in this run.
        store: keeps the number of this sum.

    Raises:
        TermsRefused: the terms name another key or roster, a sum below the minimum, or a number that does not follow.
        ConfigurationError: a server that is neither 0 nor 1, or noise for more than one party or of too large a
            deviation to be drawn.
    """

    def __init__(
        self,
        terms: SumTerms,
        server: int,
        keys: KeyPair,
        directory: Mapping[int, bytes],
        *,
        min_clients: int,
        noise: DistributedNoise | None = None,
        last: tuple[int, int] | None = None,
        store: Callable[[tuple[int, int]], None] | None = None,
    ) -> None:
        if server not in (0, 1):
            raise ConfigurationError(f"server is {server!r}; give 0 or 1")
        if noise is not None and noise.min_honest != 1:
            raise ConfigurationError(
                f"noise for {noise.min_honest} parties was given; a server's noise must suffice alone, so size it for 1"
            )
        if noise is not None:
            noise.sample(1)
        minimum = check_integer("min_clients", min_clients, minimum=2)
        if terms.servers[server] != keys.public or terms.roster != roster_digest(directory):
            raise TermsRefused(f"the terms name another key or roster than server {server} has; it takes no part")
        if terms.min_clients < minimum:
            raise TermsRefused(
                f"the terms allow a sum of {terms.min_clients} clients; this server's minimum is {minimum}"
            )
        if last is not None and terms.number <= last:
            raise TermsRefused(f"round and query {terms.number} do not follow {last}, which this server released")
        self.terms, self.server = terms, server
        self._keys, self._directory, self._noise, self._store = keys, directory, noise, store
        self._shares, self._agreed_key = terms.shares, keys.agree(terms.servers[1 - server])
        self._entry = struct.Struct(f">I{TAG_BYTES}s{self._shares.verifier_bytes}s")
        self._held: dict[int, tuple[UploadPart, bytes]] = {}
        self._proposal = b""
        self._agreed: tuple[int, ...] = ()
        self._over = False
        self._hash = b""
        self._share = b""

    @property
    def received(self) -> frozenset[int]:
        """Clients whose part this server holds."""
        return frozenset(self._held)

    @property
    def agreed(self) -> tuple[int, ...]:
        """Clients in the sum that this server released its share of, rising; nobody before."""
        return self._agreed

    def receive(self, part: bytes) -> int:
        """Take in one client's part; returns the client.

        Raises:
            MessageRefused: not this client's part for this server and sum, a second one, or after `propose`.
        """
        if self._proposal:
            raise UnexpectedStage("this server has proposed its set already, so the part is dropped")
        client = claimed_client(part, self.terms, self.server)
        if client in self._held:
            raise DuplicateMessage(f"a part of client {client} is here already; the second one is dropped")
        if client not in self._directory:
            raise WrongParty(f"client {client} is not on the roster; its part is dropped")
        opened = open_part(part, self.terms, self.server, self._keys, self._directory[client])
        self._shares.check(self.server, opened.share)
        key = self._derive("query", 0, client.to_bytes(4, "big") + opened.tag)
        context = self.terms.client_context(client)
        self._held[client] = opened, self._shares.verifier(context, self.server, opened.share, key)
        return client

    def propose(self) -> bytes:
        """Commit to the uploads that this server holds, for the other server; the same bytes at every call."""
        if not self._proposal:
            listed = b"".join(
                self._entry.pack(client, part.tag, verifier) for client, (part, verifier) in sorted(self._held.items())
            )
            self._proposal = self._seal("proposal", hashlib.sha256(listed).digest() + listed)
        return self._proposal

    def release(self, proposal: bytes) -> bytes:
        """This server's share of the sum over the uploads that both servers accept, for the other server; once.

        Args:
            proposal: of the other server.

        Raises:
            MessageRefused: not a proposal of the other server for this sum.
            UnexpectedStage: before `propose`, or a second time.
            TooFewClients: fewer accepted uploads than the minimum; nothing is released, now or later.
        """
        if not self._proposal or self._over:
            raise UnexpectedStage("a server proposes first, and releases its share of a sum once")
        theirs = self._read_proposal(proposal)
        agreed = tuple(
            client for client in sorted(self._held) if client in theirs and self._accepts(client, *theirs[client])
        )
        self._over = True
        if len(agreed) < self.terms.min_clients:
            self._held.clear()
            raise TooFewClients(
                f"{len(agreed)} uploads are accepted by both servers and {self.terms.min_clients} are needed"
            )
        listed = b"".join(_AGREED.pack(client, self._held[client][0].tag) for client in agreed)
        settled = (listed, *sorted((self._proposal, proposal)))
        self._agreed, self._hash = agreed, hashlib.sha256(length_prefixed(*settled)).digest()
        noise = None if self._noise is None else self._noise.sample(self.terms.length)
        self._share = self._shares.sum(self.server, [self._held[client][0].share for client in agreed], noise)
        self._held.clear()
        if self._store is not None:
            self._store(self.terms.number)
        return self._seal("release", self._hash + self._share)

    def result(self, release: bytes) -> SumResult:
        """The sum, from both servers' shares.

        Args:
            release: of the other server.

        Raises:
            UnexpectedStage: before `release`.
            MessageRefused: not a release of the other server, or one over another set or other proposals.
        """
        if not self._share:
            raise UnexpectedStage("a server opens a sum after it has released its own share")
        plain = self._unseal("release", release)
        if plain[:_HASH_BYTES] != self._hash:
            raise MessageRefused("the other server released a sum over another set of uploads; nothing is opened")
        return SumResult(self._shares.combine(self._share, plain[_HASH_BYTES:]), self._agreed)

    def _accepts(self, client: int, tag: bytes, verifier: bytes) -> bool:
        part, own = self._held[client]
        first, second = (own, verifier) if self.server == 0 else (verifier, own)
        return part.tag == tag and self._shares.accepts(first, second)

    def _read_proposal(self, proposal: bytes) -> dict[int, tuple[bytes, bytes]]:
        plain = self._unseal("proposal", proposal)
        hashed, listed = plain[:_HASH_BYTES], plain[_HASH_BYTES:]
        if len(listed) % self._entry.size or hashed != hashlib.sha256(listed).digest():
            raise MalformedMessage("the other server's proposal is no list of uploads with its hash; drop it")
        entries = [(client, (tag, verifier)) for client, tag, verifier in self._entry.iter_unpack(listed)]
        theirs = dict(entries)
        if len(theirs) != len(entries):
            raise MalformedMessage("the other server's proposal names a client twice; drop it")
        return theirs

    def _seal(self, what: str, plain: bytes) -> bytes:
        salt = secrets.token_bytes(_SALT_BYTES)
        return salt + seal(Aead.AES256_GCM, self._derive(what, self.server, salt), plain, salt)

    def _unseal(self, what: str, sealed: bytes) -> bytes:
        salt, other = sealed[:_SALT_BYTES], 1 - self.server
        try:
            return unseal(Aead.AES256_GCM, self._derive(what, other, salt), sealed[_SALT_BYTES:], salt)
        except RoundAborted as refused:
            raise StaleMessage(
                f"the {what} is not one of server {other} for this sum; ask that server for it again"
            ) from refused

    def _derive(self, what: str, sender: int, salt: bytes) -> bytes:
        """A key of both servers for one purpose."""
        parts = [what.encode(), bytes([sender]), salt]
        return derive(self._agreed_key, KEY_BYTES, label="two-server channel", context=self.terms.context, parts=parts)
