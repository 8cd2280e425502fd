"""Write down which tests are slow, from the durations of a whole run.

    python -m pytest -n 2 -q -m "not exhaustive" --junitxml durations.xml
    python tests/slow.py durations.xml --above 5

The list is `tests/slow.txt`: `make test` leaves these out and `make slow` runs them. Of every file at least its
shortest test stays in `make test`, however long it takes.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")


def slow_tests(report: Path, above: float) -> list[str]:
    """Ids of tests that took longer than `above` seconds, less the shortest test of every file."""
    of_file = defaultdict[str, list[tuple[float, str]]](list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        of_file[file].append((float(case.attrib["time"]), f"{file}::{case.attrib['name']}"))
    return sorted(name for cases in of_file.values() for seconds, name in sorted(cases)[1:] if seconds > above)


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="JUnit XML of a run of all tests")
    parser.add_argument("--above", type=float, default=5.0, help="seconds")
    given = parser.parse_args()
    found = slow_tests(given.report, given.above)
    LIST.write_text("".join(f"{name}\n" for name in found))
    print(f"{len(found)} slow tests are in {LIST}")


if __name__ == "__main__":
    main()
