"""What every benchmark shares: its arguments, its file of results, and processes of its own for what it measures.

A file of results holds `sessions`, a list of what measured it (command, commit, date, machine, load average before and
after), and `results`. A benchmark that was stopped goes on where it was, as a further session. What is not known of an
old measurement is `NOT_RECORDED`; a file without the fields is refused. Standard library only, so that a process that
starts others stays small.
"""

import argparse
import copy
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIELDS = ("command", "commit", "date", "machine", "load_average")
"""What every session says."""
NOT_RECORDED = "not recorded"
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "data": {"help": "data set by the name that `privfed.data.load` knows (default: %(default)s)"},
    "seed": {"type": int, "help": "seed of the measurement (default: %(default)s)"},
    "seeds": {"type": int, "help": "number of seeds, counted from 0 (default: %(default)s)"},
    "repeats": {"type": int, "help": "repetitions of every timed step (default: %(default)s)"},
    "rounds": {"type": int, "help": "rounds of a run (default: %(default)s)"},
    "only": {"nargs": "*", "help": "names of rows to measure, or shell patterns of them (default: all)"},
    "threads": {"type": int, "help": "threads that compute (default: %(default)s)"},
    "out": {"type": Path, "help": "folder of results; rows found there are kept (default: benchmarks/results)"},
}
"""Arguments that mean the same in every benchmark; a benchmark takes those that it uses."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
PATIENCE = 10
"""Wall seconds for every CPU-second of a limit: the machine may do other things besides."""


class RecordError(ValueError):
    """A file of results that does not say what measured it."""


class ChildError(RuntimeError):
    """A process that ended without a result."""


# Arguments ------------------------------------------------------------------------------------------------------------


def parser(file: str, doc: str | None, *, parts: Iterable[str] = (), **defaults: Any) -> argparse.ArgumentParser:
    """The parser of a benchmark, with the shared arguments that it uses.

    Args:
        file: `__file__` of the benchmark.
        doc: its module docstring.
        parts: what it can measure, one of which is chosen.
        defaults: default of every shared argument that it takes, or keywords of `add_argument`.
    """
    module = ".".join(Path(file).resolve().relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    made = argparse.ArgumentParser(
        f"python -m {module}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if parts := tuple(parts):
        made.add_argument("part", choices=parts, help="what to measure")
    for name, default in ({"threads": 1, "out": RESULTS} | defaults).items():
        own = default if isinstance(default, dict) else {"default": default}
        made.add_argument(f"--{name}", **{**ARGUMENTS[name], **own})
    return made


def parse(made: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, with `command` as it is recorded; where torch is imported, it computes with as many threads."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = made.parse_args(given)
    shown = [Path(word).name if word.startswith("/") else word for word in given]
    options.command = " ".join([made.prog, shlex.join(shown)]).strip()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(options.threads)
    return options


def chosen(name: str, only: Sequence[str] | None) -> bool:
    """Whether `--only` takes the row of this name."""
    return not only or any(fnmatchcase(name, word) for word in only)


# Records --------------------------------------------------------------------------------------------------------------


def version(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Processor, cores, memory and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "torch": version("torch"),
    }


def commit(checkout: Path | None = None) -> str:
    """The commit of a checkout, by default that of the `privfed` in use, with a mark where files differ from it."""
    if checkout is None:
        found = importlib.util.find_spec("privfed")
        checkout = ROOT if found is None or found.origin is None else Path(found.origin).parents[1]
    git = ["git", "-C", str(checkout)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    code = ["privfed", "attacks", "secure_agg", "benchmarks", ":!benchmarks/results"]
    differ = subprocess.run([*git, "status", "--porcelain", *code], capture_output=True, text=True, check=False)
    return (head or NOT_RECORDED) + (" with changes" if differ.stdout.strip() else "")


def load_average() -> list[float]:
    """Of the last one, five and fifteen minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def read(file: Path) -> dict[str, Any]:
    """A file of results as it is, refused without its fields.

    Raises:
        RecordError: A field is missing.
    """
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    sessions = kept.get("sessions") if isinstance(kept, dict) else None
    if not sessions or "results" not in kept:
        raise RecordError(f"{file.name} has no sessions and results; write it with benchmarks.harness.Record")
    for session in sessions:
        if missing := [field for field in FIELDS if not session.get(field)]:
            raise RecordError(f"{file.name} does not say {missing[0]}; write {NOT_RECORDED!r} where it is not known")
    return kept


def results(name: str, folder: Path = RESULTS) -> Any:
    """What a benchmark measured, by the name of its file."""
    return read(folder / f"{name}.json")["results"]


