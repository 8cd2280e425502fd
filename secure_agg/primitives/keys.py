"""The keys of one round: agreement, derivation, authenticated encryption, signatures.

Every key pair lives for one round. Every derived key is bound to its purpose: the label, the context of the round and
both parties enter the derivation, so a key is never valid for another purpose.

Sources: RFC 7748 (X25519), RFC 5869 (HKDF-SHA256), RFC 8032 (Ed25519), NIST SP 800-38D (AES-GCM), RFC 8439
(ChaCha20-Poly1305).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_agg.errors import ConfigurationError, KeyRefused, SharesRefused, SignatureRefused

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16

_MAX_DERIVED_BYTES = 255 * 32
_FIELD = 2**255 - 19
# u-coordinates of the points of order eight on Curve25519 and its twist; 0, 1 and p - 1 have orders 1, 2 or 4.
_ORDER_EIGHT = (
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
)
_LOW_ORDER = frozenset(u.to_bytes(KEY_BYTES, "little") for u in (0, 1, _FIELD - 1, *_ORDER_EIGHT))


class Aead(StrEnum):
    """The cipher that encrypts relayed shares."""

    AES256_GCM = "aes-256-gcm"
    CHACHA20_POLY1305 = "chacha20-poly1305"


class KeyPair:
    """An X25519 key pair: `public` is sent to others; the private key agrees on secrets with their public keys."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A fresh pair from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_private(cls, private: bytes) -> "KeyPair":
        """The pair of a private key of 32 bytes."""
        if len(private) != KEY_BYTES:
            raise KeyRefused(f"a private key of {len(private)} bytes was given; X25519 keys have {KEY_BYTES}")
        return cls(X25519PrivateKey.from_private_bytes(private))

    def private_bytes(self) -> bytes:
        """The private key, to be shared or stored: handle it as a secret."""
        return self._private.private_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """The 32 secret bytes that the holders of both pairs compute.

        Raises:
            KeyRefused: the public key is not 32 bytes long or is of low order (the secret would be known to everyone).
        """
        if len(public) != KEY_BYTES:
            raise KeyRefused(f"a public key of {len(public)} bytes was given; X25519 keys have {KEY_BYTES}")
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as refused:
            raise KeyRefused(
                f"the public key {public.hex()} is of low order, so the agreed secret would be public; drop its sender"
            ) from refused


def is_canonical_public_key(public: bytes) -> bool:
    """Whether a public key is of full order and in its canonical form.

    X25519 itself silently accepts other encodings of a point, and detects low order only when a secret is agreed.
    """
    return int.from_bytes(public, "little") < _FIELD and public not in _LOW_ORDER


def derive(secret: bytes, length: int, *, label: str, context: bytes, parts: Iterable[bytes] = ()) -> bytes:
    """HKDF-SHA256 of a secret for one purpose, with `context` as the salt and label and parts as the info.

    Args:
        secret: an agreed secret or a seed.
        length: number of bytes.
        label: purpose of the key.
        context: 32 bytes that bind the key to protocol version, run, round and terms.
        parts: further key_derivation (parties, public keys), each preceded by its length, so that no two lists have the
            same encoding.

    Raises:
        ConfigurationError: a context of another length (HMAC treats some contexts of different lengths alike), or a
            length out of
        range.
    """
    if len(context) != KEY_BYTES or not 0 < length <= _MAX_DERIVED_BYTES:
        raise ConfigurationError(
            f"{length} bytes were requested under a context of {len(context)}; give a context of {KEY_BYTES} bytes and "
            f"request 1 to {_MAX_DERIVED_BYTES}"
        )
    return HKDF(hashes.SHA256(), length, salt=context, info=length_prefixed(label.encode(), *parts)).derive(secret)


def length_prefixed(*parts: bytes) -> bytes:
    """The concatenated parts, each preceded by its length in 4 bytes."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def seal(aead: Aead, key: bytes, plain: bytes, associated: bytes) -> bytes:
    """Encrypt and authenticate with a key that is used only once."""
    # A key encrypts one message, so the nonce may be zero.
    return _aead(aead, key).encrypt(bytes(12), plain, associated)


def unseal(aead: Aead, key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """Decrypt and verify.

    Raises:
        SharesRefused: key, associated data or a bit of the ciphertext differs from encryption.
    """
    try:
        return _aead(aead, key).decrypt(bytes(12), sealed, associated)
    except InvalidTag as refused:
        raise SharesRefused(
            "a sealed message does not open: it was altered, or is of another sender, receiver, round or run; "
            "leave this round"
        ) from refused


def _aead(aead: Aead, key: bytes) -> AESGCM | ChaCha20Poly1305:
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"a sealing key of {len(key)} bytes was given; both ciphers take {KEY_BYTES}")
    return AESGCM(key) if aead is Aead.AES256_GCM else ChaCha20Poly1305(key)


class Identity:
    """An Ed25519 signing key that outlives rounds; `public` is published outside this protocol."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> "Identity":
        """A fresh identity from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_private(cls, private: bytes) -> "Identity":
        """The identity of a private key of 32 bytes."""
        if len(private) != KEY_BYTES:
            raise KeyRefused(f"a private key of {len(private)} bytes was given; Ed25519 keys have {KEY_BYTES}")
        return cls(Ed25519PrivateKey.from_private_bytes(private))

    def private_bytes(self) -> bytes:
        """The private key, to be stored: handle it as a secret."""
        return self._private.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature of 64 bytes."""
        return self._private.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> None:
    """Refuse a message that the holder of `public` did not sign.

    Raises:
        SignatureRefused: the signature or the public key is invalid.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError) as refused:
        raise SignatureRefused(
            f"the signature is not one of identity {public.hex()[:16]}.. over this message; drop its sender"
        ) from refused
