"""The proof of a bounded norm: honest vectors pass, every known way to cheat is refused, and little is learnt."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, ks_2samp

from secure_agg.encoding import Ring
from secure_agg.errors import ConfigurationError, MalformedMessage, TermsRefused
from secure_agg.noise import DistributedNoise, conditional_round, rounded_norm_bound
from secure_agg.two_server import NormBound, field, norm_proof
from tests.secure_agg.two_server.conftest import SERVERS, Federation, open_sum

P = field.MODULUS
CONTEXT, KEY = b"sum 1, client 0", b"k" * 32
SQRT_2 = (2**24 - 2**72) % P
"""Squares to 2 modulo p, and is far from small."""


def verdict(bound, shares, key=KEY, contexts=(CONTEXT, CONTEXT)):
    """Whether two servers with these shares accept."""
    opened = [bound.verifier(contexts[place], place, share, key) for place, share in enumerate(shares)]
    assert {len(one) for one in opened} == {bound.verifier_bytes}
    return bound.accepts(*opened)


def cheat(bound, vector, slack):
    """A prover that proves what is not so, as well as it can."""
    return bound._prove(CONTEXT, field.from_signed(np.array(vector, np.int64)), slack, None)


@settings(max_examples=15, deadline=None)
@given(vector=st.lists(st.integers(-40, 40), min_size=1, max_size=12), extra=st.integers(0, 100))
def test_a_vector_within_the_bound_is_accepted_and_shared(vector, extra):
    x = np.array(vector, np.int64)
    bound = NormBound(len(vector), max(1, int((x**2).sum()) + extra))
    shares = bound.prove(CONTEXT, x)
    assert tuple(map(len, shares)) == bound.share_bytes
    assert verdict(bound, shares)
    parts = [bound.vector_share(place, share) for place, share in enumerate(shares)]
    assert field.centred(field.add(*parts)).tolist() == vector


@pytest.mark.parametrize("vector", [[10, 0, 0], [0, -6, 8], [0, 0, 0], [-7, 7, 1]], ids=str)
def test_the_bound_itself_is_accepted(vector):
    assert verdict(NormBound(3, 100), NormBound(3, 100).prove(CONTEXT, np.array(vector, np.int64)))


def test_an_honest_client_does_not_prove_more_than_the_bound():
    for vector in ([10, 1, 0], [2**62, 0, 0], [-(2**63), 0, 0]):
        with pytest.raises(ConfigurationError, match="squared norm"):
            NormBound(3, 100).prove(CONTEXT, np.array(vector, np.int64))
    for vector in (np.zeros(2, np.int64), np.zeros(3, np.int32), np.zeros((1, 3), np.int64)):
        with pytest.raises(ConfigurationError, match="int64"):
            NormBound(3, 100).prove(CONTEXT, vector)


def test_bounds_that_could_wrap_around_are_refused():
    for length, squared in ((0, 1), (1, 0), (2**20, 2**34), (1, 2**60), (2**40, 2**20)):
        with pytest.raises(ConfigurationError):
            NormBound(length, squared)
    for length, squared in ((1, 1), (2**20, 2**28), (2**10, 2**37), (3, 100), (3, 2**31 - 1)):
        bound = NormBound(length, squared)
        assert 4 * length * bound.half_range**2 + 16**bound.slack_digits < P


def test_the_range_has_the_fewest_digits_that_are_wide_enough():
    for squared in (1, 2, 481, 482, 483, 2**20, 2**20 + 1):
        bound = NormBound(1, squared)
        assert bound.half_range == 16**bound.range_digits // 2
        assert bound.half_range**2 >= 34 * squared > (bound.half_range // 16) ** 2
        assert 16**bound.slack_digits > squared
    assert 256 * math.exp(-norm_proof.RANGE_SLACK) < 2**-40


# Another norm


@pytest.mark.parametrize("slack", [0, -1, 1, 63, 127])
def test_a_norm_one_above_the_bound_is_refused(slack):
    assert not verdict(NormBound(3, 100), cheat(NormBound(3, 100), [10, 1, 0], slack))


@pytest.mark.parametrize("slack", [0, 1, 98, 100, -1])
def test_the_slack_must_be_the_difference(slack):
    assert not verdict(NormBound(3, 100), cheat(NormBound(3, 100), [1, 0, 0], slack))
    assert verdict(NormBound(3, 100), cheat(NormBound(3, 100), [1, 0, 0], 99))


def test_a_square_that_wraps_around_is_refused_by_the_ranges_alone(monkeypatch):
    """Squares of 2 modulo p: without the ranges it would pass, which the second half shows."""
    bound, x = NormBound(3, 100), np.array([SQRT_2, 0, 0], np.uint64)
    assert int(field.dot(x, x)) == 2
    monkeypatch.setattr(norm_proof, "_all_within", lambda sums, half_range: True)
    for _ in range(5):
        assert not verdict(bound, bound._prove(CONTEXT, x, 98, None))
    monkeypatch.setattr(norm_proof, "signed_sums", lambda joint, vector: np.zeros(norm_proof.RANGES, np.uint64))
    assert verdict(bound, bound._prove(CONTEXT, x, 98, None))


def test_random_signs_catch_a_large_coordinate_half_of_the_time():
    """The lemma of the proof, at its worst case: (p + 1) / 2, two of which are 1, and others that help."""
    half, bound = (P + 1) // 2, NormBound(3, 100)
    for vector in ([half, 0, 0], [half, half, 0], [SQRT_2, 5, 5], [2 * bound.half_range, 0, 0], [P - half, 1, 1]):
        x, within = np.array(vector, np.uint64), 0
        for draw in range(40):
            sums = field.centred(norm_proof.signed_sums(draw.to_bytes(32, "big"), x))
            within += int(((sums >= -bound.half_range) & (sums < bound.half_range)).sum())
        # 5,120 draws of probability at most 1/2: within 5 standard errors of it, and half of them for one half.
        assert within / 5120 < 0.5 + 5 * 0.5 / 5120**0.5
        if vector[0] == half and vector[1] == 0:
            assert within / 5120 > 0.5 - 5 * 0.5 / 5120**0.5


def test_signs_have_their_probabilities_and_are_independent_between_sums_and_coordinates():
    signs = np.stack(
        [field.centred(norm_proof.signed_sums(bytes(32), row)) for row in np.eye(120, dtype=np.uint64)[:, :120]]
    )  # fmt: skip
    counts = [(signs == value).sum() for value in (-1, 0, 1)]
    assert sum(counts) == signs.size
    assert chisquare(counts, np.array([0.25, 0.5, 0.25]) * signs.size).pvalue > 1e-4
    for axis in (0, 1):
        products = (signs * np.roll(signs, 1, axis)).mean()
        assert abs(products) < 5 * 0.5 / signs.size**0.5
    assert not np.array_equal(signs[0], signs[119])


def test_digits_are_checked_twice_each_time_with_coefficients_of_its_own():
    first, second = norm_proof._coefficients(CONTEXT, bytes(32), bytes(32), 500)
    assert len(np.union1d(first, second)) == 1000


def test_sums_with_signs_do_not_depend_on_the_blocks():
    vector = field.expand(bytes(32), 9000)
    parts = [np.where((np.arange(9000) // 3000) == part, vector, np.uint64(0)) for part in range(3)]
    whole = norm_proof.signed_sums(b"j" * 32, vector)
    summed = field.add(field.add(*(norm_proof.signed_sums(b"j" * 32, one) for one in parts[:2])),
                       norm_proof.signed_sums(b"j" * 32, parts[2]))  # fmt: skip
    assert np.array_equal(whole, summed)


# Digits that are none


def with_digits(monkeypatch, change):
    made = norm_proof._digits

    def bits(numbers, widths):
        found = made(numbers, widths)
        change(found)
        return found

    monkeypatch.setattr(norm_proof, "_digits", bits)


def test_a_slack_of_minus_one_in_a_number_that_is_no_digit_is_refused(monkeypatch):
    """Norm 101 of 100: the equation of the norm holds, and only the check of the digits stands against it."""
    bound = NormBound(3, 100)

    def minus_one(bits):
        bits[-bound.slack_digits :] = 0
        bits[-bound.slack_digits] = P - 1

    with_digits(monkeypatch, minus_one)
    assert not verdict(bound, cheat(bound, [10, 1, 0], 0))
    monkeypatch.setattr(norm_proof, "_coefficients", lambda *given: (np.zeros(bound.digits, np.uint64),) * 2)
    assert verdict(bound, cheat(bound, [10, 1, 0], 0))


def test_a_number_with_a_digit_of_sixteen_is_refused(monkeypatch):
    """99 = 6 * 16 + 3 = 5 * 16 + 19: the equation of the norm holds, and 19 is no digit."""

    def carried(digits):
        assert digits[-2:].tolist() == [3, 6]
        digits[-2:] = 19, 5

    with_digits(monkeypatch, carried)
    assert not verdict(NormBound(3, 100), cheat(NormBound(3, 100), [1, 0, 0], 99))


def test_range_digits_that_say_another_number_are_refused(monkeypatch):
    bound = NormBound(3, 100)
    for place in (0, bound.range_digits - 1, bound.range_digits * 64):

        def flip(bits, place=place):
            bits[place] ^= np.uint64(1)

        with monkeypatch.context() as patch:
            with_digits(patch, flip)
            assert not verdict(bound, cheat(bound, [10, 0, 0], 0))


# Shares and messages that do not belong together


def test_every_altered_element_and_hash_of_server_0_is_refused():
    bound = NormBound(3, 20)
    first, second = bound.prove(CONTEXT, np.array([1, -2, 3], np.int64))
    count = bound.elements
    proofs_from = bound.length + bound.digits
    places = [*range(3), *range(3, proofs_from, 211), *range(proofs_from, count, 7), count - 1]
    for place in places:
        words = np.frombuffer(first, "<u8").copy()
        words[place] = (int(words[place]) + 1) % P
        assert not verdict(bound, (words.tobytes(), second)), place
    for place in (8 * count, 8 * count + 31, 8 * count + 32, len(first) - 1):
        altered = bytearray(first)
        altered[place] ^= 1
        assert not verdict(bound, (bytes(altered), second)), place


def test_every_altered_byte_of_server_1_is_refused():
    bound = NormBound(2, 20)
    first, second = bound.prove(CONTEXT, np.array([1, -2], np.int64))
    for place in range(0, len(second), 8):
        altered = bytearray(second)
        altered[place] ^= 0x10
        assert not verdict(bound, (first, bytes(altered))), place


def test_shares_of_two_clients_and_swapped_seeds_do_not_mix():
    bound = NormBound(3, 100)
    one, other = (bound.prove(CONTEXT, np.array([1, 2, 3], np.int64)) for _ in range(2))
    assert not verdict(bound, (one[0], other[1]))
    assert not verdict(bound, (other[0], one[1]))
    assert not verdict(bound, (one[0], other[1][:32] + one[1][32:]))
    assert not verdict(bound, (one[0][:-32] + other[0][-32:], other[1]))
    assert verdict(bound, one)


def test_a_proof_of_another_sum_client_or_bound_is_refused():
    bound = NormBound(3, 100)
    shares = bound.prove(CONTEXT, np.array([1, 2, 3], np.int64))
    assert not verdict(bound, shares, contexts=(b"sum 2, client 0",) * 2)
    assert not verdict(bound, shares, contexts=(CONTEXT, b"sum 1, client 1"))
    wider = NormBound(3, 101)
    assert wider.share_bytes == bound.share_bytes
    assert not verdict(wider, shares)


def test_verifiers_of_two_uploads_do_not_mix():
    bound = NormBound(3, 100)
    one, other = (bound.prove(CONTEXT, np.array([1, 2, 3], np.int64)) for _ in range(2))
    opened = [bound.verifier(CONTEXT, place, share, KEY) for place, share in enumerate((one[0], other[1]))]
    assert not bound.accepts(*opened)
    assert not bound.accepts(bound.verifier(CONTEXT, 0, one[0], KEY), bound.verifier(CONTEXT, 1, one[1], b"l" * 32))


def test_shares_that_are_none_are_refused_by_name():
    bound = NormBound(3, 100)
    first, second = bound.prove(CONTEXT, np.array([1, 2, 3], np.int64))
    over = (P).to_bytes(8, "little") + first[8:]
    for server, share in (
        (0, first[:-1]),
        (0, first + b"\0"),
        (0, b""),
        (0, over),
        (1, second[:-1]),
        (1, b""),
        (1, first),
    ):
        with pytest.raises(MalformedMessage):
            bound.verifier(CONTEXT, server, share, KEY)
    good = bound.verifier(CONTEXT, 0, first, KEY)
    for wrong in (b"", good[:-1], good[:32] + b"\xff" * (len(good) - 32)):
        with pytest.raises(MalformedMessage):
            bound.accepts(good, wrong)


# What a server learns


def test_what_is_opened_is_uniform_and_does_not_tell_two_vectors_apart():
    """Of two vectors at the ends of the bound: pooled elements are uniform, and of one distribution."""
    bound, seen = NormBound(2, 50), {}
    for name, vector in (("zero", [0, 0]), ("full", [5, -5])):
        rows = []
        for _ in range(12):
            shares = bound.prove(CONTEXT, np.array(vector, np.int64))
            opened = [bound.verifier(CONTEXT, place, share, KEY)[32:] for place, share in enumerate(shares)]
            both = field.add(*(field.decode(one, len(one) // 8) for one in opened))
            assert int(both[0]) == 0
            # The last element of each proof follows from the others: it is left out.
            ends = np.cumsum([1, *(proof.revealed for proof in bound.proofs)]) - 1
            rows.append(np.delete(both, ends))
        seen[name] = np.concatenate(rows) >> np.uint64(60)
        assert chisquare(np.bincount(seen[name].astype(int), minlength=16)).pvalue > 1e-4
    assert ks_2samp(seen["zero"], seen["full"]).pvalue > 1e-4


def test_server_0_sees_uniform_words_and_server_1_nothing_of_the_vector(monkeypatch):
    bound = NormBound(2, 50)
    first, _ = bound.prove(CONTEXT, np.array([5, -5], np.int64))
    words = np.frombuffer(first[: 8 * bound.elements], "<u8")
    assert chisquare(np.bincount((words >> np.uint64(60)).astype(int), minlength=16)).pvalue > 1e-4
    # With the seed and the blinds fixed, server 1's seed is the same, and hashes are all that differs.
    monkeypatch.setattr("secrets.token_bytes", lambda count: b"s" * count)
    seconds = [bound.prove(CONTEXT, np.array(vector, np.int64))[1] for vector in ([5, -5], [0, 0])]
    assert seconds[0][:32] == seconds[1][:32]
    # A hash of server 0's share is blinded: the blind alone changes it.
    hashes = {norm_proof._vector_hash(CONTEXT, letter * 32, words[:2]) for letter in (b"s", b"t")}
    assert len(hashes) == 2


def test_a_client_whose_signs_are_unlucky_draws_new_shares(monkeypatch):
    bound, tries, within = NormBound(2, 50), [], norm_proof._all_within

    def unlucky_twice(sums, half_range):
        tries.append(sums)
        return len(tries) > 2 and within(sums, half_range)

    monkeypatch.setattr(norm_proof, "_all_within", unlucky_twice)
    shares = bound.prove(CONTEXT, np.array([5, 5], np.int64), b"f" * 32)
    assert len(tries) == 3
    assert shares[1][:32] != b"f" * 32
    assert verdict(bound, shares)


# In a sum


def proving(**changed):
    return Federation(bits=64, length=6, settings={"max_squared_norm": 100}, **changed)


def integers(one, rows):
    return one.terms().ring.from_integers(np.array(rows, np.int64))


ROWS = [[1, -2, 3, 0, 0, 9], [0, 0, 0, 0, 0, 10], [-5, 5, 5, -5, 0, 0], [0, 0, 0, 0, 0, 0], [7, 7, 0, 1, 0, 1]]


def proves_anything(bound, context, x, seed):
    return bound._prove(context, field.from_signed(x), (bound.squared - int((x**2).sum())) & 127, seed)


def send(one, rows, cheats=()):
    """Both servers with everybody's parts; those who cheat skip their own check."""
    servers = [one.server(0), one.server(1)]
    for client, row in enumerate(integers(one, rows)):
        with pytest.MonkeyPatch.context() as patch:
            if client in cheats:
                patch.setattr(norm_proof, "_all_within", lambda sums, half_range: True)
                patch.setattr(NormBound, "prove", proves_anything)
            parts = one.client(client).upload(one.terms(), row)
        for server, part in zip(servers, parts, strict=True):
            server.receive(part)
    return servers


