"""The archives that a release publishes: they build, hold what they should, and work where there is no clone."""

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import privfed

ROOT = Path(__file__).resolve().parent.parent
pytest.importorskip("build")
pytestmark = pytest.mark.process


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


def test_the_wheel_holds_the_packages_and_nothing_else(archives: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(archives[1]).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"privfed", "attacks", "secure_agg"}
    assert [name for name in names if name.endswith((".parquet", ".csv", ".key", ".pyc"))] == []


def test_the_source_holds_what_it_takes_to_test_and_document_it(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {
        "mkdocs.yml",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "constraints.txt",
        "docs/index.md",
        "tests/conftest.py",
    } <= names


def test_the_wheel_works_without_the_clone(archives: tuple[Path, Path], tmp_path: Path) -> None:
    """Dependencies are those of this environment, found by path, so that nothing else of it is seen."""
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", archives[1], cwd=tmp_path)
    folder = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (folder / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = tmp_path / "clean" / "bin" / "privfed"
    assert (
        Path(run(python, "-I", "-c", "import privfed; print(privfed.__file__)", cwd=tmp_path).strip()).parent.parent
        == folder
    )
    assert privfed.__version__ in run(command, "--version", cwd=tmp_path)
    assert "private-gram" in run(command, "methods", cwd=tmp_path)
    assert "68.25" in run(
        command, "budget", "laplace", "--epsilon0", "1", "--participations", "100", "--delta", "1e-5", cwd=tmp_path
    )
    run(command, "run", "popularity", "--data", "synthetic-small", "--out", tmp_path / "run", cwd=tmp_path)
    assert (tmp_path / "run" / "guarantee.json").exists()
