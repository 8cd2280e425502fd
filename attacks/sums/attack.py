"""Attacks on a sum of uploads: what a server that sees no single upload still reads, held against everybody in it.

A sum over one client is that client's upload; over many, single interests drown in what most people have, and an attack
on it says little more than popularity does. Every attack on uploads runs on the sum as if it were one upload, and its
one answer is measured against each audited participant's own history (the adversary knows who took part).

Two attacks are about sums only: :class:`attacks.singleton_rows.SingletonRows` weighs how many others could have touched
a row, and :func:`attacks.aggregate_match.aggregate_match` asks who took part at all.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from attacks.evaluation.info import AttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.sums import SumView
from attacks.views.types import Scores


class SumAccumulator(Protocol):
    """What one attack has gathered from the sums so far."""

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        """Look at one more sum."""

    def scores(self) -> Scores:
        """Scores of every audited user, from the sums that each is in."""

    @property
    def rounds(self) -> Int64[np.ndarray, "users"]:
        """Sums looked at that hold each audited user; empty before the first."""


@runtime_checkable
class SumAttack(AttackInfo, Protocol):
    """An attack that needs a sum to be known as one: what it says of a user depends on how many others are in it."""

    def sum_accumulator(self) -> SumAccumulator:
        """An empty accumulator to add sums to."""
