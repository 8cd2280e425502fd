"""Padding of rows: which rows a client sends, where their values are hidden and the rows themselves are not.

A client of a row-sparse method sends the rows of its own items. Behind a secret sharing their values are hidden, the
rows are not: they are the history. Padding adds rows of zeros (`FakeItems`), or sends every row (`FullSupport`), or
answers at random for every row (`RandomisedResponse`). What was sampled is sampled once: fake items sampled afresh each
round would die out under intersection, and an answer given twice with fresh randomness costs twice.

Padding hides which rows are true. It hides nothing of a sum: rows of zeros count towards the clients that a row needs
to be opened, and add nothing to what the others show. Two extremes make it plain. Where all rows of an item are fake
items, its sum is zero, which says so of everybody who sent one; where one is true, its sum is that client's value.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64, UInt32
from pydantic import BaseModel, ConfigDict, Field

from privfed.privacy.epsilon import Epsilon
from privfed.privacy.registry import Family

WORD_RANGE = 2.0**32
"""Number of values of a random 32-bit word."""

IN_SUMS = (
    "Rows without a value count towards the number of clients that a row needs and add nothing to its sum, so a sum "
    "may be the value of one client, and a sum of zero is a sign that its rows held none."
)

Seed = Annotated[
    int,
    Field(
        ge=0,
        description="names the devices' own keys in a simulation, whatever the run's seed: padding outlives a run",
    ),
]


class SupportClaim(BaseModel):
    """What the rows that clients send say about single items, whatever else is released.

    Attributes:
        padding: name of the padding.
        epsilon: privacy loss when one private item is added to a user's history or removed; inf where none is bounded.
        epsilon_swap: when one private item is replaced by another.
        sentence: in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    padding: str
    epsilon: Epsilon
    epsilon_swap: Epsilon
    sentence: str


class Padding(Family):
    """Which rows of a table a client sends besides its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    members: ClassVar[dict[str, type[Any]]] = {}

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name for tables."""

    @property
    @abstractmethod
    def claim(self) -> SupportClaim:
        """What the rows of a client say."""

    @property
    def every_row(self) -> bool:
        """Whether every client sends every row, so that nobody sees whose rows are whose."""
        return False

    @property
    def sampler(self) -> "SampledPadding | None":
        """The padding itself, where devices sample which rows they send; None where there is nothing to sample."""
        return None


class SampledPadding(Padding):
    """Padding that every device samples once, under a key of its own."""

    if TYPE_CHECKING:
        # A setting of every subclass, which keeps it behind its own settings in files.
        @property
        def seed(self) -> int:
            """Seed of the devices' keys in a simulation."""

    @property
    def sampler(self) -> "SampledPadding":
        return self

    @property
    def popularity_power(self) -> float | None:
        """Power of the public popularity that fake items follow; None where they follow none."""
        return None

    @property
    def fake_items_per_row(self) -> float:
        """Number of fake rows for every row of the user's own; 0 where their number follows from no such rule."""
        return 0.0

    @property
    def answer_rates(self) -> tuple[float, float | None]:
        """Probabilities that a private item is sent, and that any other is, None where it differs between users."""
        return 1.0, None

    @abstractmethod
    def sample(
        self,
        private: Bool[np.ndarray, "users items"],
        known: Bool[np.ndarray, "users items"],
        uints: UInt32[np.ndarray, "users items"],
        popularity: Float64[np.ndarray, " items"] | None,
    ) -> tuple[Bool[np.ndarray, "users items"], Bool[np.ndarray, "users items"]]:
        """Which private items answer, and which other rows are sent.

        Args:
            private: private items of some users.
            known: items that everybody knows to be sent.
            uints: uniform 32-bit words, one for every user and item.
            popularity: weight of every item, where fake items follow the public counts.
        """
