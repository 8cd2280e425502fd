"""Compare the scores of attacks with the truth of a game.

Attacks are run first (`attacks.membership.observe`, `attacks.sums.observe_sums`, `attacks.supports.observe_support`,
`attacks.shadow.observe_shadows`), without access to the truth, so that one pass over the rounds serves several games.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Num

from attacks.evaluation.observation import AttackObservation, AttackScores
from attacks.evaluation.result import AttackResult, SampleSplit
from attacks.evaluation.targets import ALL_ITEMS, TOUCHED_ITEMS, Targets
from attacks.metrics.estimate import auc_gain, user_mean
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
    selection: UserMask | None = None,
) -> list[AttackResult]:
    """Compare the scores of attacks with the truth.

    Args:
        observation: Scores of all attacks.
        knowledge: Knowledge with the popularity for the baseline.
        targets: The game.
        scopes: Measure on all items, on items touched in the last round, or on both.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap; equal seeds give equal intervals.
        sliced: Also measure by deciles of the items and of the users (`attacks.metrics.slices`).
        activity: Number of training items of each audited user, for the deciles of users; by default their members
            in the game.
        selection: Users on whom attacks will be compared; the others are those to measure the best on.

    Returns:
        One result per scope and attack. The touched scope gives no results if no user has both members and
        non-members in it, and neither does the game of examinations against padding. An attack gives no result if
        none of the users it had data for has both.

    Raises:
        ViewError: If targets cover other users or items than the views, or a scope is not one of the two, or is the
        touched items where no upload was observed.
    """
    results = []
    slicing = _slicing(knowledge, targets, activity) if sliced else None
    for scope in scopes:
        scoped = _in_scope(targets, scope, observation)
        measurable = usable_users(scoped.members, scoped.candidates)
        if scoped.scope == TOUCHED_ITEMS and not measurable.any():
            continue
        game = _Game(scoped, knowledge, slicing, selection, resamples, seed)
        for attack in observation.by_attack:
            _check_users(attack, scoped)
            if (measurable & attack.present).any() or not measurable.any():
                results.append(game.result(attack))
    return results


def _in_scope(targets: Targets, scope: str, observation: AttackObservation) -> Targets:
    if scope not in (ALL_ITEMS, TOUCHED_ITEMS):
        raise ViewError(f"Scope is {scope!r}; use {ALL_ITEMS!r} or {TOUCHED_ITEMS!r}.")
    if scope == ALL_ITEMS:
        return targets
    if observation.support is None:
        raise ViewError(f"Scope is {scope!r}, which only uploads have; measure scores on {ALL_ITEMS!r}.")
    return targets.among_touched(observation.support)


def _check_users(scored: AttackScores, targets: Targets) -> None:
    if targets.members.shape != scored.scores.shape:
        raise ViewError(
            f"Targets cover {targets.members.shape} (users, items) but the views {scored.scores.shape}; "
            "build both from the same audited users, in the same order."
        )


def _slicing(knowledge: Knowledge, targets: Targets, activity: Num[np.ndarray, "users"] | None) -> Slicing:
    counts = targets.members.sum(axis=1) if activity is None else activity
    if (len(counts), len(knowledge.popularity)) != targets.members.shape:
        raise ViewError(
            f"Got the activity of {len(counts)} users and the popularity of {len(knowledge.popularity)} items for "
            f"targets of {targets.members.shape} (users, items); pass one number for each audited user and each item."
        )
    return Slicing(knowledge.popularity, counts)


@dataclass(frozen=True, eq=False)
class _Baseline:
    """Pairs measured for the users that an attack had data for, and the popularity guesser on them."""

    targets: Targets
    auc: PerUser
    slices: SlicedAuc | None


class _Game:
    """One game in one scope; its baseline is computed once for all attacks with data for the same users."""

    def __init__(
        self,
        targets: Targets,
        knowledge: Knowledge,
        slicing: Slicing | None,
        selection: UserMask | None,
        resamples: int,
        seed: int,
    ) -> None:
        self._targets = targets
        self._popularity = knowledge.popularity
        self._slicing = slicing
        self._selection = selection
        self._resamples, self._seed = resamples, seed
        self._baselines = dict[bytes, _Baseline]()

    def _baseline(self, present: UserMask) -> _Baseline:
        baseline = self._baselines.get(present.tobytes())
        if baseline is None:
            targets = replace(self._targets, candidates=self._targets.candidates & present[:, None])
            guesses = np.broadcast_to(self._popularity, targets.members.shape)
            ranking = Ranking.from_scores(guesses, targets.members, targets.candidates)
            auc = ranking.user_auc()
            baseline = _Baseline(targets, auc, self._slicing.auc(ranking, auc) if self._slicing is not None else None)
            self._baselines[present.tobytes()] = baseline
        return baseline

    def _slices(self, ranking: Ranking, auc: PerUser, baseline: _Baseline) -> tuple[Slice, ...]:
        if self._slicing is None or baseline.slices is None:
            return ()
        members = baseline.targets.members & baseline.targets.candidates
        return self._slicing.slices(
            members, self._slicing.auc(ranking, auc), baseline.slices, resamples=self._resamples, seed=self._seed
        )

    def _sample_split(self, auc: PerUser, popularity: PerUser) -> SampleSplit | None:
        if self._selection is None:
            return None
        gain, chosen = auc - popularity, self._selection
        if not (np.isfinite(gain[chosen]).any() and np.isfinite(gain[~chosen]).any()):
            return None
        measured = np.where(np.isfinite(gain), auc, np.nan)[~chosen]
        return SampleSplit(
            selection_users=int(np.isfinite(gain[chosen]).sum()),
            selection_gain=float(np.nanmean(gain[chosen])),
            n_users=int(np.isfinite(measured).sum()),
            auc=user_mean(measured, resamples=self._resamples, seed=self._seed),
            popularity_auc=float(np.nanmean(popularity[~chosen][np.isfinite(measured)])),
            gain=user_mean(gain[~chosen], resamples=self._resamples, seed=self._seed),
        )

    def result(self, scored: AttackScores) -> AttackResult:
        baseline = self._baseline(scored.present)
        targets, resamples, seed = baseline.targets, self._resamples, self._seed
        ranking = Ranking.from_scores(scored.scores, targets.members, targets.candidates)
        auc = ranking.user_auc()
        separation = separation_of(ranking, auc, resamples=resamples, seed=seed)
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
            n_users=separation.n_users,
            n_members=separation.n_members,
            n_nonmembers=separation.n_nonmembers,
            auc=separation.auc,
            auc_pooled=separation.auc_pooled,
            tpr_at_fpr=separation.tpr_at_fpr,
            advantage=separation.advantage,
            popularity_auc=float(np.nanmean(baseline.auc)),
            gain=auc_gain(auc, baseline.auc, resamples=resamples, seed=seed),
            roc=separation.roc,
            resamples=resamples,
            seconds=scored.seconds,
            slices=self._slices(ranking, auc, baseline),
            sample_split=self._sample_split(auc, baseline.auc),
        )
