"""Sums between two servers: exact whoever falls silent, one message each, and what is refused."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_agg.encoding import FixedPoint, Ring
from secure_agg.errors import (
    ConfigurationError,
    DuplicateMessage,
    MalformedMessage,
    MessageRefused,
    SecureAggregationError,
    StaleMessage,
    TermsRefused,
    TooFewClients,
    UnexpectedStage,
    WrongParty,
)
from secure_agg.noise import DistributedNoise
from secure_agg.primitives.keys import KeyPair
from secure_agg.two_server import SumServer, aggregate_between_two
from secure_agg.two_server.terms import SumTerms, roster_digest
from secure_agg.two_server.uploads import OVERHEAD, make_parts
from tests.secure_agg.two_server.conftest import IDENTITIES, SERVERS, Federation, open_sum

quick = settings(max_examples=15, deadline=None)


@quick
@given(
    bits=st.sampled_from([2, 13, 16, 24, 32, 41, 64]),
    length=st.integers(1, 40),
    reaches=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=6),
)
def test_the_sum_is_that_of_the_uploads_that_reached_both_servers(bits, length, reaches):
    one = Federation(clients=len(reaches), length=length, bits=bits, min_clients=2)
    uploads, both = one.uploads(), [c for c, arrived in enumerate(reaches) if all(arrived)]
    servers = [one.server(0), one.server(1)]
    for client, arrived in enumerate(reaches):
        for place, server in enumerate(servers):
            if arrived[place]:
                assert server.receive(uploads[client][place]) == client
    if len(both) < 2:
        proposals = [server.propose() for server in servers]
        for place, server in enumerate(servers):
            with pytest.raises(TooFewClients):
                server.release(proposals[1 - place])
        return
    opened = open_sum(servers)
    assert opened.clients == tuple(both)
    assert np.array_equal(opened.total, one.terms().ring.sum(one.vectors()[both]))


def test_an_upload_is_the_packed_vector_a_seed_and_two_overheads(federation):
    first, second = federation.client(0).upload(federation.terms(), federation.vectors()[0])
    assert len(first) == OVERHEAD + Ring(20).packed_bytes(7)
    assert len(second) == OVERHEAD + 32
    assert OVERHEAD == 150


def test_real_numbers_come_back_within_the_bound():
    one = Federation(clients=4, length=30, bits=24, min_clients=3)
    encoding = FixedPoint.for_sum(Ring(24), bound=1.0, clients=4)
    values = np.random.default_rng(0).uniform(-1, 1, (4, 30))
    servers = [one.server(0), one.server(1)]
    for client, row in enumerate(values):
        for server, part in zip(servers, one.client(client).upload(one.terms(), encoding.encode(row)), strict=True):
            server.receive(part)
    error = np.abs(encoding.decode(open_sum(servers).total) - values.sum(0)).max()
    assert 0 < error <= encoding.error_bound()


# What a server sees


def test_each_share_alone_is_uniform_whatever_the_vector():
    """Chi-square over the bytes of server 0's share of a vector of zeros, and of one of a constant."""
    terms = Federation(length=20_000, bits=16).terms()
    for constant in (0, 40_000):
        vector = np.full(20_000, constant, np.uint16)
        share = np.frombuffer(terms.shares.split(b"", vector, hashlib.sha256(b"%d" % constant).digest())[0], np.uint8)
        assert chisquare(np.bincount(share, minlength=256)).pvalue > 1e-4


def test_server_1_receives_nothing_that_depends_on_the_vector(federation, monkeypatch):
    monkeypatch.setattr("secrets.token_bytes", lambda count: bytes(range(count)))
    monkeypatch.setattr(KeyPair, "generate", lambda: KeyPair.from_private(bytes(range(1, 33))))
    parts = [federation.client(0).upload(federation.terms(), vector) for vector in federation.vectors()[:2]]
    assert parts[0][1] == parts[1][1]
    assert parts[0][0] != parts[1][0]


