"""What a round does, counted: a gate for speed that no other work of the machine can fail.

    python -m benchmarks.smoke             # compare with benchmarks/smoke.json; ends with 1 where a count grew
    python -m benchmarks.smoke --update    # write the counts anew: say in the commit why they may grow

Twelve cases on made-up lists of equal length, each counted in a round that follows a warm one:

* `operators`, `bytes`, `flops`: calls of torch, what they allocate, and operations of products;
* `calls`: calls of named functions of `privfed`, `secure_agg` and `attacks`, and by these of C functions, as of numpy;
* `allocations`: arrays that compiled loops make;
* `peak`: the most that Python and numpy hold beyond what they held before;
* `up`, `down`: bytes of all clients on the wire.

What compiled loops compute inside is not counted: it belongs to `benchmarks.speed.suite`. Versions of libraries move
counts a little, so 1 % is allowed, and 16 KiB of a peak, in which small objects of Python count.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from numba.core.runtime import _nrt_python, rtsys  # type: ignore[attr-defined]
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import harness
from benchmarks.running import simulation_of
from privfed.data import Histories, Split, SplitSpec
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.methods import method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from secure_agg.masking import ClientRequirements, ServerAdversary, Terms, aggregate, choose_parameters

STORED = harness.ROOT / "benchmarks" / "smoke.json"
USERS, ITEMS, EACH, VIEWED = 96, 192, 12, 6
CLIENTS, LENGTH = 16, 20_000
ALLOWED = 1.01
SLACK = {"peak": 16 * 2**10}
CASES: Mapping[str, str | None] = {
    "fedmf": None,
    "pfedrec": None,
    "gpfedrec": None,
    "fedvae": None,
    "feddae": None,
    "hetefedrec": None,
    "fair": None,
    "dfmr": "shared-sum",
    "private-gram": "central-gaussian:clip_norm=1,noise_multiplier=4.6",
    "fedvae, noise of each": "distributed-gaussian:clip_norm=1,noise_multiplier=5,n_min_honest=80",
    "pfedrec, noisy steps": "interaction-dpsgd:clip_norm=0.5,noise_multiplier=1",
}
"""Method -> the plan that it is counted behind, in words; behind a comma, what sets it apart."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {"private-gram": {"min_items": 0, "head": 64}}
"""So few people leave nothing to a Gram matrix by the rule."""
MASKED_SUM = "masked sum"
Counts = dict[str, int]

_OURS = tuple(f"{harness.ROOT / package}/" for package in ("privfed", "secure_agg", "attacks"))


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts calls of operators, and the bytes of tensors that do not share memory with what was given."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls, self.bytes = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_memory(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        made = func(*args, **(kwargs or {}))
        self.calls += 1
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        self.bytes += sum(tensor.nbytes for tensor in tensors if _memory(tensor) not in given)
        return made


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


@dataclass(slots=True)
class Calls:
    """Counts calls of named functions of ours, and of C functions from ours."""

    count: int = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        del argument
        code = frame.f_code
        # What is in angle brackets is a function of its own in some versions of Python and not in others.
        named = event == "call" and not code.co_name.startswith("<")
        if (named or event == "c_call") and code.co_filename.startswith(_OURS):
            self.count += 1


@contextmanager
def in_torch(counts: Counts) -> Iterator[None]:
    """Count what torch does."""
    products = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: _in_place})
    with products, Operators() as operators:
        yield
    counts |= {"operators": operators.calls, "bytes": operators.bytes, "flops": products.get_total_flops()}


def _in_place(total: Any, left: Any, right: Any, **others: Any) -> int:
    del total, others
    return int(2 * left[0] * left[1] * left[2] * right[2])


@contextmanager
def in_python(counts: Counts) -> Iterator[None]:
    """Count what Python, numpy and compiled loops do."""
    calls = Calls()
    _nrt_python.memsys_enable_stats()
    made = _arrays_made()
    former = sys.getprofile()
    sys.setprofile(calls)
    try:
        yield
    finally:
        sys.setprofile(former)
    counts |= {"calls": calls.count, "allocations": _arrays_made() - made}


def _arrays_made() -> int:
    return int(rtsys.get_allocation_stats().alloc)  # type: ignore[no-untyped-call]


