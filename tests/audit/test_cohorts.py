"""Cohorts against the sampling that is claimed: honest ones pass, others do not."""

import numpy as np
import pytest

from privfed.audit.checks.cohorts import cohort_faults
from privfed.engines.cohorts import members
from privfed.federation import Streams
from privfed.privacy import PrivacyPlan

USERS = 100


def plan(sampling: str) -> PrivacyPlan:
    return PrivacyPlan.parse(f"local-laplace:epsilon0=1,clip_norm=1,{sampling}")


def drawn(sampling: str, rounds: int, seed: int, population: int = USERS) -> np.ndarray:
    streams, found = Streams.from_seed(seed), np.zeros((rounds, population), dtype=bool)
    for t in range(rounds):
        found[t, members(plan(sampling).sampling, streams, population, t)] = True
    return found


def faults(sampling: str, cohorts: np.ndarray) -> list[str]:
    return [*cohort_faults(plan(sampling), cohorts, range(len(cohorts)))]


POISSON = "sampling.kind=poisson,sampling.rate=0.3"
FIXED = "sampling.kind=fixed,sampling.size=30"
EPOCH = "sampling.kind=epoch,sampling.size=30"


@pytest.mark.parametrize("sampling", [POISSON, FIXED, EPOCH, "sampling.kind=all"])
def test_honest_cohorts_pass(sampling: str) -> None:
    assert [faults(sampling, drawn(sampling, 20, seed)) for seed in range(40)] == [[]] * 40


@pytest.mark.parametrize("sampling", [POISSON, FIXED])
def test_a_cohort_that_repeats_does_not(sampling: str) -> None:
    cohorts = drawn(sampling, 6, 0)
    cohorts[3] = cohorts[2]
    assert any("rounds 3 and 4" in fault for fault in faults(sampling, cohorts))


def test_bits_of_another_rate_do_not() -> None:
    assert any(
        "0.3 are claimed" in fault
        for fault in faults(POISSON, drawn("sampling.kind=poisson,sampling.rate=0.45", 20, 0))
    )


def test_cohorts_of_one_size_are_not_independent() -> None:
    assert any("exactly 30" in fault for fault in faults(POISSON, drawn(FIXED, 20, 0)))


def test_a_user_who_always_takes_part_is_found() -> None:
    cohorts = drawn(POISSON, 40, 0)
    cohorts[:, 17] = True
    assert any(f"1 of {USERS} users take part in more than" in fault for fault in faults(POISSON, cohorts))


def test_a_round_of_another_size_is_found() -> None:
    cohorts = drawn(FIXED, 3, 0)
    cohorts[1, :2] = ~cohorts[1, :2]
    cohorts[1, cohorts[1].argmin()] = True
    assert cohorts[1].sum() != 30
    assert any("round 2 has" in fault for fault in faults(FIXED, cohorts))


def test_an_epoch_that_asks_somebody_twice_is_found() -> None:
    cohorts = drawn(EPOCH, 4, 0)
    twice = int(cohorts[0].argmax())
    cohorts[1, twice] = True
    assert any("epoch 1 has some users 2 times" in fault for fault in faults(EPOCH, cohorts))


def test_everybody_means_everybody() -> None:
    cohorts = np.ones((3, USERS), dtype=bool)
    cohorts[2, 5] = False
    assert faults("sampling.kind=all", cohorts) == ["round 3: everybody is to take part, and 1 of 100 users did not"]
