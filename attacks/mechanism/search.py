"""Search for the neighbouring inputs that tell most, by a few replays of every candidate.

Nothing here is a measurement: it chooses what is measured on fresh trials. Pairs compete in categories, because a unit
that passes unnoised, one that makes a number infinite and one that changes the scale of the noise are different faults.
"""

import math
import time
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from attacks.mechanism.grids import leaves_grid
from attacks.mechanism.inputs import NeighbourPair
from attacks.mechanism.release import CapturedRelease, Trials
from attacks.mechanism.replay import Alignment, align, noise_law

Category: TypeAlias = Literal["influence", "unnoised outputs", "extreme values", "number of users", "absent users"]

_REPLAYS = 6
_FIRST = 12
"""Candidates whose noise is measured better before the strongest is chosen."""
_SEEN = 1e-6
_SCALED = 4.5
"""Standard errors from which two scales of noise are worth a measurement."""


@dataclass(frozen=True, eq=False)
class TriedPair:
    """A pair after a few replays.

    Attributes:
        pair: The neighbouring inputs.
        alignment: Relation of the replays, if exact.
        spread: Standard deviation of the noise in each noisy coordinate, over the same seeds for every pair.
        influence: Rough distance of the two worlds in units of the noise; infinite where something has no noise.
        unnoised: Whether an output without noise differs, or the outputs' form does.
        spread_ratio: Logarithm of the ratio of the scales of the noise, in its standard errors.
    """

    pair: NeighbourPair
    alignment: Alignment | None
    spread: np.ndarray
    influence: float
    unnoised: bool
    spread_ratio: float


def try_pairs(
    release: CapturedRelease, pairs: list[NeighbourPair], seeds: list[int], deadline: float
) -> list[TriedPair]:
    """Replay every pair that the mechanism takes, until the deadline."""
    tried: list[TriedPair] = []
    for pair in pairs:
        if tried and time.monotonic() > deadline:
            break
        try:
            without = release.trials(pair.without, seeds[:_REPLAYS])
            member = release.trials(pair.member, seeds[:_REPLAYS], without.layout)
        except Exception as error:  # whatever it raises, it refuses this input
            release.refusals[pair.name] = f"{type(error).__name__}: {error}"
            continue
        tried.append(_candidate(pair, without, member))
    return tried


def choose(candidates: list[TriedPair]) -> dict[Category, TriedPair]:
    """The most telling pair of every category in which something was seen; without any fault, that of influence."""
    chosen: dict[Category, TriedPair] = {}
    finite = [candidate for candidate in candidates if candidate.pair.kind == "finite"]
    if unnoised := [candidate for candidate in finite if candidate.unnoised]:
        chosen["unnoised outputs"] = unnoised[0]
    noisy = [candidate for candidate in finite if not candidate.unnoised]
    if noisy or not finite:
        chosen["influence"] = max(noisy or candidates, key=lambda candidate: candidate.influence)
    if odd := [c for c in candidates if c.pair.kind == "extreme" and _is_worse(c, chosen)]:
        chosen["extreme values"] = max(odd, key=lambda candidate: candidate.influence)
    if absent := [c for c in candidates if c.pair.kind == "absent" and c.influence > _SEEN]:
        chosen["absent users"] = max(absent, key=lambda candidate: candidate.influence)
    if scaled := [candidate for candidate in noisy if candidate.spread_ratio > _SCALED]:
        chosen["number of users"] = max(scaled, key=lambda candidate: candidate.spread_ratio)
    return chosen


def strongest(release: CapturedRelease, candidates: list[TriedPair], seeds: list[int]) -> TriedPair:
    """The candidate of most influence, after measuring noise better than the search did."""
    first = sorted(candidates, key=lambda candidate: -candidate.influence)
    aligned = [c for c in first if c.alignment is not None and not c.alignment.scaled]
    if not aligned:
        again = (_again(release, candidate, seeds) for candidate in first[:_FIRST])
        return max(again, key=lambda candidate: candidate.influence)
    reference = aligned[0].alignment
    assert reference is not None
    noise = release.trials(aligned[0].pair.without, seeds).numbers
    if noise.shape[1] != len(reference.noisy):
        return aligned[0]
    # Seeds are the same for all, so what they made of the first one's spread they made of every other's.
    noise = noise[:, reference.noisy]
    chance = noise.std(axis=0) / np.maximum(aligned[0].spread, 1e-300)
    # Laplace noise loses what all coordinates lose, Gaussian noise the length of it.
    norm = 1 if noise_law(noise) == "laplace" else 2

    def influence(candidate: TriedPair) -> float:
        alignment = candidate.alignment
        if alignment is None or not np.array_equal(alignment.noisy, reference.noisy):
            return 0.0
        return float(np.linalg.norm(alignment.shift / np.maximum(chance * candidate.spread, 1e-300), norm))

    return max(aligned, key=influence)


def _again(release: CapturedRelease, candidate: TriedPair, seeds: list[int]) -> TriedPair:
    """The candidate after more replays."""
    without = release.trials(candidate.pair.without, seeds)
    return _candidate(candidate.pair, without, release.trials(candidate.pair.member, seeds, without.layout))


