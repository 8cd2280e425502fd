import io
import sys
import zipfile
from pathlib import Path

import pytest

from privfed.data import DataError, catalogue, downloads, find, load, terms_once
from privfed.data.downloads import Download, sha256

INTER = "user_id:token\titem_id:token\ttimestamp:float\n1\t1\t3\n1\t2\t2\n2\t1\t1\n"
U_DATA = "1\t1\t5\t3\n1\t2\t5\t2\n2\t1\t5\t1\n"


def fill(folder: Path, name: str = "u.data", content: str = U_DATA) -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    return folder


def zipped(member: str, content: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, content)
    return buffer.getvalue()


@pytest.fixture
def small_ml_100k(monkeypatch):
    """ml-100k whose two downloads are small archives made here; `served` says what the network gives."""
    wheel, official = zipped("pkg/ml-100k.inter", INTER), zipped("ml-100k/u.data", U_DATA)
    first = Download("toy.whl", "toy==1.0", 0.1, sha256(wheel))
    second = Download("ml-100k.zip", "https://host/ml-100k.zip", 0.1, sha256(U_DATA.encode()), "ml-100k/u.data")
    entry = catalogue.Dataset("ml-100k", "toy", "be kind", ("u.data", "ml-100k.inter"), (first, second), ("recbole",))
    monkeypatch.setitem(catalogue._DATASETS, "ml-100k", entry)
    served: dict[str, bytes] = {"toy.whl": wheel, "ml-100k.zip": official}

    def get(self, target):
        if self.filename not in served:
            raise OSError("no network")
        target.write_bytes(served[self.filename])

    return served, lambda: monkeypatch.setattr(Download, "_get", get)


def test_the_names(bare_machine):
    assert [dataset.name for dataset in catalogue.list()] == [
        "ml-100k",
        "ml-1m",
        "ml-100k-behaviours",
        "synthetic",
        "synthetic-small",
        "synthetic-funnel",
        "synthetic-funnel-small",
    ]
    assert [dataset.synthetic for dataset in catalogue.list()] == [False] * 3 + [True] * 4
    assert find("ml-100k") is None
    assert find("synthetic").route == "generated"
    assert load("synthetic-small", offline=True).card.synthetic
    with pytest.raises(DataError, match="generated and not read"):
        load("synthetic", columns={"user": "a"})


def test_a_bare_machine_is_told_all_ways_out(bare_machine):
    for ask in (
        lambda: load("ml-100k"),
        lambda: load("ml-100k", offline=True),
        lambda: catalogue.fetch("ml-1m"),
    ):
        with pytest.raises(DataError, match="generated data: 'synthetic'") as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert "PRIVFED_DATA" in str(caught.value)
    assert not list(bare_machine.glob("*"))


def test_an_explicit_path_wins(bare_machine, tmp_path, monkeypatch):
    fill(tmp_path / "env" / "ml-100k", content=U_DATA + "3\t1\t5\t1\n")
    monkeypatch.setenv("PRIVFED_DATA", str(tmp_path / "env"))
    given = fill(tmp_path / "mine")
    assert find("ml-100k", given).path == given
    data = load("ml-100k", path=given)
    assert (data.name, data.n_users) == ("ml-100k", 2)
    assert "GroupLens" in data.card.terms
    assert load("ml-100k").n_users == 3
    assert load("ml-100k", path=tmp_path / "env").n_users == 3


@pytest.mark.parametrize("layout", ["inside", "flat", "zip", "atomic"])
def test_the_environment_variable_in_several_layouts(bare_machine, tmp_path, monkeypatch, layout):
    root = tmp_path / "data"
    if layout == "inside":
        fill(root / "ml-100k")
    elif layout == "flat":
        fill(root)
    elif layout == "atomic":
        fill(root / "ml-100k", "ml-100k.inter", INTER)
    else:
        root.mkdir()
        (root / "ml-100k.zip").write_bytes(zipped("ml-100k/u.data", U_DATA))
    monkeypatch.setenv("PRIVFED_DATA", str(root))
    assert "PRIVFED_DATA" in find("ml-100k").route
    assert load("ml-100k", offline=True).card.interactions == 3
    assert find("ml-1m") is None


def test_any_folder_in_the_environment_folder_has_a_name(bare_machine, tmp_path, monkeypatch):
    fill(tmp_path / "shop")
    monkeypatch.setenv("PRIVFED_DATA", str(tmp_path))
    assert load("shop").name == "shop"
    monkeypatch.setenv("PRIVFED_DATA", str(tmp_path / "absent"))
    with pytest.raises(DataError, match="which is not a folder"):
        load("ml-100k")


