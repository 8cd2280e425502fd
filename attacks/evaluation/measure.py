"""Run attacks over the rounds an adversary saw and measure what they found.

Two steps, so that one pass over the rounds serves several games: :func:`observe` lets every attack look (no
truth in sight), :func:`measure` compares what they said with :class:`~attacks.view.Targets`. :func:`run` does
both. :func:`observe_scores` looks at users' own recommendations instead of uploads, :func:`observe_support` at which
rows clients send into a secure sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Num

from attacks.evaluation.observation import AttackObservation, AttackScores
from attacks.evaluation.result import AttackResult
from attacks.evaluation.targets import ALL_ITEMS, TOUCHED_ITEMS, Targets
from attacks.metrics.estimate import auc_gain
from attacks.metrics.ranking import Ranking, usable_users
from attacks.metrics.separation import separation_of
from attacks.metrics.slices import Slice, SlicedAuc, Slicing
from attacks.views.knowledge import Knowledge
from attacks.views.types import PerUser, UserMask, ViewError


def measure(
    observation: AttackObservation,
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
            asked = targets.among_touched(observation.support)
        measurable = usable_users(asked.members, asked.candidates)
        if asked.scope == TOUCHED_ITEMS and not measurable.any():
            continue
        game = _Game(asked, knowledge, slicing, resamples, seed)
        for scored in observation.by_attack:
            _refuse_other_users(scored, asked)
            if (measurable & scored.present).any() or not measurable.any():
                results.append(game.measured(scored))
    return results


def _refuse_other_users(scored: AttackScores, targets: Targets) -> None:
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
            ranking = Ranking.from_scores(guesser, targets.members, targets.candidates)
            auc = ranking.user_auc()
            known = _Asked(targets, auc, self._slicing.auc(ranking, auc) if self._slicing is not None else None)
            self._of[present.tobytes()] = known
        return known

    def measured(self, scored: AttackScores) -> AttackResult:
        asked = self._asked(scored.present)
        targets, resamples, seed = asked.targets, self._resamples, self._seed
        ranking = Ranking.from_scores(scored.scores, targets.members, targets.candidates)
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
