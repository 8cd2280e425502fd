"""The fault table: each fault of `tests/audit/faults/registry.py`, and which check of an audit contradicts the run.

    python -m benchmarks.privacy.planted_faults

Every fault is planted into the running package, a small audit with the defaults of `privfed audit` is made on made-up
people, and the fault is taken out again. Results go to `benchmarks/results/planted_faults.json`; faults found there are
not measured again (remove the file to measure all). Whether the test-suite alone, without any audit, would fail is not
measured here: that takes a run of the whole suite for every fault.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "audit" / "faults"))

from auditing import audit
from registry import FAULTS, Fault


def measured(fault: Fault) -> dict[str, Any]:
    """One row: the fault, and what contradicts the run that has it."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, fault.planted():
        report = audit(fault, Path(folder))
    found = [one for one in report.contradictions if one.method == fault.method]
    checks = [
        check.name for run in report.runs if run.method == fault.method for check in run.checks if not check.passed
    ]
    rules = [one.rule for one in found if one.rule != "failed_check"]
    return {
        "fault": fault.name,
        "planted in": fault.where,
        "run": f"{fault.method}, {fault.privacy}",
        "caught": any(fault.says in one.text for one in found),
        "caught by": list(dict.fromkeys([*checks, *rules])),
        "contradiction": next((one.text for one in found if fault.says in one.text), None),
        "caught by the test-suite alone": "not measured",
        "seconds": round(time.perf_counter() - started, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the faults that are not in the table yet, and write it."""
    options = harness.parse(harness.parser(__file__, __doc__, only=[]), arguments)
    record = harness.Record("planted_faults", options, {"seeds": [0], "faults": []})
    found = {row["fault"]: row for row in record.results["faults"]}
    for name, fault in FAULTS.items():
        if name not in found and harness.chosen(name, options.only):
            found[name] = measured(fault)
            print(json.dumps(found[name]), flush=True)
    record.results["faults"] = [found[name] for name in FAULTS if name in found]
    record.save()


if __name__ == "__main__":
    main()
