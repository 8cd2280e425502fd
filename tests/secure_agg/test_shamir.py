"""Shamir secret sharing: known answers, every subset, what a share says alone, and what is refused."""

import itertools
import random
import secrets
from collections import Counter
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_agg import shamir
from secure_agg.errors import ConfigurationError, MalformedMessage, ShareError, SharesRefused

PRIME = shamir.PRIME
SECRET = bytes(range(32))
FROZEN = {
    1: "002605c645702a22743f5fda69a7848e82e661dee4115821ab9b35c7535a2b125d",
    2: "00edc398352f59a5931534f28b3cf72fa4fd591d5ad21e7ed36f8141c40a4b216e",
    9: "001431d4b87ec976d843d874c9aa912aa2b05040bb79e7f7071eb00d0555265e21",
    65535: "0054f8ee5c3c8c3dc650e836455a525c737e80b7af94244c089897da19cd37a97e",
}


def is_probable_prime(number, bases):
    """Miller-Rabin."""
    odd = number - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    for base in bases:
        power = pow(base, odd, number)
        if power in {1, number - 1}:
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def naive_at_zero(points, prime):
    """Lagrange's formula, one modular division for each term."""
    total = 0
    for x, y in points:
        term = y
        for other, _ in points:
            if other != x:
                term = term * other * pow(other - x, -1, prime) % prime
        total += term
    return total % prime


def numbers(count):
    """Of 300 bits, the same every time."""
    draws = random.Random(count)
    return [draws.getrandbits(300) for _ in range(count)]


def test_the_modulus_is_the_smallest_prime_above_the_secrets():
    bases = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, *(number % (PRIME - 3) + 2 for number in numbers(40))]
    assert is_probable_prime(PRIME, bases)
    assert not any(is_probable_prime(2**256 + gap, (2, 3)) for gap in range(1, 297, 2))
    assert PRIME.bit_length() <= 8 * shamir.SHARE_BYTES


def test_the_known_answer_in_a_small_field():
    assert shamir._evaluate([94, 166, 1234], [1, 2, 3], 1613) == [1494, 329, 965]
    assert shamir._interpolate_at_zero((1, 2, 3), [1494, 329, 965], 1613) == 1234
    assert shamir._interpolate_at_zero((3, 1, 2), [965, 1494, 329], 1613) == 1234


def test_frozen_shares():
    coefficients = [int.from_bytes(sha256(b"coefficient %d" % power).digest(), "big") for power in (2, 1)]
    values = shamir._evaluate([*coefficients, int.from_bytes(SECRET, "big")], FROZEN, PRIME)
    assert [value.to_bytes(33, "big").hex() for value in values] == list(FROZEN.values())
    for parties in itertools.combinations(FROZEN, 3):
        assert shamir.reconstruct({x: bytes.fromhex(FROZEN[x]) for x in parties}, 3) == SECRET


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_threshold_of_the_shares_rebuild_the_secret(secret, threshold, data):
    count = data.draw(st.integers(threshold, 20))
    shares = shamir.split(secret, threshold, count)
    assert [len(share) for share in shares] == [shamir.SHARE_BYTES] * count
    chosen = data.draw(st.permutations(range(1, count + 1)))[: data.draw(st.integers(threshold, count))]
    assert shamir.reconstruct({x: shares[x - 1] for x in chosen}, threshold) == secret


def test_every_subset_of_five():
    shares = shamir.split(SECRET, 3, 5)
    for size in range(3, 6):
        for chosen in itertools.combinations(range(1, 6), size):
            assert shamir.reconstruct({x: shares[x - 1] for x in chosen}, 3) == SECRET


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, b"\0" * 31 + b"\1"])
def test_extreme_secrets(secret):
    assert shamir.reconstruct(dict(enumerate(shamir.split(secret, 4, 7), start=1)), 4) == secret


@pytest.mark.parametrize("steps", [1, 31, 32, 33, 64, 65, 200])
def test_horner_with_rare_reductions_is_the_plain_polynomial(steps):
    coefficients = [number % PRIME for number in numbers(steps)]
    points = [1, 2, 3, 999, shamir.MAX_SHARES]
    naive = [sum(c * x**power for power, c in enumerate(reversed(coefficients))) % PRIME for x in points]
    assert shamir._evaluate(coefficients, points, PRIME) == naive


def test_interpolation_is_lagranges_formula_at_scattered_points():
    points = (1, 7, 8, 100, 4096, 65535)
    values = [number % PRIME for number in numbers(len(points))]
    assert shamir._interpolate_at_zero(points, values, PRIME) == naive_at_zero(
        list(zip(points, values, strict=True)), PRIME
    )


