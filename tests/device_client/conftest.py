"""The TypeScript module in `device/`: its vectors, a run that it is served, and node, where that is installed."""

import functools
import http.server
import importlib.util
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

import privfed
from privfed.api.publishing import LASTING, PublishedModel
from privfed.api.result import TrainedRun
from privfed.cli.static_server import StaticServer
from tests.browser import CHROMIUM, Browser
from tests.device_client.aggregator import DEVICE, POLICY, Aggregator, Device, joined

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
    with StaticServer(PublishedModel.from_run(trained).files, LASTING, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Where the page lies: another origin than the model's."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=DEVICE)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def device() -> Iterator[Device]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    process = subprocess.Popen(
        [program, "join.mjs"],
        cwd=DEVICE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        yield Device(process)
        process.kill()


@pytest.fixture
def federation(device: Device, vectors: ModuleType) -> Iterator[Aggregator]:
    yield from joined(device, vectors, POLICY)