def test_two_uploads_of_one_vector_share_no_keystream(federation):
    vector = federation.vectors()[0]
    first, second = (federation.client(0).upload(federation.terms(), vector) for _ in range(2))
    assert first[0][38:70] != second[0][38:70]
    assert first[0][70:] != second[0][70:]


# The set


def receive_all(one, uploads, without=((), ())):
    servers = [one.server(0), one.server(1)]
    for place, server in enumerate(servers):
        for client, parts in uploads.items():
            if client not in without[place]:
                server.receive(parts[place])
    return servers


def test_a_part_counts_once(federation):
    uploads = federation.uploads()
    servers = receive_all(federation, uploads)
    for place, server in enumerate(servers):
        with pytest.raises(DuplicateMessage, match="client 2"):
            server.receive(uploads[2][place])
    assert open_sum(servers).clients == (0, 1, 2, 3, 4)


def test_parts_of_two_uploads_do_not_mix(federation):
    uploads, terms = federation.uploads(), federation.terms()
    again = federation.client(1).upload(terms, federation.vectors()[1])
    servers = receive_all(federation, uploads | {1: (uploads[1][0], again[1])})
    opened = open_sum(servers)
    assert opened.clients == (0, 2, 3, 4)
    assert np.array_equal(opened.total, terms.ring.sum(federation.vectors()[[0, 2, 3, 4]]))


def test_nothing_arrives_after_the_proposal(federation):
    uploads = federation.uploads()
    servers = receive_all(federation, uploads, without=((4,), (4,)))
    servers[0].propose()
    with pytest.raises(UnexpectedStage):
        servers[0].receive(uploads[4][0])


def test_a_server_releases_once_whatever_the_other_proposes(federation):
    uploads = federation.uploads()
    honest = receive_all(federation, uploads)[1]
    liar, other_lie = (receive_all(federation, uploads, without=((left,), ()))[0] for left in (0, 1))
    honest.propose()
    honest.release(liar.propose())
    with pytest.raises(UnexpectedStage):
        honest.release(other_lie.propose())


@pytest.mark.parametrize("place", [0, 1])
def test_a_server_of_its_own_refuses_a_small_sum(federation, place):
    """The other server, whatever it is, claims a set of two; the minimum is three."""
    uploads = federation.uploads()
    without = [(), ()]
    without[1 - place] = (0, 1, 2)
    servers = receive_all(federation, uploads, without=tuple(without))
    servers[place].propose()
    with pytest.raises(TooFewClients, match="2 uploads"):
        servers[place].release(servers[1 - place].propose())
    with pytest.raises(UnexpectedStage):
        servers[place].release(servers[1 - place].propose())


def test_releases_over_other_sets_do_not_open(federation):
    uploads = federation.uploads()
    honest, helper = receive_all(federation, uploads)
    liar = receive_all(federation, uploads, without=((), (3,)))[1]
    proposal = honest.propose()
    helper.propose()
    liar.propose()
    release = liar.release(proposal)
    honest.release(helper.propose())
    with pytest.raises(MessageRefused, match="another set"):
        honest.result(release)
    assert honest.result(helper.release(proposal)).clients == (0, 1, 2, 3, 4)


def test_a_server_answers_a_proposal_in_one_reply(federation):
    """What keeps a sum at one exchange with the clients and one between the servers."""
    opens, helps = receive_all(federation, federation.uploads())
    request = opens.propose()
    reply = helps.propose(), helps.release(request)
    opens.release(reply[0])
    assert np.array_equal(opens.result(reply[1]).total, federation.terms().ring.sum(federation.vectors()))


def test_steps_out_of_order_are_refused(federation):
    servers = receive_all(federation, federation.uploads())
    proposal = servers[1].propose()
    with pytest.raises(UnexpectedStage):
        servers[0].release(proposal)
    servers[0].propose()
    with pytest.raises(UnexpectedStage):
        servers[0].result(b"")


