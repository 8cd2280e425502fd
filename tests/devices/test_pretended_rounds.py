"""Every method on a device that is not the processor: the same numbers, under the same plans, and few round trips."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from privfed.experiment import Experiment, ExperimentConfig, RunResult, TapConfig
from privfed.methods import methods
from privfed.privacy import PrivacyPlan

PLANS = {
    "none": "none",
    "central": "central-gaussian:clip_norm=1,noise_multiplier=1",
    "laplace": "local-laplace:clip_norm=1,epsilon0=1",
    "secure": "secure-sum:clip_norm=1",
    "shared": "shared-sum:clip_norm=1",
    "distributed": "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=10",
}
SPINE = ("fedmf", "pfedrec", "fedncf", "gpfedrec", "fedvae", "feddae")
INDIVIDUAL = {"gpfedrec", "multvae", "eals", "vals", "puresvd", "ials", "ease"}
"""Methods whose server needs single uploads."""
INTEGERS = {"dfmr", "dcf", "lightfr"}
"""Methods of whole numbers, whose sums do not fit a ring of 32 bits."""


def run(split: Any, method: dict[str, Any], plan: str, device: str, rounds: int = 1) -> tuple[Experiment, RunResult]:
    """A short run; every upload of a few users is tapped."""
    taps = TapConfig(users=5, places=("raw", "wire", "sum", "model"))
    experiment = Experiment(
        ExperimentConfig(method=method, privacy=PrivacyPlan.parse(plan), rounds=rounds, device=device, taps=taps), split
    )
    return experiment, experiment.run()


def tensors(experiment: Experiment) -> dict[str, torch.Tensor]:
    """All public and private state."""
    state = {f"server/{name}": value for name, value in experiment.server.state().items()}
    return state | {f"clients/{name}": value for name, value in experiment.clients.state().items()}


@pytest.fixture
def same_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles as on the processor, so that its kernels see the same shapes."""
    tiles = import_module("privfed.updates.tiles")
    monkeypatch.setattr(tiles, "ACCELERATED_TILE", tiles.TILE)


def assert_as_on_the_processor(pretended: Callable, split: Any, method: dict[str, Any], plan: str) -> None:
    here, known = run(split, method, plan, "cpu")
    with pretended():
        there, found = run(split, method, plan, "pretend")
        state = {name: value.cpu() for name, value in tensors(there).items()}
    expected = tensors(here)
    assert state.keys() == expected.keys()
    unlike = [name for name, value in state.items() if not torch.equal(value, expected[name])]
    assert not unlike
    assert [(m.slug, m.value) for m in found.test.metrics] == [(m.slug, m.value) for m in known.test.metrics]
    for one, other in zip(found.transcript.observations, known.transcript.observations, strict=True):
        assert all(torch.equal(values, other.tensors[name]) for name, values in one.tensors.items())


def runs(method: str, plan: str) -> bool:
    """Whether the method runs behind the plan."""
    if method in INTEGERS:
        return plan in {"none", "shared"}
    return method not in INDIVIDUAL or plan in {"none", "laplace"}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("method", SPINE)
@pytest.mark.usefixtures("same_tiles")
def test_equals_the_processor(pretended: Callable, small_split: Any, method: str, plan: str) -> None:
    if not runs(method, plan):
        pytest.skip("the method does not run behind the plan")
    assert_as_on_the_processor(pretended, small_split, {"name": method}, PLANS[plan])


@pytest.mark.parametrize("method", [name for name in methods() if name not in SPINE])
@pytest.mark.usefixtures("same_tiles")
def test_every_other_method_equals_the_processor(pretended: Callable, few_users: Any, method: str) -> None:
    assert_as_on_the_processor(pretended, few_users, {"name": method}, PLANS["none"])


@pytest.mark.parametrize("plan", ["central", "laplace", "secure", "shared"])
@pytest.mark.parametrize("method", ["hetefedrec", "fair", "private-gram", "dpals", "popularity"])
@pytest.mark.usefixtures("same_tiles")
def test_protected_uploads_of_other_kinds(pretended: Callable, few_users: Any, method: str, plan: str) -> None:
    assert_as_on_the_processor(pretended, few_users, {"name": method}, PLANS[plan])


@pytest.mark.parametrize("method", ["pfedrec", "fedncf"])
@pytest.mark.usefixtures("same_tiles")
def test_noisy_steps(pretended: Callable, few_users: Any, method: str) -> None:
    plan = "interaction-dpsgd:clip_norm=1,noise_multiplier=1"
    assert_as_on_the_processor(pretended, few_users, {"name": method}, plan)
