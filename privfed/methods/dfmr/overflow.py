"""Proof, before anything runs, that no field of a bit leaves 64 bits: not on a device, not at the server.

Sums are exact only as long as they fit. The bounds of `IntegerGrid` hold for all codes there could be; a secret
sharing checks its own ring besides, block by block.
"""

import math

from privfed.methods.dfmr.balance import NULL_SHARE, unit
from privfed.methods.dfmr.config import DFMRConfig
from privfed.methods.dfmr.discrete import IntegerGrid

_BITS = 63
_SLACK = 1.001
"""Of float64 arithmetic, many times over."""


class SumOverflowError(ValueError):
    """A field can leave 64 bits; the message says how many it needs."""


def check_overflow(config: DFMRConfig, grid: IntegerGrid, n_users: int) -> None:
    """Refuse settings under which the field of a user's bit, or that of an item's, may overflow.

    Raises:
        RoomError: it may.
    """
    for whose, largest in (
        ("a user's", largest_user_field(config, grid)),
        ("an item's", _item_field(config, grid, n_users)),
    ):
        if largest < 2**_BITS:
            continue
        needed = largest.bit_length() + 1
        lower = config.bits - (needed - _BITS - 1)
        advice = f"lower bits to {lower}" if lower > 0 else "lower c0, w or the balance weights"
        raise SumOverflowError(
            f"with bits = {config.bits} the field of {whose} bit can need {needed} bits and integers have "
            f"{_BITS + 1}: {advice}"
        )


def largest_user_field(config: DFMRConfig, grid: IntegerGrid) -> int:
    """Bound of |2 d^2 K U*_uf|, balance included.

    A code is at most 2 sqrt(d) from any mean, and an inverse root stretches by at most (NULL_SHARE n)^(-1/2).
    """
    balance = _SLACK * unit(grid, config.alpha) * 2 * math.sqrt(grid.d / NULL_SHARE)
    return grid.user_field_bound + math.ceil(balance) + grid.d + 1


def _item_field(config: DFMRConfig, grid: IntegerGrid, n_users: int) -> int:
    """Bound of |2 d^2 K V*_if|, inertia and balance included: the columns of Y have length sqrt(m)."""
    one = grid.contribution_bound + grid.field_bound + grid.proximal_bound + (grid.d - 1) * grid.kappa_bound
    balance = _SLACK * unit(grid, config.beta) * math.sqrt(grid.n_items)
    return n_users * (one + grid.inertia_bound) + math.ceil(balance) + 1
