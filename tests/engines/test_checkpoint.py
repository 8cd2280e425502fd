"""Checkpoints are swapped in whole: a kill while writing leaves the previous one."""

import json
import os
from pathlib import Path

import pytest
import torch

from privfed.engines.checkpoint import Checkpoint, CheckpointError


def checkpoint(t):
    strided = torch.arange(12.0).view(3, 4).t() + t
    return Checkpoint(
        t,
        {"items": strided, "near": torch.zeros(0, 0, dtype=torch.bool), "who": torch.tensor([5, 2])},
        {"w": torch.full((2, 2), float("nan")), "b": torch.tensor(1.5)},
        {"draws": t, "history": [[0, {"test": 0.25}]]},
    )


def same(found, wanted):
    assert found.next_round == wanted.next_round
    assert dict(found.progress) == dict(wanted.progress)
    for part in ("server", "clients"):
        one, other = getattr(found, part), getattr(wanted, part)
        assert one.keys() == other.keys()
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)


def test_what_was_saved_is_read_back(tmp_path):
    folder = tmp_path / "run" / "checkpoint"
    for t in (2, 4):
        checkpoint(t).save(folder)
        same(Checkpoint.load(folder), checkpoint(t))
    assert [p.name for p in folder.parent.iterdir()] == ["checkpoint"]


def test_nobody_else_reads_private_tensors(tmp_path):
    checkpoint(1).save(tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o600}


def test_both_sides_without_tensors(tmp_path):
    Checkpoint(1, {}, {}, {}).save(tmp_path / "c")
    same(Checkpoint.load(tmp_path / "c"), Checkpoint(1, {}, {}, {}))


def test_a_kill_while_writing_leaves_the_previous_one(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint"
    checkpoint(2).save(folder)

    def dying(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", dying)
    with pytest.raises(KeyboardInterrupt):
        checkpoint(4).save(folder)
    monkeypatch.undo()
    same(Checkpoint.load(folder), checkpoint(2))
    checkpoint(6).save(folder)
    same(Checkpoint.load(folder), checkpoint(6))


def test_a_kill_between_the_two_renames_leaves_the_previous_one(tmp_path):
    """The folder has been moved away and the new one is not yet in place."""
    folder = tmp_path / "checkpoint"
    checkpoint(2).save(folder)
    folder.rename(tmp_path / "checkpoint.old")
    checkpoint(4).save(tmp_path / "checkpoint.new")
    same(Checkpoint.load(folder), checkpoint(2))


def test_the_previous_one_survives_a_second_kill_while_writing(tmp_path, monkeypatch):
    """After a kill between the renames only `.old` is whole: the next save must not delete it first."""
    folder = tmp_path / "checkpoint"
    checkpoint(2).save(folder)
    folder.rename(tmp_path / "checkpoint.old")

    def dying(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", dying)
    with pytest.raises(KeyboardInterrupt):
        checkpoint(4).save(folder)
    monkeypatch.undo()
    same(Checkpoint.load(folder), checkpoint(2))


def test_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        Checkpoint.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "server.safetensors").unlink(),
        lambda folder: (folder / "clients.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "progress.json").write_text("{"),
        lambda folder: (folder / "progress.json").write_text("{}"),
        lambda folder: (folder / "progress.json").write_text("[]"),
        lambda folder: (folder / "progress.json").write_bytes(b"\xff\xfe"),
        lambda folder: (folder / "progress.json").write_text("[" * 100_000),
    ],
    ids=["server missing", "clients cut", "progress cut", "progress empty", "another shape", "not text", "too deep"],
)
def test_damage_is_named_in_one_sentence(tmp_path, damage):
    folder = tmp_path / "checkpoint"
    checkpoint(2).save(folder)
    damage(folder)
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint.load(folder)


def test_the_disk_has_a_checkpoint_before_the_previous_one_is_given_up(tmp_path, monkeypatch):
    """A power cut keeps names without bytes where nobody waited for the disk."""
    folder, done, really, rename = tmp_path / "checkpoint", [], os.fsync, Path.rename

    def synced(descriptor):
        done.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        really(descriptor)

    def renamed(self, target):
        done.append((str(self), str(target)))
        return rename(self, target)

    checkpoint(2).save(folder)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    checkpoint(4).save(folder)
    new, old = f"{folder}.new", f"{folder}.old"
    *files, aside, swapped, parent = done
    names = ("server.safetensors", "clients.safetensors", "progress.json")
    assert {*files} == {new, *(f"{new}/{name}" for name in names)}
    assert (aside, swapped, parent) == ((str(folder), old), (new, str(folder)), str(tmp_path))