def test_the_lowest_parties_are_used_and_the_others_do_not_enter():
    shares = dict(enumerate(shamir.split(SECRET, 2, 4), start=1))
    shares[4] = bytes(33)
    shares[3] = bytes(33)
    assert shamir.reconstruct(dict(reversed(shares.items())), 2) == SECRET
    assert shamir.reconstruct({x: shares[x] for x in (1, 3)}, 2) != SECRET


def test_with_a_threshold_of_one_every_share_is_the_secret():
    assert shamir.split(SECRET, 1, 3) == [b"\0" + SECRET] * 3
    assert shamir.reconstruct({3: b"\0" + SECRET}, 1) == SECRET


def test_many_shares():
    shares = shamir.split(SECRET, 70, 300)
    assert shamir.reconstruct({x: shares[x - 1] for x in range(231, 301)}, 70) == SECRET


def test_shares_below_the_threshold_are_uniform_whatever_the_secret(monkeypatch):
    """Over a field of 11, two of three shares of a threshold of three: every pair as often for each secret."""
    monkeypatch.setattr(shamir, "PRIME", 11)
    monkeypatch.setattr(shamir, "SHARE_BYTES", 1)
    draws = iter(())
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda below: next(draws))
    for secret in (0, 10):
        seen = Counter()
        for pair in itertools.product(range(11), repeat=2):
            draws = iter(pair)
            shares = shamir.split(secret.to_bytes(32, "big"), 3, 3)
            seen[shares[0], shares[2]] += 1
        assert len(seen) == 121
        assert set(seen.values()) == {1}


def test_coefficients_are_drawn_below_the_prime_and_afresh(monkeypatch):
    requested = []
    draw = secrets.randbelow
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda below: requested.append(below) or draw(below))
    first, second = shamir.split(SECRET, 6, 9), shamir.split(SECRET, 6, 9)
    assert requested == [PRIME] * 10
    assert not set(first) & set(second)


def test_bytes_of_single_shares_are_uniform():
    shares = [share for _ in range(400) for share in shamir.split(SECRET, 2, 5)]
    low = np.frombuffer(b"".join(share[2:] for share in shares), np.uint8)
    assert chisquare(np.bincount(low, minlength=256)).pvalue > 1e-9


@pytest.mark.parametrize(("threshold", "count"), [(0, 3), (-1, 3), (4, 3), (1, 65536), (1, 0)])
def test_impossible_thresholds_are_refused(threshold, count):
    with pytest.raises(ConfigurationError, match=f"threshold {threshold} of {count} shares"):
        shamir.split(SECRET, threshold, count)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_of_another_length_is_refused(length):
    with pytest.raises(ConfigurationError, match=f"secret of {length} bytes"):
        shamir.split(bytes(length), 2, 3)


def test_too_few_shares_are_refused():
    shares = dict(enumerate(shamir.split(SECRET, 3, 5), start=1))
    with pytest.raises(ShareError, match="2 shares were given for a threshold of 3"):
        shamir.reconstruct({1: shares[1], 2: shares[2]}, 3)
    with pytest.raises(ShareError, match="0 shares"):
        shamir.reconstruct({}, 1)
    with pytest.raises(ShareError, match="at least 1"):
        shamir.reconstruct(shares, 0)


@pytest.mark.parametrize("party", [0, -1, 65536])
def test_a_party_out_of_range_is_refused_even_when_it_is_not_needed(party):
    shares = dict(enumerate(shamir.split(SECRET, 2, 3), start=1))
    with pytest.raises(ShareError, match="numbered 1 to 65535"):
        shamir.reconstruct({**shares, party: shares[1]}, 2)


@pytest.mark.parametrize("length", [0, 32, 34])
def test_a_share_of_another_length_is_refused(length):
    with pytest.raises(MalformedMessage, match=f"share of {length} bytes"):
        shamir.check_share(bytes(length))
    shares = dict(enumerate(shamir.split(SECRET, 2, 3), start=1))
    with pytest.raises(MalformedMessage, match=f"share of {length} bytes"):
        shamir.reconstruct({**shares, 3: bytes(length)}, 2)


def test_a_share_at_or_above_the_prime_is_refused_and_not_printed():
    shamir.check_share((PRIME - 1).to_bytes(33, "big"))
    for value in (PRIME, PRIME + 1, 2**264 - 1):
        with pytest.raises(MalformedMessage, match="not below 2\\^256 \\+ 297") as refused:
            shamir.check_share(value.to_bytes(33, "big"))
        assert str(value) not in str(refused.value)
        assert f"{value:x}" not in str(refused.value)
    with pytest.raises(MalformedMessage, match="not below"):
        shamir.reconstruct({1: PRIME.to_bytes(33, "big"), 2: bytes(33)}, 2)


