"""Two servers, their clients and one sum, without a network."""

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from secure_agg.primitives.prg import random_uints
from secure_agg.two_server import Identity, KeyPair, SumClient, SumServer, SumTerms, roster_digest

RUN = bytes(range(16))
SERVERS = tuple(KeyPair.from_private(hashlib.sha256(b"server %d" % number).digest()) for number in (0, 1))
IDENTITIES = {client: Identity.from_private(hashlib.sha256(b"client %d" % client).digest()) for client in range(12)}


@dataclass
class Federation:
    """Everybody's configuration; `terms`, `client` and `server` make the parties of one sum."""

    clients: int = 5
    length: int = 7
    bits: int = 20
    min_clients: int = 3
    settings: dict = field(default_factory=dict)

    @property
    def directory(self):
        return {client: IDENTITIES[client].public for client in range(self.clients)}

    @property
    def public(self):
        return SERVERS[0].public, SERVERS[1].public

    def terms(self, **changed):
        plain = SumTerms(
            RUN, 3, 1, self.length, self.bits, self.min_clients, self.public, roster_digest(self.directory)
        )  # fmt: skip
        return replace(plain, **(self.settings | changed))

    def client(self, number, **changed):
        known = {
            "run": RUN, "servers": self.public, "roster": roster_digest(self.directory),
            "min_clients": self.min_clients,
        }  # fmt: skip
        return SumClient(number, IDENTITIES[number], **(known | changed))

    def server(self, number, terms=None, **changed):
        known = {"min_clients": self.min_clients} | changed
        return SumServer(terms or self.terms(), number, SERVERS[number], self.directory, **known)

    def vectors(self, seed=0):
        ring = self.terms().ring
        key = hashlib.sha256(b"vectors %d" % seed).digest()
        drawn = random_uints(self.clients * self.length, ring.dtype, key).reshape(self.clients, self.length)
        return ring.reduce_(drawn)

    def uploads(self, terms=None):
        return {c: self.client(c).upload(terms or self.terms(), v) for c, v in enumerate(self.vectors())}


def open_sum(servers):
    """Both proposals, both releases, and what each server opens."""
    proposals = [server.propose() for server in servers]
    releases = [server.release(proposals[1 - place]) for place, server in enumerate(servers)]
    first, second = (server.result(releases[1 - place]) for place, server in enumerate(servers))
    assert np.array_equal(first.total, second.total)
    assert first.clients == second.clients
    return first


@pytest.fixture
def federation():
    return Federation()
