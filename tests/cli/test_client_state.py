"""`privfed run --client-state`: the same files as in memory, killed or not, and one sentence about a bad folder."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

RUN = (
    "run", "fedmf", "--data", "synthetic-small", "--rounds", 12, "--set", "evaluate_every=4",
    "--set", "checkpoint_every=4", "--set", "taps.places=[]", "--quiet",
)  # fmt: skip
FILES = ("metrics.jsonl", "ledger.jsonl", "ledger.json", "guarantee.json", "checkpoint/clients.safetensors")
_PATIENCE = 60


def contents(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in FILES}


def test_a_run_in_files_killed_and_resumed(
    cli: Callable, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    memory, disk, own = tmp_path / "memory", tmp_path / "disk", tmp_path / "own"
    cli(*RUN, "--out", memory)
    process = start(*RUN, "--out", disk, "--client-state", "disk")
    until = time.monotonic() + _PATIENCE
    while not (disk / "checkpoint").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [path.name for path in (disk / "client-state").glob("*.shard")] == ["users-00000.shard"]
    cli("run", "--out", disk, "--resume", "--quiet", "--client-state", "disk")
    cli(*RUN, "--out", own, "--client-state", tmp_path / "clients")
    assert contents(disk) == contents(memory) == contents(own)
    assert not (disk / "client-state").exists()
    assert not (tmp_path / "clients").exists()


def test_a_folder_that_cannot_be_used(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one").write_text("dear")
    told = refused(*RUN, "--out", tmp_path / "r", "--client-state", tmp_path / "letters")
    assert told == (f"{tmp_path / 'letters'} is not empty and holds no client state: choose another folder for it")
    assert not (tmp_path / "r").exists()
