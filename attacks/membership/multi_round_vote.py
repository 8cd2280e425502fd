"""Multi-round vote: average any attack's scores over the observed rounds.

Noise, sampled negatives and fake items that are drawn afresh every round are independent between rounds, while the
user's items stay the same. Averaging T rounds therefore reduces the randomness by sqrt(T) and keeps the signal; only
randomness that is drawn once per user and kept (memoised, as in RAPPOR: Erlingsson, Pihur & Korolova, CCS 2014)
survives it.

Each round's scores are first standardised per user (mean 0, variance 1), because uploads grow and shrink over training.
The average is computed in a stream, so no view has to be kept.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from attacks._scaling import standardise
from attacks.membership.attack import UploadAttack
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores, ViewError


@dataclass(frozen=True)
class MultiRoundVote:
    """Average of another attack's per-user standardised scores over rounds.

    Attributes:
        attack: Attack that scores each single round.
    """

    attack: UploadAttack

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return f"multi-round vote of {self.attack.name}"

    @property
    def observable(self) -> str:
        """What must be visible for the attack to run."""
        return f"{self.attack.observable}, repeated over rounds that are linked to their user"

    @property
    def adversary(self) -> str:
        """Party that can see the observable."""
        return self.attack.adversary

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Prior knowledge that the attack uses."""
        return self.attack.knowledge

    @property
    def unit(self) -> str:
        """Subject of one guess."""
        return self.attack.unit

    @property
    def cost(self) -> str:
        """Work in big-O terms."""
        return f"rounds x ({self.attack.cost})"

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
        return (
            f"Runs the {self.attack.name} attack on every round and averages, which washes out noise, negatives "
            "and fake items that are drawn afresh each time, because the real items are the same in all "
            "rounds."
        )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Standardised scores of a single round, a vote with one voter."""
        return standardise(self.attack.score(view, knowledge))

    def start(self) -> "VoteAccumulator":
        """Empty accumulator to which rounds are added."""
        return VoteAccumulator(self.attack)


@dataclass(eq=False)
class VoteAccumulator:
    """A running multi-round vote that keeps one number per (user, item).

    Attributes:
        attack: Attack that scores each single round.
        rounds: Number of rounds in which each user uploaded; empty until the first round is added.
    """

    attack: UploadAttack
    rounds: Int64[np.ndarray, "users"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    _sum: Scores = field(default_factory=lambda: np.zeros((0, 0)), init=False, repr=False)

    def add(self, view: ServerView, knowledge: Knowledge) -> None:
        """Score one more round and add it to the vote.

        A user without an upload in this round gets no vote from it.

        Raises:
            ViewError: If the round covers other users or items than the rounds before it.
        """
        self.add_scores(self.attack.score(view, knowledge), view)

    def add_scores(self, scores: Scores, view: ServerView) -> None:
        """Add one more round whose scores are known already."""
        if not self.rounds.size:
            self.rounds = np.zeros(view.n_users, dtype=np.int64)
            self._sum = np.zeros((view.n_users, view.n_items))
        if self._sum.shape != scores.shape:
            raise ViewError(
                f"Round {view.round} has {scores.shape} (users, items) but the vote began with "
                f"{self._sum.shape}; add the same audited users and the same catalogue in every round."
            )
        present = view.present()
        self._sum[present] += standardise(scores[present])
        self.rounds += present

    def scores(self) -> Scores:
        """Mean standardised score over the rounds a user took part in; 0 for a user who took part in no round.

        Raises:
            ViewError: If no round was added.
        """
        if not self.rounds.size:
            raise ViewError(
                "The multi-round vote holds no round; add at least one ServerView before asking for scores."
            )
        mean: Scores = self._sum / np.maximum(self.rounds, 1)[:, None]
        return mean
