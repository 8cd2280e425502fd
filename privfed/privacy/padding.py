"""Cover for the support: which rows a client sends, when their values are hidden and the rows themselves are not.

A client of a row-sparse method sends the rows of its own items. Behind a secret sharing their values are hidden, the
rows are not: they are the history. Cover adds rows of zeros, or sends every row, or answers at random for every row:

* `FakeItems` (DFMR): rho (|public| + |private|) further rows. A true row is always there, so a row that is missing
  proves that the item is not in the history, and epsilon is infinite; the number of rows tells |private|. The chance
  that a row seen, and not public, is true is 1 / (1 + rho') on average, rho' = rho (1 + |public| / |private|), and more
  where the catalogue has no rows left to be fakes.
* `RandomisedResponse` (Warner 1965; Erlingsson, Pihur and Korolova 2014): every item of the catalogue answers by
  itself, a true one with probability q, any other with p. Adding or removing one item costs
  max(ln(q / p), ln((1 - p) / (1 - q))), changing one into another ln(q (1 - p) / (p (1 - q))): two answers change.
  True items that do not answer take no part in training at all.
* `FullSupport`: all rows from everybody, which says nothing about anybody.

What was drawn is drawn once, by `covering`: fakes drawn afresh each round would die out under intersection, and an
answer given twice by new coins costs twice.

Cover hides which rows are true. It hides nothing of a sum: rows of zeros count towards the clients that a row needs to
be opened, and add nothing to what the others show. Two extremes make it plain. Where all rows of an item are fakes, its
sum is zero, which says so of everybody who sent one; where one is true, its sum is that client's value.
"""

import math
from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.privacy.epsilon import Epsilon
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import number

WORDS = 2.0**32
"""Coins are 32-bit words."""

_IN_SUMS = (
    "Rows without a value count towards the fewest clients of a row and add nothing to its sum, so a sum may be the "
    "value of one client, and a sum of zero is a sign that its rows held none."
)

Seed = Annotated[
    int,
    Field(
        ge=0,
        description="names the devices' own keys in a simulation, whatever the run's seed: cover outlives a run",
    ),
]