def _is_worse(extreme: TriedPair, chosen: dict[Category, TriedPair]) -> bool:
    """Whether an extreme value does what no finite one was seen to do."""
    if extreme.unnoised:
        return "unnoised outputs" not in chosen
    finite = chosen["influence"].influence if "influence" in chosen else 0.0
    return extreme.influence > 1.2 * finite + (0.0 if extreme.alignment is not None else 3.0)


def growth(candidates: list[TriedPair]) -> tuple[float, float] | None:
    """Sizes of the smallest and the largest influence of one direction in one company, if it grows without a bound."""
    by_direction: dict[str, list[float]] = {}
    for candidate in candidates:
        if candidate.pair.kind == "finite" and candidate.alignment is not None and ", size " in candidate.pair.name:
            direction, rest = candidate.pair.name.split(", size ")
            company = f"{direction}; {rest.partition('; ')[2]}"
            by_direction.setdefault(company, []).append(float(np.linalg.norm(candidate.alignment.shift)))
    for shifts in by_direction.values():
        # Sizes are a thousand apart, and so is the influence of what nothing clips.
        if len(shifts) >= 3 and min(shifts[-1] / max(shifts[-2], 1e-300), shifts[-2] / max(shifts[-3], 1e-300)) > 300:
            return shifts[0], shifts[-1]
    return None


def _candidate(pair: NeighbourPair, without: Trials, member: Trials) -> TriedPair:
    a, b = without.numbers, member.numbers
    if _form(without) != _form(member):
        return TriedPair(pair, None, np.zeros(0), math.inf, unnoised=True, spread_ratio=0.0)
    finite = np.isfinite(a).all(axis=0) & np.isfinite(b).all(axis=0)
    a, b = a[:, finite], b[:, finite]
    spread_a, spread_b = a.std(axis=0), b.std(axis=0)
    size = np.maximum(np.abs(a).max(axis=0, initial=0.0), np.abs(b).max(axis=0, initial=0.0))
    still = (spread_a <= 1e-12 * size) & (spread_b <= 1e-12 * size)
    difference = b.mean(axis=0) - a.mean(axis=0)
    alignment = align(without.numbers, member.numbers)
    unnoised = (
        bool((still & (np.abs(difference) > 1e-9 * size)).any())
        or _hidden(a, b)
        or _half_noised(a, b)
        or _off_grid(alignment, without.numbers)
    )
    influence = _influence(alignment, difference, spread_a, spread_b, len(without))
    spread = np.zeros(0) if alignment is None else without.numbers[:, alignment.noisy].std(axis=0)
    return TriedPair(pair, alignment, spread, influence, unnoised, _ratio(alignment, spread_a, spread_b))


def _influence(
    alignment: Alignment | None, difference: np.ndarray, spread_a: np.ndarray, spread_b: np.ndarray, n: int
) -> float:
    """Distance of the means in units of the noise, less what the noise of unaligned means gives."""
    noisy = (spread_a > 0) & (spread_b > 0)
    ratios = difference[noisy] ** 2 / ((spread_a[noisy] ** 2 + spread_b[noisy] ** 2) / 2)
    squared = float(ratios.sum())
    if alignment is None:
        squared -= 2 * float(noisy.sum()) / n
    return math.sqrt(max(squared, 0.0))


def _ratio(alignment: Alignment | None, spread_a: np.ndarray, spread_b: np.ndarray) -> float:
    """Logarithm of the ratio of two scales of noise, in standard errors; large where replays give it exactly."""
    if alignment is not None:
        return 1e6 * float(np.abs(np.log(np.abs(alignment.factor))).max()) if alignment.scaled else 0.0
    noisy = (spread_a > 0) & (spread_b > 0)
    if not noisy.any():
        return 0.0
    logs = np.log(spread_b[noisy] / spread_a[noisy])
    return float(abs(logs.sum()) / math.sqrt(len(logs) / (_REPLAYS - 1)))


def _hidden(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two noisy outputs differ by the same amount in every call, another one with the unit."""
    if a.shape[1] < 2:
        return False
    # The first output minus each other one; where noise is shared, these do not vary.
    left, right = a[:, :1] - a[:, 1:], b[:, :1] - b[:, 1:]
    noise = np.minimum(a[:, 1:].std(axis=0), a[:, 0].std())
    shared = (left.std(axis=0) < 1e-9 * noise) & (right.std(axis=0) < 1e-9 * noise)
    moved = np.abs(left.mean(axis=0) - right.mean(axis=0)) > 1e-3 * noise
    return bool((shared & moved).any())


def _half_noised(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether an output never changes in one world and takes many values in the other."""
    for one, other in ((a, b), (b, a)):
        still = (one == one[:1]).all(axis=0)
        if any(len(np.unique(column)) > len(other) // 2 for column in other[:, still].T):
            return True
    return False


def _off_grid(alignment: Alignment | None, numbers: np.ndarray) -> bool:
    """Whether noise lies on a grid and the unit's influence does not."""
    if alignment is None or alignment.scaled:
        return False
    noise = numbers[:, alignment.noisy]
    return any(leaves_grid(column, float(shift)) for column, shift in zip(noise.T, alignment.shift, strict=True))


def _form(trials: Trials) -> tuple[bool, bytes]:
    """Whether layouts are odd and which outputs are never finite, which noise does not change."""
    return bool(trials.odd.all()), (~np.isfinite(trials.numbers)).all(axis=0).tobytes()
