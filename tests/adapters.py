"""Tests of other packages' mechanisms and filters: `make adapters`, or `python tests/adapters.py [PACKAGE ...]`.

Packages that the gate's environment lacks get a throw-away one each, over this one: what a package needs in another
version lies in its own. An environment that is there already is used as it is.
"""

import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "jax": (
        "tests/attacks/test_adapters.py",
        "tests/attacks/test_jax_privacy.py",
        "tests/benchmarks/test_third_party.py",
    ),
    "nvflare": (
        "tests/attacks/test_adapters.py",
        "tests/guard/test_nvflare_filter.py",
        "tests/benchmarks/test_third_party.py",
    ),
    "opake": ("tests/attacks/test_adapters.py", "tests/benchmarks/test_third_party.py"),
    "pfl": ("tests/attacks/test_adapters.py", "tests/benchmarks/test_third_party.py"),
}
"""Package -> what runs only where it is installed."""
UNPINNED = {"pfl": ["pfl==0.6.0"]}
"""Packages that cannot be an extra, because they need other versions than ours."""


def environment(name: str) -> Path:
    """Interpreter of the package's environment, made where it is missing."""
    folder = Path(tempfile.gettempdir()) / f"adapters-{name}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    venv.create(folder, with_pip=True, clear=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "over.pth").write_text(sysconfig.get_path("purelib") + "\n")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = UNPINNED.get(name) or ["-c", str(ROOT / "constraints.txt"), *extras[f"adapters-{name}"]]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    ready.touch()
    return python


def main(*names: str) -> int:
    """Test against every package that installs; 1 where a test failed or a package did not install."""
    told: dict[str, str] = {}
    for name in names or TESTS:
        try:
            python = environment(name)
        except subprocess.CalledProcessError:
            told[name] = "cannot be installed here"
            continue
        # What other packages' dependencies announce to them is not ours to mend.
        options = ("-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning")
        done = subprocess.run([python, "-m", "pytest", *options, *TESTS[name]], cwd=ROOT, check=False)
        told[name] = "passed" if done.returncode == 0 else "failed"
    sys.stdout.write("".join(f"{name}: {what}\n" for name, what in told.items()))
    return 0 if set(told.values()) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
