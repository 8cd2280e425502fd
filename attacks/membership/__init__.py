"""Membership inference on single uploads and on a device's own scores: which items did a user train on?"""

from attacks.membership.attack import UploadAttack
from attacks.membership.decoder_bias import DecoderBias
from attacks.membership.imia import Imia
from attacks.membership.input_rows import InputRows
from attacks.membership.multi_round_vote import MultiRoundVote
from attacks.membership.neighbours import NeighbourVote
from attacks.membership.observe import observe, observe_scores, run
from attacks.membership.popularity import PopularityGuesser
from attacks.membership.public_score import DeltaScore, PublicScore
from attacks.membership.rank_one_sign import RankOneSign
from attacks.membership.row_support import RowNorm, RowSupport
from attacks.membership.score_threshold import ScoreThreshold
from attacks.membership.two_world import TwoWorld

CORE_ATTACKS: tuple[UploadAttack, ...] = (
    PopularityGuesser(),
    RowSupport(),
    RowNorm(),
    RankOneSign(),
    MultiRoundVote(RowNorm()),
    MultiRoundVote(RankOneSign()),
)
"""Attacks on item rows that are cheap enough for every audit, the popularity baseline first."""

INPUT_ROW_ATTACKS: tuple[UploadAttack, ...] = (
    InputRows(RowSupport()),
    InputRows(RowNorm()),
    MultiRoundVote(InputRows(RowNorm())),
)
"""Attacks on the first layer's item rows, for views that have them."""

BIAS_ATTACKS: tuple[UploadAttack, ...] = (DecoderBias(), MultiRoundVote(DecoderBias()))
"""Attacks on the last layer's bias, for views that have it."""

ORACLE_ATTACKS: tuple[UploadAttack, ...] = (
    TwoWorld(),
    PublicScore(),
    DeltaScore(),
    Imia(0.9),
    Imia(0.5),
    Imia(0.2),
)
"""Attacks that query a training oracle; IMIA as released (lambda 0.9) and with stronger settings."""

COLLUSION_ATTACKS: tuple[UploadAttack, ...] = (NeighbourVote(),)
"""Attacks that need colluding users; measure them on the other users only (:meth:`attacks.Targets.excluding`)."""

__all__ = [
    "BIAS_ATTACKS",
    "COLLUSION_ATTACKS",
    "CORE_ATTACKS",
    "INPUT_ROW_ATTACKS",
    "ORACLE_ATTACKS",
    "DecoderBias",
    "DeltaScore",
    "Imia",
    "InputRows",
    "MultiRoundVote",
    "NeighbourVote",
    "PopularityGuesser",
    "PublicScore",
    "RankOneSign",
    "RowNorm",
    "RowSupport",
    "ScoreThreshold",
    "TwoWorld",
    "UploadAttack",
    "observe",
    "observe_scores",
    "run",
]
