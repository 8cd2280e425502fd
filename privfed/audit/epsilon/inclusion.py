"""The inclusion game, the one that epsilon bounds: which interactions did a run train on?

`privfed.setup.inclusion` randomises before training. Here the game is put to what attacks said, what the claim allows
stands beside the rows that it covers, and from the same bits one lower bound on epsilon is made per tap
(`attacks.empirical.one_run`).

Everything about the bound is fixed before any bit is looked at: the attack by what a tap shows (`fixed_attack`), and
the guesses by their number, the tenth of the bits that scores highest as kept and the tenth that scores lowest as
dropped. The adversary's popularity is that of the data before randomisation, or it would know the outcome.
"""

from dataclasses import dataclass

import numpy as np

from attacks import Targets
from attacks.empirical import count_guesses, one_run_epsilon
from attacks.evaluation import AttackObservation as AttackOutput
from attacks.membership import DecoderBias, MultiRoundVote, RankOneSign, ScoreThreshold
from privfed.audit.epsilon.claims import empirical_row
from privfed.audit.report.ceilings import excesses, has_ceiling, inclusion_auc_ceiling, interaction_level
from privfed.audit.report.records import AttackRow, CeilingRow, EmpiricalRow, GuaranteeRow, Tap
from privfed.methods import ItemBlocks
from privfed.setup.inclusion import InclusionBits

GUESSED = 0.1
"""Share of the bits that is guessed on either side."""

MIN_BITS = 20
"""Inclusion bits without which no epsilon is measured: guesses about so few deny nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class InclusionGame:
    """The inclusion bits of a run and what it claims.

    Attributes:
        inclusion: decided before training.
        guarantee: of the run; None where nobody says.
    """

    inclusion: InclusionBits
    guarantee: GuaranteeRow | None

    @property
    def targets(self) -> Targets:
        """Interactions that were included against those that were left out."""
        return Targets.randomised_inclusion(self.inclusion.kept, self.inclusion.dropped)

    @property
    def playable(self) -> bool:
        """Whether anybody has interactions on both sides."""
        return bool((self.inclusion.kept.any(axis=1) & self.inclusion.dropped.any(axis=1)).any())

    def under_ceiling(self, row: AttackRow) -> AttackRow:
        """The row with what the claim allows, where the claim covers its tap; nothing is promised on the device."""
        if self.guarantee is None or not has_ceiling(row, self.guarantee):
            return row
        epsilon, delta = interaction_level(self.guarantee)
        ceiling = CeilingRow(
            epsilon=epsilon,
            delta=delta,
            auc=inclusion_auc_ceiling(self.guarantee),
            beaten=bool(excesses(row, self.guarantee)),
        )
        return row.model_copy(update={"ceiling": ceiling})

    def measured(self, output: AttackOutput, attack: str, row: AttackRow) -> EmpiricalRow | None:
        """The lower bound on epsilon from what one attack said; None where it said too little.

        Args:
            output: of the attacks.
            attack: the one that was fixed beforehand.
            row: of this attack in the game, for its tap.
        """
        (scored,) = [one for one in output.by_attack if one.attack.name == attack]
        decided = self.inclusion.decided & scored.present[:, None]
        guesses = int(GUESSED * decided.sum())
        if decided.sum() < MIN_BITS:
            return None
        claimed, delta = self._claim(row)
        kept = self.inclusion.kept[decided]
        bound, perfect = (
            one_run_epsilon(count_guesses(scores, kept, guess_in=guesses, guess_out=guesses), delta=delta)
            for scores in (scored.scores[decided], kept.astype(np.float64))
        )
        who = int(decided.any(axis=1).sum())
        audited = f"single interactions of {who} people, by {attack}"
        measured = empirical_row(
            claimed, bound, bound.confidence, audited, row.tap, "interaction", "one interaction added or removed"
        )
        return measured.model_copy(update={"largest_deniable": perfect.epsilon})

    def _claim(self, row: AttackRow) -> tuple[float, float]:
        """What is claimed at a tap for one interaction, and the delta at which to measure."""
        if self.guarantee is None:
            return float("inf"), 0.0
        if has_ceiling(row, self.guarantee):
            epsilon, delta = interaction_level(self.guarantee)
            if delta < 1:
                return epsilon, delta
        return float("inf"), self.guarantee.delta


def fixed_attack(tap: Tap, blocks: ItemBlocks | None) -> str:
    """The one attack that epsilon is measured by, chosen by what is seen: never by how well it did.

    Args:
        tap: where.
        blocks: what uploads say about items; None where they say nothing.
    """
    if tap == "scores" or blocks is None:
        return ScoreThreshold.name
    return MultiRoundVote(RankOneSign() if blocks.bias is None else DecoderBias()).name
