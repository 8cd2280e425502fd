"""The audit of mechanisms, which knows nothing of guards, on what a guard lets leave: at its claim, and with faults."""

import itertools
import logging
import math
import os

import numpy as np
import pytest
import torch

from attacks.implementation import ClaimedNoise, correlated_uploads, repeated_windows, small_values
from attacks.mechanism import Claim, audit_mechanism
from privfed.engines.nodes.errors import PolicyRefused
from privfed.federation import Streams
from privfed.guard import Guard
from privfed.guard.charging import Charging
from privfed.guards import ClientGuard

EPSILON = 2.0
CLAIM = Claim(epsilon=EPSILON, delta=1e-5, neighbours="replace")
PLAN = f"local-gaussian:clip_norm=1,epsilon={EPSILON}"


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Extreme inputs break trainings by the thousand, and each is logged."""
    caplog.set_level(logging.CRITICAL, logger="privfed.guard")


@pytest.fixture
def seeded(monkeypatch):
    """Has a guard's noise, which is the system's, follow the seed of an audit's generator: replays need that."""

    def follow(generator):
        seed, draws = int(generator.integers(2**32)), itertools.count()
        monkeypatch.setattr(Streams, "from_system", lambda: Streams.from_seed(seed, run=str(next(draws))))

    return follow


def audited(release, trials=100):
    return audit_mechanism(release, CLAIM, shape=(2,), users=1, trials=trials, budget_seconds=600.0)


def update_of(rows):
    return lambda: {"w": torch.from_numpy(rows).sum(0).float()}


@pytest.fixture
def reply(tmp_path, seeded):
    """One protected reply of a node that trains on the rows."""
    guard = Guard(tmp_path, PLAN, rounds=1)

    def release(rows, generator):
        seeded(generator)
        return guard.protect({"w": torch.zeros(2)}, update_of(rows))["w"]

    return release


@pytest.fixture
def replies(tmp_path, seeded, monkeypatch):
    """What a node sends to a server that asks it more often than its budget allows, ledger and all."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    numbers = itertools.count()

    def answers(rows):
        guard = Guard(tmp_path / str(next(numbers)), PLAN, rounds=1)
        for _ in range(3):
            try:
                yield guard.answer({"w": torch.zeros(2)}, update_of(rows))["w"]
            except PolicyRefused:
                yield torch.zeros(2)

    def release(rows, generator):
        seeded(generator)
        return torch.stack(list(answers(rows)))

    return release


def noise_tests(guard):
    """Six uploads of a node that trains to the same model each time, as server sees them, against the plan's noise."""
    received, noise = {"w": torch.zeros(4000)}, ClaimedNoise("gaussian", guard.plan.mechanism.noise_over_clip)
    uploads = np.stack([guard.protect(received, lambda: {"w": torch.ones(4000)})["w"].numpy() for _ in range(6)])
    return [
        correlated_uploads(uploads, noise, largest_sum=math.sqrt(4000)),
        small_values(uploads[:, None], noise),
        repeated_windows(list(uploads), noise),
    ]


def test_noise_is_as_large_as_claimed_and_never_comes_twice(tmp_path, monkeypatch):
    guard, same = Guard(tmp_path, PLAN, rounds=1), Streams.from_seed(0)
    assert [test.name for test in noise_tests(guard) if test.p_value < 1e-9] == []
    monkeypatch.setattr(Streams, "from_system", lambda: same)
    assert min(test.p_value for test in noise_tests(guard)) < 1e-9


def test_a_guard_keeps_its_claim_and_the_claim_is_near(reply):
    report = audited(reply)
    assert not report.violated, report.text()
    assert 0.6 * EPSILON < report.epsilon <= EPSILON


def test_a_clip_that_is_skipped_is_found(reply, monkeypatch):
    monkeypatch.setattr(ClientGuard, "clip_", lambda self, updates, clip_norm=None: len(updates))
    assert audited(reply).violated


def test_noise_that_is_used_again_is_found(tmp_path, monkeypatch):
    guard, same = Guard(tmp_path, PLAN, rounds=1), Streams.from_seed(0)
    monkeypatch.setattr(Streams, "from_system", lambda: same)
    assert audited(lambda rows, generator: guard.protect({"w": torch.zeros(2)}, update_of(rows))["w"]).violated


def test_a_server_that_asks_beyond_the_budget_gets_no_more_than_the_claim(replies):
    report = audited(replies)
    assert not report.violated, report.text()
    assert 0.5 * EPSILON < report.epsilon <= EPSILON


def test_a_ledger_that_is_not_charged_is_found(replies, monkeypatch):
    monkeypatch.setattr(Charging, "record", lambda self, coordinates: None)
    assert audited(replies).violated