def provenance(name: str) -> str:
    """What measured the rows of a file, in one sentence: command, commit, machine and day of the last session."""
    sessions = read(RESULTS / f"{name}.json")["sessions"]
    session, before = sessions[-1], len(sessions) - 1
    machine, commit, day = session["machine"], session["commit"], session["date"]
    on = "machine not recorded"
    if isinstance(machine, dict):
        on = f"{machine.get('processor') or 'unnamed processor'}, {machine.get('cores')} cores"
    command = "command not recorded" if session["command"] == NOT_RECORDED else f"`{session['command']}`"
    if isinstance(commit, dict):
        commit = " and ".join(f"{one[:9]} ({what})" for what, one in commit.items())
    at = f"commit {commit[:9]}" if len(commit.split()[0]) == 40 else commit.removeprefix(f"{NOT_RECORDED}; ")
    earlier = f"; {before} earlier session{'s' * (before > 1)} in the file" if before else ""
    day = day.removeprefix(f"{NOT_RECORDED}; ")[:20]
    return f"`benchmarks/results/{name}.json`: {command}; {at}; {on}; {day}{earlier}."


class Record:
    """A file of results that is written after every row.

    Attributes:
        results: what was measured so far, a list of rows or rows by name.

    Args:
        name: of the file.
        options: parsed by `parse`.
        empty: results before the first row.
        anew: whether what was measured before is replaced.
    """

    def __init__(self, name: str, options: argparse.Namespace, empty: Any, *, anew: bool = False) -> None:
        self.file: Path = options.out / f"{name}.json"
        self.session = {"command": options.command, "commit": commit(), "date": time.strftime("%Y-%m-%d %H:%M:%S")}
        self.session |= {"machine": machine(), "load_average": {"before": load_average()}}
        found = read(self.file) if self.file.exists() and not anew else {"sessions": [], "results": empty}
        self.sessions, self.results, self._replaces = found["sessions"], found["results"], anew
        self._kept_session: dict[str, Any] | None = None

    def has(self, **key: Any) -> bool:
        """Whether a row of the list says this."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.results)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row, print it and write the file, with what others wrote meanwhile."""
        with self._shared():
            self.results.append(dict(row))
        print(json.dumps(row), flush=True)

    def put(self, row: Any, *path: str) -> None:
        """Keep a row under a name (of a part), print it and write the file, with what others wrote meanwhile."""
        with self._shared():
            rows = self.results
            for part in path[:-1]:
                rows = rows.setdefault(part, {})
            rows[path[-1]] = row
        print(" / ".join(path), json.dumps(row), flush=True)

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """Results as the file has them now, to be changed and written while nobody else writes."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.file.stat().st_size and not self._replaces:
                found = read(self.file)
                self.sessions = [one for one in found["sessions"] if one != self._kept_session]
                self.results = found["results"]
            yield
            self.save()

    def save(self) -> None:
        """Write the file."""
        self.session["load_average"]["after"], self._replaces = load_average(), False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._kept_session = copy.deepcopy(self.session)
        kept = {"sessions": [*self.sessions, self.session], "results": self.results}
        self.file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


# Processes ------------------------------------------------------------------------------------------------------------


def memory(field: str) -> int:
    """A line of `/proc/self/status` in bytes: `VmHWM` is the largest resident set of this process so far."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def peak_mib() -> float:
    """The largest resident set of this process so far; `ru_maxrss` would count that of the process that started it."""
    return memory("VmHWM") / 2**20


def child(
    module: str,
    *words: object,
    threads: int = 1,
    limit: float = 3600.0,
    python: str | Path = sys.executable,
    launcher: Sequence[str] = (),
    checkout: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The last line of JSON that a module prints in a process of its own, or `failed` and why.

    Args:
        module: run by `python -m`.
        words: its arguments.
        threads: with which libraries compute.
        limit: CPU-seconds after which the process is ended, at `PATIENCE` times as many seconds.
        python: interpreter.
        launcher: words between interpreter and module.
        checkout: whose code runs.
        environment: further variables.
    """
    command = [str(python), *launcher, "-m", module, *map(str, words)]
    env = os.environ | dict.fromkeys(THREADS, str(threads)) | {"PYTHONPATH": str(checkout)} | dict(environment or {})
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=checkout,
        start_new_session=True,
    )
    try:
        printed, errors = run.communicate(timeout=PATIENCE * limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {PATIENCE * limit:g} s of wall"}
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
    if run.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failed": f"took more than {limit:g} CPU-s, or was ended for its memory"}
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if run.returncode or not lines:
        last = (errors.strip().splitlines() or ["nothing"])[-1][:300]
        return {"failed": f"ended with {run.returncode} and said: {last}"}
    row: dict[str, Any] = json.loads(lines[-1])
    return row


def succeeded(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a child that must not fail.

    Raises:
        ChildError: It failed.
    """
    if "failed" in row:
        raise ChildError(f"the measurement {row['failed']}")
    return row
