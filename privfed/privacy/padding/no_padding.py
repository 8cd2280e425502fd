"""`NoPadding`: a client sends the rows of its own items, which are its history."""

import math
from typing import Literal

from privfed.privacy.padding.base import Padding, SupportClaim


class NoPadding(Padding):
    """No padding: a client sends the rows of its own items, which are its history."""

    kind: Literal["no_padding"] = "no_padding"

    @property
    def label(self) -> str:
        return "own rows only"

    @property
    def claim(self) -> SupportClaim:
        return SupportClaim(
            padding=self.label,
            epsilon=math.inf,
            epsilon_swap=math.inf,
            sentence="Values are hidden and rows are not: the rows that a client sends hold its history, in the open. "
            "Rows that a method samples for training change from round to round, and intersection removes them.",
        )
