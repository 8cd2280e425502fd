"""Keys for the parts of one simulation: each random stream has a key of its own, derived from one root key."""

from secure_agg.primitives.keys import KEY_BYTES, derive

_CONTEXT = b"secure_agg.noise".ljust(KEY_BYTES, b"\0")


def subkey(key: bytes, purpose: str, number: int) -> bytes:
    """The 32-byte key of stream `number` for `purpose`."""
    return derive(key, KEY_BYTES, label=purpose, context=_CONTEXT, parts=[number.to_bytes(8, "big")])
