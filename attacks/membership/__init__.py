"""Membership inference: which items did a user train on?"""

from attacks.membership.attack import Attack
from attacks.membership.multi_round_vote import MultiRoundVote, Vote
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.rank_one_sign import RankOneSign
from attacks.membership.support import RowNorm, RowSupport

CORE: tuple[Attack, ...] = (
    PopularityGuesser(),
    RowSupport(),
    RowNorm(),
    RankOneSign(),
    MultiRoundVote(RowNorm()),
    MultiRoundVote(RankOneSign()),
)
"""Attacks cheap enough to run in every audit, the baseline first."""

__all__ = [
    "CORE",
    "Attack",
    "MultiRoundVote",
    "PopularityGuesser",
    "RankOneSign",
    "RowNorm",
    "RowSupport",
    "Vote",
]
