"""Keys: agreement, derivation bound to its purpose, sealing that opens in one position only, signatures."""

import hmac
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.errors import ConfigurationError, KeyRefused, SharesRefused, SignatureRefused
from secure_agg.primitives.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    Aead,
    Identity,
    KeyPair,
    derive,
    length_prefixed,
    seal,
    unseal,
    verify,
)

SECRET = bytes(range(32))
CONTEXT = bytes(range(32, 64))
PARTS = st.lists(st.binary(max_size=6), max_size=4)


def naive_hkdf(secret, length, salt, info):
    """RFC 5869 from HMAC."""
    extracted = hmac.digest(salt, secret, "sha256")
    block, output = b"", b""
    for counter in range(1, math.ceil(length / 32) + 1):
        block = hmac.digest(extracted, block + info + bytes([counter]), "sha256")
        output += block
    return output[:length]


def flips(data):
    """The data with each single bit flipped in turn."""
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def test_agreement_is_symmetric_and_of_the_pair():
    first, second, third = (KeyPair.generate() for _ in range(3))
    assert first.agree(second.public) == second.agree(first.public)
    assert first.agree(second.public) != first.agree(third.public)
    assert len(first.public) == len(first.agree(second.public)) == KEY_BYTES
    assert len({first.public, second.public, third.public}) == 3


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_pair_comes_back_from_its_private_half(private, other):
    pair = KeyPair.from_private(private)
    again = KeyPair.from_private(pair.private_bytes())
    assert again.public == pair.public
    peer = KeyPair.from_private(other)
    assert again.agree(peer.public) == peer.agree(pair.public)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_of_another_length_are_refused(length):
    with pytest.raises(KeyRefused, match=f"private key of {length} bytes"):
        KeyPair.from_private(bytes(length))
    with pytest.raises(KeyRefused, match=f"public key of {length} bytes"):
        KeyPair.generate().agree(bytes(length))
    with pytest.raises(KeyRefused, match=f"private key of {length} bytes"):
        Identity.from_private(bytes(length))


def test_a_refused_private_key_is_not_printed():
    with pytest.raises(KeyRefused) as refused:
        KeyPair.from_private(b"\xaa" * 31)
    assert "aaaa" not in str(refused.value)


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=64), st.integers(1, 200), st.text(max_size=8), PARTS)
def test_derivation_is_hkdf_of_label_and_parts(secret, length, label, parts):
    info = b"".join(len(part).to_bytes(4, "big") + part for part in (label.encode(), *parts))
    made = derive(secret, length, label=label, context=CONTEXT, parts=parts)
    assert made == naive_hkdf(secret, length, CONTEXT, info)


@pytest.mark.parametrize(
    "other",
    [
        {"label": "self mask"},
        {"context": CONTEXT[:-1] + b"\0"},
        {"parts": [b"two", b"one"]},
        {"parts": [b"onetwo"]},
        {"parts": [b"on", b"etwo"]},
        {"parts": [b"one", b"two", b""]},
        {"parts": []},
        {"label": "mask\0\0\0\3one", "parts": [b"two"]},
    ],
)
def test_a_derived_key_is_bound_to_its_purpose(other):
    purpose = {"label": "mask", "context": CONTEXT, "parts": [b"one", b"two"]}
    assert derive(SECRET, 32, **purpose) == derive(SECRET, 32, **purpose)
    assert derive(SECRET, 32, **purpose) != derive(SECRET, 32, **{**purpose, **other})
    assert derive(SECRET, 32, **purpose) != derive(SECRET[::-1], 32, **purpose)


def test_parts_may_come_from_any_iterable():
    parts = [b"one", b"two"]
    assert derive(SECRET, 32, label="a", context=CONTEXT, parts=iter(parts)) == derive(
        SECRET, 32, label="a", context=CONTEXT, parts=parts
    )


@settings(max_examples=200, deadline=None)
@given(PARTS, PARTS)
def test_no_two_lists_are_joined_alike(first, second):
    assert (length_prefixed(*first) == length_prefixed(*second)) == (first == second)