def test_the_sum_leaves_out_who_is_outside_and_nobody_else():
    one = proving()
    rows = [row[:] for row in ROWS]
    rows[1][0], rows[4] = 1, [10**6, 0, 0, 0, 0, 0]
    opened = open_sum(send(one, rows, cheats={1, 4}))
    assert opened.clients == (0, 2, 3)
    assert one.terms().ring.centred(opened.total).tolist() == np.sum([rows[c] for c in (0, 2, 3)], 0).tolist()
    assert open_sum(send(one, ROWS)).clients == (0, 1, 2, 3, 4)


def test_a_server_that_lies_about_a_proof_can_only_leave_its_client_out():
    one = proving()
    servers = send(one, ROWS)
    part, verifier = servers[1]._held[2]
    servers[1]._held[2] = part, verifier[:-8] + bytes(8)
    proposals = [server.propose() for server in servers]
    servers[0].release(proposals[1])
    servers[1].release(proposals[0])
    assert servers[0]._agreed == servers[1]._agreed == (0, 1, 3, 4)


def test_noise_is_added_in_the_field():
    one = Federation(bits=64, length=4000, clients=3, settings={"max_squared_norm": 100})
    noise = DistributedNoise("discrete_gaussian", 9.0, 1)
    servers = [one.server(place, noise=noise) for place in (0, 1)]
    for client in range(3):
        parts = one.client(client).upload(one.terms(), one.terms().ring.zeros(4000))
        for server, part in zip(servers, parts, strict=True):
            server.receive(part)
    total = one.terms().ring.centred(open_sum(servers).total).astype(float)
    assert abs((total**2).mean() / 18 - 1) < 5 * (2 / 4000) ** 0.5


