"""Private state in files changes nothing of a run: tensors, metrics, ledger, checkpoint, killed or not, to the bit."""

import gc
from dataclasses import replace
from errno import ENOSPC

import numpy as np
import pytest
import torch

from privfed.data import Histories
from privfed.engines.checkpoint import Checkpoint
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import ClientStateError, sharded_state
from privfed.methods import method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

ROUNDS = 4
POISSON = "sampling.kind=poisson,sampling.rate=0.4"
RUNS = {
    "pfedrec": ({"name": "pfedrec", "dim": 4}, "none"),
    "pfedrec, noisy steps": (
        {"name": "pfedrec", "dim": 4},
        "interaction-dpsgd:clip_norm=1,noise_multiplier=1,local_steps=2,local_rate=0.3",
    ),
    "fedmf, poisson": ({"name": "fedmf", "dim": 4}, "published-noise:scale=0.01," + POISSON),
    "fedmf, some rounds lost": (
        {"name": "fedmf", "dim": 4},
        "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=8," + POISSON,
    ),
    "fedncf, fixed cohorts": (
        {"name": "fedncf", "dim": 4, "hidden": [4]},
        "none:sampling.kind=fixed,sampling.size=10",
    ),
    "gpfedrec": ({"name": "gpfedrec", "dim": 4, "hidden": [4]}, "none"),
    "feddae": ({"name": "feddae", "latent": 4, "hidden": [8]}, "none"),
    "feddae, ragged rows": (
        {"name": "feddae", "latent": 4, "hidden": [8, 8], "local_encoder": "full"},
        "secure-sum:clip_norm=1",
    ),
    "feddae, random gate": (
        {"name": "feddae", "latent": 4, "local_encoder": "sparse_first_layer", "frozen_random_gate": True},
        "none:sampling.kind=epoch,sampling.size=7",
    ),
    "feddae, forgotten": ({"name": "feddae", "latent": 4, "forget_personal_state": True}, "none"),
    "hetefedrec": ({"name": "hetefedrec"}, "secure-sum:clip_norm=1"),
    "fair": ({"name": "fair", "dim": 4}, "secure-sum:clip_norm=4,blocks=held"),
    "dfmr, codes in memory": ({"name": "dfmr", "d": 4}, "none"),
    "fedvae, no private tensors": ({"name": "fedvae", "latent": 4}, "none"),
}
SMALL, LARGE = 1500, 2**20


class KilledError(Exception):
    """Stands for the process being gone."""


def experiment(split, run, client_state=None):
    settings, plan = RUNS[run]
    privacy = PrivacyPlan.parse(plan)
    if plan == "none":
        privacy = PrivacyPlan.named("none", release=method(settings["name"]).traits.release)
    config = ExperimentConfig(
        data="synthetic-tests",
        method=settings,
        privacy=privacy,
        protocol=Protocol(k=(5,)),
        rounds=ROUNDS,
        seed=4,
        evaluate_every=1,
        checkpoint_every=2,
        taps=TapConfig(places=()),
        chunk=16,
    )
    return Experiment(config, split, client_state=client_state)


def kill_after(t):
    def progress(round, evaluated):
        if round == t:
            raise KilledError

    return progress


def killed(run, **options):
    """A run that dies; the process would be gone, and with it whatever held the folder."""
    with pytest.raises(KilledError):
        run.run(**options)
    del run
    gc.collect()


@pytest.fixture(scope="module")
def unbroken():
    """Unbroken runs in memory by name, each done once: (result, ledger, private tensors of the checkpoint)."""
    return {}


@pytest.fixture
def reference(unbroken, few_users, tmp_path_factory):
    def get(run):
        if run not in unbroken:
            folder = tmp_path_factory.mktemp("unbroken")
            unbroken[run] = experiment(few_users, run).run(folder), *files(folder)
        return unbroken[run]

    return get


def files(folder):
    names = ("ledger.jsonl", "checkpoint/server.safetensors", "checkpoint/clients.safetensors")
    return [(folder / name).read_bytes() for name in names]


def same_run(found, wanted, folder):
    result, *written = wanted
    for half in ("server", "clients"):
        one, other = getattr(found, half).state(), getattr(result, half).state()
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].equal(other[name]), f"{half} {name}"
    assert found.history == result.history
    assert found.guarantee == result.guarantee
    assert found.costs.aborted_rounds == result.costs.aborted_rounds
    assert files(folder) == written


@pytest.mark.parametrize("shard", [SMALL, LARGE])
@pytest.mark.parametrize("run", RUNS)
def test_a_run_in_files_equals_one_in_memory(few_users, reference, tmp_path, monkeypatch, run, shard):
    wanted = reference(run)
    monkeypatch.setattr(sharded_state, "SHARD_BYTES", shard)
    (tmp_path / "run").mkdir()
    found = experiment(few_users, run, tmp_path / "state").run(tmp_path / "run")
    same_run(found, wanted, tmp_path / "run")
    kept = {path.name.split("-")[0] for path in (tmp_path / "state").glob("*.shard")}
    private = set(found.clients.state())
    assert kept == {"entries"} & {"entries" for _ in private & {"first.rows"}} | {
        "users" for _ in private - {"first.rows", "codes"}
    }


