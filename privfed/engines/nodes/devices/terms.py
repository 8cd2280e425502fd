"""What a device is told of a run before it takes part, and computes its own epsilon from (`device/src/terms.ts`)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from privfed.engines.nodes.errors import NodesError
from privfed.guards.ring_code import RingCode
from privfed.methods.popularity import COUNT, COUNTS
from privfed.methods.private_gram.queries import AGAIN, GRAM
from privfed.methods.shared.popular_head import HEAD, POPULARITY, SCALE, SHARES
from privfed.privacy.mechanisms.base import Mechanism
from secure_agg.noise.rdp import skellam_rdp

Terms = dict[str, JsonValue]
_ORDERS = (*range(2, 256), 300, 400, 600, 1000, 2000, 5000, 10000, 100000)
FORMAT, LARGEST_RING = 1, 32
PRIVATE_GRAM = "private-gram"
STEPS: Mapping[str, Mapping[str, str]] = {
    PRIVATE_GRAM: {POPULARITY: POPULARITY, GRAM: GRAM},
    "popularity": {COUNT: COUNTS},
}
"""Method that devices compute -> its steps, and the first block that each sends."""
_BLOCKS = {step: block for steps in STEPS.values() for step, block in steps.items()}


@dataclass(frozen=True, slots=True, eq=False)
class DeviceQuery:
    """One sum that devices are asked for.

    Attributes:
        step: of the clients.
        code: how an upload is written.
        diagonal: whether a Gram matrix has its diagonal.
    """

    step: str
    code: RingCode
    diagonal: bool

    @property
    def message(self) -> tuple[str, ...]:
        """Names of the tensors that a device is sent with it: no other is of use there."""
        return (HEAD, SHARES, SCALE) if self.step == GRAM else ()

    @property
    def terms(self) -> Terms:
        """What a device is told of it; the weight of a second block is `head_popularity`.

        Raises:
            NodesError: it is none that devices compute.
        """
        blocks, noised = dict(self.code.schema), self.code.distributed
        first, again = (
            blocks.pop(_BLOCKS.get(self.step, ""), None),
            blocks.pop(AGAIN, None) if self.step == GRAM else None,
        )
        if first is None or blocks or noised is None:
            raise NodesError(
                f"devices do not compute the step {self.step!r}: run {' or '.join(STEPS)}, with shares of noise"
            )
        share = sum(block.share for block in self.code.schema.values())
        told: Terms = {
            "name": self.step, "coordinates": self.code.length, "diagonal": self.diagonal, "weight": first.weight,
            "share": share, "grid": noised.grid, "total_variance": noised.noise.total_variance,
        }  # fmt: skip
        return told if again is None else told | {"head_popularity": again.weight}


def device_epsilon(queries: Sequence[DeviceQuery], delta: float) -> float:
    """What a run costs each device by its own sum, of Renyi divergences at whole orders: above the server's claim."""
    orders = np.array(_ORDERS, dtype=np.float64)
    events = [query.code.distributed.event() for query in queries if query.code.distributed is not None]
    loss = sum(skellam_rdp(_ORDERS, one.total_variance, one.l2, one.l1) for one in events)
    epsilons = loss + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(float(np.min(epsilons)), 0.0)


def announced_terms(mechanism: Mechanism, queries: Sequence[DeviceQuery], *, delta: float, cohort: int) -> Terms:
    """Terms of a run of one round.

    Args:
        mechanism: shares of noise inside the sum.
        queries: in the order in which they are asked.
        delta: of the guarantee.
        cohort: the most people in a sum.

    Raises:
        NodesError: devices do not compute it.
    """
    masking, shares, noised = mechanism.masking, mechanism.noise_shares, queries[0].code.distributed
    if masking is None or shares is None or noised is None:
        raise NodesError(
            f"the plan is {mechanism.label}, which adds no shares of noise, and devices take part under these only: "
            "choose distributed-gaussian"
        )
    flat = mechanism.clip is not None and mechanism.clip.per_block is None
    if shares.law != "skellam" or masking.bits > LARGEST_RING or not flat:
        raise NodesError(
            f"devices add Skellam noise in rings of at most {LARGEST_RING} bits, under one clip norm, and the plan has "
            f"law = {shares.law}, bits = {masking.bits}, clipping = {'flat' if flat else 'per_block'}"
        )
    asked = {query.step for query in queries}
    name = next((name for name, steps in STEPS.items() if asked <= steps.keys()), None)
    if name is None:
        raise NodesError(f"no method has the steps {', '.join(sorted(asked))}: run {' or '.join(STEPS)}")
    return {
        "format": FORMAT, "method": name, "law": shares.law, "beta": noised.event().beta, "rounds": 1,
        "clip_norm": masking.clip_norm, "delta": delta, "min_honest": shares.min_honest,
        "colluding": shares.colluding, "cohort": cohort, "bits": masking.bits,
        "queries": [query.terms for query in queries],
    }  # fmt: skip
