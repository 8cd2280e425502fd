"""Mutated messages against everything in secure_agg that reads bytes from elsewhere.

    python -m benchmarks.privacy.fuzz_secure_agg [--cpu-minutes 10] [--seed 0]

Valid messages of whole rounds (complete and sparse graph, signed and unsigned terms) are flipped, cut, spliced, padded
and filled with nonsense, and handed to clients and servers at every stage, to the decoders of additive shares and
snapshots, to the rebuilding of secrets, and to two servers: parts of uploads, shares and proposals. Two things may
happen: the message is accepted, or an error of `secure_agg.errors` is raised. After a `MessageRefused` the state must
be what it was; after a `RoundAborted` a client must have ended without secrets; a server that was told nonsense may
fail only by name; no altered share passes a proof. Anything else prints how to repeat it and ends with status 1.
"""

import copy
import dataclasses
import hashlib
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from secure_agg import shamir
from secure_agg.additive import AdditiveShare, add, reconstruct, split
from secure_agg.encoding import Ring
from secure_agg.errors import MessageRefused, RoundAborted, SecureAggregationError
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Stage, Terms
from secure_agg.masking.messages import Envelope
from secure_agg.primitives.keys import Aead, Identity, KeyPair, seal, unseal
from secure_agg.two_server import SumClient, SumServer, SumTerms, roster_digest

RUN = bytes(range(16))
LENGTH = 4
FLOOR = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
ROUNDS = (
    {"clients": 5, "threshold": 3},
    {"clients": 9, "threshold": 4, "neighbours": 6},
    {"clients": 7, "threshold": 5, "signed": True},
    {"clients": 16, "threshold": 3, "neighbours": 4, "signed": True},
)
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
HEADER = 40
RETRIES = 0.05
"""How often the honest message is sent after a refused one."""

Outcome = str
Trial = Callable[[random.Random, bytes], Outcome]


class FindingError(Exception):
    """Something that should not have happened."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes: a name, a valid message, how to put a mutated one to it, and the state it is in."""

    name: str
    valid: bytes
    trial: Trial
    state: str = ""


def targets(corpus: list[bytes]) -> list[Target]:
    """Every reader; `corpus` is filled with valid messages to splice from."""
    found = [target for kind in ROUNDS for target in _of_a_round(dict(kind), corpus)]
    return [*found, *_of_additive_shares(corpus), _of_secrets(corpus), *_of_two_servers(corpus)]


def _of_a_round(kind: dict[str, Any], corpus: list[bytes]) -> Iterator[Target]:
    """Each stage of an honest round, from both sides."""
    ids = range(kind.pop("clients"))
    terms = Terms(RUN, 3, 32, LENGTH, **kind)
    label = ("signed " if terms.signed else "") + ("sparse" if terms.neighbours else "complete")
    identities = {one: Identity.generate() for one in ids}
    directory = {one: identity.public for one, identity in identities.items()}
    server = MaskingServer(terms, directory=directory)
    clients = {one: MaskingClient(one, FLOOR, run=RUN, identity=identities[one], directory=directory) for one in ids}
    requests = server.invite(ids)
    while server.awaits is not None:
        stage = server.awaits
        kept = clients[0].snapshot()
        trial = _to_client(clients[0], stage, requests[0])
        sent = Envelope.decode(requests[0]).stage
        yield Target(f"client, {label}, {sent}", requests[0], trial, f"snapshot {kept.decode()}")
        yield Target(f"snapshot, {label}, {sent}", kept, _restore)
        replies = {one: _answer(clients[one], stage, request) for one, request in requests.items()}
        corpus += [*requests.values(), *replies.values()]
        dropped = max(replies) if stage is Stage.MASKED_INPUT else -1
        for one, reply in replies.items():
            if one not in {0, dropped}:
                server.receive(one, reply)
        trial = _to_server(server, replies[0])
        yield Target(f"server, {label}, {stage}", replies[0], trial, f"{terms}, {_knows(server)}")
        server = _copy_of_server(server)
        server.receive(0, replies[0])
        requests = server.advance()


