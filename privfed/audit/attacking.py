"""From what a run tapped to attack rows: build the adversary's views, let every core attack look, measure.

Two games on every tap: training items against items never seen, and training items against held-out items of the
same user. The adversary knows item popularity and what the server itself sent.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from attacks import ALL_ITEMS, CORE, TOUCHED_ITEMS, Knowledge, ServerView, Targets, measure, observe
from privfed.audit.report import AttackRow, Tap
from privfed.data import Split
from privfed.engines import PULL, Observation, load_observations
from privfed.experiment import Experiment, ExperimentConfig

UploadTap = Literal["raw", "wire"]
UPLOAD_TAPS: tuple[UploadTap, ...] = ("raw", "wire")


def views(observations: Sequence[Observation], users: np.ndarray, item_block: str) -> Iterator[ServerView]:
    """One view per round of `users` (ascending); those absent from a round have zero rows."""
    for seen in observations:
        if not np.isin(seen.users.numpy(), users).all():
            raise ValueError(f"round {seen.round} was tapped for users outside the audited ones")
        place = np.searchsorted(users, seen.users.numpy())
        uploads = _spread(seen.tensors[item_block].numpy(), place, len(users))
        pull = _spread(seen.tensors[PULL].numpy(), place, len(users)) if PULL in seen.tensors else None
        yield ServerView(seen.round, uploads, pull)


def attack(
    observations: Sequence[Observation], tap: Tap, split: Split, users: np.ndarray, item_block: str
) -> list[AttackRow]:
    """Every core attack on the observations of one tap, in both games and both candidate scopes.

    Args:
        observations: of one tap, by round.
        tap: where they were made.
        split: the truth, and the popularity that the adversary knows.
        users: audited users, ascending.
        item_block: name of the block with one row per item.
    """
    knowledge = Knowledge(split.train.popularity().astype(np.float64))
    said = observe(CORE, views(observations, users, item_block), knowledge)
    train, seen = split.train.mask(users), split.seen.mask(users)
    games = (
        Targets.trained_vs_never_seen(train, seen),
        Targets.trained_vs_held_out(train, seen & ~train),
    )
    rounds = [o.round + 1 for o in observations]
    return [
        AttackRow.of(result, tap=tap, rounds_seen=rounds)
        for targets in games
        for result in measure(said, knowledge, targets, scopes=(ALL_ITEMS, TOUCHED_ITEMS))
    ]


def attack_run(directory: Path, config: ExperimentConfig, split: Split) -> list[AttackRow]:
    """Attack what a run directory tapped.

    Raises:
        ValueError: nothing was tapped there.
    """
    experiment = Experiment(config, split)
    users, rows = experiment.audited().numpy(), list[AttackRow]()
    for tap in UPLOAD_TAPS:
        observations = load_observations(directory / "taps", (tap,))
        if observations:
            rows += attack(observations, tap, split, users, experiment.registered.item_block)
    if not rows:
        raise ValueError(
            f"{directory} holds no tapped uploads; run again with --set 'taps.places=[\"wire\"]' and a new --out"
        )
    return rows


def _spread(values: np.ndarray, place: np.ndarray, users: int) -> np.ndarray:
    out = np.zeros((users, *values.shape[1:]), np.float32)
    out[place] = values
    return out
