"""A killed run continues to the very bits of an unbroken one: tensors, metrics, ledger, guarantee, taps."""

import resource
import shutil
from contextlib import contextmanager

import pytest
import torch

from privfed.engines.checkpoint import Checkpoint, CheckpointError
from privfed.engines.transcript import TapsError
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.experiment.gain import gain_over_popularity
from privfed.privacy import LedgerError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

ROUNDS = 5
GP = {"name": "gpfedrec", "dim": 4, "hidden": [4], "batch_size": 32}
RUNS = {
    "gpfedrec, local laplace": (GP, "local-laplace:epsilon0=2,clip_norm=3"),
    "gpfedrec, light, part of the clients": (GP | {"refresh_every": 2}, "none:sampling.kind=epoch,sampling.size=20"),
    "gpfedrec, plain mean": (GP | {"graph": None}, "clip:clip_norm=2"),
    "pfedrec, poisson": (
        {"name": "pfedrec", "dim": 4, "batch_size": 32},
        "published-noise:scale=0.01,sampling.kind=poisson,sampling.rate=0.4",
    ),
    "fedncf": ({"name": "fedncf", "dim": 4, "hidden": [4]}, "none:sampling.kind=fixed,sampling.size=30"),
    "fedmf, adaptive central gaussian": (
        {"name": "fedmf", "dim": 4},
        "central-gaussian:clip_norm=1,noise_multiplier=1,adaptive.count_noise=5,sampling.kind=poisson,sampling.rate=0.4",
    ),
    "fedmf, distributed, some rounds lost": (
        {"name": "fedmf", "dim": 4},
        "distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=20,sampling.kind=poisson,sampling.rate=0.4",
    ),
    "popularity": ({"name": "popularity"}, "none"),
}


class KilledError(Exception):
    """Stands for the process being gone."""


def experiment(split, run, **changes):
    settings, plan = RUNS[run]
    config = ExperimentConfig(
        data="synthetic-tests",
        method=settings,
        privacy=PrivacyPlan.parse(plan),
        protocol=Protocol(k=(5,)),
        rounds=ROUNDS,
        seed=4,
        evaluate_every=1,
        checkpoint_every=2,
        taps=TapConfig(places=("raw", "wire", "sum", "model"), users=6, rounds=(0, 2, 3)),
    )
    return Experiment(config.model_copy(update=changes), split)


def kill_after(t):
    def progress(round, evaluated):
        if round == t:
            raise KilledError

    return progress


@pytest.fixture(scope="module")
def unbroken():
    """Unbroken runs by name, each done once."""
    return {}


def reference(unbroken, split, run, tmp_path):
    if run not in unbroken:
        folder = tmp_path / "unbroken"
        folder.mkdir()
        result = experiment(split, run).run(folder)
        unbroken[run] = result, (folder / "ledger.jsonl").read_text()
    return unbroken[run]


def same_run(found, wanted):
    for half in ("server", "clients"):
        one, other = getattr(found, half).state(), getattr(wanted, half).state()
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].equal(other[name]), f"{half} {name}"
    assert found.history == wanted.history
    assert found.guarantee == wanted.guarantee
    assert found.clipped_fraction == wanted.clipped_fraction
    for count in ("up_bytes", "down_bytes", "client_rounds"):
        assert getattr(found.costs, count) == getattr(wanted.costs, count)
    for tap in ("raw", "wire", "sum", "model"):
        one, other = found.transcript.joined(tap), wanted.transcript.joined(tap)
        assert [o.round for o in one] == [o.round for o in other]
        for a, b in zip(one, other, strict=True):
            assert a.users.equal(b.users)
            assert a.tensors.keys() == b.tensors.keys()
            assert all(a.tensors[name].equal(b.tensors[name]) for name in a.tensors)