def _answer(client: MaskingClient, stage: Stage, request: bytes) -> bytes:
    match stage:
        case Stage.ADVERTISEMENT:
            return client.advertise(request)
        case Stage.SHARES:
            return client.share(request)
        case Stage.CHECK:
            return client.check(request)
        case Stage.MASKED_INPUT:
            return client.mask(request, np.zeros(LENGTH, "<u4"))
        case Stage.CONFIRMATION:
            return client.confirm(request)
        case _:
            return client.unmask(request)


def _copy_of_client(client: MaskingClient) -> MaskingClient:
    """With buffers of its own; what nothing overwrites is shared."""
    other, state = copy.copy(client), client._state
    other._state = dataclasses.replace(
        state,
        self_seed=bytearray(state.self_seed),
        held_shares={one: bytearray(pair) for one, pair in state.held_shares.items()},
        inbound_keys=dict(state.inbound_keys),
    )
    return other


def _copy_of_server(server: MaskingServer) -> MaskingServer:
    other = copy.copy(server)
    other._replied, other._sum = set(server._replied), server._sum.copy()
    other._members = {one: copy.copy(member) for one, member in server._members.items()}
    return other


def _knows(server: MaskingServer) -> tuple[object, ...]:
    members = repr(sorted(server._members.items()))
    return server.awaits, sorted(server._replied), members, server._sum.tobytes(), server.finished


def _to_client(client: MaskingClient, stage: Stage, honest: bytes) -> Trial:
    original = _copy_of_client(client)
    kept = original.snapshot()

    def trial(rng: random.Random, message: bytes) -> Outcome:
        other = _copy_of_client(original)
        try:
            reply = _answer(other, stage, message)
        except MessageRefused:
            if other.snapshot() != kept:
                raise FindingError("a refused message changed the client") from None
            if rng.random() < RETRIES:
                _must_pass(lambda: _answer(other, stage, honest))
            raise
        except RoundAborted:
            state = other._state
            if (
                other.ended != "aborted"
                or state.keys
                or state.inbound_keys
                or state.held_shares
                or any(state.self_seed)
            ):
                raise FindingError("a client that left the round kept secrets") from None
            raise
        if stage is Stage.REVEAL and (len(reply) - HEADER) // shamir.SHARE_BYTES > len(original._state.held_shares):
            raise FindingError("a client revealed more than one share for a neighbour")
        return "accepted"

    return trial


def _restore(_: random.Random, snapshot: bytes) -> Outcome:
    """A spoilt snapshot is refused or restored; it is the client's own, so what a restored one does is not judged."""
    MaskingClient.restore(snapshot, FLOOR)
    return "accepted"


def _to_server(server: MaskingServer, honest: bytes) -> Trial:
    original = _copy_of_server(server)
    knew = _knows(original)

    def trial(rng: random.Random, message: bytes) -> Outcome:
        other = _copy_of_server(original)
        try:
            other.receive(0, message)
        except (MessageRefused, RoundAborted):
            if _knows(other) != knew:
                raise FindingError("a refused message changed the server") from None
            if rng.random() < RETRIES:
                _must_pass(lambda: other.receive(0, honest))
            raise
        if rng.random() < 0.2:
            other.advance()
            return "accepted, and the stage closed"
        return "accepted"

    return trial


def _must_pass(honest: Callable[[], object]) -> None:
    try:
        honest()
    except SecureAggregationError as refused:
        raise FindingError("the honest message was refused after a mutated one") from refused


def _of_additive_shares(corpus: list[bytes]) -> Iterator[Target]:
    for bits, shape in ((16, (5,)), (32, (2, 3)), (64, ())):
        ring = Ring(bits)
        shares = split(np.arange(np.prod(shape), dtype=ring.dtype).reshape(shape), 3)
        sent = [share.encode() for share in shares]
        corpus += sent
        for share, data in zip(shares, sent, strict=True):
            yield Target(f"additive share, {bits} bits, party {share.party}", data, _to_decoder(ring, shape, shares))


def _to_decoder(ring: Ring, shape: tuple[int, ...], shares: tuple[AdditiveShare, ...]) -> Trial:
    def trial(rng: random.Random, data: bytes) -> Outcome:
        share = AdditiveShare.decode(data, ring=ring, shape=shape)
        if share.encode() != data:
            raise FindingError("an additive share has two encodings")
        if rng.random() < 0.5:
            add([share, shares[share.party % 3]])
        else:
            reconstruct([share, *(other for other in shares if other.party != share.party)])
        return "accepted, and used"

    return trial


