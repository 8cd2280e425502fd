"""What a node and a server write is their owner's alone, whatever the process's umask says."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.files import make_folder, write_file


@pytest.fixture(params=[0, 0o022, 0o077], ids="umask {:o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> dict[str, str]:
    """Everything below a folder, and the folder, that others may read, write or enter."""
    return {str(path): f"{mode(path):o}" for path in (folder, *folder.rglob("*")) if mode(path) & 0o077}


def test_a_file_is_secret_unless_it_is_asked_to_be_public(umask: int, tmp_path: Path) -> None:
    write_file(tmp_path / "users.pfn", b"x")
    write_file(tmp_path / "key.pub", b"x", public=True)
    assert mode(tmp_path / "users.pfn") == 0o600
    assert mode(tmp_path / "key.pub") == 0o644 & ~umask


def test_a_file_that_was_open_to_others_is_not_after_it_is_replaced(umask: int, tmp_path: Path) -> None:
    (tmp_path / "users.pfn").write_bytes(b"old")
    (tmp_path / "users.pfn").chmod(0o666)
    write_file(tmp_path / "users.pfn", b"new")
    assert mode(tmp_path / "users.pfn") == 0o600


def test_all_folders_on_the_way_are_private_and_those_that_were_there_stay(umask: int, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    make_folder(tmp_path / "home" / "node" / "state" / "runs")
    assert mode(tmp_path / "home") == 0o755
    assert not open_to_others(tmp_path / "home" / "node")
    make_folder(tmp_path / "home" / "node")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateError, match="cannot be made"):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("plan", ["secure-sum:clip_norm=10.0", "local-laplace:epsilon0=5,clip_norm=1"])
def test_after_a_run_nobody_else_reads_anything_at_a_node_or_the_server(
    umask: int, federation: Callable[..., Any], plan: str
) -> None:
    f = federation("feddae", plan, rounds=1)
    for number, data in f.data.items():
        data.save(f.folder / f"node{number}")
    f.server_data.save(f.folder / "server")
    f.train()
    folders = [f.folder / "server", *(f.folder / f"node{number}" for number in f.nodes)]
    assert all(len(list(folder.rglob("*"))) >= 5 for folder in folders)
    assert [open_to_others(folder) for folder in folders] == [{}] * len(folders)
