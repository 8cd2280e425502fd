"""Attacks on a sum of uploads: what a server that sees no single upload still reads, held against everybody in it.

A sum over one client is that client's upload; over many, single interests drown in what most people have, and an attack
on it says little more than popularity does. Every attack on uploads runs on the sum as if it were one upload, and its
one answer is measured against each audited participant's own history (the adversary knows who took part).

Two attacks are about sums only: :class:`attacks.singleton_rows.SingletonRows` weighs how many others could have touched
a row, and :func:`attacks.aggregate_match.aggregate_match` asks who took part at all.
"""

from dataclasses import dataclass

from attacks.views.server import ServerView
from attacks.views.types import UserMask, ViewError


@dataclass(frozen=True, eq=False)
class SumView:
    """One sum as it was opened, and which audited users are in it.

    Attributes:
        total: A view of one "user": the sum.
        members: True for the audited users whose uploads it holds.
        clients: How many uploads it holds, audited or not; None where that is unknown.

    Raises:
        ViewError: If the view is about several users, no audited user is in the sum, or it has fewer clients than
        audited members.
    """

    total: ServerView
    members: UserMask
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.total.n_users != 1:
            raise ViewError(f"SumView.total is about {self.total.n_users} users; pass the one sum as a single upload.")
        if self.members.dtype != bool or self.members.ndim != 1 or not self.members.any():
            raise ViewError(
                f"SumView.members is {self.members.dtype} of shape {self.members.shape} with "
                f"{int(self.members.sum())} true; pass one boolean per audited user, and only sums that hold some."
            )
        if self.clients is not None and self.clients < self.members.sum():
            raise ViewError(
                f"SumView.clients is {self.clients} but {int(self.members.sum())} audited users are in the sum; count "
                "everybody who is."
            )
