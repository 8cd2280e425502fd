"""Relation-based ensemble self-distillation at the server (HeteFedRec, ICDE 2024, eq. 16-17).

Items should relate alike in tables of every width. With d(V) the cosine similarities of some items and the teacher
their mean over the tables, held fixed, every table descends

    L = mean over pairs of (d(V) - teacher)^2.

With n the rows of length 1 and D = d(V) - teacher, dL/dn = 4 D n / K^2 and dL/dv = (dn - n <n, dn>) / |v|. Only public
parameters enter, so it costs no privacy.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import placed

_SHORTEST = 1e-12


def distillation_gradients(tables: Sequence[Float[Tensor, "k _"]]) -> list[Tensor]:
    """The gradient of every table's loss by its rows."""
    lengths = [table.norm(dim=1, keepdim=True).clamp(min=_SHORTEST) for table in tables]
    units = [table / length for table, length in zip(tables, lengths, strict=True)]
    similarities = [unit @ unit.T for unit in units]
    # [k, k]. Held fixed, so no table's gradient needs the similarities of another one.
    teacher = sum(similarities[1:], similarities[0]) / len(tables)
    gradients = []
    for unit, length, similarity in zip(units, lengths, similarities, strict=True):
        # 4: the square gives 2, and D is symmetric, so every row of n comes in twice.
        pulled = (similarity - teacher) @ unit * (4 / len(unit) ** 2)
        # Through v / |v|: what lies along n changes a length, not a direction, and drops out.
        gradients.append((pulled - unit * (unit * pulled).sum(1, keepdim=True)) / length)
    return gradients


def distilled_items(seed: Sequence[int], round: int, step: int, n_items: int, count: int) -> Int64[Tensor, " k"]:
    """The items of one step, drawn anew from the server's seed and the step's address; all where there are fewer."""
    rng = np.random.default_rng([*seed, round, step])
    return placed(rng.choice(n_items, min(count, n_items), replace=False))
