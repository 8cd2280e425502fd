"""Checks of shapes before compiled code runs: it reads memory by these shapes unchecked, so they must agree."""

import numpy as np
from jaxtyping import Int64, UInt64

from privfed.methods.dfmr.discrete.errors import DiscreteError
from privfed.methods.dfmr.discrete.grid import IntegerGrid
from privfed.methods.dfmr.discrete.support import ItemSupport


def check_shapes(
    grid: IntegerGrid,
    support: ItemSupport,
    users: Int64[np.ndarray, "n"],
    **arrays: tuple[np.ndarray, tuple[int, ...]],
) -> None:
    """Refuse users who are not hosted and arrays whose shape is not the one expected.

    Args:
        grid: hyper-parameters, for the same catalogue as `support`.
        support: supports of all hosted users.
        users: the called ones.
        arrays: name = (array, expected shape).

    Raises:
        DiscreteError: They do not belong together.
    """
    support.check(users)
    if grid.n_items != support.n_items:
        raise DiscreteError(
            f"the grid is for {grid.n_items} items but the support for {support.n_items}: build both from one catalogue"
        )
    for name, (array, shape) in arrays.items():
        if array.shape != shape:
            raise DiscreteError(
                f"{name} has shape {array.shape} but {shape} is expected: it must be of the same users, items and bits"
            )


def check_bit(grid: IntegerGrid, bit: int, first: int = 0) -> None:
    """Refuse a bit outside `first` to d - 1.

    Raises:
        DiscreteError: There is no such bit.
    """
    if not first <= bit < grid.d:
        raise DiscreteError(f"bit {bit} does not exist: codes have bits {first} to {grid.d - 1}")


def as_indices(codes: Int64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
    """Checked codes as unsigned numbers: compiled loops test signed indices for being negative, which costs time."""
    return np.ascontiguousarray(codes).view(np.uint64)
