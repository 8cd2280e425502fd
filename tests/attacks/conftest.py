"""Shared simulated rounds."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

_spec = importlib.util.spec_from_file_location("attack_simulator", Path(__file__).with_name("simulator.py"))
simulator = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(simulator)


@pytest.fixture(scope="session")
def sim():
    return simulator


@pytest.fixture(scope="session")
def world(sim):
    """30 users, 400 items: masks, one round of uploads, popularity."""
    rng = np.random.default_rng(0)
    members, held_out = sim.histories(rng, 30, 400)
    return members, held_out, sim.uploads(rng, members), members.sum(axis=0).astype(np.float64)
