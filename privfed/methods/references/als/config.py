"""Settings of the central least squares references.

Defaults were chosen on the validation purchases of a shopping log (JD, 10,690 users, 13,465 items), for 15 rounds.
The weights c0 and pairs_c0 are totals over the catalogue: larger catalogues take larger ones.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import Float64
from pydantic import Field
from torch import Tensor

from privfed.compute.devices import on_host
from privfed.methods.client_data import ClientData
from privfed.methods.method import MethodConfig
from privfed.methods.shared.als import ALSObjective, Feedback, popularity_weights


class EALSConfig(MethodConfig):
    """Settings of eALS; one round is one pass over users and items."""

    examines: ClassVar[bool] = False
    """Whether clients also reveal what they examined."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    c0: float = Field(20.0, ge=0, description="what the weights of all missing purchases of a user add up to")
    exponent: float = Field(0.7, ge=0, description="a missing purchase weighs popularity^exponent; 0: all the same")
    reg: float = Field(0.4, gt=0, description="weight of the squared lengths of user and item vectors")
    initial_scale: float = Field(0.01, gt=0, description="standard deviation of initial item vectors")

    def feedback(self, data: ClientData) -> Feedback:
        """The feedback that clients learn from: purchases only."""
        return Feedback.from_histories(data.positives)

    def weights(self, feedback: Feedback) -> dict[str, Float64[np.ndarray, "items"]]:
        """Weight of a missing purchase of each item, from what everybody revealed."""
        return {"missing": popularity_weights(feedback.purchased.popularity(), self.c0, self.exponent)}

    def objective(self, weights: Mapping[str, Tensor]) -> ALSObjective:
        """The objective under these weights: purchases only."""
        missing = on_host(weights["missing"].double())
        return ALSObjective(missing, np.zeros_like(missing), 0.0, 0.0, (0.0, 0.0), self.reg)


class VALSConfig(EALSConfig):
    """Settings of VALS; one round is one pass over users and items."""

    examines: ClassVar[bool] = True

    examinations: tuple[str, ...] | None = Field(
        None, description="behaviours that count as examinations; null: view where there is one, else all but purchases"
    )
    pairs_c0: float = Field(
        0.03, ge=0, description="what the weights of all examined items' pairs add up to; 0: no pairs"
    )
    pairs_exponent: float = Field(0.5, ge=0, description="an item's pairs weigh (users who examined it)^exponent")
    gamma1: float = Field(0.35, description="margin of a purchased item over an examined one")
    gamma2: float = Field(0.5, description="margin of an examined item over the rest")
    examined_weight: float = Field(0.0, ge=0, description="weight of an examined item's own target; 0 as published")
    examined_target: float = Field(0.5, description="the score that an examined item should have on its own")

    def feedback(self, data: ClientData) -> Feedback:
        """The feedback that clients learn from: purchases, and whatever else they examined."""
        return Feedback.from_histories(data.positives, data.examined(self.examinations))

    def weights(self, feedback: Feedback) -> dict[str, Float64[np.ndarray, "items"]]:
        """Weights of missing purchases and of pairs, from what everybody revealed."""
        pairs = popularity_weights(feedback.examined.popularity(), self.pairs_c0, self.pairs_exponent)
        return {**super().weights(feedback), "pairs": pairs}

    def objective(self, weights: Mapping[str, Tensor]) -> ALSObjective:
        """The objective under these weights: purchases, examinations and the margins between them."""
        missing, pairs = (on_host(weights[name].double()) for name in ("missing", "pairs"))
        margins = (self.gamma1, self.gamma2)
        return ALSObjective(missing, pairs, self.examined_weight, self.examined_target, margins, self.reg)
