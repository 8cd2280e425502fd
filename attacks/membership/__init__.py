"""Membership inference: which items did a user train on?"""

from attacks.membership.attack import Attack, Declared
from attacks.membership.decoder_bias import DecoderBias
from attacks.membership.examinations import Affinity, ExaminedShare, InSupport, SupportAttack
from attacks.membership.input_rows import InputRows
from attacks.membership.multi_round_vote import MultiRoundVote, Vote
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.rank_one_sign import RankOneSign
from attacks.membership.score_threshold import ScoreThreshold
from attacks.membership.support import RowNorm, RowSupport

CORE: tuple[Attack, ...] = (
    PopularityGuesser(),
    RowSupport(),
    RowNorm(),
    RankOneSign(),
    MultiRoundVote(RowNorm()),
    MultiRoundVote(RankOneSign()),
)
"""Attacks on item rows, cheap enough to run in every audit, the baseline first."""

INPUT: tuple[Attack, ...] = (
    InputRows(RowSupport()),
    InputRows(RowNorm()),
    MultiRoundVote(InputRows(RowNorm())),
)
"""Attacks on the first layer's item rows, where a view has them."""

BIAS: tuple[Attack, ...] = (DecoderBias(), MultiRoundVote(DecoderBias()))
"""Attacks on the last layer's bias, where a view has it."""

SUPPORT_ATTACKS: tuple[SupportAttack, ...] = (
    InSupport(),
    ExaminedShare(),
    ExaminedShare("estimated"),
    Affinity(),
)
"""Attacks on which rows a client sends into a secure sum; the popularity guesser goes beside them."""

__all__ = [
    "BIAS",
    "CORE",
    "INPUT",
    "SUPPORT_ATTACKS",
    "Affinity",
    "Attack",
    "Declared",
    "DecoderBias",
    "ExaminedShare",
    "InSupport",
    "InputRows",
    "MultiRoundVote",
    "PopularityGuesser",
    "RankOneSign",
    "RowNorm",
    "RowSupport",
    "ScoreThreshold",
    "SupportAttack",
    "Vote",
]
