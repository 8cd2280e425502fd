"""Peers from the package index, each in an environment of its own, for `suite.py` to measure beside ours.

    python benchmarks/peers.py --prepare FOLDER

makes `FOLDER/flower` (flwr with its simulation) and `FOLDER/pfl`. The project's own environment is never changed: it
stands behind theirs on the path, so that both sides compute with the same torch and numpy. Flower is installed under
`constraints.txt`; pfl asks for an older dp-accounting than the project, so it gets that in its own folder. Standard
library only.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
CONSTRAINTS = HERE.parent / "constraints.txt"
WANTED = {
    "flower": ["-c", str(CONSTRAINTS), "flwr[simulation]>=1.41,<2"],
    "pfl": ["pfl==0.6.0"],
}
ROUNDS = 10
"""Enough for the results to be compared; the first and the last are not timed."""
SEEDS = {"privfed": 5, "pfl": 5, "flower": 2}
"""Starts of each; from the same seed pfl and Flower have the same start and the same samples."""
ENVIRONMENT = {
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


def writing() -> list[str]:
    """The command that writes the data that peers read."""
    return script(sys.executable, "peers_ours.py", "write", ENVIRONMENT["PEER_DATA"])


def script(python: str | Path, name: str, *arguments: str) -> list[str]:
    """A command that runs one of the scripts here."""
    return [str(python), str(HERE / name), *arguments]


def commands(folder: Path | str | None) -> dict[str, list[str]]:
    """Name -> command of everything that can be measured here, ours first; each prints one line of JSON."""
    found = {
        f"fedncf, privfed, seed {seed}": script(sys.executable, "peers_ours.py", "fedncf", str(ROUNDS), str(seed))
        for seed in range(SEEDS["privfed"])
    }
    found["clipping, privfed and Opacus"] = script(sys.executable, "peers_opacus.py")
    for name in WANTED if folder is not None else ():
        python = Path(folder or "") / name / "bin" / "python"
        if not python.exists():
            continue
        for seed in range(SEEDS[name]):
            found[f"fedncf, {name}, seed {seed}"] = script(python, f"peers_{name}.py", str(ROUNDS), str(seed))
        if name == "flower":
            found["masking, privfed and Flower"] = script(python, "peers_secagg.py")
    return found


def main() -> None:
    """Prepare a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, required=True, metavar="FOLDER")
    prepare(parser.parse_args().prepare)


if __name__ == "__main__":
    main()
