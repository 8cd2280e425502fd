"""What releases cost at least, worked out by numbers that share no code with any accountant of a ledger.

Every release is a pair of laws on the line, in units of the noise's deviation: one user's contribution present and
absent, at the distance that the sensitivity allows. The line is cut into cells, and whoever sees only the cell sees
less, so the privacy loss of cells is a lower bound. Losses are rounded down to a grid, those above its end are moved
down to it and those below its start are left out, each of which lowers delta once more; sums of losses follow by
Fourier transform. So epsilon at a delta is never above the true one, and for the releases of a run some thousandths
below it.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy import stats
from scipy.optimize import brentq

_CELLS, _DEVIATIONS = 20_000, 12.0
_LARGEST, _LEFT_OUT = 50.0, 1e-5
"""Loss of one release beyond which nothing more is told apart, and share of delta that ends of its law may have."""
_STEPS, _MOST_STEPS = 1_000, 1 << 19
_TINY = 1e-15
"""What Fourier transforms may err by, over all sums together, is below this share of a delta."""


@dataclass(frozen=True, slots=True, order=True)
class OneRelease:
    """Noise on a number that one contribution moves by 1.

    Attributes:
        law: of the noise.
        multiplier: its standard deviation (of Laplace noise, its scale) over the distance.
        rate: probability that the contribution is there at all, which nobody sees.
    """

    law: Literal["gaussian", "laplace"]
    multiplier: float
    rate: float = 1.0


def least_epsilon(releases: Counter[OneRelease], delta: float) -> float:
    """A lower bound on epsilon of independent releases together, at `delta`.

    Args:
        releases: how often each was made.
        delta: at which.
    """
    releases = Counter({one: count for one, count in releases.items() if count > 0})
    if not releases:
        return 0.0
    # With the contribution against without it, and the other way round: epsilon has to cover both.
    return max(_one_way(releases, delta, swapped=swapped) for swapped in (False, True))


def _one_way(releases: Counter[OneRelease], delta: float, *, swapped: bool) -> float:
    chance = _LEFT_OUT * delta / sum(releases.values())
    laws = {one: _losses(one, chance, swapped=swapped) for one in releases}
    low = sum(count * laws[one][0].min() for one, count in releases.items())
    high = sum(count * laws[one][0].max() for one, count in releases.items())
    step = max(_spread(releases, laws) / _STEPS / sum(releases.values()) ** 0.5, (high - low) / _MOST_STEPS)
    first = {one: math.floor(losses.min() / step) for one, (losses, _) in laws.items()}
    size = 1 << math.ceil(math.log2((high - low) / step + sum(releases.values()) + 2))
    total = np.ones(size // 2 + 1, dtype=np.complex128)
    for one, count in releases.items():
        losses, chances = laws[one]
        place = np.floor(losses / step).astype(np.int64) - first[one]
        total *= np.fft.rfft(np.bincount(place, chances, minlength=size)) ** count
    sums = (np.arange(size) + sum(count * first[one] for one, count in releases.items())) * step
    chances = np.fft.irfft(total, size).clip(min=0)

    def excess(epsilon: float) -> float:
        above = sums > epsilon
        return float(chances[above] @ -np.expm1(epsilon - sums[above])) - delta * (1 + 1e-6) - _TINY

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, float(sums.max()) + step))


def _spread(
    releases: Counter[OneRelease], laws: dict[OneRelease, tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]]
) -> float:
    """Root mean square of the sum of all losses about its mean, or its mean where that is larger."""
    mean = sum(count * float(laws[one][0] @ laws[one][1]) for one, count in releases.items())
    square = sum(count * float(laws[one][0] ** 2 @ laws[one][1]) for one, count in releases.items())
    return max(mean, math.sqrt(square), 1e-9)


def _losses(
    one: OneRelease, chance: float, *, swapped: bool
) -> tuple[Float64[np.ndarray, " cells"], Float64[np.ndarray, " cells"]]:
    """(loss of a cell, its chance) under the first of the two laws, without ends that are rarer than `chance`."""
    far = _DEVIATIONS * one.multiplier
    middle = np.linspace(-far, 1 + far, _CELLS)
    edges = np.unique(np.concatenate([[-np.inf], middle, np.linspace(0, 1, _CELLS // 10), [np.inf]]))
    law = stats.norm if one.law == "gaussian" else stats.laplace
    absent, present = (_cells(law, edges, at, one.multiplier) for at in (0.0, 1.0))
    present = one.rate * present + (1 - one.rate) * absent
    p, q = (absent, present) if swapped else (present, absent)
    seen = (p > 0) & (q > 0)
    losses = np.log(p[seen]) - np.log(q[seen])
    chances = np.append(p[seen], p[(p > 0) & (q == 0)].sum())
    losses = np.append(losses, losses.max())
    order = np.argsort(losses)
    below, above = chances[order].cumsum(), chances[order][::-1].cumsum()[::-1]
    kept = losses[order][(below > chance) & (above > chance) & (np.abs(losses[order]) < _LARGEST)]
    low, high = (float(kept.min()), float(kept.max())) if len(kept) else (-_LARGEST, _LARGEST)
    keep = losses >= low
    return losses[keep].clip(max=high), chances[keep]


def _cells(
    law: "stats.rv_continuous", edges: Float64[np.ndarray, " edges"], at: float, scale: float
) -> Float64[np.ndarray, " cells"]:
    """Chances of the cells, from whichever tail gives more digits."""
    below, above = law.cdf(edges, at, scale), law.sf(edges, at, scale)
    cells: Float64[np.ndarray, " cells"] = np.where(edges[:-1] < at, np.diff(below), -np.diff(above))
    return cells
