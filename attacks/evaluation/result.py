"""Result of one attack in one game: a row of a report."""

from dataclasses import dataclass, field

from attacks.metrics.estimate import Estimate
from attacks.metrics.separation import RocCurve, TprAtFpr
from attacks.metrics.slices import Slice


@dataclass(frozen=True)
class SampleSplit:
    """One attack on two groups of users: those on whom attacks are compared, and those on whom the best is measured.

    The highest of many noisy numbers is too high. An attack that is chosen on some users and measured on others is not.

    Attributes:
        selection_users: Number of users to choose on.
        selection_gain: Mean AUC minus that of the popularity guesser over them.
        n_users: Number of users to measure on.
        auc: Mean AUC over the latter.
        popularity_auc: Mean AUC of the popularity guesser on the same pairs.
        gain: `auc` minus `popularity_auc`, paired by user.
    """

    selection_users: int
    selection_gain: float
    n_users: int
    auc: Estimate
    popularity_auc: float
    gain: Estimate


@dataclass(frozen=True)
class AttackResult:
    """One attack, one game, one scope. All fields are plain numbers and strings, so `dataclasses.asdict` gives JSON.

    Attributes:
        attack: Name of the attack.
        observable: What had to be visible.
        adversary: Party that can see the observable.
        knowledge: Prior knowledge that the attack used.
        unit: Subject of one guess.
        explains: One sentence for a newcomer.
        game: The question asked.
        scope: Items that count.
        note: Caveat about the scope for the reader, or "".
        membership: "natural": members are the user's real items, so never convert this row to an epsilon;
            "randomised": fair inclusion bits decided which of them were trained on.
        rounds: Number of rounds that the scores combine.
        n_users: Number of users with at least one member and one non-member.
        n_members: Number of member pairs.
        n_nonmembers: Number of non-member pairs.
        auc: Mean per-user AUC with its 95 % interval over users.
        auc_pooled: AUC over all pairs on one scale.
        tpr_at_fpr: Pooled true-positive rates at 10, 1 and 0.1 % false positives.
        advantage: Largest TPR - FPR, which chance alone makes a little larger than 0.
        popularity_auc: Mean per-user AUC of the popularity guesser on the same pairs.
        gain: `auc` minus `popularity_auc`, paired by user.
        roc: Pooled curve of at most 200 points.
        resamples: Number of bootstrap resamples behind the intervals.
        seconds: Time spent on scoring (not on measuring); ignored in comparisons.
        slices: AUC by deciles of items and of users; empty if not requested.
        sample_split: The same by the two groups of users; None if not requested, or if a group has no measurable user.
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
    sample_split: SampleSplit | None = None
