"""The masked sum with every party in this process: the real protocol on real bytes, and its ideal.

 `aggregate` runs it, with chosen clients falling silent at chosen stages. `modular_sum` computes what it computes, in
the open and at once: the two are equal to the bit, so a simulation of many rounds may use the second and say so.
Neither protects anything from whoever runs this process.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from secure_agg.errors import ConfigurationError, RoundAborted
from secure_agg.keys import Identity
from secure_agg.masking import Floor, MaskingClient, MaskingServer, Stage, Terms
from secure_agg.masking.server import Requests
from secure_agg.prg import Words

Dropouts = Mapping[Stage, Collection[int]]
"""By message, the clients that send neither it nor anything later."""

_CLIENT_STAGES = (Stage.ADVERTISEMENT, Stage.SHARES, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a round gave and what it took.

    Attributes:
        total: the sum of the survivors' vectors, ring words of shape (length,).
        survivors: their ids, rising.
        refusals: clients that left the round on their own, and why.
        traffic: bytes by stage, headers included, over all clients.
    """

    total: Words
    survivors: tuple[int, ...]
    refusals: Mapping[int, RoundAborted]
    traffic: Mapping[Stage, int]


def aggregate(
    vectors: Mapping[int, Words],
    terms: Terms,
    *,
    floor: Floor | None = None,
    dropouts: Dropouts | None = None,
    threads: int = 1,
) -> Outcome:
    """Run one round with all parties here.

    Args:
        vectors: by client id, its ring words of shape (terms.length,).
        terms: of the round. Where signed, identities are made for the occasion.
        floor: what clients insist on; by default just the terms.
        dropouts: who falls silent where.
        threads: for masks.

    Returns:
        Outcome: with the total over the survivors.

    Raises:
        ConfigurationError: vectors or dropouts do not fit the terms.
        RoundAborted: too few were left, as on a real network.
    """
    silent = dict(dropouts or {})
    if not set(silent) <= set(_CLIENT_STAGES):
        named = ", ".join(str(stage) for stage in _CLIENT_STAGES)
        raise ConfigurationError(f"dropouts are keyed by a message that clients send; give stages among: {named}")
    floor = floor or Floor(clients=3, threshold=2)
    identities = {client: Identity.generate() for client in vectors} if terms.signed else {}
    directory = {client: identity.public for client, identity in identities.items()}
    server = MaskingServer(terms, clients=floor.clients, directory=directory, threads=threads)
    clients = {
        client: MaskingClient(
            client, floor, run=terms.run, identity=identities.get(client), directory=directory, threads=threads
        )
        for client in vectors
    }
    gone: set[int] = set()
    refusals: dict[int, RoundAborted] = {}
    traffic: dict[Stage, int] = {}
    requests: Requests = server.invite(list(vectors))
    while server.awaits is not None:
        replying = server.awaits
        gone |= set(silent.get(replying, ()))
        for client, request in requests.items():
            _count(traffic, Stage(replying - 1), request)
            if client in gone:
                continue
            try:
                reply = _answer(clients[client], replying, request, vectors[client])
            except RoundAborted as refused:
                refusals[client] = refused
                continue
            _count(traffic, replying, reply)
            server.receive(client, reply)
        requests = server.advance()
    return Outcome(server.total, server.survivors, refusals, traffic)


def modular_sum(vectors: Mapping[int, Words], survivors: Collection[int], terms: Terms) -> Words:
    """What `aggregate` returns for these survivors, without any cryptography.

    Raises:
        ConfigurationError: a survivor without a vector, or vectors that do not fit the terms.
    """
    missing = set(survivors) - set(vectors)
    if missing:
        raise ConfigurationError(f"survivor {min(missing)} has no vector; survivors must be among the vectors' clients")
    return terms.ring.sum(vectors[client] for client in survivors)


def _answer(client: MaskingClient, stage: Stage, request: bytes, vector: Words) -> bytes:
    match stage:
        case Stage.ADVERTISEMENT:
            return client.advertise(request)
        case Stage.SHARES:
            return client.share(request)
        case Stage.MASKED_INPUT:
            return client.mask(request, vector)
        case Stage.CONFIRMATION:
            return client.confirm(request)
        case _:
            return client.unmask(request)


def _count(traffic: dict[Stage, int], stage: Stage, message: bytes) -> None:
    traffic[stage] = traffic.get(stage, 0) + len(message)
