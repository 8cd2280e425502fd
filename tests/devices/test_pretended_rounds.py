"""Every method on a device that is not the processor: the same numbers, under the same plans, and few round trips."""

from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from privfed.audit.attack_runs.attack_run import attack_run
from privfed.audit.grid import as_run
from privfed.compute.devices import DeviceError
from privfed.data import SyntheticSpec, generate
from privfed.experiment import Experiment, RunResult
from privfed.methods import TorchConfig, methods, torch_method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

PLANS = {
    "none": "none",
    "central": "central-gaussian:clip_norm=1,noise_multiplier=1",
    "laplace": "local-laplace:clip_norm=1,epsilon0=1",
    "secure": "secure-sum:clip_norm=1",
    "shared": "shared-sum:clip_norm=1",
    "distributed": "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=10",
}
FEWER = {"private-autoencoder": {"steps": 5}}
SPINE = ("fedmf", "pfedrec", "fedncf", "gpfedrec", "fedvae", "feddae")
TRAINED = {"mf", "neumf", "lightgcn", "sgl", "logmf", "recvae", "centdae"}
INDIVIDUAL = {"gpfedrec", "multvae", "eals", "vals", "puresvd", "ials", "ease"} | TRAINED
"""Methods whose server needs single uploads."""
INTEGERS = {"dfmr", "dcf", "lightfr"}
"""Methods of whole numbers, whose sums do not fit a ring of 32 bits."""


def run(
    split: Any, method: dict[str, Any], plan: str, device: str, fidelity: Any = "exact"
) -> tuple[Experiment, RunResult]:
    """One round; every upload of a few users is tapped."""
    config = ExperimentConfig(
        method=method,
        privacy=PrivacyPlan.parse(plan),
        rounds=1,
        device=device,
        fidelity=fidelity,
        taps=TapConfig(users=5, places=("raw", "wire", "sum", "model")),
    )
    experiment = Experiment(config, split)
    return experiment, experiment.run()


def tensors(experiment: Experiment) -> dict[str, torch.Tensor]:
    """All public and private state."""
    state = {f"server/{name}": value for name, value in experiment.server.state().items()}
    return state | {f"clients/{name}": value for name, value in experiment.clients.state().items()}


def whole_gram(rows: np.ndarray) -> np.ndarray:
    """The sum of outer products by the routine that devices have."""
    vectors = torch.from_numpy(rows)
    return (vectors.T @ vectors).numpy()


