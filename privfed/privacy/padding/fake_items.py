"""`FakeItems`: rho (|public| + |private|) further rows of zeros (DFMR).

A true row is always there, so a row that is missing proves that the item is not in the history, and epsilon is
infinite; the number of rows tells |private|. The chance that a row seen, and not public, is true is 1 / (1 + rho') on
average, rho' = rho (1 + |public| / |private|), and more where the catalogue has no rows left to be fake items.
"""

import math
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, UInt32
from pydantic import Field

from privfed.privacy.padding.base import IN_SUMS, WORD_RANGE, SampledPadding, Seed, SupportClaim
from privfed.privacy.wording import number

_TIE = 2.0**-50
"""Words that are equal go to the lower item, so that a sample does not depend on how a sort treats ties."""


class FakeItems(SampledPadding):
    """Further rows of zeros, sampled once per user."""

    kind: Literal["fake_items"] = "fake_items"
    rho: float = Field(ge=0, description="fake rows for every row of the user's own, public ones counted too")
    drawn: Literal["uniform", "popularity"] = Field(
        default="popularity",
        description="popularity: in proportion to (public count + 1)^power, so that popularity gives less away; "
        "uniform: as published",
    )
    power: float = Field(
        default=0.75,
        ge=0,
        le=2,
        description="how steeply fake items follow public popularity; private items are often flatter than public ones",
    )
    seed: Seed = 0

    @property
    def label(self) -> str:
        return f"{self.drawn} fake items (rho = {number(self.rho)})"

    @property
    def claim(self) -> SupportClaim:
        return SupportClaim(
            padding=self.label,
            epsilon=math.inf,
            epsilon_swap=math.inf,
            sentence=(
                f"Fake rows ({number(self.rho)} for every own row, {self.drawn}) give no differential privacy: epsilon "
                "of the rows is infinite, because a true item is always among them, so a row that is not sent proves "
                "that its item is not in the history, and the number of rows tells how long that is. "
                f"{IN_SUMS}"
            ),
        )

    @property
    def popularity_power(self) -> float | None:
        return self.power if self.drawn == "popularity" else None

    @property
    def fake_items_per_row(self) -> float:
        return self.rho

    def sample(
        self,
        private: Bool[np.ndarray, "users items"],
        known: Bool[np.ndarray, "users items"],
        uints: UInt32[np.ndarray, "users items"],
        popularity: Float64[np.ndarray, " items"] | None,
    ) -> tuple[Bool[np.ndarray, "users items"], Bool[np.ndarray, "users items"]]:
        taken = private | known
        room = (~taken).sum(1)  # [users]: rows that are left to be fake items
        wanted = np.minimum(np.rint(self.rho * taken.sum(1)), room).astype(np.int64)
        # The k smallest of Exp(1) / weight are k draws without replacement in proportion to the weights. Half a step
        # keeps a word of zero away from the logarithm's pole.
        keys = uints + 0.5 if popularity is None else -np.log((uints + 0.5) / WORD_RANGE) / popularity
        keys *= 1 + np.arange(keys.shape[1]) * _TIE
        keys[taken] = np.inf
        fake_items = np.zeros_like(private)
        max_fakes = int(wanted.max(initial=0))
        if max_fakes:
            # Partition first: sorting only the smallest keys [users, max_fakes] costs a fraction of sorting all items.
            smallest = np.argpartition(keys, max_fakes - 1, axis=1)[:, :max_fakes]
            ranked = np.argsort(np.take_along_axis(keys, smallest, axis=1), axis=1)
            order = np.take_along_axis(smallest, ranked, axis=1)
            np.put_along_axis(fake_items, order, np.arange(max_fakes) < wanted[:, None], axis=1)
        return private, fake_items