def _of_secrets(corpus: list[bytes]) -> Target:
    shares = shamir.split(bytes(range(32)), 3, 5)
    corpus += shares

    def trial(rng: random.Random, data: bytes) -> Outcome:
        pieces = [data[start : start + shamir.SHARE_BYTES] for start in range(0, len(data), shamir.SHARE_BYTES)]
        places = range(1, 10) if rng.random() < 0.7 else rng.sample(range(-1, 8), 9)
        shamir.reconstruct(dict(zip(places, pieces, strict=False)), rng.randrange(5))
        return "accepted"

    return Target("shamir shares", b"".join(shares[:3]), trial)


def _of_two_servers(corpus: list[bytes]) -> Iterator[Target]:
    """Parts as they arrive, and shares and proposals as whoever holds the keys may seal them."""
    for squared in (0, 50):
        label = "proven" if squared else "plain"
        keys, identities = (KeyPair.generate(), KeyPair.generate()), [Identity.generate() for _ in range(4)]
        directory, public = {at: one.public for at, one in enumerate(identities)}, (keys[0].public, keys[1].public)
        roster = roster_digest(directory)
        terms = SumTerms(RUN, 3, 1, LENGTH, 64, 3, public, roster, max_squared_norm=squared)
        servers = [SumServer(terms, place, keys[place], directory, min_clients=3) for place in (0, 1)]
        empty = [_copy_of_sum(server) for server in servers]
        for client, identity in enumerate(identities):
            device = SumClient(client, identity, run=RUN, servers=public, roster=roster, min_clients=3)
            parts = device.upload(terms, np.array([1, 2, 2**64 - 3, client], np.uint64))
            corpus += parts
            for server, part in zip(servers, parts, strict=True):
                server.receive(part)
        for place, part in enumerate(parts):
            yield Target(f"part of an upload, {label}, server {place}", part, _to_sum_server(empty[place], part))
        shares = terms.shares.split(terms.client_context(0), np.zeros(LENGTH, np.uint64), bytes(range(32)))
        for place, share in enumerate(shares):
            yield Target(f"share, {label}, server {place}", share, _to_verifier(terms, place, shares))
        opens, proposes = servers
        opens.propose()
        key = proposes._derive("proposal", 1, bytes(16))
        plain = unseal(Aead.AES256_GCM, *_resealed(proposes, proposes.propose()))
        yield Target(f"proposal, {label}", plain, _to_release(opens, key, plain))


def _copy_of_sum(server: SumServer) -> SumServer:
    other = copy.copy(server)
    other._held = dict(server._held)
    return other


def _resealed(server: SumServer, sealed: bytes) -> tuple[bytes, bytes, bytes]:
    """Key, ciphertext and associated data of a message between servers."""
    return server._derive("proposal", server.server, sealed[:16]), sealed[16:], sealed[:16]


def _to_sum_server(empty: SumServer, honest: bytes) -> Trial:
    def trial(rng: random.Random, part: bytes) -> Outcome:
        server = _copy_of_sum(empty)
        try:
            server.receive(part)
        except MessageRefused:
            if server.received:
                raise FindingError("a refused part is held") from None
            if rng.random() < RETRIES:
                _must_pass(lambda: server.receive(honest))
            raise
        if part != honest:
            raise FindingError("a part that nobody signed is held")
        return "accepted"

    return trial


def _to_verifier(terms: SumTerms, place: int, shares: tuple[bytes, bytes]) -> Trial:
    context, key, proven = terms.client_context(0), bytes(range(32)), terms.max_squared_norm > 0
    opened = [terms.shares.verifier(context, at, share, key) for at, share in enumerate(shares)]

    def trial(_: random.Random, share: bytes) -> Outcome:
        terms.shares.check(place, share)
        both = list(opened)
        both[place] = terms.shares.verifier(context, place, share, key)
        if terms.shares.accepts(*both) and proven and share != shares[place]:
            raise FindingError("a share that was altered is accepted")
        terms.shares.sum(place, [share], None)
        return "accepted" if not proven or share == shares[place] else "left out"

    return trial


