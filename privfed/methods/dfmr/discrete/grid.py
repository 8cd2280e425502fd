"""The integer grid of DFMR: every hyper-parameter as an exact multiple of 1/K, K = 2^F, and what that bounds.

With rounded weights and margins on the 1/(2d) grid, everything a client sends about a bit is a whole number, namely
2 d^2 K times its share of the bit's field V*_if: sums are exact in any order and their sign has no rounding error.
The rounded weights define a slightly different objective, which is then treated exactly.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

_MOST_SCORES = 2**31  # pair scores and their sums over the catalogue are kept in 32 bits
_MOST_BITS = 60


class GridError(ValueError):
    """A hyper-parameter that has no place on the integer grid; the message names the nearest that has."""


class GridNumbers(NamedTuple):
    """A `IntegerGrid` as compiled loops take it.

    Attributes:
        weights: pair weight of every item by its kind in a support.
        w, s, g1, g2, g3: as in `IntegerGrid`.
    """

    weights: Int64[np.ndarray, "kinds items"]
    w: int
    s: int
    g1: int
    g2: int
    g3: int


@dataclass(frozen=True, eq=False)
class IntegerGrid:
    """Hyper-parameters of the objective in whole numbers; build with `IntegerGrid.from_parameters`.

    The bounds hold for every user there could be, all codes and all item tables; an item is purchased or examined,
    never both, so of its two weights a user's sums hold at most the larger.

    Attributes:
        n_items: m, size of the catalogue.
        d: bits per code.
        bits: F; the unit of weights is 2^-F.
        w: weight of a purchase's squared error, times K.
        s: weight of every other item's squared error, times K.
        purchase: lambda c_i K, weight of the pairs in which item i is the purchased one.
        examine: (1 - lambda) c_i K, weight of the pairs in which item i is examined and the other is not.
        g1: 2d times the margin of a purchase over an examination.
        g2: 2d times the margin of a purchase over the rest.
        g3: 2d times the margin of an examination over the rest.
    """

    n_items: int
    d: int
    bits: int
    w: int
    s: int
    purchase: Int64[np.ndarray, "items"]
    examine: Int64[np.ndarray, "items"]
    g1: int
    g2: int
    g3: int

    @classmethod
    def from_parameters(
        cls,
        n_items: int,
        d: int,
        *,
        w: float,
        s: float,
        lam: float,
        c: Float64[np.ndarray, "items"],
        gammas: tuple[float, float, float],
        bits: int,
    ) -> "IntegerGrid":
        """Round real hyper-parameters to the grid.

        Args:
            n_items: size of the catalogue.
            d: bits per code.
            w: weight of a purchase's squared error, at least 0.
            s: weight of every other item's squared error, at least 0.
            lam: share of purchase pairs against examination pairs, 0 to 1.
            c: weight of each item's pairs, at least 0.
            gammas: margins of purchase over examination, purchase over rest, examination over rest: multiples of
                1/(2d) in [0, 1], in units of a rating.
            bits: F, the weights' fractional bits, 0 to 60.

        Raises:
            GridError: A value is out of its range, not finite, off the margin grid, or too large for 62 bits.
        """
        n_items, d = int(n_items), int(d)  # numpy's own whole numbers would wrap around in the bounds
        if min(n_items, d) < 1 or n_items * d >= _MOST_SCORES:
            raise GridError(
                f"{n_items} items of {d} bits: both must be at least 1, and their product below 2^31, "
                "so that sums of scores fit 32 bits"
            )
        if not 0 <= bits <= _MOST_BITS:
            raise GridError(
                f"bits is {bits} but must be 0 to {_MOST_BITS}: around 30 leaves room for sums over clients"
            )
        if not 0.0 <= lam <= 1.0:
            raise GridError(f"lam is {lam} but shares two losses, so it must be 0 to 1")
        if c.shape != (n_items,):
            raise GridError(f"c has shape {c.shape} but the catalogue has {n_items} items: give one weight per item")
        purchase, examine = _scaled("c", lam, c, bits), _scaled("c", 1.0 - lam, c, bits)
        w_grid, s_grid = (int(_scaled(name, 1.0, np.array([float(x)]), bits)[0]) for name, x in (("w", w), ("s", s)))
        g1, g2, g3 = (_margin(gamma, d) for gamma in gammas)
        return cls(n_items, d, bits, w_grid, s_grid, purchase, examine, g1, g2, g3)

    @cached_property
    def by_kind(self) -> Int64[np.ndarray, "kinds items"]:
        """Pair weight of every item by its kind in a support: 0 as a fake item, `purchase`, `examine`."""
        return np.stack([np.zeros_like(self.purchase), self.purchase, self.examine])

    @cached_property
    def numbers(self) -> GridNumbers:
        """The grid as compiled loops take it."""
        return GridNumbers(self.by_kind, self.w, self.s, self.g1, self.g2, self.g3)

    @cached_property
    def contribution_bound(self) -> int:
        """Largest |C_uif| of one user at one bit of one item.

        A score lies within d, one without its own bit within d - 1, so each pair term of item i is at most its
        weight times margin + (2d - 1), over at most m - 1 partners; the S and B terms pair up item by item into
        weight times (margin + score - score), at most weight times margin + (2d - 1), summed over the catalogue.
        """
        reach = 2 * self.d - 1
        points = reach * max(self.w, self.s) + min(self.w, self.s)
        purchased = (
            points
            + int(self.purchase.max()) * (self.n_items - 1) * (max(self.g1, self.g2) + reach)
            + self._most(self.g2 + reach, self.g3 + reach)
        )
        examined = int(self.examine.max()) * (self.n_items - 1) * (self.g3 + reach) + self._most(
            abs(self.g2 - self.g1), self.g3 + reach
        )
        return max(purchased, examined)

    @cached_property
    def field_bound(self) -> int:
        """Largest entry of one user's q2: |s d + g2 S^P + g3 S^E| with each item's larger weighted margin."""
        return self.s * self.d + self._most(self.g2, self.g3)

    @cached_property
    def kappa_bound(self) -> int:
        """Largest kap_u = s + S^P + S^E, and so of any entry of its coupling: each item's larger weight."""
        return self.s + self._most(1, 1)

    @cached_property
    def proximal_bound(self) -> int:
        """Largest |g_uf| = |B^P + B^E|: every score at most d, each item's larger weight."""
        return self.d * self._most(1, 1)

    @cached_property
    def user_field_bound(self) -> int:
        """Largest |2 d^2 K U*_uf|, which a client computes for itself in 64 bits, without its balance term.

        m squared errors of at most 2d - 1 times their weight; and per item its larger weight times at most m - 1
        partners, margin + 2 (d - 1) each, times two bits that differ by 2.
        """
        pair = 2 * (self.n_items - 1) * (max(self.g1, self.g2, self.g3) + 2 * (self.d - 1))
        return self.n_items * (2 * self.d - 1) * max(self.w, self.s) + self._most(pair, pair)

    @cached_property
    def inertia_bound(self) -> int:
        """Largest inertia of one user: |a|_2 sqrt(m - 1) for both weight vectors, as a partner of an item is another.

        With the roundings up on both sides: 2^-20 is far above the safety margin that `inertia` adds.
        """
        squares = [int((weight.astype(object) ** 2).sum()) for weight in (self.purchase, self.examine)]
        roots = [math.isqrt(square * (self.n_items - 1)) for square in squares]
        return sum(root + (root >> 20) + 3 for root in roots)

    def _most(self, purchased: int, examined: int) -> int:
        """Sum over the catalogue of the larger of both weights of an item, each times its factor."""
        return int(
            np.maximum(self.purchase.astype(object) * purchased, self.examine.astype(object) * examined).sum(initial=0)
        )


def _scaled(name: str, share: float, values: Float64[np.ndarray, "k"], bits: int) -> Int64[np.ndarray, "k"]:
    """Values, times a share of at most 1, as multiples of 2^-bits."""
    refused = values[~np.isfinite(values) | (values < 0)]
    if len(refused):
        raise GridError(f"{name} holds {refused[0]} but weights must be finite and at least 0: check them")
    largest = float(values.max())
    if largest >= math.ldexp(1.0, 62 - bits):
        raise GridError(f"{name} reaches {largest}, above 62 bits at bits = {bits}: scale it down or lower bits")
    return np.asarray(np.rint(np.ldexp(share * values, bits)), dtype=np.int64)


def _margin(gamma: float, d: int) -> int:
    steps = 2 * d * gamma
    if not np.isfinite(steps) or not 0 <= steps <= 2 * d or abs(steps - round(steps)) > 1e-9:
        nearest = min(max(round(steps), 0), 2 * d) / (2 * d) if np.isfinite(steps) else 0.5
        raise GridError(
            f"a margin of {gamma} is not a multiple of 1/(2d) = 1/{2 * d} between 0 and 1: the nearest is {nearest}"
        )
    return round(steps)
