"""What one attack achieved in one game: a row of a report."""

from dataclasses import dataclass, field

from attacks.metrics.estimate import Estimate
from attacks.metrics.separation import RocCurve, TprAtFpr
from attacks.metrics.slices import Slice


@dataclass(frozen=True)
class AttackResult:
    """One attack, one game, one scope. All plain numbers and strings, so `dataclasses.asdict` gives JSON.

    Attributes:
        attack: Name of the attack.
        observable: What it needed to see.
        adversary: Who can see that.
        knowledge: What it used besides.
        unit: What one guess is about.
        explains: One sentence for a newcomer.
        game: The question asked.
        scope: Which items took part.
        note: What a reader must know about the scope, or "".
        membership: "natural": members are the user's real items, so never convert this row to an epsilon;
            "randomised": a fair coin decided which of them were trained on.
        rounds: Rounds the scores are made of.
        n_users: Users with at least one member and one non-member.
        n_members: Member pairs.
        n_nonmembers: Non-member pairs.
        auc: Mean per-user AUC with its 95 % interval by user.
        auc_pooled: AUC over all pairs on one scale.
        tpr_at_fpr: Pooled true-positive rates at 10, 1 and 0.1 % false positives.
        advantage: Largest TPR - FPR.
        popularity_auc: Mean per-user AUC of the popularity guesser on the same pairs.
        gain: `auc` minus `popularity_auc`, paired by user.
        roc: Pooled curve, at most 200 points.
        resamples: Bootstrap resamples behind the intervals.
        seconds: Time spent scoring (not measuring); does not take part in comparisons.
        slices: The same by tenths of items and of users; empty where not asked for.
    """

    attack: str
    observable: str
    adversary: str
    knowledge: tuple[str, ...]
    unit: str
    explains: str
    game: str
    scope: str
    note: str
    membership: str
    rounds: int
    n_users: int
    n_members: int
    n_nonmembers: int
    auc: Estimate
    auc_pooled: Estimate
    tpr_at_fpr: tuple[TprAtFpr, ...]
    advantage: Estimate
    popularity_auc: float
    gain: Estimate
    roc: RocCurve
    resamples: int
    seconds: float = field(compare=False)
    slices: tuple[Slice, ...] = ()
