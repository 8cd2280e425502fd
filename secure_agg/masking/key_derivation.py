"""Derivation of all keys, commitments and signed messages of the protocol, and what each is bound to.

All derivations are in this one module, because client and server must agree on them to the bit, and because what a key
is valid for can then be read on one page. `context` stands for protocol version, run, round, terms and participants.
`bound` is a digest of what the server sent with the round: clients that were sent different things have masks that do
not cancel and signatures that do not verify.
"""

from secure_agg.masking.messages import Bits
from secure_agg.masking.terms import Terms
from secure_agg.primitives.keys import KEY_BYTES, KeyPair, derive, length_prefixed

Party = tuple[int, bytes]
"""A client's id and the public key it uses in this derivation."""


def advertisement_message(terms: Terms, client: int, mask_key: bytes, channel_key: bytes) -> bytes:
    """The message that a client signs when it advertises its keys."""
    return length_prefixed(b"secure_agg advertisement", terms.context, _id_bytes(client), mask_key, channel_key)


def check_message(context: bytes, shared: Bits) -> bytes:
    """The message that a client signs when it holds a pair of shares of each of its neighbours who shared."""
    return length_prefixed(b"secure_agg check", context, shared.tobytes())


def complaint_message(context: bytes, client: int, accused: Bits, channel_private: bytes) -> bytes:
    """The message that a client signs when it accuses others of sealing something else than a pair of shares."""
    return length_prefixed(b"secure_agg complaint", context, _id_bytes(client), accused.tobytes(), channel_private)


def input_message(context: bytes, bound: bytes, checked: Bits) -> bytes:
    """The message that a client on a sparse graph signs with its masked input: under which list it masked."""
    return length_prefixed(b"secure_agg input", context, bound, checked.tobytes())


def survivors_message(context: bytes, bound: bytes, checked: Bits, alive: Bits) -> bytes:
    """The message that a client signs when it confirms the list of survivors, among those that checked."""
    return length_prefixed(b"secure_agg survivors", context, bound, checked.tobytes(), alive.tobytes())


def channel_keys(context: bytes, agreed: bytes, *, ours: Party, theirs: Party) -> tuple[bytes, bytes]:
    """The encryption keys of the one message from us to them, and of the one from them to us."""
    # Both sides derive with the parties in rising order of id, so that they obtain the same pair of keys; the first is
    # for the message from the lower id to the higher. No key encrypts two messages.
    low, high = sorted([ours, theirs])
    parts = [_id_bytes(low[0]), _id_bytes(high[0]), low[1], high[1]]
    keys = derive(agreed, 2 * KEY_BYTES, label="shares", context=context, parts=parts)
    low_to_high, high_to_low = keys[:KEY_BYTES], keys[KEY_BYTES:]
    return (low_to_high, high_to_low) if ours < theirs else (high_to_low, low_to_high)


def shares_associated_data(context: bytes, *, sender: Party, receiver: Party) -> bytes:
    """Associated data of an encrypted pair of shares.

    It names the mask keys of both, so that a pair decrypts only where the two hold the same keys of each other.
    """
    return length_prefixed(
        b"secure_agg shares", context, _id_bytes(sender[0]), _id_bytes(receiver[0]), sender[1], receiver[1]
    )


def self_mask_key(terms: Terms, context: bytes, seed: bytes, client: int, bound: bytes) -> bytes:
    """Keystream key of a client's self mask."""
    parts = [_id_bytes(client), bound]
    return derive(seed, terms.suite.stream.key_bytes, label="self mask", context=context, parts=parts)


def self_mask_commitment(context: bytes, seed: bytes, client: int) -> bytes:
    """Commitment by which the server verifies a rebuilt self-mask seed; it reveals nothing about the seed before."""
    return derive(seed, KEY_BYTES, label="self mask commitment", context=context, parts=[_id_bytes(client)])


def pairwise_mask_key(
    terms: Terms, context: bytes, pair: KeyPair, *, ours: int, theirs: int, their_key: bytes, bound: bytes
) -> bytes:
    """Keystream key of the mask of two clients; the one with the lower id adds the mask, the other subtracts it.

    Raises:
        KeyRefused: their key is of low order.
    """
    low, high = sorted([(ours, pair.public), (theirs, their_key)])
    return derive(
        pair.agree(their_key), terms.suite.stream.key_bytes,
        label="pair mask", context=context, parts=[_id_bytes(low[0]), _id_bytes(high[0]), low[1], high[1], bound],
    )  # fmt: skip


def _id_bytes(client: int) -> bytes:
    return client.to_bytes(4, "big")
