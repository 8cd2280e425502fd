"""Digests of small runs of a checkout, to see that a change of the code changes no number.

    python tests/golden/digests.py write --checkout DIR --out FILE [--only PATTERN] [--workers N]
    python tests/golden/digests.py compare FILE_A FILE_B
    python tests/golden/digests.py against COMMIT [--only PATTERN]

`README.md` beside this file says what is digested, what is left out, and how to keep it working across renames.
This file imports no part of privfed at the top: it runs with the packages of the checkout that it is pointed to.
"""

import argparse
import csv
import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from cases import SPELLINGS, Case, cases, write_data  # noqa: E402  (this folder is no package)

Leaf = tuple[str, str, str]
"""Hash of a value, the name that it had (for people, never compared), and the value in short."""

EXCLUDED = re.compile(
    r"(^|\.)((\w+_)?seconds|[\w ]+[ _]s|costs\.(clients|privacy|sum)|peak_rss_bytes|memory bytes|serial|measured"
    r"|created|date|host|machine|commit|versions?|environment|config|configuration)(\.|$)"
)
"""Dotted names of leaves that are no result: times (`train_s`, `costs.clients`, a node's `serial`, which starts at the
time), memory, machines, versions, and settings, which are echoed. Add new names of these here."""

READS_AS_NUMBERS = re.compile(r"[+-]?inf|nan|[+-]?\d[\d.,+\-e]*")
"""Strings that hold values all the same: `inf`, and ranges of user numbers such as `0-941,943`."""

_SHOWN, _LONG, _MANY = 40, 8, 500
"""Characters of a value that are kept for people; a list of more numbers than that is one leaf; leaves of a kind beyond
which those of one name are kept together."""


def leaf(value: object, name: str) -> Leaf:
    """The digest of a number, a truth value, or text that reads as numbers."""
    text = f"{type(value).__name__} {value!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:16], name, text[:_SHOWN]


def json_leaves(value: Any, name: str = "") -> Iterator[Leaf]:
    """The leaves of a JSON value that are digested."""
    # The mechanism audit (and only it names a worst case) samples two releases anew in every process.
    if EXCLUDED.search(name) or (isinstance(value, Mapping) and value.get("worst_case")):
        return
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from json_leaves(below, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and len(value) > _LONG and all(type(below) in (int, float) for below in value):
        yield leaf(value, name)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from json_leaves(below, name)
    elif isinstance(value, bool | int | float) or (isinstance(value, str) and READS_AS_NUMBERS.fullmatch(value)):
        yield leaf(value, name)


def tensor_leaves(path: Path) -> Iterator[Leaf]:
    """One leaf per tensor of a safetensors file: dtype, shape and bytes, as they are in the file."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        kind = f"{entry['dtype']} {entry['shape']}"
        digest = hashlib.sha256(kind.encode() + b"\0" + content[start + first : start + last])
        yield digest.hexdigest()[:16], f"{path.stem}:{name}", kind


def csv_leaves(path: Path) -> Iterator[Leaf]:
    """The cells of a table that read as numbers."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield from json_leaves({str(key): value for key, value in row.items()})


_KINDS = (
    ("settings", r"(^|/)(config|run|announcement|owner)\.json$"),
    ("taps", r"(^|/)taps/"),
    ("private", r"client[^/]*\.safetensors$"),
    ("public", r"\.safetensors$"),
    ("ledger", r"ledger[^/]*\.jsonl?$"),
    ("guarantee", r"guarantee[^/]*\.json$"),
    ("metrics", r"metrics[^/]*\.jsonl?$"),
    ("progress", r"(^|/)checkpoint/[^/]*\.json$"),
    ("records", r"\.(jsonl?|csv)$"),
)


def kind_of(path: str) -> str | None:
    """What a file of a run holds; None for pages, pictures and settings."""
    kind = next((kind for kind, pattern in _KINDS if re.search(pattern, path)), None)
    return None if kind == "settings" else kind


def file_leaves(path: Path) -> Iterator[Leaf]:
    """The leaves of one file."""
    if path.suffix == ".safetensors":
        yield from tensor_leaves(path)
    elif path.suffix == ".csv":
        yield from csv_leaves(path)
    else:
        text = path.read_text()
        for document in text.splitlines() if path.suffix == ".jsonl" else [text]:
            yield from json_leaves(json.loads(document))


def digest_folder(folder: Path) -> dict[str, list[Leaf]]:
    """Kind of artefact -> leaves of all files below a folder."""
    found: dict[str, list[Leaf]] = {}
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path.relative_to(folder).as_posix())
        if path.is_file() and kind is not None:
            found.setdefault(kind, []).extend(file_leaves(path))
    return found