@contextmanager
def in_memory(counts: Counts) -> Iterator[None]:
    """Measure the most that Python and numpy hold."""
    tracemalloc.start()
    try:
        yield
        counts["peak"] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lists() -> Split:
    """Users with equally long lists, who viewed some items besides; the same on every machine."""
    chosen, owners = np.random.default_rng(0).random((USERS, ITEMS)).argsort(1), np.arange(USERS)

    def some(first: int, last: int) -> Histories:
        items = np.sort(chosen[:, first:last]).ravel()
        return Histories.from_pairs(owners.repeat(last - first), items, USERS, ITEMS)

    held = EACH + VIEWED
    return Split(
        SplitSpec(), some(0, EACH), some(held, held + 1), some(held + 1, held + 2), users_without_holdout=0,
        auxiliary={"view": some(EACH, held)},
    )  # fmt: skip


def counted(name: str) -> Counts:
    """What a warm round of a method does, or the only one of a run that asks once."""
    registered, words = method(name.partition(",")[0]), CASES[name]
    plan = PrivacyPlan.named("none", release=registered.traits.release) if words is None else PrivacyPlan.parse(words)
    chosen = {"name": registered.name, **SETTINGS.get(name, {})}
    config = ExperimentConfig(method=chosen, privacy=plan, taps=TapConfig(places=()))

    def begun() -> tuple[Simulation, Callable[[], None]]:
        experiment = Experiment(config, lists())
        simulation = simulation_of(experiment, Simulation)
        rounds = iter(range(9))
        return simulation, lambda: simulation.run(experiment.server, next(rounds))

    counts: Counts = {}
    simulation, one_round = begun()
    one_round()
    costs = simulation.costs
    wire = {"up": int(costs.up_bytes), "down": int(costs.down_bytes)}
    for counting in (in_torch, in_python, in_memory):
        if registered.traits.uploads_once:
            _, one_round = begun()
        with counting(counts):
            one_round()
    return counts | wire


def masked() -> Counts:
    """What a masked sum of all parties in this process does."""
    chosen = choose_parameters(CLIENTS, corrupt=0.05, dropout=0.1, server=ServerAdversary.CURIOUS)
    terms = Terms.from_parameters(chosen, bits=32, length=LENGTH, run=bytes(16))
    vectors = {one: terms.ring.zeros(LENGTH) for one in range(CLIENTS)}
    asked = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
    counts: Counts = {}
    traffic = aggregate(vectors, terms, requirements=asked).traffic
    for counting in (in_python, in_memory):
        with counting(counts):
            aggregate(vectors, terms, requirements=asked)
    return counts | {"up": sum(traffic.values())}


def _more(what: str, count: int, before: int) -> bool:
    return count > ALLOWED * before + SLACK.get(what, 0)


def grown(now: Mapping[str, Counts], stored: Mapping[str, Counts]) -> list[str]:
    """What grew, a sentence each, and what is counted for the first time or no more."""
    sentences = [f"{name} is not in {STORED.name}: write it with --update." for name in now if name not in stored]
    for name, before in stored.items():
        if name not in now:
            sentences.append(f"{name} is in {STORED.name} and is not counted any more: write it anew with --update.")
            continue
        for what, count in before.items():
            if _more(what, now[name].get(what, 0), count):
                sentences.append(
                    f"{name}: {what} grew from {count:,} to {now[name][what]:,}: mend it, or write the counts anew "
                    "with --update and say why in the commit."
                )
    return sentences


def fallen(now: Mapping[str, Counts], stored: Mapping[str, Counts]) -> list[str]:
    """What is less than it was, a sentence each: a gain that --update keeps."""
    return [
        f"{name}: {what} fell from {count:,} to {now[name][what]:,}: keep the gain with --update."
        for name, before in stored.items()
        for what, count in before.items()
        if _more(what, count, now.get(name, before).get(what, count))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Count all cases and compare them, or write them."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given not in ([], ["--update"]):
        sys.stderr.write(f"{' '.join(given)} is not understood: give --update or nothing\n")
        return 2
    torch.set_num_threads(1)
    now = {name: counted(name) for name in CASES} | {MASKED_SUM: masked()}
    if given:
        versions = {package: harness.version(package) for package in ("torch", "numpy", "numba")}
        STORED.write_text(json.dumps({"versions": versions, "counts": now}, indent=1) + "\n", encoding="utf-8")
        return 0
    stored = json.loads(STORED.read_text(encoding="utf-8"))["counts"]
    for sentence in fallen(now, stored):
        print(sentence)
    for sentence in (problems := grown(now, stored)):
        sys.stderr.write(f"{sentence}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
