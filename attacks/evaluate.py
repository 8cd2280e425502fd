"""Run attacks over the rounds an adversary saw and measure what they found.

Two steps, so that one pass over the rounds serves several games: :func:`observe` lets every attack look (no
truth in sight), :func:`measure` compares what they said with :class:`~attacks.view.Targets`. :func:`run` does
both. :func:`observe_scores` looks at users' own recommendations instead of uploads, :func:`observe_support` at which
rows clients send into a secure sum.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Num

from attacks.membership import (
    SUPPORT_ATTACKS,
    Attack,
    Declared,
    MultiRoundVote,
    PopularityGuesser,
    ScoreThreshold,
    SupportAttack,
    Vote,
)
from attacks.metrics import Ranking, auc_gain, separation_of, usable_users
from attacks.result import AttackResult
from attacks.slices import Slice, SlicedAuc, Slicing
from attacks.support_view import SupportView
from attacks.view import (
    ALL_ITEMS,
    TOUCHED_ITEMS,
    Knowledge,
    PerUser,
    Scores,
    ScoreView,
    ServerView,
    Support,
    Targets,
    UserMask,
    ViewError,
    support,
)


@dataclass(frozen=True, eq=False)
class Scored:
    """What one attack said.

    Attributes:
        attack: The attack.
        scores: Its scores; of the last round for a single-round attack, of all rounds for a vote.
        present: Users it had anything to look at; the others are not measured.
        rounds: Rounds the scores are made of.
        seconds: Time spent scoring.
    """

    attack: Declared
    scores: Scores
    present: UserMask
    rounds: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Observation:
    """What all attacks said after the last round, before any truth is looked at.

    Attributes:
        scored: One entry per attack; the popularity guesser is always the first.
        support: Rows touched in the last round; None where no upload was looked at.
    """

    scored: tuple[Scored, ...]
    support: Support | None


def observe(attacks: Sequence[Attack], views: Iterable[ServerView], knowledge: Knowledge) -> Observation:
    """Let each attack look at the rounds, one view in memory at a time.

    Single-round attacks speak about the last round; :class:`MultiRoundVote` about all of them.

    Args:
        attacks: For example :data:`attacks.membership.CORE`. The popularity guesser is added if missing.
        views: Rounds in order, all of the same audited users; may be a generator.
        knowledge: What the adversary knew beforehand.

    Raises:
        ViewError: If there is no view, or views disagree in shape.
    """
    singles = [attack for attack in attacks if not isinstance(attack, MultiRoundVote | PopularityGuesser)]
    votes = {attack: attack.start() for attack in attacks if isinstance(attack, MultiRoundVote)}
    seconds = dict.fromkeys(votes, 0.0)
    last: ServerView | None = None
    for view in views:
        for attack, vote in votes.items():
            began = time.perf_counter()
            vote.add(view, knowledge)
            seconds[attack] += time.perf_counter() - began
        last = view
    if last is None:
        raise ViewError("There is no round to attack; pass at least one ServerView.")
    scored = [_look(attack, last, knowledge) for attack in (PopularityGuesser(), *singles)]
    scored += [_count(attack, vote, seconds[attack]) for attack, vote in votes.items()]
    return Observation(tuple(scored), support(last))


def observe_scores(view: ScoreView, knowledge: Knowledge) -> Observation:
    """Let the popularity guesser and the score threshold look at users' own recommendations.

    Args:
        view: Scores of the audited users after the last round.
        knowledge: What the adversary knew beforehand.
    """
    everybody = np.ones(view.n_users, dtype=bool)
    scored = [
        _timed(attack, partial(attack.score, view, knowledge), everybody)
        for attack in (PopularityGuesser(), ScoreThreshold())
    ]
    return Observation(tuple(scored), None)


def observe_support(view: SupportView, attacks: Sequence[SupportAttack] = SUPPORT_ATTACKS) -> Observation:
    """Let the popularity guesser, and each attack for which the view holds enough, look at what clients send.

    Measure it with `view.prior` as the knowledge.

    Args:
        view: Supports of the audited users. Those who took no part in training must be left out of it.
        attacks: By default all; those whose evidence the view lacks are left out.
    """
    everybody = np.ones(view.n_users, dtype=bool)
    popularity = PopularityGuesser()
    scored = [_timed(popularity, partial(popularity.score, view, view.prior), everybody)]
    scored += [_timed(attack, partial(attack.score, view), everybody) for attack in attacks if attack.applies(view)]
    return Observation(tuple(scored), None)


def measure(
    observation: Observation,
    knowledge: Knowledge,
    targets: Targets,
    *,
    scopes: Sequence[str] = (ALL_ITEMS,),
    resamples: int = 200,
    seed: int = 0,
    sliced: bool = False,
    activity: Num[np.ndarray, "users"] | None = None,
) -> list[AttackResult]:
    """Compare what the attacks said with the truth.

    Args:
        observation: From :func:`observe`, :func:`observe_scores` or :func:`observe_support`.
        knowledge: Gives the popularity baseline.
        targets: One game.
        scopes: Ask about all items, about items touched in the last round, or both.
        resamples: Bootstrap resamples of users.
        seed: Seed of the bootstrap; equal seeds give equal intervals.
        sliced: Also by tenths of the items and of the users (`attacks.slices`).
        activity: Training items of each audited user, for the tenths of users; by default their members in the game.

    Returns:
        One row per scope and attack. The touched scope gives no rows if no user has both sides in it, and so does the
        game of examinations against cover; an attack that looked at nobody who has both sides gives none either.

    Raises:
        ViewError: If targets cover other users or items than the views, or a scope is not one of the two, or
        asks about touched items where no upload was looked at.
    """
    results = []
    slicing = _slicing(knowledge, targets, activity) if sliced else None
    for scope in scopes:
        if scope not in (ALL_ITEMS, TOUCHED_ITEMS):
            raise ViewError(f"Scope is {scope!r}; use {ALL_ITEMS!r} or {TOUCHED_ITEMS!r}.")
        asked = targets
        if scope == TOUCHED_ITEMS:
            if observation.support is None:
                raise ViewError(f"Scope is {scope!r}, which only uploads have; ask scores about {ALL_ITEMS!r}.")
            asked = targets.touched(observation.support)
        measurable = usable_users(asked.members, asked.candidates)
        if asked.scope == TOUCHED_ITEMS and not measurable.any():
            continue
        game = _Game(asked, knowledge, slicing, resamples, seed)
        for scored in observation.scored:
            _refuse_other_users(scored, asked)
            if (measurable & scored.present).any() or not measurable.any():
                results.append(game.measured(scored))
    return results


def run(
    attacks: Sequence[Attack],
    views: Iterable[ServerView],
    knowledge: Knowledge,
    targets: Targets,
    *,
    scopes: Sequence[str] = (ALL_ITEMS,),
    resamples: int = 200,
    seed: int = 0,
) -> list[AttackResult]:
    """:func:`observe`, then :func:`measure`; the popularity guesser is always a row.

    Raises:
        ViewError: As the two steps do.
    """
    return measure(
        observe(attacks, views, knowledge), knowledge, targets, scopes=scopes, resamples=resamples, seed=seed
    )


def _look(attack: Attack, view: ServerView, knowledge: Knowledge) -> Scored:
    return _timed(attack, partial(attack.score, view, knowledge), view.present())


def _timed(attack: Declared, look: Callable[[], Scores], present: UserMask) -> Scored:
    began = time.perf_counter()
    scores = look()
    return Scored(attack, scores, present, 1, time.perf_counter() - began)


def _count(attack: MultiRoundVote, vote: Vote, seconds: float) -> Scored:
    return Scored(attack, vote.scores(), vote.rounds > 0, int(vote.rounds.max()), seconds)


def _refuse_other_users(scored: Scored, targets: Targets) -> None:
    if targets.members.shape != scored.scores.shape:
        raise ViewError(
            f"Targets cover {targets.members.shape} (users, items) but the views {scored.scores.shape}; "
            "build both from the same audited users, in the same order."
        )


def _slicing(knowledge: Knowledge, targets: Targets, activity: Num[np.ndarray, "users"] | None) -> Slicing:
    counted = targets.members.sum(axis=1) if activity is None else activity
    if (len(counted), len(knowledge.popularity)) != targets.members.shape:
        raise ViewError(
            f"Got the activity of {len(counted)} users and the popularity of {len(knowledge.popularity)} items for "
            f"targets of {targets.members.shape} (users, items); pass one number for each audited user and each item."
        )
    return Slicing(knowledge.popularity, counted)


@dataclass(frozen=True, eq=False)
class _Asked:
    """The pairs that are measured for the users an attack looked at, and the popularity guesser on them."""

    targets: Targets
    popularity_auc: PerUser
    popularity_slices: SlicedAuc | None


class _Game:
    """One game in one scope; what depends on it alone is worked out once for all attacks that saw the same users."""

    def __init__(
        self, targets: Targets, knowledge: Knowledge, slicing: Slicing | None, resamples: int, seed: int
    ) -> None:
        self._targets = targets
        self._popularity = knowledge.popularity
        self._slicing = slicing
        self._resamples, self._seed = resamples, seed
        self._of = dict[bytes, _Asked]()

    def _asked(self, present: UserMask) -> _Asked:
        known = self._of.get(present.tobytes())
        if known is None:
            targets = replace(self._targets, candidates=self._targets.candidates & present[:, None])
            guesser = np.broadcast_to(self._popularity, targets.members.shape)
            ranking = Ranking.of(guesser, targets.members, targets.candidates)
            auc = ranking.user_auc()
            known = _Asked(targets, auc, self._slicing.auc(ranking, auc) if self._slicing is not None else None)
            self._of[present.tobytes()] = known
        return known

    def measured(self, scored: Scored) -> AttackResult:
        asked = self._asked(scored.present)
        targets, resamples, seed = asked.targets, self._resamples, self._seed
        ranking = Ranking.of(scored.scores, targets.members, targets.candidates)
        own = ranking.user_auc()
        found = separation_of(ranking, own, resamples=resamples, seed=seed)
        slices: tuple[Slice, ...] = ()
        if self._slicing is not None and asked.popularity_slices is not None:
            sliced, pairs = self._slicing.auc(ranking, own), targets.members & targets.candidates
            slices = self._slicing.slices(pairs, sliced, asked.popularity_slices, resamples=resamples, seed=seed)
        attack = scored.attack
        return AttackResult(
            attack=attack.name,
            observable=attack.observable,
            adversary=attack.adversary,
            knowledge=attack.knowledge,
            unit=attack.unit,
            explains=attack.explains,
            game=targets.game,
            scope=targets.scope,
            note=targets.note,
            membership=targets.membership,
            rounds=scored.rounds,
            n_users=found.n_users,
            n_members=found.n_members,
            n_nonmembers=found.n_nonmembers,
            auc=found.auc,
            auc_pooled=found.auc_pooled,
            tpr_at_fpr=found.tpr_at_fpr,
            advantage=found.advantage,
            popularity_auc=float(np.nanmean(asked.popularity_auc)),
            gain=auc_gain(own, asked.popularity_auc, resamples=resamples, seed=seed),
            roc=found.roc,
            resamples=resamples,
            seconds=scored.seconds,
            slices=slices,
        )
