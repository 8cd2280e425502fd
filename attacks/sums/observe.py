"""Attacks on a sum of uploads: what a server that sees no single upload still reads, held against everybody in it.

A sum over one client is that client's upload; over many, single interests drown in what most people have, and an attack
on it says little more than popularity does. Every attack on uploads runs on the sum as if it were one upload, and its
one answer is measured against each audited participant's own history (the adversary knows who took part).

Two attacks are about sums only: :class:`attacks.singleton_rows.SingletonRows` weighs how many others could have touched
a row, and :func:`attacks.aggregate_match.aggregate_match` asks who took part at all.
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
    """An attack on uploads that is run on a sum of them, as if it were one."""

    of: UploadAttack

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
        """Who can see that."""
        return self.attack.adversary

    @property
    def knowledge(self) -> tuple[str, ...]:
        """What the attack uses besides the sum."""
        return (*self.attack.knowledge, "who took part in the sum")

    @property
    def unit(self) -> str:
        """What one guess is about."""
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
        """What the attack says of the sum."""
        return self.attack.score(view, knowledge)


def observe_sums(
    attacks: Sequence[UploadAttack | SumAttack], sums: Iterable[SumView], knowledge: Knowledge
) -> AttackObservation:
    """Let each attack look at the sums, one in memory at a time; measure with :func:`attacks.measure`.

    Single-round attacks speak about the last sum and those in it; popularity, :class:`MultiRoundVote` and every
    :class:`SumAttack` about everybody in any sum, the last two from the sums that each is in.

    Args:
        attacks: For example :data:`attacks.membership.CORE`. The popularity guesser is added if missing. A sum attack
            that could look at no sum is left out of the answer.
        sums: In order of rounds, all about the same audited users; may be a generator.
        knowledge: What the adversary knew beforehand.

    Raises:
        ViewError: If there is no sum, or sums differ in their audited users or items.
    """
    accumulators: dict[AttackInfo, _TimedAccumulator] = {}
    singles: list[UploadAttackOnSum] = []
    for attack in attacks:
        if isinstance(attack, SumAttack):
            accumulators[attack] = _TimedAccumulator(attack.sum_accumulator())
        elif isinstance(attack, MultiRoundVote):
            accumulators[UploadAttackOnSum(attack)] = _TimedAccumulator(_VoteOnSums(attack))
        elif not isinstance(attack, PopularityGuesser):
            singles.append(UploadAttackOnSum(attack))
    last: SumView | None = None
    anyone = np.zeros(0, dtype=bool)
    for seen in sums:
        if last is not None and (len(seen.members), seen.total.n_items) != (len(last.members), last.total.n_items):
            raise ViewError(
                f"The sum of round {seen.total.round} is about {len(seen.members)} users and {seen.total.n_items} "
                f"items but the one before about {len(last.members)} and {last.total.n_items}; pass the same in every "
                "round."
            )
        for accumulator in accumulators.values():
            accumulator.add(seen, knowledge)
        anyone = seen.members if last is None else anyone | seen.members
        last = seen
    if last is None:
        raise ViewError("There is no sum to attack; pass at least one SumView.")
    scored = [_look(PopularityGuesser(), last, knowledge, anyone)]
    scored += [_look(attack, last, knowledge, last.members) for attack in singles]
    scored += [
        accumulator.result(attack) for attack, accumulator in accumulators.items() if accumulator.of.rounds.any()
    ]
    moved, shape = upload_support(last.total), (len(last.members), last.total.n_items)
    everybody = UploadSupport(np.broadcast_to(moved.rows, shape), np.broadcast_to(moved.identifiable, shape[:1]))
    return AttackObservation(tuple(scored), everybody)


class _VoteOnSums:
    """A vote over sums: each adds the same scores for everybody in it."""

    def __init__(self, attack: MultiRoundVote) -> None:
        self._attack = attack
        self._total = np.zeros((0, 0))
        self.rounds = np.zeros(0, dtype=np.int64)

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        if not self.rounds.size:
            self.rounds = np.zeros(len(seen.members), dtype=np.int64)
            self._total = np.zeros((len(seen.members), seen.total.n_items))
        self._total[seen.members] += standardise(self._attack.attack.score(seen.total, knowledge))
        self.rounds += seen.members

    def scores(self) -> Scores:
        mean: Scores = self._total / np.maximum(self.rounds, 1)[:, None]
        return mean


class _TimedAccumulator:
    """A accumulator and the time that it took."""

    def __init__(self, accumulator: SumAccumulator) -> None:
        self.of = accumulator
        self._seconds = 0.0

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        began = time.perf_counter()
        self.attack.add(seen, knowledge)
        self._seconds += time.perf_counter() - began

    def result(self, attack: AttackInfo) -> AttackScores:
        began = time.perf_counter()
        scores = self.attack.scores()
        seconds = self._seconds + time.perf_counter() - began
        return AttackScores(attack, scores, self.attack.rounds > 0, int(self.attack.rounds.max()), seconds)


def _look(
    attack: PopularityGuesser | UploadAttackOnSum, seen: SumView, knowledge: Knowledge, present: UserMask
) -> AttackScores:
    began = time.perf_counter()
    scores = np.broadcast_to(attack.score(seen.total, knowledge), (len(seen.members), seen.total.n_items))
    return AttackScores(attack, scores, present, 1, time.perf_counter() - began)
