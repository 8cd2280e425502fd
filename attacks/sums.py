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
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from attacks.evaluate import Observation, Scored
from attacks.membership import Attack, Declared, MultiRoundVote, PopularityGuesser
from attacks.membership.scale import standardise
from attacks.view import Knowledge, Scores, ServerView, Support, UserMask, ViewError, support


@dataclass(frozen=True, eq=False)
class SumView:
    """One sum as it was opened, and which audited users are in it.

    Attributes:
        total: A view of one "user": the sum.
        members: True for the audited users whose uploads it holds.
        clients: How many uploads it holds, audited or not; None where that is unknown.

    Raises:
        ViewError: If the view is about several users, no audited user is in the sum, or it has fewer clients than
        audited members.
    """

    total: ServerView
    members: UserMask
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.total.n_users != 1:
            raise ViewError(f"SumView.total is about {self.total.n_users} users; pass the one sum as a single upload.")
        if self.members.dtype != bool or self.members.ndim != 1 or not self.members.any():
            raise ViewError(
                f"SumView.members is {self.members.dtype} of shape {self.members.shape} with "
                f"{int(self.members.sum())} true; pass one boolean per audited user, and only sums that hold some."
            )
        if self.clients is not None and self.clients < self.members.sum():
            raise ViewError(
                f"SumView.clients is {self.clients} but {int(self.members.sum())} audited users are in the sum; count "
                "everybody who is."
            )


class SumTally(Protocol):
    """What one attack has gathered from the sums so far."""

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        """Look at one more sum."""

    def scores(self) -> Scores:
        """Scores of every audited user, from the sums that each is in."""

    @property
    def rounds(self) -> Int64[np.ndarray, "users"]:
        """Sums looked at that hold each audited user; empty before the first."""


@runtime_checkable
class SumAttack(Declared, Protocol):
    """An attack that needs a sum to be known as one: what it says of a user depends on how many others are in it."""

    def tally(self) -> SumTally:
        """An empty tally to add sums to."""


@dataclass(frozen=True)
class OnSum:
    """An attack on uploads that is run on a sum of them, as if it were one."""

    of: Attack

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return self.of.name

    @property
    def observable(self) -> str:
        """What must be visible for the attack to run."""
        return self.of.observable.replace("individual item-table uploads", "the sum of the uploads")

    @property
    def adversary(self) -> str:
        """Who can see that."""
        return self.of.adversary

    @property
    def knowledge(self) -> tuple[str, ...]:
        """What the attack uses besides the sum."""
        return (*self.of.knowledge, "who took part in the sum")

    @property
    def unit(self) -> str:
        """What one guess is about."""
        return self.of.unit

    @property
    def cost(self) -> str:
        """Work in big-O terms."""
        return self.of.cost

    @property
    def explains(self) -> str:
        """One sentence for a newcomer."""
        return self.of.explains

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """What the attack says of the sum."""
        return self.of.score(view, knowledge)


def observe_sums(attacks: Sequence[Attack | SumAttack], sums: Iterable[SumView], knowledge: Knowledge) -> Observation:
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
    tallies: dict[Declared, _Clocked] = {}
    singles: list[OnSum] = []
    for attack in attacks:
        if isinstance(attack, SumAttack):
            tallies[attack] = _Clocked(attack.tally())
        elif isinstance(attack, MultiRoundVote):
            tallies[OnSum(attack)] = _Clocked(_SumVote(attack))
        elif not isinstance(attack, PopularityGuesser):
            singles.append(OnSum(attack))
    last: SumView | None = None
    anyone = np.zeros(0, dtype=bool)
    for seen in sums:
        if last is not None and (len(seen.members), seen.total.n_items) != (len(last.members), last.total.n_items):
            raise ViewError(
                f"The sum of round {seen.total.round} is about {len(seen.members)} users and {seen.total.n_items} "
                f"items but the one before about {len(last.members)} and {last.total.n_items}; pass the same in every "
                "round."
            )
        for tally in tallies.values():
            tally.add(seen, knowledge)
        anyone = seen.members if last is None else anyone | seen.members
        last = seen
    if last is None:
        raise ViewError("There is no sum to attack; pass at least one SumView.")
    scored = [_look(PopularityGuesser(), last, knowledge, anyone)]
    scored += [_look(attack, last, knowledge, last.members) for attack in singles]
    scored += [tally.result(attack) for attack, tally in tallies.items() if tally.of.rounds.any()]
    moved, shape = support(last.total), (len(last.members), last.total.n_items)
    everybody = Support(np.broadcast_to(moved.rows, shape), np.broadcast_to(moved.told, shape[:1]))
    return Observation(tuple(scored), everybody)


class _SumVote:
    """A vote over sums: each adds the same scores for everybody in it."""

    def __init__(self, attack: MultiRoundVote) -> None:
        self._attack = attack
        self._total = np.zeros((0, 0))
        self.rounds = np.zeros(0, dtype=np.int64)

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        if not self.rounds.size:
            self.rounds = np.zeros(len(seen.members), dtype=np.int64)
            self._total = np.zeros((len(seen.members), seen.total.n_items))
        self._total[seen.members] += standardise(self._attack.of.score(seen.total, knowledge))
        self.rounds += seen.members

    def scores(self) -> Scores:
        mean: Scores = self._total / np.maximum(self.rounds, 1)[:, None]
        return mean


class _Clocked:
    """A tally and the time that it took."""

    def __init__(self, tally: SumTally) -> None:
        self.of = tally
        self._seconds = 0.0

    def add(self, seen: SumView, knowledge: Knowledge) -> None:
        began = time.perf_counter()
        self.of.add(seen, knowledge)
        self._seconds += time.perf_counter() - began

    def result(self, attack: Declared) -> Scored:
        began = time.perf_counter()
        scores = self.of.scores()
        seconds = self._seconds + time.perf_counter() - began
        return Scored(attack, scores, self.of.rounds > 0, int(self.of.rounds.max()), seconds)


def _look(attack: PopularityGuesser | OnSum, seen: SumView, knowledge: Knowledge, present: UserMask) -> Scored:
    began = time.perf_counter()
    scores = np.broadcast_to(attack.score(seen.total, knowledge), (len(seen.members), seen.total.n_items))
    return Scored(attack, scores, present, 1, time.perf_counter() - began)
