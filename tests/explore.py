"""Property tests on random examples for some minutes: `make explore`, or `python tests/explore.py MINUTES [FILE ...]`.

The gate tries the same examples every time. This tries new ones: files in random order, each with a random seed, again
and again until the time is up. What fails is printed with the falsifying example, the seed and a line
`@reproduce_failure`; the exit status is then 1.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FOUND = 1
"""Exit status of pytest where a test failed."""


def property_tests() -> list[Path]:
    """Files with tests by hypothesis."""
    return sorted(path for path in TESTS.rglob("test_*.py") if "from hypothesis import" in path.read_text())


def explore(path: Path, seed: int, seconds: float) -> bool:
    """Whether one file's properties hold under this seed, as far as the time allows; prints what fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "-p", "no:cacheprovider"]
    command += [f"--hypothesis-seed={seed}", str(path)]
    environment = os.environ | {"HYPOTHESIS_PROFILE": "explore"}
    try:
        done = subprocess.run(
            command, cwd=TESTS.parent, env=environment, timeout=seconds, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode > FOUND + 3 or done.returncode == 0:  # 5: no such test in the file
        return True
    sys.stdout.write(f"{done.stdout}{done.stderr}\n{os.path.relpath(path, TESTS.parent)} fails under seed {seed}.\n")
    sys.stdout.flush()
    return False


def main(minutes: str = "10", *names: str) -> int:
    """Explore until the time is up; 1 where something was found."""
    end, held, runs = time.monotonic() + 60 * float(minutes), True, 0
    files = [Path(name).resolve() for name in names] or property_tests()
    while time.monotonic() < end:
        for path in random.sample(files, len(files)):
            left = end - time.monotonic()
            if left > 0:
                held &= explore(path, random.randrange(2**32), left)
                runs += 1
    told = "nothing failed" if held else "pin what failed as an @example beside its test, and mend it"
    sys.stdout.write(f"{runs} runs of property tests: {told}\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