def summary(leaves: Mapping[str, Sequence[Leaf]]) -> dict[str, Any]:
    """What is kept of a case: per kind the digest of the sorted multiset of leaves, their number, and the leaves.

    Where there are many leaves, those of a name are kept as one.
    """
    return {
        kind: {
            "digest": _digest_of_all(some),
            "count": len(some),
            "leaves": sorted(some if len(some) <= _MANY else _by_name(some)),
        }
        for kind, some in leaves.items()
        if some
    }


def _digest_of_all(leaves: Sequence[Leaf]) -> str:
    return hashlib.sha256("".join(sorted(digest for digest, _, _ in leaves)).encode()).hexdigest()


def _by_name(leaves: Sequence[Leaf]) -> list[Leaf]:
    groups: dict[str, list[Leaf]] = {}
    for one in leaves:
        groups.setdefault(one[1], []).append(one)
    return [(_digest_of_all(some)[:16], name, f"{len(some)} values") for name, some in groups.items()]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of digests, a line each; empty where nothing does."""
    lines = []
    for case in sorted(one.keys() | other.keys()):
        if case not in one or case not in other:
            lines.append(f"{case}: only in {'B' if case in other else 'A'}")
            continue
        a, b = one[case], other[case]
        for kind in sorted(a.keys() | b.keys()):
            if a.get(kind, {}).get("digest") != b.get(kind, {}).get("digest"):
                lines.append(f"{case}: {kind} differs")
                lines += _leaf_differences(a.get(kind, {}).get("leaves", []), b.get(kind, {}).get("leaves", []))
    return lines


def _leaf_differences(a: Sequence[Sequence[str]], b: Sequence[Sequence[str]], most: int = 6) -> list[str]:
    lines = []
    for side, mine, theirs in (("A", a, b), ("B", b, a)):
        left = Counter(digest for digest, _, _ in theirs)
        alone = []
        for digest, name, shown in mine:
            if left[digest]:
                left[digest] -= 1
            else:
                alone.append(f"    only in {side}: {name} = {shown}")
        lines += alone[:most] + ([f"    ... and {len(alone) - most} more only in {side}"] if len(alone) > most else [])
    return lines


# Running the command of a checkout ------------------------------------------------------------------------------------


def constant_noise_keys() -> None:
    """Let keys of noise follow from the seed alone.

    They follow from the run's settings as JSON, too, so that no two runs share noise: a renamed setting would change
    every noisy number. Here all runs of a seed share their noise, before a rename and after.
    """
    import privfed.federation

    streams = privfed.federation.Streams
    original = streams.from_seed.__func__

    def from_seed(cls: type, seed: int, run: str = "") -> Any:
        return original(cls, seed, "golden" if run else "")

    streams.from_seed = classmethod(from_seed)


def command(*words: str) -> tuple[int, str, str]:
    """Run the command in this process; gives its exit code, standard output and standard error."""
    from typer.testing import CliRunner

    from privfed.cli import app

    answer = CliRunner().invoke(app, words, prog_name="privfed")
    return answer.exit_code, answer.stdout, answer.stderr


def killed(*words: str, swaps: int) -> tuple[int, str, str]:
    """Run the command until a checkpoint has been swapped in so many times, or with 0 just before the first is."""
    rename, done = Path.rename, 0

    def until(self: Path, target: Any) -> Path:
        nonlocal done
        if Path(target).name != "checkpoint":
            return rename(self, target)
        if swaps == 0:
            raise KeyboardInterrupt
        moved = rename(self, target)
        done += 1
        if done == swaps:
            raise KeyboardInterrupt
        return moved

    with mock.patch.object(Path, "rename", until):
        return command(*words)


def two_processes(*words: str) -> tuple[int, str, str]:
    """Run the command under `torchrun` with two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    answer = subprocess.run(
        [*launch, str(HERE / "digests.py"), "_command", *words], capture_output=True, text=True, check=False
    )
    return answer.returncode, answer.stdout, answer.stderr


