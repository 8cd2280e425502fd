"""Real data for local tests (PRIVFED_TEST_DATA, or beside the repository), skipped where absent."""

import os
from pathlib import Path

import pytest

from privfed.data import catalogue, downloads


@pytest.fixture(scope="session")
def real_data() -> Path:
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("PRIVFED_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip("no local copy of the public data sets (PRIVFED_TEST_DATA)")
    return folder


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No PRIVFED_DATA, no package that carries data, an empty cache, no network; gives the cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.delenv(catalogue.ENVIRONMENT, raising=False)
    monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(downloads, "cache_folder", lambda: cache)
    monkeypatch.setattr(catalogue, "cache_folder", lambda: cache)

    def no_network(_self: object, _target: Path) -> None:
        raise OSError("no network")

    monkeypatch.setattr(downloads.Download, "_get", no_network)
    return cache
