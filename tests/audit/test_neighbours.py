"""Two worlds that differ in one user, compared."""

import numpy as np
import pytest
import torch

from privfed.audit.checks.check_run import check_run
from privfed.audit.checks.neighbours import (
    NeighbourDifference,
    grid_of,
    neighbour_of,
    rerun_on_neighbours,
    sampled_users,
)
from privfed.data import Split, SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.guards.norm_accounts import NormAccounts
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

CENTRAL = PrivacyPlan.parse("central-gaussian:noise_multiplier=2,clip_norm=1")
LOCAL = PrivacyPlan.parse("local-laplace:epsilon0=1,clip_norm=1")
INTERACTION = PrivacyPlan.parse("interaction-dpsgd:noise_multiplier=1,clip_norm=1")


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(load("synthetic-small"), SplitSpec())


def own(parts: Split, user: int) -> list[list[int]]:
    return [getattr(parts, name).items_of(user).tolist() for name in ("train", "valid", "test")]


def others_equal(one: Split, two: Split, user: int) -> bool:
    return all(own(one, other) == own(two, other) for other in range(one.train.n_users) if other != user)


def test_a_user_is_taken_out_and_nobody_else(parts: Split) -> None:
    without = neighbour_of(CENTRAL, parts, 5)
    assert own(without, 5) == [[], [], []]
    assert others_equal(parts, without, 5)
    assert without.train.n_items == parts.train.n_items


def test_a_user_gets_the_history_of_another(parts: Split) -> None:
    replaced = neighbour_of(LOCAL, parts, 5)
    assert own(replaced, 5) in [own(parts, other) for other in range(parts.train.n_users) if other != 5]
    assert own(replaced, 5) != own(parts, 5)
    assert others_equal(parts, replaced, 5)


def test_one_interaction_is_taken_out(parts: Split) -> None:
    without = neighbour_of(INTERACTION, parts, 5)
    before, after = own(parts, 5), own(without, 5)
    assert (after[0], after[1:]) == (before[0][:-1], before[1:])
    assert others_equal(parts, without, 5)


def test_ratings_follow_their_rows(parts: Split) -> None:
    if parts.ratings is None:
        pytest.skip("the made-up data have no ratings")
    replaced = neighbour_of(LOCAL, parts, 5)
    assert replaced.ratings is not None
    assert len(replaced.ratings.train) == len(replaced.train)


def test_members_of_the_first_round_are_preferred(parts: Split) -> None:
    assert set(sampled_users(parts, 3, 0, members=[7, 8, 9])) == {7, 8, 9}
    assert len(sampled_users(parts, 2, 0)) == 2


def replay(method: str, plan: PrivacyPlan, parts: Split, rounds: int = 2) -> list[NeighbourDifference]:
    config = ExperimentConfig(data="synthetic-small", method={"name": method}, privacy=plan, rounds=rounds)
    return rerun_on_neighbours(config, parts, sampled_users(parts, 2, 0), rounds)


def test_a_sum_moves_by_exactly_the_clip_norm(parts: Split) -> None:
    moved = [d for d in replay("fedmf", CENTRAL, parts) if d.what == "a released sum"]
    assert len(moved) == 4
    assert all(0.999 < d.value <= d.bound < 1.01 for d in moved)


@pytest.mark.parametrize("keeps", [True, False], ids=["accounts", "no accounts"])
def test_sums_of_a_year_move_together_by_no_more_than_one_release(
    keeps: bool, parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not keeps:
        monkeypatch.setattr(NormAccounts, "left", lambda _, name, users: torch.ones(len(users), dtype=torch.float64))
    found = replay("private-gram-year", CENTRAL, parts)
    together = [d for d in found if d.what == "the 2 released sums of one account together"]
    assert together
    assert all(d.holds for d in together) == keeps
    assert not keeps or all(d.holds for d in found)


@pytest.mark.parametrize("words", ["central-gaussian:", "distributed-gaussian:n_min_honest=60,"])
def test_a_sound_year_is_not_accused(words: str, parts: Split) -> None:
    config = ExperimentConfig(
        data="synthetic-small",
        method={"name": "private-gram-year", "refreshes": 3},
        privacy=PrivacyPlan.parse(f"{words}noise_multiplier=2,clip_norm=1"),
        rounds=3,
        taps=TapConfig(places=("wire", "sum"), users=20, rounds=(2,)),
    )
    experiment = Experiment(config, parts)
    assert [row for row in check_run(experiment, experiment.run(parts=())) if not row.passed] == []


@pytest.mark.parametrize("method", ["gpfedrec", "fedmf", "fedvae"])
def test_replaced_uploads_are_almost_twice_the_clip_norm_apart(method: str, parts: Split) -> None:
    found = replay(method, LOCAL, parts)
    assert all(d.holds for d in found)
    assert 1.0 < max(d.value for d in found if d.what == "the user's own upload") <= 2.0


def test_nothing_has_a_distance_where_it_must_be_equal() -> None:
    difference = NeighbourDifference(3, 0, "what the server sends", "train", float("inf"), 0.0)
    assert not difference.holds
    assert difference.sentence == "in round 1, what the server sends (train) depends on the data of user 3"


def test_the_grid_of_numbers() -> None:
    assert grid_of(torch.tensor([0.0, 0.75, -2.5])) == 0.25
    assert grid_of(torch.tensor([0.0])) == 0.0
    assert grid_of(torch.tensor([2.0**-140, 1.0])) == 2.0**-140
    steps = np.random.default_rng(0).integers(-(2**20), 2**20, 1000) * 2.0**-9
    assert grid_of(torch.from_numpy(steps)) == 2.0**-9