@dataclass
class Spelling:
    """Which of several spellings a checkout takes, by trying: `cases.SPELLINGS` lists them, oldest first."""

    chosen: dict[str, int] = field(default_factory=dict)

    def attempts(self, steps: Sequence[Sequence[str]]) -> Iterator[tuple[dict[str, int], list[list[str]]]]:
        """The steps of a case in every combination of spellings, those that were taken before first."""
        text = "\n".join(word for words in steps for word in words)
        used = [key for key in SPELLINGS if f"<{key}>" in text]
        orders = []
        for key in used:
            first = self.chosen.get(key, 0)
            orders.append([first, *(n for n in range(len(SPELLINGS[key])) if n != first)])
        for picks in product(*orders):
            spelt = dict(zip(used, picks, strict=True))
            yield spelt, [[_spell(word, spelt) for word in words] for words in steps]


def _spell(word: str, spelt: Mapping[str, int]) -> str:
    for key, pick in spelt.items():
        word = word.replace(f"<{key}>", SPELLINGS[key][pick])
    return word


REFUSED = 2


def run_case(case: Case, data: Path, folder: Path, spelling: Spelling) -> dict[str, list[Leaf]]:
    """The leaves of one case; tries other spellings where the command refuses all of what it is given."""
    first: dict[str, list[Leaf]] | None = None
    for spelt, steps in spelling.attempts(case.steps):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        found, codes = _run_steps(case, steps, data, folder)
        if REFUSED not in codes:
            spelling.chosen |= spelt
            return found
        first = found if first is None else first
    assert first is not None
    return first


def _run_steps(
    case: Case, steps: Sequence[Sequence[str]], data: Path, folder: Path
) -> tuple[dict[str, list[Leaf]], list[int]]:
    codes, documents, errors = [], list[Leaf](), ""
    if case.nodes is not None:
        from nodes_adapter import train_over_nodes

        documents += json_leaves(train_over_nodes(case.nodes, data, folder / "out"))
    for words in steps:
        how, *rest = [word.replace("{data}", str(data)).replace("{out}", str(folder / "out")) for word in words]
        runner: Callable[..., tuple[int, str, str]] = {
            "command": command,
            "torchrun": two_processes,
            "killed 0": lambda *w: killed(*w, swaps=0),
            "killed 1": lambda *w: killed(*w, swaps=1),
        }[how]
        code, out, err = runner(*rest)
        codes.append(code)
        errors += err[-300:] if code not in (0, 130) else ""
        if "--json" in rest and out.startswith("{"):
            documents += json_leaves(json.loads(out))
    found = digest_folder(folder)
    if documents:
        found["document"] = documents
    exits = json.dumps(codes)
    found["codes"] = [(hashlib.sha256(exits.encode()).hexdigest()[:16], errors[-200:], exits)]
    return found, codes


def run_here(out: Path, only: str, share: tuple[int, int]) -> None:
    """Digest the cases in this process, whose packages are those of the checkout."""
    import torch

    import privfed

    wanted = Path(os.environ["GOLDEN_CHECKOUT"]).resolve()
    assert Path(privfed.__file__).resolve().is_relative_to(wanted), f"{privfed.__file__} is not in {wanted}"
    torch.set_num_threads(1)
    constant_noise_keys()
    os.fsync = lambda descriptor: None  # nothing here has to survive a power cut
    folder = out.with_suffix(".runs")
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "data"
    data.mkdir(parents=True)
    write_data(data)
    spelling, digests = Spelling(), {}
    chosen = [case for case in cases() if fnmatch.fnmatch(case.name, only)][share[0] :: share[1]]
    for case in chosen:
        begun = os.times().elapsed
        try:
            leaves = run_case(case, data, folder / "case", spelling)
        except Exception as error:
            leaves = {"broken": [("broken", f"{type(error).__name__}: {error}"[:300], "")]}
        digests[case.name] = summary(leaves)
        code = "".join(shown for kind in ("codes", "broken") for _, _, shown in leaves.get(kind, []))
        why = "".join(name for kind in ("codes", "broken") for _, name, _ in leaves.get(kind, []))
        counts = " ".join(f"{kind}={len(some)}" for kind, some in leaves.items() if kind != "codes")
        print(f"{os.times().elapsed - begun:6.2f} s  {case.name}  {code}  {counts}  {why}".rstrip(), flush=True)
    out.write_text(json.dumps(digests))
    shutil.rmtree(folder)


