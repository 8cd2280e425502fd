"""Who trains at which level: capacities of devices from a scheme such as `1x-4x`, or from budgets in bytes.

A scheme names compressions in order, `1x` for a whole table and `4x` for a quarter; what they share is equal, or
written behind a colon: `1x:0.9-2x:0.1`. Users are brought into an order, and the first share of them gets the first
capacity. User at place i of U belongs to capacity floor(i G / U) of G equal ones, as in FAIR's released code.

What the order is by decides what a capacity says about its user, whom the server sees at that capacity:

- `pseudonym`: the number under which the data knows a user. It says nothing where numbers were given at random, but
  published data sets often number users by falling activity; then it says what `activity` says.
- `random`: by a seed, whatever the data. A capacity says which device a user has and nothing about interactions.
- `activity`: users with most interactions first (the first of equals by pseudonym). A capacity bounds its user's number
  of interactions, which is private; no guarantee of uploads extends to it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import Literal

import numpy as np
from jaxtyping import Int64

from privfed.methods.fair.subspaces.errors import CapacityError
from privfed.methods.fair.subspaces.memory import SubspaceMemory

By = Literal["pseudonym", "random", "activity"]

_PART = re.compile(r"(?P<compression>[1-9]\d*)x(:(?P<share>\d*\.?\d+))?")

_DISCLOSES: dict[By, str] = {
    "pseudonym": (
        "devices were given their capacities in the order of user numbers: the server sees each one's capacity, and "
        "with it roughly how active its user is wherever users are numbered by activity, as in many published data sets"
    ),
    "random": (
        "devices were given their capacities at random: the server sees each one's capacity, which says nothing about "
        "its user's interactions"
    ),
    "activity": (
        "devices were given their capacities by the number of their users' interactions: the server sees each one's "
        "capacity, and with it roughly how active its user is, which no privacy guarantee of the uploads covers"
    ),
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """Capacities in order, and the share of users that gets each.

    Attributes:
        levels: g of every capacity, compression 2^g.
        shares: of users; they add up to 1.

    Raises:
        CapacityError: a level or share is missing, negative, or the shares do not add up.
    """

    levels: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.levels or len(self.levels) != len(self.shares) or min(self.levels) < 0:
            raise CapacityError(
                f"levels {self.levels} with {len(self.shares)} shares were given: give each level of 0 or more one"
            )
        if min(self.shares) <= 0 or sum(self.shares) != 1:
            raise CapacityError(
                f"shares of {', '.join(map(str, self.shares))} were given: all are above 0 and add up to 1"
            )

    @classmethod
    def parse(cls, text: str) -> "Scheme":
        """Read a scheme: `1x-4x`, `1x:0.9-2x:0.1`, or `16x` for all alike.

        Raises:
            CapacityError: it is not one.
        """
        parts = [_PART.fullmatch(part) for part in text.split("-")]
        found = [part for part in parts if part is not None]
        compressions = [int(part["compression"]) for part in found]
        shares = [part["share"] for part in found]
        powers = all(c & (c - 1) == 0 for c in compressions)
        if len(found) < len(parts) or not powers or len({share is None for share in shares}) != 1:
            raise CapacityError(
                f"a scheme {text!r} was given: write compressions that are powers of two, as in 1x-4x, with a share "
                f"for all of them or for none, as in 1x:0.9-2x:0.1"
            )
        if shares[0] is None:
            return cls.equal([c.bit_length() - 1 for c in compressions])
        return cls(tuple(c.bit_length() - 1 for c in compressions), tuple(Fraction(share) for share in shares))

    @classmethod
    def equal(cls, levels: Sequence[int]) -> "Scheme":
        """The same share of users for each."""
        return cls(tuple(levels), (Fraction(1, max(1, len(levels))),) * len(levels))

    @classmethod
    def of_budgets(cls, budgets: Sequence[int], memory: SubspaceMemory) -> "Scheme":
        """The same share of users for each budget: the largest subspace that fits into it.

        Args:
            budgets: bytes. As many as there are users, by pseudonym, and each has its own.
            memory: what a device has to hold.

        Raises:
            CapacityError: there is no budget, or one in which nothing fits.
        """
        return cls.equal([memory.level_of(budget) for budget in budgets])


@dataclass(frozen=True, eq=False)
class Capacities:
    """The level of every user's device.

    Attributes:
        levels: g of each user; 0 is a whole table.
        by: what the order of users was.
    """

    levels: Int64[np.ndarray, " users"]
    by: By

    @classmethod
    def assign(
        cls,
        scheme: Scheme | str,
        n_users: int,
        by: By = "pseudonym",
        seed: int = 0,
        activity: Int64[np.ndarray, " users"] | None = None,
    ) -> "Capacities":
        """Hand out capacities.

        Args:
            scheme: parsed, or as text.
            n_users: how many users there are.
            by: the order in which they come.
            seed: of `random`.
            activity: number of training interactions of each user, for `activity`.

        Raises:
            CapacityError: the scheme cannot be read, or activity is missing or that of other users.
        """
        scheme = Scheme.parse(scheme) if isinstance(scheme, str) else scheme
        if by == "activity" and (activity is None or len(activity) != n_users):
            raise CapacityError(
                f"capacities by activity were asked for {n_users} users with activity of "
                f"{'none' if activity is None else len(activity)}: give one number for each user"
            )
        ends = [ceil(share * n_users) for share in accumulate(scheme.shares)]
        of_place = np.repeat(np.array(scheme.levels, dtype=np.int64), np.diff(ends, prepend=0))
        levels = np.empty(n_users, dtype=np.int64)
        levels[_order(n_users, by, seed, activity)] = of_place
        return cls(levels, by)

    @property
    def tiers(self) -> tuple[int, ...]:
        """Levels that somebody has, the largest devices first."""
        return tuple(int(level) for level in np.unique(self.levels))

    @property
    def members(self) -> dict[int, int]:
        """Number of users of each level."""
        levels, counts = np.unique(self.levels, return_counts=True)
        return dict(zip(levels.tolist(), counts.tolist(), strict=True))

    @property
    def side_disclosures(self) -> tuple[str, ...]:
        """Sentences about what a capacity says of its user; none where all are alike."""
        return (disclosed(self.by),) if len(self.tiers) > 1 else ()


def disclosed(by: By) -> str:
    """Disclosure by unequal capacities given in this order, as a sentence without a capital or full stop."""
    return _DISCLOSES[by]


def _order(
    n_users: int, by: By, seed: int, activity: Int64[np.ndarray, " users"] | None
) -> Int64[np.ndarray, " users"]:
    """Users in the order in which they are given capacities."""
    if by == "random":
        return np.random.default_rng(seed).permutation(n_users)
    if activity is not None and by == "activity":
        return np.argsort(-activity, kind="stable")
    return np.arange(n_users)
