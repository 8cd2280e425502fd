"""Opening the sealed pair that one client sends another: a share of its mask key, then one of its self-mask seed.

It stands in a place of its own because two parties must agree on what is a pair: its receiver, and the server, which
opens it again when the receiver accuses the sender.
"""

from secure_agg import shamir
from secure_agg.errors import MalformedMessage, SharesRefused
from secure_agg.masking import key_derivation
from secure_agg.masking.key_derivation import Party
from secure_agg.primitives.keys import Aead, unseal


def open_pair(aead: Aead, key: bytes, context: bytes, sealed: bytes, *, sender: Party, receiver: Party) -> bytes:
    """Open a sealed pair of shares.

    Args:
        aead: cipher of the round.
        key: encryption key of the messages from sender to receiver.
        context: of the roster.
        sealed: the sealed pair.
        sender: its id and mask key.
        receiver: likewise.

    Raises:
        SharesRefused: it does not decrypt, or what was sealed is no pair of shares.
    """
    pair = unseal(aead, key, sealed, key_derivation.shares_associated_data(context, sender=sender, receiver=receiver))
    try:
        shamir.check_share(pair[: shamir.SHARE_BYTES])
        shamir.check_share(pair[shamir.SHARE_BYTES :])
    except MalformedMessage as refused:
        raise SharesRefused(
            f"client {sender[0]} encrypted something other than a pair of shares; leave this round"
        ) from refused
    return pair
