"""Settings of `dpals`, and the division of one budget between its queries."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from privfed.contracts import NoisySums
from privfed.methods.method import MethodConfig
from privfed.methods.shared.ials import IALSObjective
from privfed.methods.shared.popular_head import side_of

_HEAD = 6.0


class DPALSConfig(MethodConfig):
    """Settings; defaults were chosen on the validation items of MovieLens-1M at epsilon 1, 2 and 8."""

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    passes: int = Field(3, ge=1, description="times that users and then items are solved for")
    popularity_share: float = Field(0.1, gt=0, lt=1, description="share of mu^2 for the popularity of items")
    gram_share: float = Field(0.05, gt=0, lt=1, description="share of a pass for the one Gram matrix of all users")
    item_gram_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of a pass for a Gram matrix of every item's users, as published; 0 takes them to be like "
        "everybody",
    )
    head: int | None = Field(None, ge=2, description="most popular items that factors are learned for; null: by rule")
    largest_head: int = Field(2048, ge=2, description="what the head may not exceed, however little noise there is")
    balance: float = Field(0.25, ge=0, le=1, description="a user's item weighs popularity^-balance among its own")
    unobserved: float = Field(0.5, gt=0, description="weight of a zero on every pair, in weights of an own item")
    user_regularisation: float = Field(0.01, gt=0, description="weight of squared lengths when users are solved for")
    item_regularisation: float = Field(0.02, gt=0, description="weight of squared lengths when items are solved for")

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        if self.gram_share + self.item_gram_share >= 1:
            message = (
                f"gram_share = {self.gram_share} and item_gram_share = {self.item_gram_share} leave nothing of a pass "
                f"for the sums that items are solved from: let them add up to less than 1"
            )
            raise ValueError(message)
        return self

    @property
    def objective(self) -> IALSObjective:
        """The objective of a user's vector, given the items'."""
        return IALSObjective(self.unobserved, self.user_regularisation, 1.0)


@dataclass(frozen=True, slots=True)
class DPALSConstants:
    """Constants of a run.

    Attributes:
        share: of mu^2 that popularity gets; the passes share the rest alike.
        head: items that factors are learned for.
    """

    share: float
    head: int

    @classmethod
    def from_config(cls, config: DPALSConfig, sums: NoisySums, items: int) -> "DPALSConstants":
        """The constants of a run: settings, and the head by rule unless it is set.

        Args:
            config: settings.
            sums: clients and noise of a sum.
            items: of the catalogue.
        """
        head = side_of(sums, items, _HEAD, config.largest_head)
        return cls(config.popularity_share, head if config.head is None else max(min(config.head, items - 1), 1))