def test_vectors_that_are_clipped_and_rounded_as_elsewhere_are_accepted():
    """`conditional_round` keeps a norm that `rounded_norm_bound` states: that bound squared is the one to prove."""
    radius, length, beta = 50.0, 64, math.exp(-0.5)
    bound = NormBound(length, int(rounded_norm_bound(radius, length, beta) ** 2))
    values = np.random.default_rng(0).normal(size=(3, length))
    values *= radius / np.linalg.norm(values, axis=1, keepdims=True)
    for row in conditional_round(values, radius, beta, bytes(32)):
        assert verdict(bound, bound.prove(CONTEXT, row))


def test_terms_say_what_is_proven(federation):
    with pytest.raises(ConfigurationError, match="64 bits"):
        federation.terms(max_squared_norm=100)
    with pytest.raises(ConfigurationError, match="wrap around"):
        federation.terms(bits=64, max_squared_norm=2**62)
    assert federation.terms(bits=64).context != federation.terms(bits=64, max_squared_norm=5).context
    with pytest.raises(TermsRefused):
        federation.server(0, federation.terms(roster=bytes(32)))
    assert SERVERS[0].public != SERVERS[1].public
    assert Ring(64) == federation.terms(bits=64, max_squared_norm=5).ring


@pytest.mark.parametrize(
    ("length", "squared", "bits"), [(2_500, 2**24, 32), (100_000, 2**28, 32), (1_000_000, 2**28, 24)]
)
def test_an_upload_with_its_proof_takes_at_most_three_times_the_bytes(length, squared, bits):
    plain = Ring(bits).packed_bytes(length) + 32
    assert sum(NormBound(length, squared).share_bytes) < 3 * plain
