"""Whether the noise that a plan claims is there, is as large as claimed, and was drawn anew every time."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from attacks.implementation import (
    NoiseTest,
    correlated_uploads,
    repeated_differences,
    repeated_windows,
    small_values,
)
from privfed.audit.checks.implementation.claims import FALSE_ALARM, ReleasedValues, claims_epsilon, released
from privfed.audit.report.records import Check
from privfed.experiment import Experiment, RunResult
from privfed.privacy.mechanisms.clipping import Clip

SIZE, FRESH = "noise is as large as claimed", "noise is drawn anew"

_COMPARED = 2**14
"""Numbers of an upload that are compared to the bit."""
_CORRELATED, _UPLOADS = 2048, 800
"""Numbers of an upload, and uploads, that are held against each other."""


def check_noise_size(experiment: Experiment, result: RunResult) -> Iterator[Check]:
    """Missing or too little noise in any row, upload, sum or block of what was tapped."""
    if not claims_epsilon(experiment, result):
        return
    tests = []
    for seen in released(experiment, result):
        if seen.noise is not None:
            rows = seen.block.shape[0] if len(seen.block.shape) > 1 else 1
            tests.append((small_values(seen.values.reshape(len(seen.values), rows, -1), seen.noise), _place(seen)))
    yield from _verdict(SIZE, tests)


def check_repeated_noise(experiment: Experiment, result: RunResult) -> Iterator[Check]:
    """Noise that comes twice, between the rounds, clients, queries and blocks of what was tapped."""
    if not claims_epsilon(experiment, result):
        return
    seen = [one for one in released(experiment, result) if one.noise is not None]
    tests = [(_to_the_bit(seen), "everything")] if seen else []
    clip = experiment.config.privacy.mechanism.clip
    if clip is not None and any(one.tap == "wire" for one in seen):
        tests.append((_between_uploads(seen, clip), "uploads"))
    for name, again in groupby(sorted((one for one in seen if one.tap == "sum"), key=_by_name), key=_by_name):
        sums = list(again)
        noise = sums[0].noise
        if noise is not None and len({one.values.shape for one in sums}) == 1:
            totals = np.concatenate([one.values for one in sums])
            tests.append((repeated_differences(totals, noise), f"sums of block {name!r}"))
    yield from _verdict(FRESH, tests)


def _by_name(seen: ReleasedValues) -> str:
    return seen.name


def _place(seen: ReleasedValues) -> str:
    return f"block {seen.name!r} at '{seen.tap}' in round {seen.round + 1}"


def _verdict(name: str, tests: Sequence[tuple[NoiseTest, str]]) -> Iterator[Check]:
    """The least likely of several tests, all of them considered."""
    if not tests:
        return
    test, where = min(tests, key=lambda found: found[0].p_value)
    p = min(1.0, len(tests) * test.p_value)
    n_places = sum(one.n_tested for one, _ in tests)
    if p < FALSE_ALARM:
        detail = (
            f"{where}: {test.where}; the statistic is {test.statistic:.6g} where claimed noise gives at most "
            f"{test.threshold:.6g}, a chance below {max(p, 1e-300):.1e}"
        )
    else:
        detail = f"nothing unlikely in {n_places} places; the least likely has a chance of up to {p:.2g}"
    yield Check(name=name, passed=p >= FALSE_ALARM, detail=detail)


def _to_the_bit(seen: Sequence[ReleasedValues]) -> NoiseTest:
    """Runs of numbers that occur twice, in the unit of the noise that is the same for all blocks."""
    coarsest = max((one.noise for one in seen if one.noise is not None), key=lambda noise: noise.log2_atom)
    return repeated_windows([one.values[:, :_COMPARED] * np.float32(one.block.weight) for one in seen], coarsest)


def _between_uploads(seen: Sequence[ReleasedValues], clip: Clip) -> NoiseTest:
    """Uploads of all rounds, clients and blocks against each other, on as many numbers as the shortest block has.

    Blocks are in units of their own noise, so the clip norm over the scale bounds what each can add.
    """
    width = min(_CORRELATED, *(one.block.size for one in seen))
    each = max(1, _UPLOADS // len(seen))
    parts = [one.values[:each, :width] * (one.block.weight / _weighted_scale(one)) for one in seen]
    names = [f"upload {at} of {_place(one)}" for one, part in zip(seen, parts, strict=True) for at in range(len(part))]
    noise = max((one.noise for one in seen if one.noise is not None), key=lambda noise: noise.step / noise.scale)
    unit = type(noise)(noise.law, 1.0, noise.step / noise.scale, noise.excess)
    joint = clip.norm * (1.0 if clip.order == 1 else np.sqrt(width)) / _weighted_scale(seen[0])
    return correlated_uploads(np.concatenate(parts), unit, largest_sum=float(joint), names=names)


def _weighted_scale(seen: ReleasedValues) -> float:
    """Scale of the noise before it is divided by the weight of the block, in the unit of the clip norm."""
    assert seen.noise is not None
    return seen.noise.scale * seen.block.weight
