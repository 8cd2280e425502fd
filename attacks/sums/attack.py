"""Interface of an attack that needs sums: its scores depend on how many clients take part."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from attacks.evaluation.info import AttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.sums import SumView
from attacks.views.types import Scores


class SumAccumulator(Protocol):
    """Evidence of one attack from the sums so far."""

    def add(self, view: SumView, knowledge: Knowledge) -> None:
        """Add the evidence of one more sum."""

    def scores(self) -> Scores:
        """Scores for every audited user, from the sums that the user takes part in."""

    @property
    def rounds(self) -> Int64[np.ndarray, "users"]:
        """Number of sums used that each audited user takes part in; empty before the first."""


@runtime_checkable
class SumAttack(AttackInfo, Protocol):
    """An attack on sums whose scores for a user depend on how many others take part."""

    def sum_accumulator(self) -> SumAccumulator:
        """Empty accumulator to which sums are added."""
