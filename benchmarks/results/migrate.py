"""One-off: give every file of results the fields that `benchmarks.harness.read` asks for, from what is known.

What the file itself says is kept word for word; the commit and day of a file that says neither are those of the git
commit that last changed its numbers, named as such; everything else is "not recorded". No number is touched.
"""

import json
import subprocess
from pathlib import Path

RESULTS, NOT = Path("benchmarks/results"), "not recorded"
OWN = ("command", "commit", "commits", "machine", "environment", "python", "torch", "load", "load_average",
       "load_average_after", "load average at the end")


def last_change(file):
    words = ["git", "log", "-1", "--format=%h %ad", "--date=short", "--", str(file)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


for file in sorted(RESULTS.glob("*.json")):
    kept = json.loads(file.read_text())
    short, day = last_change(file)
    own = {key: kept.pop(key) for key in OWN if isinstance(kept, dict) and key in kept}
    machine = own.get("machine") or own.get("environment")
    if machine is None and ("python" in own or "torch" in own):
        machine = {"processor": NOT} | {key: own[key] for key in ("python", "torch") if key in own}
    before = own.get("load_average", own.get("load"))
    if isinstance(machine, dict) and "load average" in machine:
        before = machine.pop("load average")
    after = own.get("load_average_after", own.get("load average at the end"))
    load = {key: value for key, value in (("before", before), ("after", after)) if value is not None}
    if isinstance(kept, dict) and list(kept) in (["rows"], ["faults"]):
        kept = next(iter(kept.values()))
    date = machine.pop("taken") if isinstance(machine, dict) and "taken" in machine else f"not recorded; committed {day}"
    if '"at": "2' in json.dumps(kept):
        date = "in the rows"
    session = {
        "command": own.get("command", NOT),
        "commit": own.get("commit") or own.get("commits") or f"not recorded; results committed in {short}",
        "date": date,
        "machine": machine or NOT,
        "load_average": load or ("in the rows" if '"load' in json.dumps(kept) else NOT),
    }
    file.write_text(json.dumps({"sessions": [session], "results": kept}, indent=1) + "\n")
