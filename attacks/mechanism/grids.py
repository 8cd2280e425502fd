"""Grids: numbers that are all whole numbers of one step apart, as discrete noise leaves them."""

import numpy as np

_FINEST = 1e-4
"""Smallest step, over the range of the values; below it anything looks like a grid."""
_ROUNDING = 1e-6
"""Share of that range that may be rounding."""
_UNSEEN_FACTOR = 12
"""A step found in few values may be a small multiple of the true one, which then divides it by a factor of this."""
_OFF = 1e-3
"""Distance from the grid, in steps, that counts."""


def grid_step(values: np.ndarray) -> float:
    """Largest step of which all differences of the values are multiples; 0 if there is none."""
    gaps = np.diff(np.unique(values))
    if len(gaps) < 2:
        return 0.0
    width = float(gaps.sum())
    step = float(gaps[0])
    for gap in gaps[1:]:
        rest = float(gap)
        while rest > _ROUNDING * width:
            step, rest = rest, step % rest
            rest = 0.0 if step - rest < _ROUNDING * width else rest
        if step < _FINEST * width:
            return 0.0
    return step


def off_grid(numbers: np.ndarray, origin: np.ndarray, step: np.ndarray) -> np.ndarray:
    """True where a number is no whole number of steps from the origin of its column."""
    steps = (numbers - origin) / step
    return np.asarray(np.abs(steps - np.rint(steps)) > _OFF)


def leaves_grid(values: np.ndarray, shift: float) -> bool:
    """Whether a shift moves the values off the grid on which they lie, if they do."""
    step = grid_step(values)
    return bool(step and off_grid(np.asarray(shift), np.asarray(0.0), np.asarray(step / _UNSEEN_FACTOR)))