@pytest.mark.parametrize("killed_after", [1, 2])
@pytest.mark.parametrize("run", RUNS)
def test_a_resumed_run_equals_an_unbroken_one(small_split, unbroken, tmp_path, run, killed_after):
    """KilledError right behind a checkpoint, and with a charged round that no checkpoint holds."""
    wanted, ledger = reference(unbroken, small_split, run, tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(KilledError):
        experiment(small_split, run).run(folder, progress=kill_after(killed_after))
    rounds = []
    found = experiment(small_split, run).run(folder, resume=True, progress=lambda t, _: rounds.append(t))
    assert rounds == [2, 3, 4]
    same_run(found, wanted)
    assert (folder / "ledger.jsonl").read_text() == ledger


@pytest.mark.parametrize("run", ["gpfedrec, local laplace", "pfedrec, poisson"])
def test_a_run_killed_in_the_middle_of_a_round_and_once_more(small_split, tmp_path, run):
    def start():
        return experiment(small_split, run, chunk=16)

    unbroken, folder = tmp_path / "unbroken", tmp_path / "run"
    unbroken.mkdir()
    folder.mkdir()
    wanted, broken = start().run(unbroken), start()
    train = broken.clients.train

    def dying(call, message):
        if call.cohort_id == 3 and call.clients[-1] > 30:
            raise KilledError
        return train(call, message)

    broken.clients.train = dying
    with pytest.raises(KilledError):
        broken.run(folder)
    with pytest.raises(KilledError):
        start().run(folder, resume=True, progress=kill_after(2))
    same_run(start().run(folder, resume=True), wanted)
    assert (folder / "ledger.jsonl").read_text() == (unbroken / "ledger.jsonl").read_text()


def test_a_finished_run_resumes_to_itself(small_split, unbroken, tmp_path):
    run = "gpfedrec, local laplace"
    wanted, ledger = reference(unbroken, small_split, run, tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    experiment(small_split, run).run(folder)
    rounds = []
    found = experiment(small_split, run).run(folder, resume=True, progress=lambda t, _: rounds.append(t))
    assert rounds == []
    same_run(found, wanted)
    assert (folder / "ledger.jsonl").read_text() == ledger


def test_a_finished_run_that_was_killed_as_it_tidied_up_leaves_no_former_tensors(small_split, tmp_path):
    run = "gpfedrec, local laplace"
    experiment(small_split, run).run(tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "checkpoint.old")
    experiment(small_split, run).run(tmp_path, resume=True)
    assert not (tmp_path / "checkpoint.old").exists()


def test_a_run_in_memory_equals_one_with_a_directory(small_split, unbroken, tmp_path):
    run = "gpfedrec, local laplace"
    wanted, _ = reference(unbroken, small_split, run, tmp_path)
    same_run(experiment(small_split, run).run(), wanted)


def test_a_run_killed_before_its_first_checkpoint_starts_over(small_split, unbroken, tmp_path):
    """Its charges are in the ledger, so only a resume may continue it; there is nothing else to resume from."""
    run = "gpfedrec, local laplace"
    wanted, ledger = reference(unbroken, small_split, run, tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(KilledError):
        experiment(small_split, run).run(folder, progress=kill_after(0))
    found = experiment(small_split, run).run(folder, resume=True)
    same_run(found, wanted)
    assert (folder / "ledger.jsonl").read_text() == ledger


def test_taps_that_are_ahead_of_the_checkpoint_are_recorded_once(small_split, unbroken, tmp_path, monkeypatch):
    """Killed between the two writes: the taps of rounds 2 and 3 are on disk, the checkpoint is still of round 2."""
    run = "gpfedrec, local laplace"
    wanted, _ = reference(unbroken, small_split, run, tmp_path)
    folder, save = tmp_path / "run", Checkpoint.save
    folder.mkdir()

    def dying(self, place, processes):
        if self.next_round == 4:
            raise KilledError
        save(self, place, processes)

    monkeypatch.setattr(Checkpoint, "save", dying)
    with pytest.raises(KilledError):
        experiment(small_split, run).run(folder)
    monkeypatch.undo()
    assert any(path.name.endswith("000003.safetensors") for path in (folder / "taps").iterdir())
    same_run(experiment(small_split, run).run(folder, resume=True), wanted)


@pytest.mark.parametrize("select", ["best_valid", "last"])
def test_a_run_that_was_killed_after_its_best_round_gains_what_an_unbroken_one_does(small_split, tmp_path, select):
    """A checkpoint holds no value of a single user, from which the gain over popularity could be found again."""
    changes = {"protocol": Protocol(k=(5,), select=select), "checkpoint_every": 1}
    for name in ("unbroken", "run"):
        (tmp_path / name).mkdir()
    wanted = experiment(small_split, "fedncf", **changes)
    whole = wanted.run(tmp_path / "unbroken")
    gain = gain_over_popularity(wanted, whole.selected)
    best = whole.selected.round
    assert best == ROUNDS - 1 if select == "last" else best < ROUNDS - 1
    with pytest.raises(KilledError):
        experiment(small_split, "fedncf", **changes).run(tmp_path / "run", progress=kill_after(best))
    killed = experiment(small_split, "fedncf", **changes)
    resumed = killed.run(tmp_path / "run", resume=True)
    assert resumed.selected.round == best
    assert resumed.selected.by_user is None
    assert gain is not None
    assert gain_over_popularity(killed, resumed.selected) == gain


def test_a_directory_in_use_is_not_started_again(small_split, tmp_path):
    run = "popularity"
    experiment(small_split, run).run(tmp_path)
    with pytest.raises(LedgerError, match="exists already"):
        experiment(small_split, run).run(tmp_path)


@pytest.mark.parametrize("changes", [{"seed": 5}, {"privacy": PrivacyPlan.named("none")}], ids=["seed", "plan"])
def test_another_runs_directory_is_not_resumed(small_split, tmp_path, changes):
    run = "gpfedrec, local laplace"
    with pytest.raises(KilledError):
        experiment(small_split, run).run(tmp_path, progress=kill_after(1))
    with pytest.raises(LedgerError):
        experiment(small_split, run, **changes).run(tmp_path, resume=True)


def test_without_its_ledger_nothing_is_resumed(small_split, tmp_path):
    """A run that continued with an empty ledger would forget what it has spent."""
    run = "gpfedrec, local laplace"
    with pytest.raises(KilledError):
        experiment(small_split, run).run(tmp_path, progress=kill_after(1))
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(LedgerError, match="no run resumes without it"):
        experiment(small_split, run).run(tmp_path, resume=True)


def test_a_cut_last_line_is_said_in_the_result_of_every_later_resume(small_split, tmp_path):
    run = "gpfedrec, local laplace"
    with pytest.raises(KilledError):
        experiment(small_split, run).run(tmp_path, progress=kill_after(2))
    path = tmp_path / "ledger.jsonl"
    with path.open("ab") as file:
        file.write(b'{"previous":"ab')
    result = experiment(small_split, run).run(tmp_path, resume=True)
    assert ["was cut short (15 bytes" in notice for notice in result.notices] == [True]
    assert experiment(small_split, run).run(tmp_path, resume=True).notices == result.notices


def test_a_ledger_that_lost_entries_is_noticed(small_split, tmp_path):
    """The checkpoint says that two rounds were released; a ledger with one would claim too small an epsilon."""
    run = "gpfedrec, local laplace"
    with pytest.raises(KilledError):
        experiment(small_split, run).run(tmp_path, progress=kill_after(1))
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises((LedgerError, CheckpointError)):
        experiment(small_split, run).run(tmp_path, resume=True)


def test_a_damaged_checkpoint_is_named_in_one_sentence(small_split, tmp_path):
    run = "gpfedrec, local laplace"
    with pytest.raises(KilledError):
        experiment(small_split, run).run(tmp_path, progress=kill_after(1))
    (tmp_path / "checkpoint" / "server.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(CheckpointError, match="is damaged") as caught:
        experiment(small_split, run).run(tmp_path, resume=True)
    assert "\n" not in str(caught.value)


@contextmanager
def no_file_longer_than(size):
    """What a full disk says, for every file of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("places", "size"), [(("raw", "wire", "model"), 1500), ((), 2000), ((), 3000), ((), 6000)])
def test_a_full_disk_is_an_error_of_the_system_and_the_run_goes_on_from_there(small_split, tmp_path, places, size):
    """Whichever file no longer fits: of taps, of private or of public tensors, or of progress."""

    def start():
        return experiment(small_split, "gpfedrec, local laplace", taps=TapConfig(places=places, users=6))

    whole, folder = tmp_path / "whole", tmp_path / "run"
    whole.mkdir()
    folder.mkdir()
    wanted = start().run(whole)
    with no_file_longer_than(size), pytest.raises(OSError, match="File too large"):
        start().run(folder)
    same_run(start().run(folder, resume=True), wanted)
    names = [{str(path.relative_to(place)) for path in place.rglob("*")} for place in (folder, whole)]
    assert {name.removesuffix(".partial") + ".safetensors" for name in names[0] - names[1]} <= names[1]


def test_damaged_taps_are_named_in_one_sentence(small_split, tmp_path):
    run = "gpfedrec, local laplace"
    with pytest.raises(KilledError):
        experiment(small_split, run).run(tmp_path, progress=kill_after(1))
    path = tmp_path / "taps" / "wire-000000.safetensors"
    for content in (b"", path.read_bytes()[:-9], b"\0" * 40):
        path.write_bytes(content)
        with pytest.raises(TapsError, match=r"wire-000000.safetensors are damaged") as caught:
            experiment(small_split, run).run(tmp_path, resume=True)
        assert "\n" not in str(caught.value)


def test_restoring_gives_the_trained_sides(small_split, unbroken, tmp_path):
    run = "gpfedrec, local laplace"
    wanted, _ = reference(unbroken, small_split, run, tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    experiment(small_split, run).run(folder)
    fresh = experiment(small_split, run)
    assert fresh.restore(folder) == ROUNDS
    for half in ("server", "clients"):
        one, other = getattr(fresh, half).state(), getattr(wanted, half).state()
        assert all(one[name].equal(other[name]) for name in one)
    scores = fresh.recommend(3, ROUNDS)
    assert scores.shape == (70,)
    assert torch.isfinite(scores).all()
    assert all(fresh.clients.state()[name].equal(wanted.clients.state()[name]) for name in wanted.clients.state())


def test_evaluation_looks_without_touching(small_split):
    """Metrics every round, or only once, in private or received state: the same training, bit for bit."""
    run = "pfedrec, poisson"
    one = experiment(small_split, run).run()
    for changes in ({"evaluate_every": ROUNDS}, {"protocol": Protocol(k=(5,), state="received")}):
        other = experiment(small_split, run, **changes).run()
        for half in ("server", "clients"):
            a, b = getattr(one, half).state(), getattr(other, half).state()
            assert all(a[name].equal(b[name]) for name in a)


def test_seeds_decide_the_run(small_split):
    run = "gpfedrec, local laplace"
    one, again, other = (experiment(small_split, run, seed=seed).run() for seed in (4, 4, 5))
    assert one.server.state()["items"].equal(again.server.state()["items"])
    assert not one.server.state()["items"].equal(other.server.state()["items"])
