"""Peers from the package index, each in an environment of its own, for `benchmarks.speed.suite` to measure.

    python -m benchmarks.peers.environments --prepare FOLDER

makes `FOLDER/flower` (flwr with its simulation) and `FOLDER/pfl`. The project's own environment is never changed: it
stands behind theirs on the path, so that both sides compute with the same torch and numpy. Flower is installed under
`constraints.txt`; pfl asks for an older dp-accounting than the project, so it gets that in its own folder. Standard
library only.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness

CONSTRAINTS = harness.ROOT / "constraints.txt"
WANTED = {
    "flower": ["-c", str(CONSTRAINTS), "flwr[simulation]>=1.41,<2"],
    "pfl": ["pfl==0.6.0"],
}
ROUNDS = 10
"""Enough for the results to be compared; the first and the last are not timed."""
SEEDS = {"privfed": 5, "pfl": 5, "flower": 2}
"""Starts of each; from the same seed pfl and Flower have the same start and the same samples."""
ENVIRONMENT: dict[str, str] = {
    "PEER_DATA": str(Path(tempfile.gettempdir()) / f"privfed-peers-{os.getuid()}.npz"),
    "PEER_MARK": str(os.getpid()),
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def prepare(folder: Path) -> None:
    """Make every environment that is not there."""
    for name, wanted in WANTED.items():
        place = folder / name
        if (place / "pyvenv.cfg").exists():
            continue
        venv.create(place, with_pip=True)
        own = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
        Path(own, "project.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        subprocess.run([str(place / "bin" / "pip"), "install", "--quiet", *wanted], check=True)
        print(f"{name}: {place}")


WRITING = ("benchmarks.peers.fedncf.with_privfed", "write", ENVIRONMENT["PEER_DATA"])
"""Module and arguments that write the data that peers read."""


def peers(folder: Path | str | None) -> dict[str, tuple[str, ...]]:
    """Name -> interpreter, module and arguments of all that can be measured here; each prints one line of JSON."""
    ours, package = sys.executable, "benchmarks.peers"
    found: dict[str, tuple[str, ...]] = {
        f"fedncf, privfed, seed {seed}": (ours, f"{package}.fedncf.with_privfed", "fedncf", str(ROUNDS), str(seed))
        for seed in range(SEEDS["privfed"])
    }
    found["clipping, privfed and Opacus"] = (ours, f"{package}.clipping")
    for name in WANTED if folder is not None else ():
        python = Path(folder or "") / name / "bin" / "python"
        if not python.exists():
            continue
        for seed in range(SEEDS[name]):
            found[f"fedncf, {name}, seed {seed}"] = str(python), f"{package}.fedncf.with_{name}", str(ROUNDS), str(seed)
        if name == "flower":
            found["masking, privfed and Flower"] = str(python), f"{package}.masking"
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare a folder."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("--prepare", type=Path, required=True, metavar="FOLDER", help="of environments")
    prepare(harness.parse(parser, arguments).prepare)


if __name__ == "__main__":
    main()