def _to_release(server: SumServer, key: bytes, honest: bytes) -> Trial:
    def trial(rng: random.Random, plain: bytes) -> Outcome:
        other, salt = _copy_of_sum(server), bytes(16)
        if rng.random() < 0.8:
            plain = hashlib.sha256(plain[32:]).digest() + plain[32:]
        other.release(salt + seal(Aead.AES256_GCM, key, plain, salt))
        if len(other._agreed) < other.terms.min_clients or not set(other._agreed) <= set(range(4)):
            raise FindingError("a sum over other clients is released")
        return "accepted" if plain == honest else "accepted, over fewer"

    return trial


def mutate(rng: random.Random, valid: bytes, corpus: list[bytes]) -> bytes:
    """A message that is nearly valid, or not at all; often with the header left alone, so as to get past it."""
    data = bytearray(valid)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        start = rng.randrange(len(data) + 1)
        if rng.random() < 0.7:
            start = min(max(start, HEADER), len(data))
        match rng.randrange(9):
            case 0 | 1:
                for _ in range(rng.choice((1, 1, 1, 2, 8))):
                    if data:
                        data[rng.randrange(min(start, len(data) - 1), len(data))] ^= 1 << rng.randrange(8)
            case 2:
                del data[start:]
            case 3:
                del data[start : start + rng.choice((1, 2, 4, 32, 33, 64, 82))]
            case 4:
                data[start:start] = rng.randbytes(rng.choice((1, 2, 4, 32, 33, 64, 82)))
            case 5:
                other = rng.choice(corpus)
                cut = rng.randrange(len(other) + 1)
                data[start:] = other[cut:] if rng.random() < 0.5 else other[min(start, len(other)) :]
            case 6:
                size = rng.choice((1, 2, 4, 8))
                number = rng.choice(NUMBERS) % 256**size
                data[start : start + size] = number.to_bytes(size, rng.choice(("big", "little")))
            case 7:
                size = rng.choice((32, 33, 64, 82))
                piece, elsewhere = data[start : start + size], rng.randrange(len(data) + 1)
                data[elsewhere : elsewhere + len(piece)] = piece
            case _:
                data[start:] = rng.randbytes(rng.randrange(200)) if rng.random() < 0.5 else bytes(len(data) - start)
    return bytes(data)


def fuzz(cpu_seconds: float, seed: int) -> Counter[tuple[str, Outcome]]:
    """Mutate for so long; how often which reader did what.

    Raises:
        FindingError: something that should not have happened, with all that it takes to repeat it.
    """
    rng = random.Random(seed)
    corpus: list[bytes] = []
    readers = targets(corpus)
    seen: Counter[tuple[str, Outcome]] = Counter()
    end = time.process_time() + cpu_seconds
    while time.process_time() < end:
        for target in readers:
            data = mutate(rng, target.valid, corpus)
            try:
                outcome = target.trial(rng, data)
            except SecureAggregationError as refused:
                outcome = type(refused).__name__
            except Exception as wrong:
                raise FindingError(
                    f"{target.name}: {wrong!r}\nmessage {data.hex()}\nvalid {target.valid.hex()}\n"
                    f"{target.state}\nafter {sum(seen.values())} trials of seed {seed}\n{traceback.format_exc()}"
                ) from wrong
            seen[target.name, outcome] += 1
    return seen


def report(seen: Counter[tuple[str, Outcome]]) -> str:
    """Counts by kind of reader and outcome, most frequent first."""
    kinds: Counter[tuple[str, Outcome]] = Counter()
    for (name, outcome), times in seen.items():
        kinds[name.split(",")[0], outcome] += times
    lines = [f"{kind:16} {outcome:32} {times:10,}" for (kind, outcome), times in kinds.most_common()]
    return "\n".join([*lines, f"{'all':16} {'':32} {sum(seen.values()):10,}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for as long as the command line says."""
    parser = harness.parser(__file__, __doc__, seed=0)
    parser.add_argument("--cpu-minutes", type=float, default=10.0, help="how long to fuzz (default: %(default)s)")
    options = harness.parse(parser, arguments)
    try:
        print(report(fuzz(60 * options.cpu_minutes, options.seed)))
    except FindingError as finding:
        print(finding, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
