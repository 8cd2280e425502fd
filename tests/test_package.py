"""The archives that a release publishes: they build, hold what they should, and work where there is no clone."""

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

import privfed
from tests.bare import ROOT, build, call, install

pytest.importorskip("build")
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it."""
    return build(tmp_path_factory.mktemp("dist"))


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


@pytest.mark.parametrize("package", ["attacks", "secure_agg"])
def test_the_libraries_are_distributions_of_their_own_and_their_readmes_run(package: str, tmp_path: Path) -> None:
    source, wheel = build(tmp_path / "dist", ROOT / package)
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {package}
    assert not [name for name in names if "/./" in name or name.endswith((f"{package}/pyproject.toml", ".md"))]
    assert f"privfed_{package}-{privfed.__version__}-py3" in wheel.name
    assert f"privfed_{package}-{privfed.__version__}.tar" in source.name
    python = install(wheel, tmp_path / "alone")
    with pytest.raises(AssertionError, match="No module named 'privfed'"):
        call(python, "-I", "-c", "import privfed", cwd=tmp_path)
    readme = (ROOT / package / "README.md").read_text(encoding="utf-8")
    programs, shown = (re.findall(rf"```{kind}\n(.*?)```", readme, flags=re.DOTALL) for kind in ("python", "text"))
    said = [call(python, "-I", "-W", "error", "-c", program, cwd=tmp_path) for program in programs]
    assert said[: len(shown)] == shown
    assert "VIOLATION" in said[-1].upper() or package == "secure_agg"


def test_the_wheel_works_without_the_clone(archives: tuple[Path, Path], tmp_path: Path) -> None:
    python = install(archives[1], tmp_path / "clean")
    command = tmp_path / "clean" / "bin" / "privfed"
    found = Path(call(python, "-I", "-c", "import privfed; print(privfed.__file__)", cwd=tmp_path).strip())
    assert found.is_relative_to(tmp_path / "clean")
    assert privfed.__version__ in call(command, "--version", cwd=tmp_path)
    assert "private-gram" in call(command, "methods", cwd=tmp_path)
    assert "68.25" in call(
        command, "budget", "laplace", "--epsilon0", "1", "--participations", "100", "--delta", "1e-5", cwd=tmp_path
    )
    call(command, "run", "popularity", "--data", "synthetic-small", "--out", tmp_path / "run", cwd=tmp_path)
    assert (tmp_path / "run" / "guarantee.json").exists()
