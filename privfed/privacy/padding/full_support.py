"""`FullSupport`: all rows from everybody, which says nothing about anybody."""

from typing import Literal

from privfed.privacy.padding.base import IN_SUMS, Padding, SupportClaim


class FullSupport(Padding):
    """Every client sends every row: nothing is seen, and uploads are as long as the catalogue."""

    kind: Literal["full_support"] = "full_support"

    @property
    def every_row(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return "every row"

    @property
    def claim(self) -> SupportClaim:
        return SupportClaim(
            padding=self.label,
            epsilon=0,
            epsilon_swap=0,
            sentence=(
                "Every client sends every row, so which rows it sends says nothing about it, and "
                f"no row is suppressed for having too few clients. {IN_SUMS}"
            ),
        )
