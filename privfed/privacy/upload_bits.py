"""Sizes of uploads of b bits a number (`privfed.guards.quantising`): levels and bytes, without a tensor."""

from secure_agg.encoding import Ring

STEP_BYTES = 4


def levels(bits: int) -> int:
    """The largest whole number that travels, L = 2^(bits - 1) - 1."""
    return (1 << (bits - 1)) - 1


def coded_bytes(coordinates: float, bits: int) -> float:
    """Bytes of a block's step and so many numbers: rounded up once, unless they are a mean and no whole number."""
    whole = coordinates == int(coordinates)
    return STEP_BYTES + (Ring(bits).packed_bytes(int(coordinates)) if whole else coordinates * bits / 8)