@pytest.mark.parametrize("value", [2**256, PRIME - 1])
def test_shares_that_meet_in_no_secret_are_refused(value):
    coefficients = [*(number % PRIME for number in numbers(2)), value]
    shares = [v.to_bytes(33, "big") for v in shamir._evaluate(coefficients, range(1, 6), PRIME)]
    with pytest.raises(SharesRefused, match="different secrets"):
        shamir.reconstruct(dict(enumerate(shares, start=1)), 3)


def test_the_kept_weights_are_bounded_and_hold_no_secret():
    assert shamir._lagrange_weights.cache_info().maxsize == 32
    before = shamir._lagrange_weights.cache_info().hits
    shares = dict(enumerate(shamir.split(SECRET, 2, 3), start=1))
    shamir.reconstruct(shares, 2)
    shamir.reconstruct(dict(enumerate(shamir.split(bytes(32), 2, 3), start=1)), 2)
    assert shamir._lagrange_weights.cache_info().hits > before
    assert shamir._lagrange_weights((1, 2), 1613) == (2, 1612)


def spoilt(shares, parties, rng):
    """The shares by party, those of some parties replaced by other numbers."""
    given = dict(enumerate(shares, start=1))
    for party in parties:
        number = (int.from_bytes(given[party], "big") + rng.randrange(1, shamir.PRIME)) % shamir.PRIME
        given[party] = number.to_bytes(shamir.SHARE_BYTES, "big")
    return given


@pytest.mark.parametrize(("count", "threshold"), [(1, 1), (2, 1), (5, 1), (5, 3), (9, 5), (9, 7), (30, 20), (99, 67)])
def test_wrong_shares_up_to_half_of_the_spare_ones_are_corrected_and_named(count, threshold):
    rng = random.Random(count * threshold)
    for wrong in {0, 1, (count - threshold) // 2} - set(range((count - threshold) // 2 + 1, count + 2)):
        secret = rng.randbytes(32)
        liars = frozenset(rng.sample(range(1, count + 1), wrong))
        given = spoilt(shamir.split(secret, threshold, count), liars, rng)
        assert shamir.decode(given, threshold) == (secret, liars)


def test_every_choice_of_two_wrong_shares_of_seven():
    secret, rng = bytes(range(32)), random.Random(4)
    shares = shamir.split(secret, 3, 7)
    for liars in itertools.combinations(range(1, 8), 2):
        assert shamir.decode(spoilt(shares, liars, rng), 3) == (secret, frozenset(liars))


def test_shares_of_a_few_parties_with_gaps_are_decoded():
    secret, rng = bytes(range(32)), random.Random(5)
    given = spoilt(shamir.split(secret, 3, 400), [399], rng)
    some = {party: given[party] for party in (2, 7, 150, 399, 400)}
    assert shamir.decode(some, 3) == (secret, {399})


@pytest.mark.parametrize(("count", "threshold"), [(6, 5), (9, 7), (12, 9)])
def test_with_a_public_check_all_spare_shares_may_be_wrong(count, threshold):
    secret, rng = bytes(range(32)), random.Random(6)
    liars = frozenset(rng.sample(range(1, count + 1), count - threshold))
    given = spoilt(shamir.split(secret, threshold, count), liars, rng)
    assert shamir.decode(given, threshold, secret.__eq__) == (secret, liars)
    with pytest.raises(SharesRefused, match="too many are wrong"):
        shamir.decode(given, threshold)


def test_too_many_wrong_shares_are_refused():
    secret, rng = bytes(range(32)), random.Random(7)
    shares = shamir.split(secret, 5, 9)
    with pytest.raises(SharesRefused, match="the 9 shares, of which 5 would do"):
        shamir.decode(spoilt(shares, range(1, 6), rng), 5, secret.__eq__)
    with pytest.raises(SharesRefused):
        shamir.decode(dict(enumerate(shares, start=1)), 5, lambda _: False)


def test_a_number_of_257_bits_is_no_decoded_secret():
    shares = [(shamir.PRIME - 1).to_bytes(33, "big")] * 3
    with pytest.raises(SharesRefused):
        shamir.decode(dict(enumerate(shares, start=1)), 1)


def test_what_cannot_be_shares_is_refused_by_decoding_too():
    shares = dict(enumerate(shamir.split(bytes(32), 3, 4), start=1))
    for wrong, error in (
        ({}, ShareError),
        (shares | {0: shares[1]}, ShareError),
        (shares | {2: b""}, MalformedMessage),
    ):
        with pytest.raises(error):
            shamir.decode(wrong, 3)


def test_the_share_that_a_party_must_hold():
    shares = dict(enumerate(shamir.split(bytes(range(32)), 4, 9), start=1))
    for party, share in shares.items():
        assert shamir.share_of(party, shares, 4) == share
        assert shamir.share_of(party, shares | {party: bytes(33)}, 4) == share