def test_a_server_opens_no_messages_of_its_own_or_of_another_stage(federation):
    servers = receive_all(federation, federation.uploads())
    own, theirs = (server.propose() for server in servers)
    for wrong in (own, b"", theirs[:-1], bytes([theirs[0] ^ 1]) + theirs[1:], theirs + b"\0"):
        with pytest.raises(MessageRefused):
            servers[0].release(wrong)
    release = servers[1].release(own)
    servers[0].release(theirs)
    for wrong in (theirs, own, b"", release[:-1] + bytes([release[-1] ^ 1])):
        with pytest.raises(MessageRefused):
            servers[0].result(wrong)


# What a part is bound to


@pytest.mark.parametrize(
    "changed",
    [{"round": 4}, {"query": 2}, {"run": bytes(16)}, {"bound": b"m" * 32}, {"min_clients": 4}, {"length": 8},
     {"bits": 21}, {"roster": b"r" * 32}],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_a_part_made_under_other_terms_is_refused(federation, changed):
    vector = np.zeros(changed.get("length", 7), np.uint32)
    known = {name: changed[name] for name in ("run", "roster") if name in changed}
    parts = federation.client(0, **known).upload(federation.terms(**changed), vector)
    for place in (0, 1):
        server = federation.server(place)
        with pytest.raises(MessageRefused):
            server.receive(parts[place])
        assert not server.received


def test_a_part_for_one_server_is_refused_by_the_other(federation):
    first, second = federation.uploads()[0]
    with pytest.raises(WrongParty):
        federation.server(0).receive(second)
    with pytest.raises(WrongParty):
        federation.server(1).receive(first)


def test_a_relay_can_neither_invent_clients_nor_speak_for_one(federation):
    terms, vector = federation.terms(), federation.vectors()[0]
    stranger = federation.client(0)
    stranger.client = 11
    with pytest.raises(WrongParty, match="roster"):
        federation.server(0).receive(stranger.upload(terms, vector)[0])
    forger = federation.client(0)
    forger.client = 1
    for place, part in enumerate(forger.upload(terms, vector)):
        with pytest.raises(MessageRefused, match="client 1"):
            federation.server(place).receive(part)


@pytest.mark.parametrize("place", [0, 1])
def test_every_flipped_or_cut_byte_is_refused(federation, place):
    part = federation.uploads()[0][place]
    server = federation.server(place)
    for position in range(len(part)):
        with pytest.raises(MessageRefused):
            server.receive(part[:position] + bytes([part[position] ^ 0x40]) + part[position + 1 :])
    for length in (0, 1, 37, 149, len(part) - 1):
        with pytest.raises(MessageRefused):
            server.receive(part[:length])
    assert server.receive(part) == 0


def test_a_signed_share_of_another_length_is_refused(federation):
    for place, shares in enumerate(((b"short", bytes(32)), (bytes(18), bytes(31)))):
        part = make_parts(federation.terms(), 0, IDENTITIES[0], shares)[place]
        with pytest.raises(MalformedMessage, match="bytes"):
            federation.server(place).receive(part)


# Whom a client and a server believe


def test_a_client_answers_rising_numbers_only(federation):
    client, vector = federation.client(0), federation.vectors()[0]
    client.upload(federation.terms(), vector)
    for earlier in ({}, {"query": 0}, {"round": 2, "query": 9}):
        with pytest.raises(StaleMessage):
            client.upload(federation.terms(**earlier), vector)
    client.upload(federation.terms(query=2), vector)
    with pytest.raises(StaleMessage):
        federation.client(0, last=(3, 1)).upload(federation.terms(), vector)


@pytest.mark.parametrize(
    "changed",
    [{"run": bytes(16)}, {"servers": (SERVERS[1].public, SERVERS[0].public)}, {"roster": bytes(32)},
     {"min_clients": 2}, {"servers": (SERVERS[0].public, KeyPair.from_private(b"k" * 32).public)}],
    ids=["run", "swapped servers", "roster", "min_clients", "foreign server"],
)  # fmt: skip
def test_a_client_refuses_terms_that_it_does_not_know(federation, changed):
    client = federation.client(0)
    with pytest.raises(TermsRefused):
        client.upload(federation.terms(**changed), federation.vectors()[0])
    assert client.last is None


def test_a_server_refuses_terms_below_its_own(federation):
    with pytest.raises(TermsRefused, match="minimum"):
        federation.server(0, min_clients=4)
    with pytest.raises(TermsRefused, match="roster"):
        federation.server(0, federation.terms(roster=bytes(32)))
    with pytest.raises(TermsRefused, match="key"):
        SumServer(federation.terms(), 0, SERVERS[1], federation.directory, min_clients=3)


def test_a_server_stores_its_number_before_a_release_and_never_goes_back(federation):
    stored = []
    servers = [federation.server(0, store=stored.append), federation.server(1)]
    for parts in federation.uploads().values():
        for server, part in zip(servers, parts, strict=True):
            server.receive(part)
    proposals = [server.propose() for server in servers]
    assert stored == []
    servers[0].release(proposals[1])
    assert stored == [(3, 1)]
    with pytest.raises(TermsRefused, match="do not follow"):
        federation.server(0, last=stored[0])
    federation.server(0, federation.terms(query=2), last=stored[0])


def test_a_store_that_fails_releases_nothing(federation):
    def full(number):
        raise OSError("no space")

    servers = [federation.server(0, store=full), federation.server(1)]
    for parts in federation.uploads().values():
        for server, part in zip(servers, parts, strict=True):
            server.receive(part)
    proposals = [server.propose() for server in servers]
    with pytest.raises(OSError, match="no space"):
        servers[0].release(proposals[1])
    with pytest.raises(UnexpectedStage):
        servers[0].release(proposals[1])


@pytest.mark.parametrize(
    "changed",
    [{"bits": 1}, {"bits": 65}, {"length": 0}, {"length": 7.0}, {"min_clients": 1}, {"round": -1}, {"query": 2**32},
     {"run": b""}, {"bound": b""}, {"roster": b"x"}, {"servers": (SERVERS[0].public, SERVERS[0].public)},
     {"servers": (SERVERS[0].public, bytes(32))}],
    ids=str,
)  # fmt: skip
def test_terms_that_cannot_be_are_refused(federation, changed):
    with pytest.raises(ConfigurationError):
        federation.terms(**changed)


def test_bad_arguments_are_refused(federation):
    with pytest.raises(ConfigurationError, match="server is 2"):
        SumServer(federation.terms(), 2, SERVERS[0], federation.directory, min_clients=3)
    with pytest.raises(ConfigurationError, match="size it for 1"):
        federation.server(0, noise=DistributedNoise("skellam", 4.0, 2))
    for vector in (np.zeros(6, np.uint32), np.zeros(7, np.uint16), np.zeros((1, 7), np.uint32)):
        with pytest.raises(ConfigurationError):
            federation.client(0).upload(federation.terms(), vector)


def test_every_field_of_the_terms_enters_the_context(federation):
    changes = [{}, {"round": 4}, {"query": 2}, {"run": bytes(16)}, {"bound": b"m" * 32}, {"min_clients": 4},
               {"length": 8}, {"bits": 21}, {"roster": bytes(32)},
               {"servers": (SERVERS[1].public, SERVERS[0].public)},
               {"bits": 64, "max_squared_norm": 9}]  # fmt: skip
    assert len({federation.terms(**changed).context for changed in changes}) == len(changes)
    assert len(SumTerms.__dataclass_fields__) == len(changes) - 1


def test_a_roster_has_one_digest():
    one = {1: b"a" * 32, 2: b"b" * 32}
    assert roster_digest(one) == roster_digest(dict(reversed(one.items())))
    assert len({roster_digest(d) for d in (one, {1: b"a" * 32}, {1: b"b" * 32, 2: b"a" * 32}, {})}) == 4


# Noise


def test_the_noise_of_each_server_alone_has_the_variance_that_was_asked_for():
    one, variance = Federation(clients=3, length=20_000, bits=24, min_clients=3), 9.0
    noise = DistributedNoise("discrete_gaussian", variance, 1)
    for added, times in (((True, False), 1), ((False, True), 1), ((True, True), 2)):
        servers = [one.server(place, noise=noise if added[place] else None) for place in (0, 1)]
        for parts in one.uploads().values():
            for server, part in zip(servers, parts, strict=True):
                server.receive(part)
        ring = one.terms().ring
        error = ring.centred(ring.reduce_(open_sum(servers).total - ring.sum(one.vectors())))
        # The variance of 20,000 squares of near-normals is within 5 standard errors, 5 * sqrt(2 / 20,000), of it.
        assert abs((error.astype(float) ** 2).mean() / (times * variance) - 1) < 0.05
        assert abs(error.mean()) < 5 * np.sqrt(times * variance / 20_000)


# All parties in one process


def test_all_parties_in_one_process_sum_what_arrived_whole(federation):
    vectors, ring = dict(enumerate(federation.vectors())), federation.terms().ring
    given = {"bits": 20, "min_clients": 3, "run": bytes(16)}
    whole = aggregate_between_two(vectors, **given)
    assert np.array_equal(whole.total, ring.sum(vectors.values()))
    assert whole.upload_bytes == 5 * (2 * OVERHEAD + ring.packed_bytes(7) + 32)
    fewer = aggregate_between_two(vectors, **given, silent=[1], undelivered=[(4, 1)])
    assert fewer.clients == (0, 2, 3)
    assert np.array_equal(fewer.total, ring.sum(vectors[client] for client in (0, 2, 3)))
    assert fewer.server_bytes < whole.server_bytes
    with pytest.raises(TooFewClients):
        aggregate_between_two(vectors, **given, silent=[1, 2], undelivered=[(4, 0)])
    with pytest.raises(ConfigurationError, match="no vector"):
        aggregate_between_two({}, **given)


# Fuzz and many devices


def test_no_bytes_do_anything_but_a_named_refusal(federation):
    draw = np.random.default_rng(5)
    uploads = federation.uploads()
    servers = [federation.server(0), federation.server(1)]
    corpus = [part for parts in uploads.values() for part in parts]
    for _ in range(300):
        part = bytearray(corpus[draw.integers(len(corpus))])
        other = corpus[draw.integers(len(corpus))]
        cut = int(draw.integers(len(part)))
        match draw.integers(3):
            case 0:
                part[cut] ^= int(draw.integers(1, 256))
            case 1:
                part = part[:cut] + other[cut:]
            case _:
                part = part[:cut]
        if bytes(part) in corpus:
            continue
        for server in servers:
            with pytest.raises(SecureAggregationError):
                server.receive(bytes(part))
            assert not server.received
    for parts in uploads.values():
        for server, part in zip(servers, parts, strict=True):
            server.receive(part)
    assert np.array_equal(open_sum(servers).total, federation.terms().ring.sum(federation.vectors()))


def test_sums_of_shares_are_exact_for_a_thousand_devices_of_whom_any_are_silent():
    terms = Federation(length=16, bits=32).terms()
    draw = np.random.default_rng(1)
    vectors = draw.integers(0, 2**32, (1000, 16), dtype=np.uint32)
    for _ in range(3):
        seeds = [draw.bytes(32) for _ in vectors]
        alive = np.sort(draw.permutation(1000)[:700])
        parts = zip(*(terms.shares.split(b"", vectors[client], seeds[client]) for client in alive), strict=True)
        total = terms.shares.combine(*(terms.shares.sum(place, held, None) for place, held in enumerate(parts)))
        assert np.array_equal(total, vectors[alive].sum(0, dtype=np.uint32))
