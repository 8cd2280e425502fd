"""On-device boosts: a device ranks by what it alone knows, on top of any recommender's scores, and sends nothing.

Where people view, cart and buy, and one of these is recommended, what a device knows of the others (`Split.auxiliary`)
may lift the items in question when it ranks:

    score(u, i) + sum over behaviours b of size_b * sd(u) * [u did b to i]

with sd(u) the standard deviation of the scores that the device ranks, so that a size means the same for every
recommender and every user. Training, messages and the guarantee are as without it: the sum is made where the list is.
"""

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.data import Split
from privfed.evaluation.errors import EvaluationError


class Boost:
    """What devices add to their scores.

    Args:
        sizes: behaviour -> standard deviations that its items gain; empty adds nothing.
        parts: the data, with what each user did besides the target in the training prefix.
        task: of the protocol.

    Raises:
        EvaluationError: the data have no such behaviour, a size is no number, or ratings are predicted.
    """

    def __init__(self, sizes: Mapping[str, float], parts: Split, task: str = "ranking") -> None:
        for behaviour, size in sizes.items():
            if behaviour not in parts.auxiliary:
                has = ", ".join(parts.auxiliary) or "none besides the one to recommend"
                raise EvaluationError(
                    f"boost.{behaviour} names a behaviour, and {parts.source} has {has}: name one of these, or leave "
                    f"boost out"
                )
            if not math.isfinite(size):
                raise EvaluationError(
                    f"boost.{behaviour} = {size} is no number of standard deviations: give one, such as 2"
                )
        if sizes and task != "ranking":
            raise EvaluationError("boost lifts items in a list, and protocol.task is rating: leave boost out")
        self._lifted = [(size, parts.auxiliary[behaviour]) for behaviour, size in sizes.items() if size]

    def added(
        self, scores: Float[Tensor, "users c"], users: Int64[Tensor, " users"], candidates: Tensor | None
    ) -> Float[Tensor, "users c"]:
        """The scores with what each user's own device adds.

        Args:
            scores: of the candidates, or of the whole catalogue.
            users: user of each row.
            candidates: item of each column, per user; None where all items are scored in order.
        """
        if not self._lifted:
            return scores
        # [users, 1]: each device's own scale, from the scores that it is about to rank
        scale = scores.std(dim=1, correction=0, keepdim=True)
        who = on_host(users)
        for size, known in self._lifted:
            # [users, items] bool, a row per device: nobody else ever holds it
            own = known.mask(who)
            if candidates is not None:
                own = np.take_along_axis(own, on_host(candidates), axis=1)
            scores = scores + size * scale * placed(own).to(scores.dtype)
        return scores
