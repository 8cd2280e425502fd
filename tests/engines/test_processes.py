"""Clients shared among processes come to what one process comes to: models, metrics, ledgers, costs.

Two real processes of torchrun run all cases one after another; the reference is a run in this process.
"""

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from privfed.compute.processes import ALONE, Processes, ProcessesError
from privfed.engines.checkpoint import Checkpoint
from privfed.experiment import Experiment
from privfed.federation import FederationError
from privfed.methods import methods

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).with_name("shared_runs.py")
POISSON = ",sampling.kind=poisson,sampling.rate=0.4"
SHARES = "distributed-gaussian:noise_multiplier=1,clip_norm=1,n_min_honest=10"

SETTINGS: dict[str, dict[str, Any]] = {
    "dcf": {"d": 4},
    "dfmr": {"d": 4},
    "lightfr": {"d": 4},
    "fedmf": {"dim": 4},
    "fedncf": {"dim": 4, "hidden": [4]},
    "pfedrec": {"dim": 4},
    "gpfedrec": {"dim": 4, "hidden": [4]},
}
ADAM = {"private-autoencoder", "fedpergnn"}
"""Methods whose server divides sums by their size: last bits of a sum near zero grow."""

EXACT = {"dcf", "dfmr", "lightfr", "popularity"}
"""Methods whose sums are whole numbers."""