@pytest.fixture
def same_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles as on the processor, no compiled training and whole products of histories, as kernels see on both."""
    tiles = import_module("privfed.compute.tiles")
    monkeypatch.setattr(tiles, "ACCELERATED_TILE", tiles.TILE)
    monkeypatch.setattr("privfed.methods.shared.linear_clients.compiled_for", lambda table: False)
    monkeypatch.setattr("privfed.methods.hetefedrec.client.compiled_for", lambda table: False)
    monkeypatch.setattr("privfed.updates.symmetric.upper_gram", whole_gram)


def assert_as_on_the_processor(
    pretended: Callable, split: Any, method: dict[str, Any], plan: str, fidelity: Any = "exact"
) -> None:
    """Parameters, private state, metrics and taps, all to the bit."""
    here, known = run(split, method, plan, "cpu", fidelity)
    with pretended():
        there, found = run(split, method, plan, "pretend", fidelity)
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


def together(some: Iterable[str], plans: Iterable[str]) -> list[tuple[str, str]]:
    """Every method with every plan that it runs behind."""
    return [(method, plan) for method, plan in product(some, plans) if runs(method, plan)]


@pytest.mark.parametrize(("method", "plan"), together(SPINE, PLANS))
@pytest.mark.usefixtures("same_tiles")
def test_equals_the_processor(pretended: Callable, few_users: Any, method: str, plan: str) -> None:
    assert_as_on_the_processor(pretended, few_users, {"name": method}, PLANS[plan])


@pytest.mark.parametrize("method", [name for name in methods() if name not in SPINE])
@pytest.mark.usefixtures("same_tiles")
def test_every_other_method_equals_the_processor(pretended: Callable, few_users: Any, method: str) -> None:
    assert_as_on_the_processor(pretended, few_users, {"name": method, **FEWER.get(method, {})}, PLANS["none"])


@pytest.mark.parametrize(
    ("method", "plan"),
    [
        ("hetefedrec", "central"),
        ("hetefedrec", "shared"),
        ("fair", "secure"),
        ("fair", "laplace"),
        ("private-gram", "central"),
        ("private-gram", "shared"),
        ("dpals", "secure"),
        ("popularity", "laplace"),
    ],
)
@pytest.mark.usefixtures("same_tiles")
def test_protected_uploads_of_other_kinds(pretended: Callable, few_users: Any, method: str, plan: str) -> None:
    assert_as_on_the_processor(pretended, few_users, {"name": method}, PLANS[plan])


@pytest.mark.parametrize("method", ["pfedrec", "fedncf"])
@pytest.mark.usefixtures("same_tiles")
def test_noisy_steps(pretended: Callable, few_users: Any, method: str) -> None:
    plan = "interaction-dpsgd:clip_norm=1,noise_multiplier=1"
    assert_as_on_the_processor(pretended, few_users, {"name": method}, plan)


SETTINGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "sketched graph": ("gpfedrec", {"sketch": 64}, "none"),
    "released graph": ("gpfedrec", {"graph": "distance", "max_neighbours": 5}, "none"),
    "ragged personal rows": ("feddae", {"local_encoder": "full"}, "none"),
    "deep encoder, three steps": ("fedvae", {"hidden": [20, 10], "local_steps": 3}, "none"),
    "held blocks": ("hetefedrec", {}, "secure-sum:clip_norm=1,blocks=held"),
    "held blocks of tiers": ("fair", {}, "secure-sum:clip_norm=1,blocks=held"),
    "whole numbers in a wide ring": ("dfmr", {}, "secure-sum:clip_norm=1,bits=64"),
    "a narrow ring": ("pfedrec", {}, "secure-sum:clip_norm=1,bits=20"),
    "a narrow ring, rounded by coins": ("pfedrec", {}, "secure-sum:clip_norm=1,bits=20,rounding=stochastic"),
    "rounded uploads": ("gpfedrec", {}, "none:upload_bits=8"),
    "drawn covers": ("dfmr", {}, "shared-sum:padding.kind=randomised_response,padding.epsilon=2"),
    "members by their own coins": ("pfedrec", {}, PLANS["central"] + ",sampling.kind=poisson,sampling.rate=0.5"),
}


@pytest.mark.parametrize("case", SETTINGS)
@pytest.mark.usefixtures("same_tiles")
def test_other_ways_through_the_code(pretended: Callable, few_users: Any, case: str) -> None:
    method, settings, plan = SETTINGS[case]
    assert_as_on_the_processor(pretended, few_users, {"name": method, **settings}, plan)


@pytest.mark.parametrize("fidelity", ["analytic", "protocol"])
@pytest.mark.usefixtures("same_tiles")
def test_wires(pretended: Callable, few_users: Any, fidelity: str) -> None:
    plan = "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=10"
    assert_as_on_the_processor(pretended, few_users, {"name": "fedvae"}, plan, fidelity=fidelity)


class Bilinear(nn.Module):
    """A module with a private vector, a table read by row, one number per item, and a buffer."""

    def __init__(self, n_items: int) -> None:
        super().__init__()
        self.user = nn.Parameter(0.1 * torch.randn(6))
        self.items = nn.Embedding(n_items, 6)
        self.bias = nn.Parameter(torch.zeros(n_items))
        self.register_buffer("tone", torch.randn(6))

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """Logits of items."""
        return self.items(items) @ (self.user * self.tone) + self.bias[items]


@pytest.mark.usefixtures("same_tiles")
def test_a_module_of_ones_own(pretended: Callable, few_users: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = torch_method(
        name="bilinear",
        title="a test",
        source="nobody",
        config=TorchConfig,
        module=lambda config, n_items: Bilinear(n_items),
        private=["user"],
        per_user_start=True,
    )
    monkeypatch.setattr("privfed.setup.config.method", lambda name: mine)
    assert_as_on_the_processor(pretended, few_users, {"name": "bilinear"}, PLANS["laplace"])


@pytest.mark.parametrize("method", ["fedncf", "gpfedrec", "hetefedrec"])
def test_larger_tiles_change_rounding_only(pretended: Callable, small_split: Any, method: str) -> None:
    here, _ = run(small_split, {"name": method}, PLANS["none"], "cpu")
    with pretended():
        there, _ = run(small_split, {"name": method}, PLANS["none"], "pretend")
        state = {name: value.cpu() for name, value in tensors(there).items()}
    for name, value in tensors(here).items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)


def trips(pretended: Callable, users: int, method: str, plan: str) -> dict[str, int]:
    """How often the host waits or copies in the second round of so many users, who fit one chunk."""
    spec = SyntheticSpec(
        name="synthetic-trips", n_users=users, n_items=200, mean_per_user=12, min_per_user=5, rank=4, seed=1
    )
    counts = []
    with pretended() as device:
        config = ExperimentConfig(
            method={"name": method},
            privacy=PrivacyPlan.parse(PLANS[plan]),
            rounds=2,
            device="pretend",
            taps=TapConfig(places=()),
        )
        experiment = Experiment.on(config, generate(spec))
        experiment.run(parts=(), progress=lambda t, _: counts.append(device.counts.copy()))
    return {kind: counts[1][kind] - counts[0][kind] for kind in ("waits", "to_host", "to_device")}


@pytest.mark.parametrize(("method", "plan"), together([*SPINE, "dfmr"], ["none", "secure"]))
def test_round_trips_do_not_grow_with_clients(pretended: Callable, method: str, plan: str) -> None:
    few, many = (trips(pretended, users, method, plan) for users in (30, 120))
    assert few == many


def test_a_part_of_the_users_is_hosted_on_the_processor_only(pretended: Callable, few_users: Any) -> None:
    config = ExperimentConfig(method={"name": "pfedrec"}, device="pretend")
    with pretended(), pytest.raises(DeviceError, match="start one process"):
        Experiment(config, few_users, hosted=np.arange(5))


def test_a_resumed_run_is_the_unbroken_one(pretended: Callable, few_users: Any, tmp_path: Path) -> None:
    config = ExperimentConfig(
        method={"name": "feddae"},
        privacy=PrivacyPlan.parse(PLANS["central"]),
        rounds=3,
        checkpoint_every=1,
        device="pretend",
        taps=TapConfig(users=5),
    )
    with pretended():
        whole = Experiment(config, few_users)
        whole.run()

        def stop(t: int, evaluated: object) -> None:
            del evaluated
            if t == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Experiment(config, few_users).run(tmp_path, progress=stop)
        resumed = Experiment(config, few_users)
        resumed.run(tmp_path, resume=True)
        state = {name: value.cpu() for name, value in tensors(resumed).items()}
        assert all(torch.equal(state[name], value.cpu()) for name, value in tensors(whole).items())
        shown = whole.recommend(2, 3)
        on_host = whole.on_host()
    assert torch.equal(on_host.recommend(2, 3), shown)
    assert all(torch.equal(value, state[name]) for name, value in tensors(on_host).items())


def test_a_run_of_a_device_is_attacked_on_the_processor(pretended: Callable, few_users: Any, tmp_path: Path) -> None:
    config = ExperimentConfig(
        method={"name": "pfedrec"}, rounds=2, device="pretend", taps=TapConfig(users=5, inclusion=0.3)
    )
    with pretended():
        Experiment(config, few_users).run(tmp_path)
    known_config, known_folder = config.model_copy(update={"device": "cpu"}), tmp_path / "cpu"
    known_folder.mkdir()
    Experiment(known_config, few_users).run(known_folder)
    found, known = attack_run(tmp_path, config, few_users), attack_run(known_folder, known_config, few_users)
    assert found.rows
    assert [row.auc for row in found.rows] == [row.auc for row in known.rows]


@pytest.mark.usefixtures("same_tiles")
def test_an_audit_reads_copies_on_the_processor(pretended: Callable, few_users: Any) -> None:
    here, known = run(few_users, {"name": "fedvae"}, PLANS["none"], "cpu")
    with pretended():
        there, found = run(few_users, {"name": "fedvae"}, PLANS["none"], "pretend")
        there = there.on_host()
    ours, theirs = as_run(there, found, "one"), as_run(here, known, "one")
    assert ours.attacks
    assert ours.attacks == theirs.attacks
    assert ours.utility == theirs.utility
