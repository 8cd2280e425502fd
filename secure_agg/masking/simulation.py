"""The masked sum with every party in this process: the real protocol on real bytes, and its ideal functionality.

`aggregate` runs the protocol, with chosen clients dropping out at chosen stages. `modular_sum` computes the same sum
directly: the two are equal to the bit, so a simulation of many rounds may use the second and say so. Neither protects
anything from whoever runs this process.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from secure_agg.errors import ConfigurationError, RoundAborted
from secure_agg.masking.client import MaskingClient
from secure_agg.masking.messages import Envelope, Stage
from secure_agg.masking.requirements import ClientRequirements
from secure_agg.masking.server import MaskingServer, Requests
from secure_agg.masking.terms import Terms
from secure_agg.primitives.keys import Identity, KeyPair
from secure_agg.primitives.prg import RingElements

Dropouts = Mapping[Stage, Collection[int]]
"""By stage, the clients that send neither its message nor any later one."""

_CLIENT_STAGES = (
    Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AggregationResult:
    """The sum of a round, and its cost.

    Attributes:
        total: sum of the survivors' vectors, ring elements of shape (length,).
        survivors: ids of the survivors, rising.
        refusals: clients that left the round on their own, and why.
        traffic: bytes by stage, headers included, over all clients.
    """

    total: RingElements
    survivors: tuple[int, ...]
    refusals: Mapping[int, RoundAborted]
    traffic: Mapping[Stage, int]


class _SharedKeyPair(KeyPair):
    """A key pair of this process, where one end of a pair agrees on the secret and the other looks it up."""

    agreed: dict[frozenset[bytes], bytes]

    @classmethod
    def maker(cls) -> Callable[[], KeyPair]:
        """What makes the key pairs of one round."""
        agreed: dict[frozenset[bytes], bytes] = {}

        def make() -> KeyPair:
            pair = cls.generate()
            pair.agreed = agreed
            return pair

        return make

    def agree(self, public: bytes) -> bytes:
        """As any pair does, or what the other end has agreed on already; it is not asked again."""
        both = frozenset((self.public, public))
        known = self.agreed.pop(both, None)
        if known is None:
            known = self.agreed[both] = super().agree(public)
        return known


def aggregate(
    vectors: Mapping[int, RingElements],
    terms: Terms,
    *,
    requirements: ClientRequirements | None = None,
    dropouts: Dropouts | None = None,
    threads: int = 1,
) -> AggregationResult:
    """Run one round with all parties in this process.

    Args:
        vectors: ring elements of shape (terms.length,), by client id.
        terms: terms of the round. Where they are signed, identities are generated for this round.
        requirements: clients' requirements; by default 3 clients, a threshold of 2, and signatures, so that a sum under
            unsigned terms is asked for by name: `ClientRequirements(..., require_signatures=False)`.
        dropouts: clients that drop out, by stage.
        threads: threads for generating masks.

    Returns:
        AggregationResult: the sum over the survivors.

    Raises:
        ConfigurationError: vectors or dropouts do not fit the terms.
        RoundAborted: too few clients were left, as on a real network.
    """
    silent = dict(dropouts or {})
    if not set(silent) <= set(_CLIENT_STAGES):
        stages = ", ".join(str(stage) for stage in _CLIENT_STAGES)
        raise ConfigurationError(f"dropouts are keyed by a message that clients send; give stages among: {stages}")
    requirements = requirements or ClientRequirements(min_clients=3, min_threshold=2)
    identities = {client: Identity.generate() for client in vectors} if terms.signed else {}
    directory = {client: identity.public for client, identity in identities.items()}
    server = MaskingServer(terms, min_clients=requirements.min_clients, directory=directory, threads=threads)
    key_pair = _SharedKeyPair.maker()
    clients = {
        client: MaskingClient(
            client, requirements, run=terms.run, identity=identities.get(client), directory=directory, threads=threads,
            key_pair=key_pair,
        )
        for client in vectors
    }  # fmt: skip
    dropped: set[int] = set()
    refusals: dict[int, RoundAborted] = {}
    traffic: dict[Stage, int] = {}
    requests: Requests = server.invite(list(vectors))
    while server.awaits is not None:
        stage = server.awaits
        dropped |= set(silent.get(stage, ()))
        for client, request in requests.items():
            _count(traffic, Envelope.decode(request).stage, request)
            if client in dropped:
                continue
            try:
                reply = answer(clients[client], stage, request, vectors[client])
            except RoundAborted as error:
                refusals[client] = error
                continue
            _count(traffic, stage, reply)
            server.receive(client, reply)
        requests = server.advance()
    return AggregationResult(server.total, server.survivors, refusals, traffic)


def modular_sum(vectors: Mapping[int, RingElements], survivors: Collection[int], terms: Terms) -> RingElements:
    """The sum that `aggregate` returns for these survivors, without any cryptography.

    Raises:
        ConfigurationError: a survivor without a vector, or vectors that do not fit the terms.
    """
    missing = set(survivors) - set(vectors)
    if missing:
        raise ConfigurationError(f"survivor {min(missing)} has no vector; survivors must be among the vectors' clients")
    return terms.ring.sum(vectors[client] for client in survivors)


def answer(client: MaskingClient, stage: Stage, request: bytes, vector: RingElements) -> bytes:
    """A client's reply in a stage; `vector` is what it adds to the sum."""
    match stage:
        case Stage.ADVERTISEMENT:
            return client.advertise(request)
        case Stage.SHARES:
            return client.share(request)
        case Stage.CHECK:
            return client.check(request)
        case Stage.MASKED_INPUT:
            return client.mask(request, vector)
        case Stage.CONFIRMATION:
            return client.confirm(request)
        case _:
            return client.unmask(request)


def _count(traffic: dict[Stage, int], stage: Stage, message: bytes) -> None:
    traffic[stage] = traffic.get(stage, 0) + len(message)
