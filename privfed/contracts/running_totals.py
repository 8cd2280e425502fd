"""Running totals of a year: what a device sends at every refresh, and how the sums are added up to a total.

Let A be the matrix that adds up all that came before, C the lower triangular Toeplitz matrix with C C = A, whose
coefficients are c_0 = 1, c_j = c_(j-1) (2j - 1) / (2j) (Fichtenberger, Henzinger and Upadhyay 2023), and |c| the norm
of its first column over all T refreshes. A device that joins at refresh a sends, at every refresh t from then on,

    u_t = c_(t-a) / |c| times v_t,   v_t the unit vector that it has to say at t,

and the server, which gets sums U_t of these with noise of their own, publishes S_t = |c| sum_(s <= t) c_(t-s) U_s.

* **Totals.** Somebody whose v does not change counts as v in every S_t from a on, because C C = A. One whose v changes
  counts as a mean of old and new, in which the new one grows. One who misses refreshes counts less until they are
  forgotten, and one who leaves after m uploads fades: sum_(j < m) c_j c_(t-a-j) of that person is left in S_t.
* **Sensitivity.** Whatever v_t are, however they depend on what was published, and whichever refreshes are missed,
  sum_t |u_t|^2 <= sum_(j < T - a) c_j^2 / |c|^2 <= 1: one unit of norm a year. The guard of a device believes nobody,
  keeps account of the norm that has left, and shortens what would exceed it. So the T sums together, with white noise
  of standard deviation z each, are one Gaussian release of noise multiplier z: given what was published before,
  the worlds with and without a person differ in U_t by u_t, and Gaussian releases that each may depend on those before
  add up in squared distance as long as its sum is bounded surely (Feldman and Zrnic 2021; Smith and Thakurta 2022).
* **Noise.** It is fresh in every sum, so nobody remembers any: shares of it work as well as a server's. On S_t it has
  |c| sqrt(sum_(j <= t) c_j^2) <= |c|^2 times that of one release of the same guarantee: 2.3 at 52 refreshes, where
  independent releases have sqrt(52) = 7.2.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64


def square_root(refreshes: int) -> Float64[np.ndarray, " refreshes"]:
    """First column of the lower triangular Toeplitz matrix whose square adds up all that came before.

    White noise of deviation z times the norm of this column, mixed by the same matrix, makes running totals that are
    (1 / z)-GDP together for a device that spends one unit of norm over the year.
    """
    ratios = np.arange(1, refreshes)
    return np.concatenate([[1.0], np.cumprod((2 * ratios - 1) / (2 * ratios))])


@dataclass(frozen=True)
class RunningTotals:
    """Totals that are published so many times a year.

    Attributes:
        refreshes: T.
    """

    refreshes: int

    @cached_property
    def column(self) -> Float64[np.ndarray, " refreshes"]:
        """First column of C."""
        return square_root(self.refreshes)

    @property
    def factor(self) -> float:
        """Noise of the last total over that of a single release, |c|^2; no other total has more."""
        return float((self.column**2).sum())

    @property
    def sent(self) -> Float64[np.ndarray, " refreshes"]:
        """Norm of what a device sends, by how many refreshes ago it joined: c / |c|."""
        return np.asarray(self.column / np.sqrt(self.factor))

    def weights(self, refresh: int) -> Float64[np.ndarray, " released"]:
        """What the sums of the refreshes up to and with this one (from 0) count in its total: |c| c_(t-s)."""
        return np.asarray(self.column[: refresh + 1][::-1] * np.sqrt(self.factor))

    def noise(self, refresh: int, released: Bool[np.ndarray, " refreshes"]) -> float:
        """Noise of a total over that on its sums.

        Args:
            refresh: of the total, from 0.
            released: which sums there are: a refresh that was aborted has none.
        """
        return float(np.linalg.norm(self.weights(refresh)[released[: refresh + 1]]))