def metadata(checkout: Path, folder: Path) -> None:
    """Installed metadata of the checkout as it is, so that its own entry points are found and nobody else's.

    Methods are found by entry points of an installed distribution, and an installation remembers where modules were
    when it was made. The first distribution of a name on the path is the one that counts.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    info = folder / "privfed-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: privfed\nVersion: 0\n")
    groups = project["entry-points"] | {"console_scripts": project["scripts"]}
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def write(checkout: Path, out: Path, only: str, workers: int) -> None:
    """Digest a checkout in processes that import its packages."""
    checkout = checkout.resolve()
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        metadata(checkout, folder)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PRIVFED_", "COLUMNS"))}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(folder), str(checkout)]),
            "OMP_NUM_THREADS": "1",
            "GOLDEN_CHECKOUT": str(checkout),
        }

        def one(number: int) -> dict[str, Any]:
            part = folder / f"part-{number}.json"
            words = ["_run", "--out", part, "--only", only, "--share", f"{number}/{workers}"]
            subprocess.run(
                [sys.executable, HERE / "digests.py", *map(str, words)], env=environment, cwd=folder, check=True
            )
            return json.loads(part.read_text())

        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(one, range(workers)))
    out.write_text(json.dumps({case: kinds for part in parts for case, kinds in part.items()}, sort_keys=True))


def compare(one: Path, other: Path, kinds: str | None = None) -> int:
    """Print what differs between two files of digests; 1 where anything does."""
    a, b = (json.loads(path.read_text()) for path in (one, other))
    if kinds is not None:
        a, b = (
            {case: {k: v for k, v in of.items() if k in kinds.split(",")} for case, of in x.items()} for x in (a, b)
        )
    lines = differences(a, b)
    print("\n".join(lines) if lines else f"{len(a)} runs are equal")
    return 1 if lines else 0


def against(commit: str, only: str, workers: int, kinds: str | None) -> int:
    """Digest a commit and the working tree that this file lies in, and compare them."""
    here = HERE.parents[1]
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        before, folder = Path(name) / "before", Path(name)
        subprocess.run(["git", "-C", here, "worktree", "add", "--detach", str(before), commit], check=True)
        try:
            write(before, folder / "a.json", only, workers)
            write(here, folder / "b.json", only, workers)
        finally:
            subprocess.run(["git", "-C", here, "worktree", "remove", "--force", str(before)], check=True)
        return compare(folder / "a.json", folder / "b.json", kinds)


def main(words: Sequence[str]) -> int:
    """Read the command line."""
    if words[:1] == ["_command"]:
        constant_noise_keys()
        from privfed.cli import main as privfed_main

        sys.argv = ["privfed", *words[1:]]
        privfed_main()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("write", "against", "_run"):
        one = commands.add_parser(name)
        one.add_argument("--only", default="*", metavar="PATTERN", help="names of cases, as in 'method/fair*'")
        one.add_argument("--workers", type=int, default=1, metavar="N")
        if name != "against":
            one.add_argument("--out", type=Path, required=True, metavar="FILE")
        if name == "write":
            one.add_argument("--checkout", type=Path, required=True, metavar="DIR")
        if name == "against":
            one.add_argument("commit", metavar="COMMIT")
            one.add_argument("--kinds", metavar="KIND,KIND")
        if name == "_run":
            one.add_argument("--share", default="0/1")
    two = commands.add_parser("compare")
    two.add_argument("one", type=Path, metavar="FILE_A")
    two.add_argument("other", type=Path, metavar="FILE_B")
    two.add_argument("--kinds", metavar="KIND,KIND", help="compare these kinds only, such as public,private")
    given = parser.parse_args(words)
    if given.command == "write":
        write(given.checkout, given.out, given.only, given.workers)
    elif given.command == "_run":
        number, _, of = given.share.partition("/")
        run_here(given.out, given.only, (int(number), int(of)))
    elif given.command == "compare":
        return compare(given.one, given.other, given.kinds)
    else:
        return against(given.commit, given.only, given.workers, given.kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
