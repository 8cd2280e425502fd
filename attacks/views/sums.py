"""View of a secure sum: the sum of one round's uploads, and who takes part in it."""

from dataclasses import dataclass

from attacks.views.server import ServerView
from attacks.views.types import UserMask, ViewError


@dataclass(frozen=True, eq=False)
class SumView:
    """One released sum of uploads, and which audited users take part in it.

    Attributes:
        total: The sum, as the view of a single "user".
        members: True for the audited users whose uploads are summed.
        clients: Number of uploads in the sum, audited or not; None if unknown.

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
