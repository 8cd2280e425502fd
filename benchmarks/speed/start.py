"""What a command costs before it has anything to say: CPU-seconds, modules loaded, and time to the end of a round.

    python -m benchmarks.speed.start

Every command is started as a process of its own, `--repeats` times; the least is kept, since nothing but other work of
the machine makes a start slower. Modules are counted where the process ends.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

HEAVY = ("torch", "pandas", "pyarrow", "numba", "altair", "scipy.optimize", "scipy.special", "scipy.stats")
"""What none of the first two lists loads."""
ANSWERS = ("--help", "methods", "data list")
UNKNOWN = (
    "attack nosuch",
    "recommend nosuch --user 1",
    "export nosuch codes.safetensors",
    "report nosuch",
    "compare nosuch nosuch",
    "federation verify nosuch",
    "run nosuch",
    "audit --method nosuch",
    "run fedmf --data nosuch",
    "run gpfedrec:published --data nosuch",
    "audit --data nosuch",
)
"""What names nothing that is there, refused before numpy is loaded."""
PLAIN = (
    "run fedmf --data ml-100k --set foo=1",
    "run fedmf --data ml-100k --set protocol.foo=1",
    "run fedmf --data ml-100k --set method.dim=0",
    "run fedmf --data ml-100k --set method.dimm=8",
    "run fedmf --data ml-100k --rounds -1",
    "run fedmf --data ml-100k --privacy foo",
    "run fedmf --data ml-100k --protocol foo",
    "audit --method fedmf --privacy foo",
    "run fedmf --data synthetic --epsilon 1 --tiers a=1:1",
    "run fedmf --data synthetic --resume",
)
"""Settings and flags that are refused before numpy is loaded."""
REFUSALS = (
    *UNKNOWN,
    *PLAIN,
    "run fedmf --data synthetic --tiers foo",
    "run dfmr --data synthetic --privacy local-gaussian:clip_norm=1,noise_multiplier=1",
)
ROUNDS = (
    "run fedmf --data synthetic-small --rounds 1",
    "run private-gram --data ml-100k --epsilon 8",
)
"""Commands that train; the first line on standard error that speaks of a round ends the measurement."""
_COUNTED = """
import atexit, json, sys
from privfed.cli import main
heavy = {heavy!r}
atexit.register(lambda: print(json.dumps([len(sys.modules), [m for m in heavy if m in sys.modules]]), file=sys.stderr))
sys.argv = ["privfed", *{words!r}]
main()
"""


def answered(words: str, repeats: int) -> dict[str, Any]:
    """CPU-seconds of a command until it ends, and what it had loaded by then."""
    least, loaded = float("inf"), ""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            before = _children_cpu()
            code = _COUNTED.format(heavy=HEAVY, words=words.split())
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
            least, loaded = min(least, _children_cpu() - before), done.stderr.splitlines()[-1]
    modules, heavy = json.loads(loaded)
    return {"cpu_s": round(least, 2), "modules": modules, "heavy": heavy}


def first_round(words: str, repeats: int) -> dict[str, Any]:
    """Seconds, of the processor and of the clock, from the start of a process to the end of its first round."""
    rows = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            with subprocess.Popen(
                [sys.executable, "-m", "privfed", *words.split(), "--out", f"{folder}/run"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            ) as run:  # fmt: skip
                assert run.stderr is not None
                next(line for line in run.stderr if line.startswith("One round took"))
                rows.append((_cpu_of(run.pid), time.perf_counter() - started))
    cpu, wall = (min(column) for column in zip(*rows, strict=True))
    return {"cpu_s": round(cpu, 2), "wall_s": round(wall, 2)}


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_of(pid: int) -> float:
    """Seconds of the processor that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every command anew."""
    options = harness.parse(harness.parser(__file__, __doc__, repeats=5), arguments)
    record = harness.Record("start", options, {}, anew=True)
    for words in (*ANSWERS, *REFUSALS):
        record.put(answered(words, options.repeats), words)
    for words in ROUNDS:
        record.put(first_round(words, options.repeats), words)


if __name__ == "__main__":
    main()
