"""Run attacks on sums of uploads, by a server that sees no single upload, and measure them on every participant.

A sum over one client is that client's upload; in a large sum single interests drown in the majority's, and an attack on
it says little more than popularity does. Every attack on uploads runs on the sum as if it were one upload, and its one
score per item is compared with each audited participant's own history (the adversary knows who takes part).

Two attacks need sums: :class:`attacks.sums.SingletonRows` takes into account how many others could have touched a row,
and :func:`attacks.sums.aggregate_match` infers who takes part at all.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from attacks._scaling import standardise
from attacks.evaluation.info import AttackInfo
from attacks.evaluation.observation import AttackObservation, AttackScores
from attacks.membership.attack import UploadAttack
from attacks.membership.multi_round_vote import MultiRoundVote
from attacks.membership.popularity import PopularityGuesser
from attacks.sums.attack import SumAccumulator, SumAttack
from attacks.views.knowledge import Knowledge
from attacks.views.rows import UploadSupport, upload_support
from attacks.views.server import ServerView
from attacks.views.sums import SumView
from attacks.views.types import Scores, UserMask, ViewError


@dataclass(frozen=True)
class UploadAttackOnSum:
    """An attack on uploads that runs on a sum of uploads as if it were a single one."""

    attack: UploadAttack

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return self.attack.name

    @property
    def observable(self) -> str:
        """What must be visible for the attack to run."""
        return self.attack.observable.replace("individual item-table uploads", "the sum of the uploads")

    @property
    def adversary(self) -> str:
        """Party that can see the observable."""
        return self.attack.adversary

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Prior knowledge that the attack uses."""
        return (*self.attack.knowledge, "who took part in the sum")

    @property
    def unit(self) -> str:
        """Subject of one guess."""
        return self.attack.unit

    @property
    def cost(self) -> str:
        """Work in big-O terms."""
        return self.attack.cost

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
        return self.attack.explains

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Scores of the attack on the sum."""
        return self.attack.score(view, knowledge)


def observe_sums(
    attacks: Sequence[UploadAttack | SumAttack], sums: Iterable[SumView], knowledge: Knowledge
) -> AttackObservation:
    """Run each attack on the sums, one in memory at a time; measure with :func:`attacks.measure`.

    Single-round attacks score the last sum and its participants; popularity, :class:`MultiRoundVote` and every
    :class:`SumAttack` score everybody in any sum, the last two from all sums that a user takes part in.

    Args:
        attacks: For example :data:`attacks.membership.CORE_ATTACKS`. The popularity guesser is added if missing. A sum
            attack that could use no sum is left out of the result.
        sums: Sums in order of rounds, all about the same audited users; may be a generator.
        knowledge: Prior knowledge of the adversary.

    Raises:
        ViewError: If there is no sum, or sums differ in their audited users or items.
    """
    singles, accumulators = _by_kind(attacks)
    last: SumView | None = None
    participants = np.zeros(0, dtype=bool)
    for view in sums:
        if last is not None:
            _check_same_users_and_items(view, last)
        for accumulator in accumulators.values():
            accumulator.add(view, knowledge)
        participants = view.members if last is None else participants | view.members
        last = view
    if last is None:
        raise ViewError("There is no sum to attack; pass at least one SumView.")
    scores = [_score(PopularityGuesser(), last, knowledge, participants)]
    scores += [_score(attack, last, knowledge, last.members) for attack in singles]
    scores += [timed.result(attack) for attack, timed in accumulators.items() if timed.accumulator.rounds.any()]
    # The rows of the sum are the support of every participant: [1, items] repeated to [users, items].
    support, shape = upload_support(last.total), (len(last.members), last.total.n_items)
    shared = UploadSupport(np.broadcast_to(support.rows, shape), np.broadcast_to(support.identifiable, shape[:1]))
    return AttackObservation(tuple(scores), shared)


def _by_kind(
    attacks: Sequence[UploadAttack | SumAttack],
) -> tuple[list[UploadAttackOnSum], dict[AttackInfo, "_TimedAccumulator"]]:
    """Single-round attacks, and an accumulator for every attack that combines several sums."""
    singles: list[UploadAttackOnSum] = []
    accumulators: dict[AttackInfo, _TimedAccumulator] = {}
    for attack in attacks:
        if isinstance(attack, SumAttack):
            accumulators[attack] = _TimedAccumulator(attack.sum_accumulator())
        elif isinstance(attack, MultiRoundVote):
            accumulators[UploadAttackOnSum(attack)] = _TimedAccumulator(_VoteOnSums(attack))
        elif not isinstance(attack, PopularityGuesser):
            singles.append(UploadAttackOnSum(attack))
    return singles, accumulators


def _check_same_users_and_items(view: SumView, before: SumView) -> None:
    if (len(view.members), view.total.n_items) != (len(before.members), before.total.n_items):
        raise ViewError(
            f"The sum of round {view.total.round} is about {len(view.members)} users and {view.total.n_items} "
            f"items but the one before about {len(before.members)} and {before.total.n_items}; pass the same in every "
            "round."
        )


class _VoteOnSums:
    """A vote over sums, each of which adds the same scores for all its participants."""

    def __init__(self, vote: MultiRoundVote) -> None:
        self._attack = vote.attack
        self._total = np.zeros((0, 0))
        self.rounds = np.zeros(0, dtype=np.int64)

    def add(self, view: SumView, knowledge: Knowledge) -> None:
        if not self.rounds.size:
            self.rounds = np.zeros(len(view.members), dtype=np.int64)
            self._total = np.zeros((len(view.members), view.total.n_items))
        self._total[view.members] += standardise(self._attack.score(view.total, knowledge))
        self.rounds += view.members

    def scores(self) -> Scores:
        mean: Scores = self._total / np.maximum(self.rounds, 1)[:, None]
        return mean


class _TimedAccumulator:
    """An accumulator and the time spent in it."""

    def __init__(self, accumulator: SumAccumulator) -> None:
        self.accumulator = accumulator
        self._seconds = 0.0

    def add(self, view: SumView, knowledge: Knowledge) -> None:
        began = time.perf_counter()
        self.accumulator.add(view, knowledge)
        self._seconds += time.perf_counter() - began

    def result(self, attack: AttackInfo) -> AttackScores:
        began = time.perf_counter()
        scores, rounds = self.accumulator.scores(), self.accumulator.rounds
        seconds = self._seconds + time.perf_counter() - began
        return AttackScores(attack, scores, rounds > 0, int(rounds.max()), seconds)


def _score(
    attack: PopularityGuesser | UploadAttackOnSum, view: SumView, knowledge: Knowledge, present: UserMask
) -> AttackScores:
    began = time.perf_counter()
    scores = np.broadcast_to(attack.score(view.total, knowledge), (len(view.members), view.total.n_items))
    return AttackScores(attack, scores, present, 1, time.perf_counter() - began)