def test_short_lists_of_awkward_parts_are_all_joined_apart():
    pieces = [b"", b"\0", b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\0\0\0\0\0", b"\0\0\0\1a", b"a"]
    lists = [parts for size in range(4) for parts in itertools.product(pieces, repeat=size)]
    assert len({length_prefixed(*parts) for parts in lists}) == len(lists)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(list(Aead)), st.binary(max_size=100), st.binary(max_size=40))
def test_what_is_sealed_opens(aead, plain, associated):
    sealed = seal(aead, SECRET, plain, associated)
    assert len(sealed) == len(plain) + TAG_BYTES
    assert unseal(aead, SECRET, sealed, associated) == plain


@pytest.mark.parametrize("aead", Aead)
def test_nothing_altered_opens(aead):
    sealed = seal(aead, SECRET, b"two shares", b"from 3 to 5")
    altered = [
        *((SECRET, changed, b"from 3 to 5") for changed in flips(sealed)),
        *((changed, sealed, b"from 3 to 5") for changed in flips(SECRET)),
        *((SECRET, sealed, changed) for changed in flips(b"from 3 to 5")),
        *((SECRET, sealed[:length], b"from 3 to 5") for length in range(len(sealed))),
        (SECRET, sealed + b"\0", b"from 3 to 5"),
        (SECRET, sealed, b""),
        (SECRET, sealed, b"from 3 to 5\0"),
    ]
    for key, message, associated in altered:
        with pytest.raises(SharesRefused, match="does not open"):
            unseal(aead, key, message, associated)


def test_one_cipher_does_not_open_the_other():
    for aead, other in itertools.permutations(Aead):
        with pytest.raises(SharesRefused):
            unseal(other, SECRET, seal(aead, SECRET, b"two shares", b""), b"")


def test_a_signature_is_of_one_identity_over_one_message():
    signer, other = Identity.generate(), Identity.generate()
    signature = signer.sign(b"survivors")
    assert len(signature) == SIGNATURE_BYTES
    verify(signer.public, signature, b"survivors")
    with pytest.raises(SignatureRefused, match=f"identity {signer.public.hex()[:16]}"):
        verify(signer.public, signature, b"survivor")
    with pytest.raises(SignatureRefused):
        verify(other.public, signature, b"survivors")
    for changed in flips(signature):
        with pytest.raises(SignatureRefused):
            verify(signer.public, changed, b"survivors")


@pytest.mark.parametrize("length", [0, 31, 33])
def test_an_identity_of_another_length_verifies_nothing(length):
    with pytest.raises(SignatureRefused):
        verify(bytes(length), bytes(SIGNATURE_BYTES), b"")


@pytest.mark.parametrize("length", [0, 63, 65])
def test_a_signature_of_another_length_is_refused(length):
    with pytest.raises(SignatureRefused):
        verify(Identity.generate().public, bytes(length), b"")


def test_an_identity_comes_back_from_its_private_half():
    first, second = Identity.from_private(SECRET), Identity.from_private(SECRET)
    assert first.public == second.public
    assert first.sign(b"message") == second.sign(b"message")
    verify(second.public, first.sign(b"message"), b"message")


@pytest.mark.parametrize(("length", "context"), [(32, b"x"), (32, bytes(33)), (0, bytes(32)), (8161, bytes(32))])
def test_a_derivation_that_could_be_two_is_refused(length, context):
    with pytest.raises(ConfigurationError, match="bytes were requested"):
        derive(bytes(32), length, label="test", context=context)


@pytest.mark.parametrize("aead", list(Aead))
def test_a_sealing_key_of_another_length_is_refused(aead):
    with pytest.raises(ConfigurationError, match="a sealing key of 16 bytes"):
        seal(aead, bytes(16), b"plain", b"")
    with pytest.raises(ConfigurationError, match="a sealing key of 16 bytes"):
        unseal(aead, bytes(16), bytes(32), b"")
