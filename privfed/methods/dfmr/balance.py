"""What draws user codes towards balanced, uncorrelated rows, in whole numbers that are the same on every machine.

A device adds 4 d^2 K alpha X_u to the field of its bits, where X_u = sqrt(n) (U_u - mean) (centred U^T U)^(-1/2) needs
the moments of all codes and its own code (`privfed.methods.dfmr.discrete.balance`). The server folds the moments into
one matrix and one row of whole multiples of a power of two, few enough that no sum of them is ever rounded: in whatever
order a device, or a simulation of many, adds them up, the result is the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int8, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.methods.dfmr.discrete import IntegerGrid, inverse_root

NULL_SHARE = 1e-9
"""Of the number of rows: what `inverse_root` takes for a null direction, so the most that it stretches by."""

_EXACT_BITS = 53


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """codes @ matrix - centre, in units of 1 / (2 d^2 K) of the field."""

    matrix: Float64[np.ndarray, "d d"]
    centre: Float64[np.ndarray, "d"]

    @classmethod
    def none(cls, d: int) -> "Balance":
        """As long as nobody's moments are known."""
        return cls(np.zeros((d, d)), np.zeros(d))

    @classmethod
    def from_moments(
        cls,
        grid: IntegerGrid,
        alpha: float,
        totals: Int64[np.ndarray, "d"],
        products: Int64[np.ndarray, "d d"],
        clients: int,
    ) -> "Balance":
        """From the moments of some clients' codes.

        Args:
            grid: hyper-parameters.
            alpha: weight of X.
            totals: sum of the codes.
            products: U^T U.
            clients: number of clients whose codes are summed, at least 1.
        """
        mean = totals / clients
        matrix = unit(grid, alpha) * math.sqrt(clients) * inverse_root(mean, products.astype(np.float64))
        centre = mean @ matrix
        largest = float((np.abs(matrix).sum(0) + np.abs(centre)).max()) + grid.d + 1
        step = math.ldexp(1.0, max(0, math.frexp(largest)[1] - _EXACT_BITS + 1))
        return cls(np.rint(matrix / step) * step, np.rint(centre / step) * step)

    @classmethod
    def received(cls, shared: Mapping[str, Tensor]) -> "Balance | None":
        """What a message brought; None where the settings have no balance."""
        return cls(on_host(shared["balance"]), on_host(shared["centre"])) if "balance" in shared else None

    def shared(self) -> dict[str, Tensor]:
        """As it is sent to everybody, and kept in a checkpoint."""
        return {"balance": placed(self.matrix), "centre": placed(self.centre)}

    def on(self, codes: Int8[np.ndarray, "n d"]) -> Int64[np.ndarray, "n d"]:
        """4 d^2 K alpha X of these codes."""
        rows: Int64[np.ndarray, "n d"] = (codes.astype(np.float64) @ self.matrix - self.centre).astype(np.int64)
        return rows


def unit(grid: IntegerGrid, weight: float) -> float:
    """4 d^2 K times the weight of X or Y."""
    return math.ldexp(4.0 * grid.d**2 * weight, grid.bits)
