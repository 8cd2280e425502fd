"""Addressed randomness: the word layout against AES itself, independence of what others ask, and the laws drawn."""

import hashlib
import hmac
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.federation import PUBLIC, SERVER, Purpose, Streams

DRAWS = 1_000_000
HIDING = {Purpose.NOISE, Purpose.SHARE, Purpose.RUN, Purpose.ROUNDING, Purpose.FURTHER_BITS}


def key_stream(key: bytes, counter: bytes) -> bytes:
    """One block of AES-128 in counter mode."""
    return Cipher(AES(key), CTR(counter)).encryptor().update(bytes(16))


def words_by_hand(seed, purpose, round, ask, user, count):
    root = hashlib.sha256(b"privfed simulation seed" + str(seed).encode()).digest()
    key = hmac.digest(root, b"user" + user.to_bytes(8, "little", signed=True), "sha256")[:16]
    stream = b""
    for block in range(-(-count // 4)):
        counter = (
            purpose.to_bytes(1, "little")
            + round.to_bytes(3, "little")
            + ask.to_bytes(4, "little")
            + bytes(4)
            + block.to_bytes(4, "little")
        )
        stream += key_stream(key, counter)
    return [int.from_bytes(stream[4 * i : 4 * i + 4], "little") for i in range(count)]


def test_the_oracle_is_nist_counter_mode():
    """SP 800-38A, F.5.1: CTR-AES128, first output block."""
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    assert key_stream(key, counter).hex() == "ec8cdf7398607cb0f2d21675ea9ea1e4"


@pytest.mark.parametrize("user", [0, 1, 942, 2**40, SERVER, PUBLIC])
@pytest.mark.parametrize(
    ("purpose", "round", "ask"),
    [(Purpose.NOISE, 0, 0), (Purpose.SAMPLES, 1, 2), (Purpose.MEMBERSHIP, 2**24 - 1, 2**32 - 1)],
)
def test_words_are_the_documented_key_stream(user, purpose, round, ask):
    """A change here would change every seeded result ever published."""
    found = Streams.from_seed(7).words(purpose, round, ask, [user], 11)
    assert found.tolist() == [words_by_hand(7, purpose, round, ask, user, 11)]


addresses = st.tuples(
    st.sampled_from(list(Purpose)), st.integers(0, 2**24 - 1), st.integers(0, 2**32 - 1), st.integers(-2, 10**6)
)


@settings(max_examples=50, deadline=None)
@given(addresses, addresses)
def test_other_addresses_give_other_words(a, b):
    streams = Streams.from_seed(0)
    words = [streams.words(purpose, round, ask, [user], 4).tolist() for purpose, round, ask, user in (a, b)]
    assert (words[0] == words[1]) == (a == b)


def test_neighbouring_addresses_never_overlap():
    """Long streams of all small addresses: 64-bit pieces are all distinct, so no two streams share a block."""
    streams = Streams.from_seed(1)
    pieces = [
        streams.words(purpose, round, ask, [0, 1, SERVER, PUBLIC], 64).view(np.uint64).ravel()
        for purpose, round, ask in itertools.product(Purpose, (0, 1, 255, 256), (0, 1, 256))
    ]
    joined = np.concatenate(pieces)
    assert len(np.unique(joined)) == len(joined)


@pytest.mark.parametrize(("round", "ask"), [(2**24, 0), (-1, 0), (0, 2**32), (0, -1)])
def test_an_address_that_does_not_fit_is_not_wrapped_around(round, ask):
    with pytest.raises((OverflowError, ValueError)):
        Streams.from_seed(0).words(Purpose.NOISE, round, ask, [0], 4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 40), st.integers(1, 40))
def test_a_users_words_do_not_depend_on_who_else_asks_or_how_many(users, count, more):
    together = Streams.from_seed(2).words(Purpose.SAMPLES, 3, 1, users, count)
    assert together.shape == (len(users), count)
    for user, row in zip(users, together, strict=True):
        alone = Streams.from_seed(2).words(Purpose.SAMPLES, 3, 1, [user], count + more)
        np.testing.assert_array_equal(row, alone[0, :count])


def test_somebody_who_hosts_a_few_draws_their_words():
    whole = Streams.from_seed(5)
    few = whole.numbered(np.array([3, 8, 100_000]))
    address = Purpose.NOISE, 2, 7
    np.testing.assert_array_equal(few.words(*address, [0, 2, 1], 9), whole.words(*address, [3, 100_000, 8], 9))
    for everybody_knows in (SERVER, PUBLIC):
        np.testing.assert_array_equal(
            few.words(*address, [everybody_knows], 9), whole.words(*address, [everybody_knows], 9)
        )
    assert few.simulated


def test_nobody_asks_for_nothing():
    streams = Streams.from_seed(0)
    assert streams.words(Purpose.NOISE, 0, 0, [], 5).shape == (0, 5)
    assert streams.words(Purpose.NOISE, 0, 0, [1, 2], 0).shape == (2, 0)
    assert streams.normal(Purpose.LATENT, 0, 0, [1], 0).shape == (1, 0)
    assert streams.normal_steps(Purpose.NOISE, 0, 0, [1], 0, 1.0).shape == (1, 0)
    assert streams.laplace_steps(Purpose.NOISE, 0, 0, [], 3, 1.0).shape == (0, 3)


def test_seeds_differ_and_repeat():
    one, again, two = (Streams.from_seed(s).words(Purpose.NOISE, 0, 0, [0], 8).tolist() for s in (1, 1, 2))
    assert one == again != two
    assert Streams.from_seed(1).simulated


def test_a_deployments_words_come_from_the_system_and_cannot_be_repeated():
    streams = [Streams.from_system() for _ in range(3)]
    assert not any(s.simulated for s in streams)
    words = [s.words(Purpose.NOISE, 0, 0, [0], 8).tolist() for s in streams]
    assert words[0] != words[1] != words[2] != words[0]
    assert streams[0].words(Purpose.NOISE, 0, 0, [0], 8).tolist() == words[0]


@pytest.fixture(scope="module")
def streams():
    return Streams.from_seed(11)


def test_uniforms_are_uniform_and_never_zero_or_one(streams):
    u = streams.uniform(Purpose.NOISE, 0, 0, [0, 1], DRAWS // 2).numpy()
    assert u.dtype == np.float64
    assert 0 < u.min() < 2e-4
    assert 1 - 2e-4 < u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    fine = (u * 2**53 - 0.5).ravel()
    assert (fine % 1 == 0).mean() > 0.49  # the lower half of (0, 1) shows all 53 bits exactly
    assert len(np.unique(fine)) == fine.size


def test_normal_draws_are_standard_and_the_two_halves_of_a_pair_independent(streams):
    z = streams.normal(Purpose.LATENT, 2, 0, [0, 1], DRAWS // 2).numpy()
    assert z.dtype == np.float32
    flat = z.ravel().astype(np.float64)
    assert stats.kstest(flat, "norm").pvalue > 1e-3
    assert flat.mean() == pytest.approx(0, abs=5 / np.sqrt(DRAWS))
    assert flat.var() == pytest.approx(1, abs=5 * np.sqrt(2 / DRAWS))
    assert stats.kurtosis(flat) == pytest.approx(0, abs=5 * np.sqrt(24 / DRAWS))
    half = DRAWS // 4
    for first, second in ((z[:, :half], z[:, half:]), (z[0], z[1]), (flat[:-1], flat[1:])):
        for power in (1, 2):
            r = np.corrcoef(first.ravel() ** power, second.ravel() ** power)[0, 1]
            assert r == pytest.approx(0, abs=5 / np.sqrt(half))


def test_an_odd_number_of_normals(streams):
    odd, even = (streams.normal(Purpose.LATENT, 2, 0, [0], count) for count in (7, 8))
    assert odd.shape == (1, 7)
    assert odd.equal(even[:, :7])


@pytest.mark.parametrize("purpose", sorted(HIDING))
def test_two_runs_of_one_seed_share_no_word_of_what_hides_data(purpose):
    one, again, other = (Streams.from_seed(3, run) for run in ("a", "a", "b"))
    address = purpose, 0, 0, [0, 1, SERVER], 64
    np.testing.assert_array_equal(one.words(*address), again.words(*address))
    assert not np.isin(one.words(*address), other.words(*address)).any()
    assert not np.isin(one.words(*address), Streams.from_seed(3).words(*address)).any()


@pytest.mark.parametrize("purpose", sorted(set(Purpose) - HIDING))
def test_two_runs_of_one_seed_share_initial_values_and_samples(purpose):
    one, other = (Streams.from_seed(3, run) for run in ("a", "b"))
    np.testing.assert_array_equal(*(s.words(purpose, 0, 0, [0, SERVER, PUBLIC], 64) for s in (one, other)))


def test_whoever_hosts_a_few_users_has_the_noise_of_the_run():
    run = Streams.from_seed(3, "a")
    few = run.numbered(np.array([5, 9]))
    np.testing.assert_array_equal(
        few.words(Purpose.NOISE, 0, 0, [1], 8), Streams.from_seed(3, "a").words(Purpose.NOISE, 0, 0, [9], 8)
    )


def test_two_processes_of_a_party_share_no_word_of_what_hides_data():
    one, again, other = (Streams.of_party(b"root" * 8, b"public" * 8, entropy) for entropy in (b"a", b"a", b"b"))
    for purpose in Purpose:
        words = [streams.words(purpose, 0, 0, [0, SERVER], 64) for streams in (one, again, other)]
        np.testing.assert_array_equal(words[0], words[1])
        assert (words[0] == words[2]).all() != (purpose in HIDING)
    np.testing.assert_array_equal(*(streams.words(Purpose.INITIALISE, 0, 0, [PUBLIC], 8) for streams in (one, other)))


@pytest.mark.parametrize("law", ["laplace_steps", "normal_steps"])
def test_further_bits_belong_to_one_draw(law, monkeypatch):
    """Where the words of all draws are zero, further bits alone decide, and no two draws have the same."""
    words = Streams.words

    def zeros(streams, purpose, round, query_id, users, count):
        found = words(streams, purpose, round, query_id, users, count)
        return found if purpose == Purpose.FURTHER_BITS else np.zeros_like(found)

    monkeypatch.setattr(Streams, "words", zeros)
    streams = Streams.from_seed(4)
    addresses = itertools.product((Purpose.NOISE, Purpose.SAMPLES), (0, 1), (0, 1))
    drawn = [getattr(streams, law)(*address, [0, 1, SERVER], 4, 2.0**40).numpy().copy() for address in addresses]
    if law == "normal_steps":
        # With an angle of zero a cosine is 1, whatever further bits say; it is the radius that they decide.
        drawn = [steps[:, ::2] for steps in drawn]
    assert len(np.unique(drawn)) == np.size(drawn)
    alone = getattr(streams, law)(Purpose.NOISE, 0, 0, [SERVER], 4, 2.0**40).numpy()
    assert np.isin(drawn[0][2], alone).all()


def test_floating_point_noise_is_refused_where_data_are_to_be_hidden(streams):
    with pytest.raises(ValueError, match="use normal_steps"):
        streams.normal(Purpose.NOISE, 0, 0, [0], 4)
