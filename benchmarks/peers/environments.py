"""Peers from the package index, each in an environment of its own, for `benchmarks.speed.suite` to measure.

    python -m benchmarks.peers.environments --prepare FOLDER

makes `FOLDER/flower` (flwr with its simulation), `FOLDER/pfl`, `FOLDER/implicit` and `FOLDER/lenskit`. The project's
own environment is never changed: it stands behind theirs on the path, so that both sides compute with the same torch
and numpy. Flower is installed under `constraints.txt`; pfl asks for an older dp-accounting than the project, so it gets
that in its own folder, and so does LensKit with pandas. Standard library only.
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
    "implicit": ["implicit==0.7.3"],
    "lenskit": ["lenskit==2025.8.1"],
}
FEDERATED = ("flower", "pfl")
"""Those that train the same FedNCF; the others are alternating least squares."""
ALS_DATA = ("ml-100k", "ml-1m")
ROUNDS = 10
"""Enough for the results to be compared; the first and the last are not timed."""
SEEDS = {"privfed": 5, "pfl": 5, "flower": 2}
"""Starts of each; from the same seed pfl and Flower have the same start and the same samples."""
ENVIRONMENT: dict[str, str] = {
    "PEER_DATA": str(Path(tempfile.gettempdir()) / f"privfed-peers-{os.getuid()}.npz"),
    "PEER_MARK": str(os.getpid()),
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # LensKit's threads are those of a library in Rust.
    "RAYON_NUM_THREADS": "1",
    "LK_NUM_THREADS": "1",
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
    pythons = {name: Path(folder or "", name, "bin", "python") for name in WANTED}
    there = {name: str(python) for name, python in pythons.items() if folder is not None and python.exists()}
    for data in ALS_DATA:
        for who in ("ials", "eals", "implicit", "lenskit"):
            if who in there or who not in WANTED:
                found[f"als, {data}, {who}"] = there.get(who, ours), f"{package}.als", who, data
    for name in FEDERATED:
        if name not in there:
            continue
        python = there[name]
        for seed in range(SEEDS[name]):
            found[f"fedncf, {name}, seed {seed}"] = python, f"{package}.fedncf.with_{name}", str(ROUNDS), str(seed)
        if name == "flower":
            found["masking, privfed and Flower"] = python, f"{package}.masking"
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare a folder."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("--prepare", type=Path, required=True, metavar="FOLDER", help="of environments")
    prepare(harness.parse(parser, arguments).prepare)


if __name__ == "__main__":
    main()
