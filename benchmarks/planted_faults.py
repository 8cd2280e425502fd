"""The fault table: each fault of `tests/audit/faults/registry.py`, and which check of an audit contradicts the run.

    python benchmarks/planted_faults.py

Every fault is planted into the running package, a small audit with the defaults of `privfed audit` is made on made-up
people, and the fault is taken out again. Results go to `benchmarks/results/planted_faults.json`. Whether the test-suite
alone, without any audit, would fail is not measured here: that takes a run of the whole suite for every fault.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "planted_faults.json"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "audit" / "faults"))

from auditing import audit  # noqa: E402 (the registry lies beside its tests)
from registry import FAULTS, Fault  # noqa: E402


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


def main() -> None:
    """Measure all faults and write the table."""
    rows = []
    for fault in FAULTS.values():
        rows.append(measured(fault))
        print(json.dumps(rows[-1]), flush=True)
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    kept = {
        "command": "python benchmarks/planted_faults.py",
        "commit": git.stdout.strip(),
        "machine": {"system": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "seeds": [0],
        "load_average": list(os.getloadavg()),
        "faults": rows,
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
