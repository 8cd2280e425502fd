"""Membership inference: which items did a user train on?"""

from attacks.membership.attack import Attack, Declared
from attacks.membership.decoder_bias import DecoderBias
from attacks.membership.examinations import Affinity, ExaminedShare, InSupport, SupportAttack
from attacks.membership.imia import Imia
from attacks.membership.input_rows import InputRows
from attacks.membership.multi_round_vote import MultiRoundVote, Vote
from attacks.membership.neighbours import NeighbourVote
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.public_score import DeltaScore, PublicScore
from attacks.membership.rank_one_sign import RankOneSign
from attacks.membership.score_threshold import ScoreThreshold
from attacks.membership.support import RowNorm, RowSupport
from attacks.membership.two_world import TwoWorld

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

REPLAYED: tuple[Attack, ...] = (
    TwoWorld(),
    PublicScore(),
    DeltaScore(),
    Imia(0.9),
    Imia(0.5),
    Imia(0.2),
)
"""Attacks that repeat local training, where the adversary knows the recipe; IMIA as released, and stronger."""

WITH_HELP: tuple[Attack, ...] = (NeighbourVote(),)
"""Attacks that need colluding users; ask about the others only."""

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
    "REPLAYED",
    "SUPPORT_ATTACKS",
    "WITH_HELP",
    "Affinity",
    "Attack",
    "Declared",
    "DecoderBias",
    "DeltaScore",
    "ExaminedShare",
    "Imia",
    "InSupport",
    "InputRows",
    "MultiRoundVote",
    "NeighbourVote",
    "PopularityGuesser",
    "PublicScore",
    "RankOneSign",
    "RowNorm",
    "RowSupport",
    "ScoreThreshold",
    "SupportAttack",
    "TwoWorld",
    "Vote",
]
