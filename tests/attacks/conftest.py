"""Shared simulated rounds."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest


def _beside(name):
    spec = importlib.util.spec_from_file_location(f"attack_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulator, trainers = _beside("simulator"), _beside("trainers")


@pytest.fixture(scope="session")
def sim():
    return simulator


@pytest.fixture(scope="session")
def linear_head():
    return trainers.LinearHead


@pytest.fixture(scope="session")
def world(sim):
    """30 users, 400 items: masks, one round of uploads, popularity."""
    rng = np.random.default_rng(0)
    members, held_out = sim.histories(rng, 30, 400)
    return members, held_out, sim.uploads(rng, members), members.sum(axis=0).astype(np.float64)