ONE_PROCESS = {"private-gram-year"}
"""Devices keep accounts in one process."""
IN_THE_CLEAR = {
    name: {"method": {"name": name, **SETTINGS.get(name, {})}} for name in methods() if name not in ONE_PROCESS
}
BEHIND_PLANS = {
    "words of a ring": {"method": {"name": "feddae", "popularity_prior": True}, "plan": "secure-sum:clip_norm=1"},
    "words of a ring of 16 bits": {
        "method": {"name": "popularity"},
        "plan": "secure-sum:clip_norm=1,bits=16",
    },
    "noise in shares": {"method": {"name": "private-gram"}, "plan": SHARES},
    "groups by activity": {"method": {"name": "hetefedrec", "groups": "activity"}, "plan": "secure-sum:clip_norm=1"},
    "groups by capacity": {"method": {"name": "hetefedrec", "groups": "capacity"}, "plan": SHARES},
    "groups at random": {"method": {"name": "hetefedrec", "groups": "random"}, "plan": SHARES + POISSON},
    "held blocks": {
        "method": {"name": "fair", "dim": 4},
        "plan": "secure-sum:clip_norm=4,blocks=held",
    },
    "tiers at random": {"method": {"name": "fair", "assigned": "random"}, "plan": "secure-sum:clip_norm=4"},
    "shares between aggregators": {
        "method": {"name": "fedmf", "dim": 4, "negatives": 1},
        "plan": "shared-sum:clip_norm=2,padding.kind=fake_items,padding.rho=1,padding.drawn=uniform,min_cohort=2",
    },
    "every row in shares": {
        "method": {"name": "pfedrec", "dim": 4},
        "plan": "shared-sum:clip_norm=2,padding.kind=full_support,min_cohort=2",
    },
    "adaptive clip": {
        "method": {"name": "fedmf", "dim": 4},
        "plan": "central-gaussian:clip_norm=1,noise_multiplier=1,adaptive.count_noise=5" + POISSON,
    },
    "noise at once": {
        "method": {"name": "fedmf", "dim": 4},
        "plan": "local-gaussian:clip_norm=1,noise_multiplier=1",
        "fidelity": "analytic",
    },
    "own noise": {
        "method": SETTINGS["gpfedrec"] | {"name": "gpfedrec"},
        "plan": "local-laplace:epsilon0=2,clip_norm=3",
    },
    "cohorts in turn": {
        "method": SETTINGS["gpfedrec"] | {"name": "gpfedrec"},
        "plan": "none:sampling.kind=epoch,sampling.size=20",
        "state": "received",
    },
    "a cohort of one process": {"method": {"name": "fedmf"}, "plan": "none:sampling.kind=fixed,sampling.size=2"},
    "rounds that are lost": {
        "method": {"name": "fedmf", "dim": 4},
        "plan": "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=20" + POISSON,
    },
    "killed and resumed": {
        "method": SETTINGS["pfedrec"] | {"name": "pfedrec"},
        "plan": "secure-sum:clip_norm=1",
        "killed": True,
    },
    "killed and resumed, clients in files": {
        "method": {"name": "fedmf", "dim": 4},
        "plan": "secure-sum:clip_norm=1",
        "killed": True,
        "in files": True,
    },
}
CASES: dict[str, dict[str, Any]] = IN_THE_CLEAR | BEHIND_PLANS
ALWAYS = ("popularity", "dcf", "fedmf", "gpfedrec", "fedvae", "private-autoencoder", "ease")
"""Methods that are always tested in the clear: of each kind one. The others are among the slow tests."""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("shared_runs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runs = load()


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What two processes came to, case by case, and where they kept their folders; of cases that are tested here."""
    folder = tmp_path_factory.mktemp("shared")
    tested = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    wanted = {name: case for name, case in CASES.items() if name in tested or case.get("killed")}
    torch.save(wanted, folder / "cases.pt")
    answer = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
         str(SCRIPT), str(folder / "cases.pt"), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-4000:]
    return torch.load(folder / "found.pt", weights_only=False), folder


def close(found: Any, wanted: Any, tolerance: dict[str, float]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, msg=lambda m, n=name: f"{n}: {m}", **tolerance)


@pytest.mark.parametrize(
    "name", [name if name in (*BEHIND_PLANS, *ALWAYS) else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_two_processes_come_to_what_one_comes_to(
    name: str, shared: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    case, found = CASES[name], shared[0][name]
    wanted = runs.outcome(case | {"killed": False}, tmp_path, ALONE)
    words = any(kind in case.get("plan", "") for kind in ("secure-sum", "shared-sum", "distributed"))
    to_the_bit, loosely = {"rtol": 0.0, "atol": 0.0}, {"rtol": 1e-2, "atol": 1e-3}
    for half in ("public", "personal", "private"):
        close(found[half], wanted[half], to_the_bit if words or name in EXACT else loosely if name in ADAM else {})
    # Fourier transforms of the second accountant may round differently in another process.
    checked, wanted_check = (of["guarantee"].pop("cross_check") for of in (found, wanted))
    assert checked == pytest.approx(wanted_check, rel=1e-9)
    for kept in ("ledger", "guarantee", "clipped"):
        assert found[kept] == wanted[kept]
    assert found["costs"] == pytest.approx(wanted["costs"], rel=1e-4)
    if words or name in EXACT:
        assert found["metrics"] == wanted["metrics"]
    for one, other in zip(found["metrics"], wanted["metrics"], strict=True):
        assert one["n_users"] == other["n_users"]
        for ours, theirs in zip(one["metrics"], other["metrics"], strict=True):
            assert ours["value"] == pytest.approx(theirs["value"], abs=0.03)
    assert found["tallest"] <= -(-wanted["tallest"] // 2)


def test_a_checkpoint_of_two_processes_serves_one(shared: tuple[dict[str, Any], Path]) -> None:
    found, folder = shared
    case = CASES["killed and resumed"]
    experiment = Experiment(runs.config(case), runs.small())
    assert experiment.restore(folder / str(list(found).index("killed and resumed"))) == runs.ROUNDS
    close(experiment.clients.state(), found["killed and resumed"]["private"], {"rtol": 0.0, "atol": 0.0})


@pytest.mark.parametrize(("saved", "loaded"), [(1, 3), (3, 1), (3, 2)])
def test_checkpoints_do_not_ask_how_many_processes(tmp_path: Path, saved: int, loaded: int) -> None:
    users, barrier = torch.arange(11), threading.Barrier(saved)

    class Together(Processes):
        def wait(self) -> None:
            barrier.wait(timeout=20)

    def save(rank: int) -> None:
        own = Together(rank, saved)
        Checkpoint(4, {"v": torch.ones(2)}, {"u": own.own(users, 11) * 10}, {}).save(tmp_path / "checkpoint", own)

    threads = [threading.Thread(target=save, args=(rank,)) for rank in range(saved)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(loaded):
        own = Processes(rank, loaded)
        assert Checkpoint.load(tmp_path / "checkpoint", own).clients["u"].equal(own.own(users, 11) * 10)


def test_ranges_cover_everybody_once() -> None:
    for population in (1, 7, 45, 1000):
        for size in (1, 2, 3, 7):
            users = torch.arange(population)
            shares = [Processes(rank, size).own(users, population) for rank in range(size)]
            assert torch.cat(shares).equal(users)
            assert max(len(share) for share in shares) - min(len(share) for share in shares) <= 1
            for rank, share in enumerate(shares):
                assert share.tolist() == Processes(rank, size).hosted(population).tolist()
                members = users[users % 3 == 0]
                assert Processes(rank, size).own(members, population).tolist() == [
                    u for u in share.tolist() if u % 3 == 0
                ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fidelity": "protocol"}, "fidelity = 'exact'"),
        ({"fidelity": "two-servers"}, "fidelity = 'exact'"),
        ({}, "taps.places"),
    ],
)
def test_what_needs_one_process_is_refused(changes: dict[str, Any], said: str) -> None:
    case = {"method": SETTINGS["fedmf"] | {"name": "fedmf"}, **changes}
    config = runs.config(case)
    if not changes:
        config = config.model_copy(update={"taps": config.taps.model_copy(update={"places": ("wire",)})})
    alone = type("Two", (Processes,), {"every": lambda self, own: [own, own]})(0, 2)
    with pytest.raises(ProcessesError, match=said):
        Experiment(config, runs.small(), processes=alone).run(parts=())


def test_a_process_is_asked_for_its_own_users_only() -> None:
    experiment = Experiment(runs.config({"method": {"name": "fedmf"}}), runs.small(), processes=Processes(1, 2))
    with pytest.raises(FederationError, match="hosts 22 to 44, 23 in all"):
        experiment.rehearse(torch.tensor([3]), 0, experiment.server.schema)
