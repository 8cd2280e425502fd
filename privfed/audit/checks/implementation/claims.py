"""What a plan claims about the numbers that a run released: where they are, their noise, and the grid they lie on."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from attacks.implementation import ClaimedNoise
from attacks.implementation.claimed_noise import MAX_FALSE_ALARM
from privfed.contracts import Block, Schema
from privfed.experiment import Experiment, RunResult
from privfed.guards.noise_grid import noise_steps
from privfed.privacy import PrivacyPlan
from privfed.privacy.upload_bits import levels

FALSE_ALARM = MAX_FALSE_ALARM / 8
"""Probability with which one check of an honest run may fail."""

_INTEGER_EXCESS = 0.05
"""Share by which sums of integer noise may be small more often than a Gaussian: their law is one only nearly."""


def grid_steps(plan: PrivacyPlan, schema: Schema, population: int) -> Mapping[str, float]:
    """Width of the steps of which every released number of a block is a whole number, by block.

    Blocks that are left out have no grid that the plan alone decides: an adaptive clip norm moves it along.

    Args:
        plan: the run's privacy plan.
        schema: blocks of the query.
        population: number of users.
    """
    if plan.mechanism.adaptive_clip is not None:
        return {}
    return noise_steps(plan, schema, population) or {}


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedValues:
    """Numbers of one block that one exchange released.

    Attributes:
        tap: where they were seen.
        round: of the exchange, from 0.
        name: of the block.
        block: as it was declared.
        values: one row for each upload, or one for the sum.
        noise: that every number is claimed to carry; None where nothing is claimed of single numbers.
        step: of the grid that they are claimed to lie on; None where none is claimed.
    """

    tap: Literal["wire", "sum"]
    round: int
    name: str
    block: Block
    values: Float[np.ndarray, "uploads numbers"]
    noise: ClaimedNoise | None
    step: float | None


def claims_epsilon(experiment: Experiment, result: RunResult) -> bool:
    """Whether a finite epsilon is claimed of what a run released."""
    return experiment.config.privacy.mechanism.unbounded_reason is None and math.isfinite(result.guarantee.epsilon)


def padded_tap(plan: PrivacyPlan) -> Literal["wire", "sum"]:
    """Where numbers first appear that the claim covers."""
    return "wire" if plan.mechanism.release == "individual" else "sum"


def released(experiment: Experiment, result: RunResult) -> Iterator[ReleasedValues]:
    """The real blocks of everything that was tapped where the claim begins, in order of time.

    Exchanges whose blocks no query of the method's program declares are left out: nothing says what is claimed of them.
    """
    plan, tap = experiment.config.privacy, padded_tap(experiment.config.privacy)
    program = [query.schema for query in experiment.registered.training.program(experiment.server)]
    round, left = -1, list[Schema]()
    for seen in result.transcript.joined(tap):
        left = list(program) if seen.round != round else left
        round = seen.round
        schema = next((one for one in left if _declares(one, seen.tensors, sums=tap == "sum")), None)
        if schema is None:
            continue
        left.remove(schema)
        steps = grid_steps(plan, schema, experiment.n_users)
        for name, block in schema.items():
            if block.kind != "real":
                continue
            values = seen.tensors[name].numpy().reshape(-1, block.size)
            noise = claimed_noise(plan, schema, name, values, experiment.n_users, fidelity=experiment.config.fidelity)
            yield ReleasedValues(tap, round, name, block, values, noise, steps.get(name))


def claimed_noise(
    plan: PrivacyPlan,
    schema: Schema,
    name: str,
    values: Float[np.ndarray, "uploads numbers"],
    population: int,
    *,
    fidelity: str = "exact",
) -> ClaimedNoise | None:
    """The noise that the plan claims on every released number of a block.

    Args:
        plan: the run's privacy plan.
        schema: blocks of the query.
        name: of the block.
        values: released; rounding to few bits depends on the largest of them.
        population: number of users, for whose sums a ring must have room.
        fidelity: how closely the wire was simulated.
    """
    mechanism, weight = plan.mechanism, schema[name].weight
    step = grid_steps(plan, schema, population).get(name, 0.0)
    if plan.upload_bits is not None:
        step = max(step, float(np.abs(values).max(initial=0.0)) / levels(plan.upload_bits))
    if mechanism.noise is not None:
        law, scale = mechanism.noise.law, mechanism.noise.scale
        return ClaimedNoise(law, scale / weight, step) if mechanism.noise.coordinates == "all" else None
    multiplier, masking = mechanism.server_noise_multiplier, mechanism.masking
    if multiplier is not None and mechanism.clip is not None and mechanism.adaptive_clip is None:
        return ClaimedNoise("gaussian", multiplier * mechanism.clip.norm / weight, step)
    if masking is not None and masking.noise is not None:
        if fidelity != "analytic":
            step = masking.sum_error(schema, plan.sampling.max_cohort(population)).step / weight
        return ClaimedNoise("gaussian", masking.noise.multiplier * masking.clip_norm / weight, step, _INTEGER_EXCESS)
    return None


def _declares(schema: Schema, tensors: Mapping[str, object], *, sums: bool) -> bool:
    """Whether a tapped exchange can be of these blocks."""
    first = 0 if sums else 1
    return all(
        name in tensors and tuple(getattr(tensors[name], "shape", ()))[first:] == block.shape
        for name, block in schema.items()
    ) and any(block.kind == "real" for block in schema.values())