def test_a_derived_data_set_lies_where_its_source_does(bare_machine, tmp_path, monkeypatch):
    rows = [f"{user}\t{item}\t{5 - (user + item) % 2 * 3}\t{user}" for user in range(1, 42) for item in range(1, 13)]
    fill(tmp_path / "ml-100k", content="\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"a folder that holds ml-100k/"):
        load("ml-100k-behaviours", offline=True)
    monkeypatch.setenv("PRIVFED_DATA", str(tmp_path))
    assert find("ml-100k-behaviours").path == find("ml-100k").path == tmp_path / "ml-100k"
    assert find("ml-100k-behaviours").name == "ml-100k-behaviours"
    data = load("ml-100k-behaviours")
    assert (data.name, data.behaviour_counts) == ("ml-100k-behaviours", {"buy": 246, "view": 246})
    assert load("ml-100k-behaviours", path=tmp_path).card == data.card
    assert "GroupLens" in data.card.terms
    assert "GroupLens" in terms_once("ml-100k-behaviours")
    assert terms_once("ml-100k") is None


def test_an_installed_package_is_located_checked_and_never_imported(tmp_path, monkeypatch, small_ml_100k):
    monkeypatch.delenv("PRIVFED_DATA", raising=False)
    monkeypatch.setattr(catalogue, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(downloads, "cache_folder", lambda: tmp_path / "cache")
    fill(tmp_path / "recbole" / "dataset_example" / "ml-100k", "ml-100k.inter", INTER)
    (tmp_path / "recbole" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recbole", raising=False)
    assert find("ml-100k") is None
    monkeypatch.setattr(catalogue, "_ATOMIC_100K_SHA256", sha256(INTER.encode()))
    assert find("ml-100k").route == "the installed package recbole"
    assert load("ml-100k", offline=True).card.interactions == 3
    assert "recbole" not in sys.modules


def test_a_download_is_checked_cached_and_reported(bare_machine, small_ml_100k):
    _, connect = small_ml_100k
    connect()
    lines = []
    assert load("ml-100k", progress=lines.append).card.interactions == 3
    assert "fetching toy.whl (0.1 MB) from the package index" in lines[0]
    assert [path.name for path in bare_machine.iterdir()] == ["toy.whl"]
    assert find("ml-100k").route == "the cache"
    assert load("ml-100k", offline=True).card.interactions == 3


def test_the_official_archive_is_the_second_choice(bare_machine, small_ml_100k):
    served, connect = small_ml_100k
    connect()
    served["toy.whl"] = b"tampered"
    found = catalogue.fetch("ml-100k")
    assert found.path.name == "ml-100k.zip"
    assert [path.name for path in bare_machine.iterdir()] == ["ml-100k.zip"]
    served["ml-100k.zip"] = zipped("ml-100k/u.data", U_DATA + "9\t9\t9\t9\n")
    found.path.write_bytes(b"damaged in the cache")
    assert find("ml-100k") is None
    with pytest.raises(DataError, match="failed its SHA-256 check"):
        catalogue.fetch("ml-100k")


def test_nothing_half_written_stays_when_a_download_breaks(bare_machine, small_ml_100k, monkeypatch):
    def breaks(_self, target):
        target.write_bytes(b"half")
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(Download, "_get", breaks)
    with pytest.raises(DataError, match="Connection reset"):
        catalogue.fetch("ml-100k")
    assert list(bare_machine.iterdir()) == []


def test_pip_is_asked_for_one_wheel_and_its_failure_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "cache_folder", lambda: tmp_path)
    commands = []

    def fails(command, **_):
        commands.append(command)
        raise downloads.subprocess.CalledProcessError(1, command, stderr="WARNING: retrying\nERROR: no such version\n")

    monkeypatch.setattr(downloads.subprocess, "run", fails)
    with pytest.raises(DataError, match=r"pip could not download toy==1.0 \(no such version\)"):
        Download("toy.whl", "toy==1.0", 0.1, "0").fetch(lambda _: None)
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"toy==1.0", "--no-deps", "--only-binary=:all:"} <= set(commands[0])


def test_terms_are_told_once_per_machine(bare_machine):
    assert "redistributed" in terms_once("ml-100k")
    assert terms_once("ml-100k") is None
    assert terms_once("synthetic") is None
    assert terms_once("somewhere/else.csv") is None


def test_terms_are_told_each_time_where_the_cache_cannot_be_written(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(catalogue, "cache_folder", lambda: blocked / "cache")
    assert terms_once("ml-100k") == terms_once("ml-100k") is not None