class SupportClaim(BaseModel):
    """What the rows that clients send say about single items, whatever else is released.

    Attributes:
        padding: name of the cover.
        epsilon: privacy loss when one private item is added to a user's history or removed; inf where none is bounded.
        epsilon_swap: when one private item is replaced by another.
        sentence: in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    padding: str
    epsilon: Epsilon
    epsilon_swap: Epsilon
    sentence: str


class PaddingModel(BaseModel):
    """What every cover can answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name for tables."""

    @property
    @abstractmethod
    def claim(self) -> SupportClaim:
        """What the rows of a client say."""


class FullSupport(PaddingModel):
    """Every client sends every row: nothing is seen, and uploads are as long as the catalogue."""

    kind: Literal["full_support"] = "full_support"

    @property
    def label(self) -> str:
        """`every row`."""
        return "every row"

    @property
    def claim(self) -> SupportClaim:
        """Epsilon 0 for this channel."""
        return SupportClaim(
            padding=self.label,
            epsilon=0,
            epsilon_swap=0,
            sentence=(
                "Every client sends every row, so which rows it sends says nothing about it, and the fewest clients of "
                f"a row close none. {_IN_SUMS}"
            ),
        )


class NoPadding(PaddingModel):
    """No cover: a client sends the rows of its own items, which are its history."""

    kind: Literal["no_padding"] = "no_padding"

    @property
    def label(self) -> str:
        """`own rows only`."""
        return "own rows only"

    @property
    def claim(self) -> SupportClaim:
        """No bound."""
        return SupportClaim(
            padding=self.label,
            epsilon=math.inf,
            epsilon_swap=math.inf,
            sentence="Values are hidden and rows are not: the rows that a client sends hold its history, in the open. "
            "Rows that a method draws for training change from round to round, and intersection removes them.",
        )


class FakeItems(PaddingModel):
    """Further rows of zeros, drawn once per user."""

    kind: Literal["fake_items"] = "fake_items"
    rho: float = Field(ge=0, description="fake rows for every row of the user's own, public ones counted too")
    drawn: Literal["uniform", "popularity"] = Field(
        default="popularity",
        description="popularity: in proportion to (public count + 1)^power, so that popularity tells fakes less well; "
        "uniform: as published",
    )
    power: float = Field(
        default=0.75,
        ge=0,
        le=2,
        description="how steeply fakes follow public popularity; private items are often flatter than public ones",
    )
    seed: Seed = 0

    @property
    def label(self) -> str:
        """Names kind and number."""
        return f"{self.drawn} fakes (rho = {number(self.rho)})"

    @property
    def claim(self) -> SupportClaim:
        """No bound: a true row is always there."""
        return SupportClaim(
            padding=self.label,
            epsilon=math.inf,
            epsilon_swap=math.inf,
            sentence=(
                f"Fake rows ({number(self.rho)} for every own row, {self.drawn}) give no differential privacy: epsilon "
                "of the rows is infinite, because a true item is always among them, so a row that is not sent proves "
                "that its item is not in the history, and the number of rows tells how long that is. "
                f"{_IN_SUMS}"
            ),
        )


class RandomisedResponse(PaddingModel):
    """Every item answers by itself, once and for all."""

    kind: Literal["randomised_response"] = "randomised_response"
    epsilon: float = Field(gt=0, le=50, description="the privacy loss of adding or removing one private item")
    keep: float = Field(
        default=0.5, gt=0, lt=1, description="q: the probability that a private item answers, and so may train"
    )
    seed: Seed = 0

    @model_validator(mode="after")
    def _answers_differ(self) -> Self:
        if not self.thresholds[1] < self.thresholds[0]:
            raise PlanError(
                f"epsilon = {self.epsilon:g} with keep = {self.keep:g} leaves less than a step of the coin "
                f"(2^-32) between the answers of true and of other items: choose keep nearer to 0.5 or a larger epsilon"
            )
        return self

    @property
    def others(self) -> float:
        """p: the probability that any other item answers, the smallest that epsilon allows."""
        return max(self.keep * math.exp(-self.epsilon), 1 - math.exp(self.epsilon) * (1 - self.keep))

    @property
    def thresholds(self) -> tuple[int, int]:
        """(q, p) in steps of 2^-32, rounded towards the safe side: q down, p up."""
        return math.floor(self.keep * WORDS), math.ceil(self.others * WORDS)

    @property
    def realised(self) -> tuple[float, float]:
        """Epsilon of adding or removing one item, and of swapping one, at the probabilities that really run."""
        q, p = (t / WORDS for t in self.thresholds)
        up, down = math.log(q / p), math.log((1 - p) / (1 - q))
        return max(up, down), up + down

    @property
    def label(self) -> str:
        """Names epsilon and q."""
        return f"randomised response (eps = {number(self.epsilon)} an item, q = {number(self.keep)})"

    @property
    def claim(self) -> SupportClaim:
        """The bound per item."""
        one, swap = self.realised
        return SupportClaim(
            padding=self.label,
            epsilon=one,
            epsilon_swap=swap,
            sentence=(
                f"Which rows a client sends is drawn once by randomised response: adding or removing ONE ITEM changes "
                f"the odds by at most e^{one:.4g}, replacing one by another by e^{swap:.4g}, and k items cost k times "
                "that. This is about one history under one setting, whose answers the device keeps: a row that appears "
                "when the history has grown shows that it has, and answers under two settings come from the same coins "
                "and say more together. It covers the rows alone; released sums are another channel. "
                f"{_IN_SUMS}"
            ),
        )


Padding = Annotated[FullSupport | NoPadding | FakeItems | RandomisedResponse, Field(discriminator="kind")]
