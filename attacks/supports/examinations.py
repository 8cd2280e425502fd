"""Which rows of a support are examinations? Three guesses of an aggregator that cannot read a single value.

* *In support*: an examination is always sent, another item only as padding, so being sent is evidence by itself. *
*Examined share*: of the s_i clients that send row i without having bought the item, e_i examined it. If the aggregator
  cannot distinguish the s_i, each of them did with probability e_i / s_i, because padding is independent of taste.
* *Affinity*: a user code rebuilt from public purchases and item codes ranks the items by the user's taste; padding is
  drawn independently of it.

The fourth is the popularity guesser. With prior theta_i that a user examined item i and probability phi that an item is
sent as padding, a sent row is an examination with probability theta_i / (theta_i + (1 - theta_i) phi): for uniform
padding that rises with theta_i, hence ranking by popularity is ranking by this posterior.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from attacks._scaling import standardise
from attacks.evaluation.info import AttackInfo
from attacks.views.supports import SupportView
from attacks.views.types import Scores, ViewError


@runtime_checkable
class SupportAttack(AttackInfo, Protocol):
    """A pure function from supports to one score per (user, item)."""

    def applies(self, view: SupportView) -> bool:
        """Whether the view holds what the attack needs."""

    def score(self, view: SupportView) -> Scores:
        """Score every (user, item) of the view; higher means "more likely examined"."""


class _SupportAttackInfo:
    """Declaration shared by attacks on which rows a client sends."""

    observable: ClassVar[str] = "which rows each client sends into the secure sum"
    adversary: ClassVar[str] = "aggregator"
    unit: ClassVar[str] = "examination"


@dataclass(frozen=True)
class InSupport(_SupportAttackInfo):
    """Score 1 for rows that were sent, 0 for rows that were not."""

    name: ClassVar[str] = "in support"
    knowledge: ClassVar[tuple[str, ...]] = ()
    cost: ClassVar[str] = "none"
    explains: ClassVar[str] = (
        "Calls every row that a client sends an examination; wrong only for padding items, of which a catalogue has "
        "few per user."
    )

    def applies(self, view: SupportView) -> bool:  # noqa: ARG002 - every view has supports
        """True for every view."""
        return True

    def score(self, view: SupportView) -> Scores:
        """1.0 where the row was sent, 0.0 elsewhere."""
        return view.sent.astype(np.float64)


@dataclass(frozen=True)
class ExaminedShare(_SupportAttackInfo):
    """Score a sent row by the share of its supporters who examined the item.

    Attributes:
        counts: "sent" uses the exact counts that the protocol reveals, "estimated" those that follow from the
            supporters and the announced padding.
    """

    counts: Literal["sent", "estimated"] = "sent"

    cost: ClassVar[str] = "O(items)"
    explains: ClassVar[str] = (
        "Divides how many clients examined an item by how many send its row without having bought it: the chance that "
        "any one of them is not sending padding."
    )

    def __post_init__(self) -> None:
        if self.counts not in ("sent", "estimated"):
            raise ValueError(f"ExaminedShare got counts={self.counts!r}; use 'sent' or 'estimated'.")

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return "examined share" if self.counts == "sent" else "estimated examined share"

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Prior knowledge that the attack uses."""
        if self.counts == "sent":
            return ("public purchases", "how many clients examined each item")
        return ("public purchases", "how padding is drawn")

    def applies(self, view: SupportView) -> bool:
        """Whether the view has the counts, or their estimates."""
        return self._examined(view) is not None

    def score(self, view: SupportView) -> Scores:
        """e_i / s_i where the row was sent, 0 where it was not.

        Raises:
            ViewError: If the view has no such counts.
        """
        examined = self._examined(view)
        if examined is None:
            field = "examined_counts" if self.counts == "sent" else "examined_estimates"
            raise ViewError(f"The {self.name} attack needs SupportView.{field}, which is None; pass one per item.")
        share = np.divide(examined, view.supporters, out=np.zeros(view.n_items), where=view.supporters > 0)
        scores: Scores = np.where(view.sent, share, 0.0)
        return scores

    def _examined(self, view: SupportView) -> np.ndarray | None:
        return view.examined_counts if self.counts == "sent" else view.examined_estimates


@dataclass(frozen=True)
class Affinity(_SupportAttackInfo):
    """Score each item by its inner product with the user code that the server rebuilt."""

    name: ClassVar[str] = "affinity"
    knowledge: ClassVar[tuple[str, ...]] = ("public purchases", "the item codes")
    cost: ClassVar[str] = "one user update and O(items * code length) per user"
    explains: ClassVar[str] = (
        "Rebuilds a user's code from public purchases and item codes and calls the sent rows that fit it best "
        "examinations, because padding is drawn without regard to taste."
    )

    def applies(self, view: SupportView) -> bool:
        """Whether the view has affinities."""
        return view.affinity is not None

    def score(self, view: SupportView) -> Scores:
        """Affinities standardised per user, so that users are comparable.

        Raises:
            ViewError: If the view has no affinities.
        """
        if view.affinity is None:
            raise ViewError(f"The {self.name} attack needs SupportView.affinity, which is None; pass one per pair.")
        return standardise(view.affinity.astype(np.float64))


SUPPORT_ATTACKS: tuple[SupportAttack, ...] = (
    InSupport(),
    ExaminedShare(),
    ExaminedShare("estimated"),
    Affinity(),
)
"""Attacks on which rows a client names in a secure sum, to be compared with the popularity guesser."""
