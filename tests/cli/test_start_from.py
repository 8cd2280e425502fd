"""`privfed run feddae --start-from RUN`: the start is that of the released weights, and a resumed run keeps it."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from privfed.cli.recommender import trained
from privfed.cli.screen import Screen
from privfed.cli.start import START
from privfed.engines.checkpoint import Checkpoint
from privfed.methods.shared.warm_start import GramFactors, autoencoder

SMALL = ("--data", "synthetic-small", "--quiet")
FEDDAE = ("--rounds", 2, "--set", "method.latent=8", "--set", "method.server_optimiser=sgd")


@pytest.fixture(scope="module")
def released(tmp_path_factory, call):
    """A finished run of private-gram without noise."""
    directory = tmp_path_factory.mktemp("released") / "gram"
    answer = call("run", "private-gram", *SMALL, "--rounds", 1, "--set", "method.min_items=0", "--out", directory)
    assert answer.code == 0, answer.err
    return directory


def test_a_run_starts_from_released_weights_and_keeps_its_start(released, cli, tmp_path):
    out = tmp_path / "started"
    document = cli("run", "feddae", *SMALL, *FEDDAE, "--start-from", released, "--json", "--out", out).document
    assert document["start_from"]["directory"] == str(released)
    assert "the guarantee of that run holds for the same people" in document["start_from"]["note"]
    start = load_file(out / START)
    gram, *_ = trained(released, Screen(False, True))
    wanted = autoencoder(start, GramFactors.from_message(gram.server.public(), 8))
    assert all(start[name].equal(wanted[name]) for name in wanted)
    assert start["decoder.0.weight"].any()
    killed = tmp_path / "killed"
    shutil.copytree(out, killed)
    shutil.rmtree(killed / "checkpoint")
    for name in ("ledger.jsonl", "ledger.json", "guarantee.json", "metrics.jsonl"):
        (killed / name).unlink()
    cli("run", "--resume", "--quiet", "--out", killed)
    ends = [Checkpoint.load(directory / "checkpoint").server for directory in (out, killed)]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_run_killed_as_it_is_recorded_does_not_go_on_from_another_start(released, call, tmp_path, monkeypatch):
    """A folder with a record and without the start would be resumed from the method's own first parameters."""

    def kill(*_):
        raise KeyboardInterrupt

    out = tmp_path / "killed"
    for place in ("privfed.cli.start.keep", "privfed.cli.directory.DirectoryRecord.write"):
        shutil.rmtree(out, ignore_errors=True)
        monkeypatch.setattr(place, kill)
        call("run", "feddae", *SMALL, *FEDDAE, "--start-from", released, "--out", out)
        monkeypatch.undo()
        assert not (out / "config.json").exists()


def test_a_damaged_start_is_named_in_one_sentence(released, cli, refused, tmp_path):
    out = tmp_path / "started"
    cli("run", "feddae", *SMALL, *FEDDAE, "--start-from", released, "--out", out)
    content = (out / START).read_bytes()
    for damage in (b"", content[:-7], b"garbage of some length"):
        (out / START).write_bytes(damage)
        assert f"{START} is damaged" in refused("run", "--resume", "--quiet", "--out", out)


def test_what_cannot_be_a_start_is_refused(released, cli, refused, tmp_path):
    def start(*words):
        return refused("run", *words, *SMALL, "--rounds", 1, "--out", tmp_path / "none")

    assert "fedmf has no start from released weights" in start("fedmf", "--start-from", released)
    other = tmp_path / "fedmf"
    cli("run", "fedmf", *SMALL, "--rounds", 1, "--out", other)
    assert "give the public message of private-gram" in start("feddae", "--start-from", other)
    deep = ("--set", "method.hidden=[8]")
    assert "an autoencoder of one layer was expected" in start("fedvae", *deep, "--start-from", released)
    apart = ("--set", "split.kind=ratio", "--set", "split.seed=5")
    assert "another split" in start("feddae", *apart, "--start-from", released)
    answer = refused("run", "--resume", "--quiet", "--out", other, "--start-from", released)
    assert "leave out --start-from with --resume" in answer
