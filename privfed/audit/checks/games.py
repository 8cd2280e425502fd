"""Checks of membership games: members are what was trained on, and nobody else is asked about than the game says."""

from collections.abc import Iterable, Iterator

import numpy as np

from privfed.audit.attack_runs.attack_run import MembershipGames
from privfed.audit.report.records import POPULARITY, Check
from privfed.experiment import Experiment, RunResult


def check_games(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """The games that the attacks on a run are scored in, made again from the data alone."""
    if experiment.config.method_name == POPULARITY or experiment.config.control is not None:
        return
    games = MembershipGames.from_experiment(experiment, result.guarantee)
    faults = [*_faults(experiment, games)]
    yield Check(
        name="membership games",
        passed=not faults,
        detail=faults[0]
        if faults
        else f"members are what {len(games.users)} users trained on, all others are items that the game names, and "
        f"the adversary knows popularity as it was before any inclusion bit",
    )


def _faults(experiment: Experiment, games: MembershipGames) -> Iterator[str]:
    parts, users = experiment.parts, games.users
    counted = np.bincount(parts.train.items, minlength=parts.train.n_items)
    if not np.array_equal(games.knowledge.popularity, counted):
        yield "the popularity that the adversary knows is not that of the training items before any inclusion bit"
    trained, before = experiment.trained.train.mask(users), parts.train.mask(users)
    held_out = parts.valid.mask(users) | parts.test.mask(users)
    wanted = {
        "trained vs never seen": ~(before | held_out | trained),
        "trained vs held-out of the same user": held_out & ~trained,
    }
    for game in games.games:
        others = wanted.get(game.game)
        if others is None:
            yield f"the game {game.game!r} is none of those that are described"
            continue
        if not np.array_equal(game.members & game.candidates, trained):
            yield f"members of the game {game.game!r} are not what was trained on"
        if not np.array_equal(game.candidates & ~game.members, others):
            yield f"the other side of the game {game.game!r} has items that it should not have, or lacks some"
