"""Attack rows for tap "model": what published parameters say about everybody who took part in making them.

Everybody receives the model, so everybody can subtract one from the next. Under plain averaging the difference is the
sum of the uploads in between, over a constant; under a server's optimiser it is what that makes of them. Either way it
is read as a sum over all who took part between the two models (`attacks.sums`). Models that were not tapped in between
only make for sums over more rounds.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from attacks import ServerView, SumView
from privfed.contracts import Schema
from privfed.engines.transcript import Observation
from privfed.methods import ItemBlocks

SEEN_BY = {
    "adversary": "anybody who receives the model",
    "observable": "the published model before and after the clients' training",
}
"""What an attack on differences of models says of itself."""


Published = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Public parameters -> those that stand for blocks of uploads, by the names of these."""


def why_no_rows(schema: Schema, published: Mapping[str, Tensor], blocks: ItemBlocks | None) -> str | None:
    """Why published parameters cannot be read like a sum of uploads, in a sentence; None where they can.

    Args:
        schema: of the training step; counts in it are no parameters.
        published: parameters by the names of blocks.
        blocks: which blocks of uploads say something about items.
    """
    if blocks is None:
        return "uploads have no row per item, so neither do differences of what is published"
    if missing := sorted(name for name, block in schema.items() if block.kind == "real" and name not in published):
        return (
            f"what is published is laid out in another way than uploads are (there is no {missing[0]} in it), so a "
            f"difference of models is no sum of them"
        )
    return None


def model_changes(
    observations: Sequence[Observation],
    users: Int64[np.ndarray, "users"],
    blocks: ItemBlocks,
    schema: Schema,
    published: Published,
    members: Callable[[int], Int64[Tensor, " members"]],
) -> list[SumView]:
    """Changes from each tapped model to the next, with the audited users who took part in between.

    Args:
        observations: of tap `model`, by round.
        users: audited users, ascending.
        blocks: which block plays which role.
        schema: of the training step.
        published: how public parameters stand for blocks.
        members: round -> who took part in it.
    """
    changes = []
    for before, after in pairwise(observations):
        rounds = [members(t) for t in range(before.round + 1, after.round + 1)]
        took_part = np.unique(torch.cat(rounds).numpy())
        here = np.isin(users, took_part)
        new, old = published(after.tensors), published(before.tensors)
        moved = {
            name: (new[name] - old[name] if name in new else torch.zeros(block.shape)).float().unsqueeze(0)
            for name, block in schema.items()
        }
        view = ServerView(after.round, **{role: values.numpy() for role, values in blocks.read(moved).items()})
        if here.any() and view.present().any():
            changes.append(SumView(view, here, clients=len(took_part)))
    return changes
