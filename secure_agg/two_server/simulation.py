"""A sum between two servers with every party in this process: the real protocol on real bytes.

It takes two exchanges: one message of every client, which a relay may carry, and between the servers one proposal that
is answered with a proposal and a release. Nothing is protected from whoever runs this process.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from secure_agg.errors import ConfigurationError
from secure_agg.primitives.keys import Identity, KeyPair
from secure_agg.primitives.prg import RingElements
from secure_agg.two_server.client import SumClient
from secure_agg.two_server.server import SumServer
from secure_agg.two_server.terms import SumTerms, roster_digest


@dataclass(frozen=True, slots=True, eq=False)
class TwoServerResult:
    """The sum of a round, and its cost.

    Attributes:
        total: sum of the vectors of `clients`, ring elements of shape (length,).
        clients: ids of the clients in it, rising.
        upload_bytes: of all clients, to both servers.
        server_bytes: between the servers.
    """

    total: RingElements
    clients: tuple[int, ...]
    upload_bytes: int
    server_bytes: int


def aggregate_between_two(
    vectors: Mapping[int, RingElements],
    *,
    bits: int,
    min_clients: int,
    run: bytes,
    round: int = 0,
    query: int = 0,
    bound: bytes = bytes(32),
    max_squared_norm: int = 0,
    silent: Collection[int] = (),
    undelivered: Collection[tuple[int, int]] = (),
) -> TwoServerResult:
    """Run one sum with all parties in this process.

    Args:
        vectors: ring elements of shape (length,), by client id.
        bits: width of a ring element.
        min_clients: smallest number of clients whose sum is opened.
        run: 16 bytes that identify the run.
        round: number of the round.
        query: number of the sum within the round.
        bound: 32 bytes that identify what the clients were sent.
        max_squared_norm: largest squared norm of a vector of integers, which is proven; 0 asks for no proof.
        silent: clients that send nothing.
        undelivered: parts that do not arrive, as client and server.

    Raises:
        ConfigurationError: no vector, or vectors that do not fit.
        TooFewClients: too few uploads reached both servers.
    """
    if not vectors:
        raise ConfigurationError("no vector was given to add; give at least one")
    keys = KeyPair.generate(), KeyPair.generate()
    identities = {client: Identity.generate() for client in vectors}
    directory = {client: identity.public for client, identity in identities.items()}
    length, public, roster = (
        len(next(iter(vectors.values()))),
        (keys[0].public, keys[1].public),
        roster_digest(directory),
    )
    terms = SumTerms(run, round, query, length, bits, min_clients, public, roster, bound, max_squared_norm)
    servers = [SumServer(terms, place, keys[place], directory, min_clients=min_clients) for place in (0, 1)]
    sent, dropped = 0, set(undelivered)
    for client in sorted(vectors.keys() - set(silent)):
        device = SumClient(
            client, identities[client], run=run, servers=public, roster=roster, min_clients=min_clients
        )  # fmt: skip
        for place, part in enumerate(device.upload(terms, vectors[client])):
            sent += len(part)
            if (client, place) not in dropped:
                servers[place].receive(part)
    request = servers[0].propose()
    proposal, release = servers[1].propose(), servers[1].release(request)
    servers[0].release(proposal)
    opened = servers[0].result(release)
    return TwoServerResult(opened.total, opened.clients, sent, len(request) + len(proposal) + len(release))
