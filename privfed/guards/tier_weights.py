"""Which tier everybody is in, and what their uploads count: by addressed randomness, or as the plan names them."""

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.federation import Purpose, Streams
from privfed.privacy.tiers import BudgetTiers


def tiers_of(tiers: BudgetTiers, streams: Streams, users: Int64[Tensor, " users"]) -> Int64[np.ndarray, " users"]:
    """The tier of every user, as its place among all; a user is in one tier for good, whatever is released.

    Args:
        tiers: of the plan.
        streams: of the users.
        users: their numbers.
    """
    numbers: np.ndarray = on_host(users)
    drawn: np.ndarray = on_host(streams.uniform(Purpose.TIER, 0, 0, numbers.tolist(), 1))
    return tiers.positions(numbers, drawn[:, 0])


def weights_of(
    tiers: BudgetTiers | None, streams: Streams, users: Int64[Tensor, " users"], tier: str | None = None
) -> Float64[Tensor, " users"]:
    """What the uploads of some users count.

    Args:
        tiers: of the plan; None lets every upload count in full.
        streams: of the users.
        users: their numbers.
        tier: that all of them have chosen; None looks up each one's own.
    """
    if tiers is None:
        return torch.ones(len(users), dtype=torch.float64)
    if tier is not None:
        return torch.full((len(users),), tiers.weight(tier), dtype=torch.float64)
    return placed(tiers.weights[tiers_of(tiers, streams, users)])
