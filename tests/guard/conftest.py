"""A small model in torch, and Flower messages outside of any run."""

import pytest
import torch

GENEROUS = "local-gaussian:clip_norm=1,noise_multiplier=1e-5"
"""Noise so small that a test sees what was clipped; nothing that protects anybody."""

PLAN = "local-gaussian:clip_norm=1,noise_multiplier=4"


def model(value=0.0):
    return {"linear.weight": torch.full((3, 2), value), "linear.bias": torch.full((3,), value)}


def flat(state):
    return torch.cat([torch.as_tensor(values).double().flatten() for values in state.values()])


@pytest.fixture
def in_a_run(monkeypatch):
    """Flower lets messages be made inside a run only."""
    pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
