"""On which grid every block of a release lies, by the plan alone: what whoever checks releases compares with."""

import math
from collections.abc import Mapping

from privfed.contracts import Schema, share_of
from privfed.federation.grid import NoisedSum, device_grid
from privfed.privacy.plan import PrivacyPlan


def noised_sum(multiplier: float, clip_norm: float, schema: Schema, summands: int) -> NoisedSum:
    """A trusted server's noise on the sum of a query.

    Args:
        multiplier: standard deviation of the noise over the clip norm.
        clip_norm: that was announced with the query.
        schema: blocks of the query.
        summands: number of clients that a round can have.
    """
    return NoisedSum(
        clip_norm=clip_norm * math.sqrt(share_of(schema)),
        deviation=multiplier * clip_norm,
        coordinates=sum(block.size for block in schema.values() if block.kind == "real"),
        summands=summands,
    )


def noise_steps(
    plan: PrivacyPlan, schema: Schema, population: int, clip_norm: float | None = None
) -> Mapping[str, float] | None:
    """The step of every real block of a release; None where the plan puts no noise of its own on a release.

    Noise in shares is accounted as integers too, but its sum is decoded through a rotation, off the grid.

    Args:
        plan: the privacy plan.
        schema: blocks of the query.
        population: number of users.
        clip_norm: that was announced with the query, where the plan adapts it.
    """
    mechanism = plan.mechanism
    real = {name: block for name, block in schema.items() if block.kind == "real"}
    if mechanism.noise is not None:
        return {name: device_grid(mechanism.noise.scale / block.weight).step for name, block in real.items()}
    if mechanism.server_noise_multiplier is not None and mechanism.clip is not None:
        max_clients = plan.sampling.max_cohort(population)
        noised = noised_sum(mechanism.server_noise_multiplier, clip_norm or mechanism.clip.norm, schema, max_clients)
        return {name: noised.grid(block.weight).step for name, block in real.items()}
    return None
