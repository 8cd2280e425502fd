"""Write down which tests are slow, from the processor time that they took in a run of all tests.

    python -m pytest -n 2 -q --junitxml durations.xml
    python tests/slow.py durations.xml --above 0.25

The list is `tests/slow.txt`: `make test` leaves these out and `make slow` runs them. Of every file at least its
cheapest test stays in `make test`, whatever it takes. Tests of the list that did not run stay on it, so a run of the
others is enough to add to it. Processor time of the test itself is counted, without its
set-up, which the first test of a module pays for all others; children count once they have ended. Of the files in
`WHOLE` all tests are listed: each needs a deployment of Flower, which takes minutes whoever pays for it.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
WHOLE = tuple(f"tests/engines/flower/{name}.py" for name in ("test_hostile", "test_strangers", "test_federation"))


def tests_by_file(report: Path) -> dict[str, list[tuple[float, str]]]:
    """Processor seconds and id of every test that ran, by its file."""
    found = defaultdict[str, list[tuple[float, str]]](list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        taken = case.find("properties/property[@name='cpu_s']")
        if taken is not None:
            file = case.attrib["classname"].replace(".", "/") + ".py"
            found[file].append((float(taken.attrib["value"]), f"{file}::{case.attrib['name']}"))
    return found


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="JUnit XML of a run of all tests")
    parser.add_argument("--above", type=float, default=0.25, help="processor seconds")
    given = parser.parse_args()
    tests = tests_by_file(given.report)
    ran = {name for cases in tests.values() for _, name in cases}
    unseen = {name for name in LIST.read_text().splitlines() if name not in ran}
    slow = unseen | {
        name
        for file, cases in tests.items()
        for place, (seconds, name) in enumerate(sorted(cases))
        if file in WHOLE or (place and seconds > given.above)
    }
    left = sum(seconds for cases in tests.values() for seconds, name in cases if name not in slow)
    LIST.write_text("".join(f"{name}\n" for name in sorted(slow)))
    print(f"{len(slow)} slow tests are in {LIST}; the others take {left / 60:.1f} processor minutes")


if __name__ == "__main__":
    main()