def test_some_rounds_are_aborted_indeed(reference):
    assert 0 < reference("fedmf, some rounds lost")[0].costs.aborted_rounds < ROUNDS


@pytest.mark.parametrize(
    ("run", "killed_after"),
    [
        ("pfedrec", 0), ("pfedrec", 1), ("pfedrec", 2), ("fedmf, some rounds lost", 2), ("feddae, ragged rows", 0),
        ("feddae, ragged rows", 2), ("hetefedrec", 2), ("fair", 2),
    ],
)  # fmt: skip
def test_a_killed_run_goes_on_to_the_same_bits(few_users, reference, tmp_path, monkeypatch, run, killed_after):
    """Before the first checkpoint, right behind one, and with a committed round that no checkpoint holds."""
    monkeypatch.setattr(sharded_state, "SHARD_BYTES", SMALL)
    folder, state = tmp_path / "run", tmp_path / "state"
    folder.mkdir()
    killed(experiment(few_users, run, state), directory=folder, progress=kill_after(killed_after))
    rounds = []
    found = experiment(few_users, run, state).run(folder, resume=True, progress=lambda t, _: rounds.append(t))
    assert rounds == list(range(2 if killed_after else 0, ROUNDS))
    same_run(found, reference(run), folder)


@pytest.mark.parametrize("where", ["into files", "into memory", "into other files"])
def test_a_run_goes_on_wherever_its_clients_are_kept(few_users, reference, tmp_path, where):
    run, folder = "fedmf, poisson", tmp_path / "run"
    folder.mkdir()
    before = {"into files": None, "into memory": tmp_path / "a", "into other files": tmp_path / "a"}[where]
    after = {"into files": tmp_path / "b", "into memory": None, "into other files": tmp_path / "b"}[where]
    killed(experiment(few_users, run, before), directory=folder, progress=kill_after(2))
    same_run(experiment(few_users, run, after).run(folder, resume=True), reference(run), folder)


def test_a_kill_in_the_middle_of_a_round(few_users, reference, tmp_path, monkeypatch):
    """Some clients have staged, in files that are there when the run goes on."""
    monkeypatch.setattr(sharded_state, "SHARD_BYTES", SMALL)
    run, folder = "pfedrec", tmp_path / "run"
    folder.mkdir()
    broken = experiment(few_users, run, tmp_path / "state")
    train = broken.clients.train

    def dying(call, message):
        if call.cohort_id == 3 and call.clients[-1] > 15:
            raise KilledError
        return train(call, message)

    broken.clients.train = dying
    with pytest.raises(KilledError):
        broken.run(folder)
    del broken, train, dying
    gc.collect()
    same_run(experiment(few_users, run, tmp_path / "state").run(folder, resume=True), reference(run), folder)


def test_files_that_were_damaged_between_two_runs_do_not_matter(few_users, reference, tmp_path):
    """Nobody resumes from them."""
    run, folder = "pfedrec", tmp_path / "run"
    folder.mkdir()
    killed(experiment(few_users, run, tmp_path / "state"), directory=folder, progress=kill_after(2))
    for shard in (tmp_path / "state").glob("*.shard"):
        shard.write_bytes(b"?")
    same_run(experiment(few_users, run, tmp_path / "state").run(folder, resume=True), reference(run), folder)


@pytest.mark.parametrize("run", ["pfedrec", "feddae, ragged rows", "fedvae, no private tensors"])
def test_histories_may_lie_in_files_as_well(few_users, reference, tmp_path, run):
    """Copy-on-write: nobody writes to them, and torch wants arrays that could be written to."""
    parts = {}
    for name in ("train", "valid", "test"):
        h = getattr(few_users, name)
        np.save(tmp_path / f"{name}.npy", h.items)
        parts[name] = Histories(h.indptr, np.load(tmp_path / f"{name}.npy", mmap_mode="c"), h.n_items)
    folder = tmp_path / "run"
    folder.mkdir()
    same_run(experiment(replace(few_users, **parts), run, tmp_path / "state").run(folder), reference(run), folder)


def test_building_a_run_writes_nothing(few_users, tmp_path):
    experiment(few_users, "pfedrec", tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_a_folder_of_another_run_is_refused_before_anything_is_built(few_users, tmp_path):
    experiment(few_users, "pfedrec", tmp_path).run()
    gc.collect()
    with pytest.raises(ClientStateError, match="client state of another run"):
        experiment(few_users, "fedmf, poisson", tmp_path)


def test_a_full_disk_is_said_before_anything_is_recorded(few_users, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(ClientStateError, match="No space left on device"):
        experiment(few_users, "pfedrec", tmp_path / "state").run(folder)
    assert list(folder.iterdir()) == []
    assert list((tmp_path / "state").glob("*.shard")) == []


def test_a_checkpoint_reads_only_what_is_asked_for(tmp_path):
    rows = torch.arange(60.0).view(20, 3)
    Checkpoint(1, {}, {"w": rows, "n": torch.arange(20)}, {}).save(tmp_path / "c")
    found = Checkpoint.load(tmp_path / "c", ranged=True).clients
    assert tuple(found["w"].shape) == (20, 3)
    assert found["w"][4:9].equal(rows[4:9])
    assert found["n"][:].equal(torch.arange(20))
