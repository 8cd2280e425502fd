"""An environment in which only privfed's own wheel was installed."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def call(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def build(out: Path, project: Path = ROOT) -> tuple[Path, Path]:
    """The source archive of a project, and the wheel that is built from it."""
    out.mkdir(exist_ok=True)
    call(sys.executable, "-m", "build", "--outdir", out, project, cwd=out)
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


def install(wheel: Path, folder: Path) -> Path:
    """The interpreter of a new environment with a wheel.

    Dependencies are those of this environment, found by path, so that nothing else of it is seen: no clone, no scripts.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
