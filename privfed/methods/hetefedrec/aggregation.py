"""From a released sum to what the server adds: the sum as published, or one of two means.

`contributors` divides by how many clients sent a row or a head, which is data and travels as a block of its own.
`fixed` divides by public numbers alone: the release's denominator, the share of users of the sizes that hold the
block and, for item rows, the share of them expected to touch a row. It is the only mean under differential privacy.
"""

from torch import Tensor

from privfed.federation import Total
from privfed.methods.hetefedrec.config import Aggregation
from privfed.methods.hetefedrec.layout import members, touched


def row_update(rule: Aggregation, release: Total, block: str, counted: str, share: float) -> Tensor:
    """The aggregate of a block of item rows, `[items, width]`.

    Args:
        rule: how.
        release: of the query.
        block: name of the block.
        counted: block of rows whose contributors are counted for it.
        share: of all users, expected to touch one of its rows.
    """
    if rule == "contributors":
        return release.sums[block] / release.sums[touched(counted)].clamp(min=1)
    return _published_or_fixed(rule, release, block, share)


def head_update(rule: Aggregation, release: Total, block: str, head: str, share: float) -> Tensor:
    """The aggregate of one weight of a head; arguments as for rows."""
    if rule == "contributors":
        return release.sums[block] / release.sums[members(head)].clamp(min=1)
    return _published_or_fixed(rule, release, block, share)


def _published_or_fixed(rule: Aggregation, release: Total, block: str, share: float) -> Tensor:
    return release.sums[block] if rule == "sum" else release.mean(block) / share
