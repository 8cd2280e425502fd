"""The TypeScript module in `device/`: its vectors, a run that it is served, and node, where that is installed."""

import importlib.util
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import privfed
from privfed.api.publishing import MODELS, PublishedModel
from privfed.api.result import TrainedRun
from privfed.cli.static_server import StaticServer

DEVICE = Path(__file__).resolve().parents[2] / "device"
OLDEST_NODE = 20


@pytest.fixture(scope="session")
def vectors() -> ModuleType:
    """The script that writes the vectors."""
    spec = importlib.util.spec_from_file_location("make_vectors", DEVICE / "make_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def node() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run node in `device/`; it is not there on every machine."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node is {version.strip()}, and the module needs {OLDEST_NODE}")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *map(str, words)], cwd=DEVICE, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A run of private-gram, read back from its folder."""
    run = privfed.run("private-gram", "synthetic-small", epsilon=8)
    return privfed.load_run(run.save(tmp_path_factory.mktemp("trained") / "run"))


@pytest.fixture(scope="session")
def served(trained: TrainedRun) -> Iterator[StaticServer]:
    """That run as `privfed serve` gives it to devices."""
    with StaticServer(PublishedModel.from_run(trained).files, MODELS, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
