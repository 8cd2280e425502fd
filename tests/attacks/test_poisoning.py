"""Poisoned rows: they reach people through a plain mean, a clip keeps them small, and nothing comes of nothing."""

import numpy as np
import pytest

from attacks.poisoning import (
    FedRecAttack,
    PipAttack,
    PoisonedRows,
    RandomUsers,
    bandwagon_profiles,
    boosted,
    exposure,
    pushed,
)

TARGETS = np.array([5, 250])
USERS, ITEMS, WIDTH, COHORT = 200, 300, 8, 100


def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors that share a direction, items of which few lie along it, and what people have."""
    rng = np.random.default_rng(0)
    users = rng.normal(size=(USERS, WIDTH)) + 1.5
    table = 0.3 * rng.normal(size=(ITEMS, WIDTH)) + np.linspace(1, -1, ITEMS)[:, None] * 0.3
    table[TARGETS] = -0.3
    had = users @ table.T + rng.gumbel(size=(USERS, ITEMS)) > 4
    had[:, TARGETS] = False
    return users, table.astype(np.float32), had


def attacks(had: np.ndarray) -> list[PoisonedRows]:
    return [
        RandomUsers(),
        PipAttack(had.sum(axis=0).astype(np.float64)),
        FedRecAttack(had & (np.random.default_rng(1).random(had.shape) < 0.2)),
    ]


def after_a_round(table: np.ndarray, upload: np.ndarray, malicious: int, clip: float | None = None) -> np.ndarray:
    """The mean of so many malicious uploads and zeros of honest clients, added to the table."""
    norm = np.linalg.norm(upload)
    kept = upload if clip is None else upload * min(1.0, clip / norm)
    out = table.astype(np.float64)
    out[TARGETS] += kept * malicious / COHORT
    return out


@pytest.mark.parametrize("number", [1, 2])
def test_one_client_reaches_most_people_and_a_clip_stops_it(number: int) -> None:
    users, table, had = world()
    attack = attacks(had)[number]
    upload = boosted(attack.change(table, TARGETS, 0), COHORT, 1)
    before = exposure(users @ table.T, had, TARGETS)
    reached = exposure(users @ after_a_round(table, upload, 1).T, had, TARGETS)
    clipped = exposure(users @ after_a_round(table, upload, 1, clip=1.0).T, had, TARGETS)
    assert before < 0.02
    assert reached > 0.5
    assert clipped < 0.05


def test_random_users_say_little_of_people_who_agree() -> None:
    users, table, had = world()
    upload = boosted(RandomUsers().change(table, TARGETS, 0), COHORT, 1)
    aligned = boosted(attacks(had)[1].change(table, TARGETS, 0), COHORT, 1)
    reached = [exposure(users @ after_a_round(table, one, 1).T, had, TARGETS) for one in (upload, aligned)]
    assert reached[0] < reached[1] - 0.3


def test_pushed_rows_score_higher_for_those_they_are_pushed_to() -> None:
    users, table, _ = world()
    rows = table[TARGETS].astype(np.float64)
    assert ((users @ pushed(rows, users, 5, 0.5).T).mean(axis=0) > (users @ rows.T).mean(axis=0) + 0.5).all()
    assert (pushed(rows, users, 0, 0.5) == rows).all()
    assert boosted(rows, 100.0, 4.0) == pytest.approx(25 * rows)


def test_profiles_hold_targets_popular_items_and_filler() -> None:
    popularity = np.arange(ITEMS, dtype=np.float64)
    profiles = bandwagon_profiles(popularity, TARGETS, 7, 22, 0)
    assert (profiles.sum(axis=1) == 22).all()
    assert profiles[:, TARGETS].all()
    assert profiles[:, -10:].all()
    assert len(np.unique(profiles, axis=0)) == 7
    with pytest.raises(ValueError, match="no room"):
        bandwagon_profiles(popularity, TARGETS, 1, 2, 0)


def test_exposure_counts_those_who_lack_the_target() -> None:
    scores = np.array([[4.0, 3, 2, 1], [1, 2, 3, 4], [0, 0, 0, 0]])
    had = np.array([[True, False, False, False], [False, False, False, True], [False] * 4])
    targets = np.array([0, 3])
    # Of (0, 3), (1, 0), (2, 0) and (2, 3) none is first; ties count against the target.
    assert exposure(scores, had, targets, 1) == 0
    assert exposure(scores, had, targets, 3) == pytest.approx(2 / 4)
    with pytest.raises(ValueError, match="every target"):
        exposure(scores, np.ones_like(had), targets)
