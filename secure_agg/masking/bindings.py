"""What each key, commitment and signature of the protocol is bound to.

One place for all derivations, because client and server must agree on them to the bit, and because a reader who wants
to know what a key is good for should look at one page. `context` stands for protocol version, run, round, terms and
participants.
"""

from secure_agg.keys import KEY_BYTES, KeyPair, derive, joined
from secure_agg.masking.messages import Bits
from secure_agg.masking.terms import Terms

Party = tuple[int, bytes]
"""A client's id and the public key it uses here."""


def advertisement(terms: Terms, client: int, mask_key: bytes, channel_key: bytes) -> bytes:
    """What a client signs when it advertises its keys."""
    return joined(b"secure_agg advertisement", terms.context, _id(client), mask_key, channel_key)


def survivors(context: bytes, alive: Bits) -> bytes:
    """What a client signs when it confirms whose inputs arrived."""
    return joined(b"secure_agg survivors", context, alive.tobytes())


def channels(context: bytes, agreed: bytes, *, ours: Party, theirs: Party) -> tuple[bytes, bytes]:
    """Keys of the one message that we seal for them, and of the one that they seal for us."""
    low, high = sorted([ours, theirs])
    parts = [_id(low[0]), _id(high[0]), low[1], high[1]]
    keys = derive(agreed, 2 * KEY_BYTES, label="shares", context=context, parts=parts)
    upwards, downwards = keys[:KEY_BYTES], keys[KEY_BYTES:]
    return (upwards, downwards) if ours < theirs else (downwards, upwards)


def shares(context: bytes, *, sender: Party, receiver: Party) -> bytes:
    """Associated data of a sealed pair of shares.

    It names the mask keys of both, so that a pair does not open where the two do not hold the same keys of each other.
    """
    return joined(b"secure_agg shares", context, _id(sender[0]), _id(receiver[0]), sender[1], receiver[1])


def self_mask(terms: Terms, context: bytes, seed: bytes, client: int) -> bytes:
    """Stream key of a client's self mask."""
    return derive(seed, terms.suite.stream.key_bytes, label="self mask", context=context, parts=[_id(client)])


def commitment(context: bytes, seed: bytes, client: int) -> bytes:
    """What lets the server see that a self mask was rebuilt right, and says nothing about it before."""
    return derive(seed, KEY_BYTES, label="self mask commitment", context=context, parts=[_id(client)])


def pair_mask(terms: Terms, context: bytes, pair: KeyPair, *, ours: int, theirs: int, their_key: bytes) -> bytes:
    """Stream key of the mask that two clients share; the one with the lower id adds it, the other subtracts it.

    Raises:
        KeyRefused: their key is of low order.
    """
    low, high = sorted([(ours, pair.public), (theirs, their_key)])
    return derive(
        pair.agree(their_key), terms.suite.stream.key_bytes,
        label="pair mask", context=context, parts=[_id(low[0]), _id(high[0]), low[1], high[1]],
    )  # fmt: skip


def _id(client: int) -> bytes:
    return client.to_bytes(4, "big")
