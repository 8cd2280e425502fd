"""One case of the suite in a process of its own: CPU-seconds, wall, memory and bytes of a round.

    python -m benchmarks.speed.suite.case '{"method": "pfedrec", "data": "ml-100k"}'

prints one line of JSON. Everybody takes part unless the plan samples; nothing is evaluated and nothing tapped. The
first round is timed by itself, as it fills caches and buffers; then come up to `rounds` more, as many as fit into
`seconds` of CPU, and of short ones so many that they take two seconds. A row is the mean of the middle half of them:
the system may count CPU-seconds in steps of 4 ms, which is all that a median of a few short rounds could tell. Methods
that have done all they do after one round are built and run again instead.

Memory is the largest resident set of the process (`VmHWM`, Linux): after the libraries are imported, after data and
both sides are there, and at the end.

Where a round's work is counted, what the machine can do is measured in the same process after its rounds: a machine's
speed can change by half within an hour, and a limit has to change with it.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import memory
from benchmarks.running import simulation_of
from benchmarks.speed.suite import rates
from benchmarks.speed.suite.work import counted
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.methods import method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

SPLITS = {
    "goodreads-100": SplitSpec(kind="published", valid_from_train=True),
    "jd-dfmr": SplitSpec(kind="published", target="buy"),
}
"""Leave-one-out where nothing is said."""
TRAINED_CENTRALLY = frozenset({"multvae", "eals", "vals"})
"""Ask once, and then train alone: their rounds after the first count."""
ROUNDS, SECONDS, REPEATS = 5, 6.0, 3
ENOUGH = 2.0
"""CPU-seconds of rounds after which more of them tell little."""
STAGES = ("clients", "privacy", "sum")


def made_up(users: int, items: int, each: int) -> Split:
    """Lists of about `each` items per user, popularity falling as 1 / rank; two items of everybody are held out.

    For cost only: nobody has any taste.
    """
    rng = np.random.default_rng(0)
    keys = []
    for first in range(0, users, 100_000):
        some = min(100_000, users - first)
        item = (np.power(items, rng.random((some, each + 2))) - 1).astype(np.int64)
        key = np.sort(np.arange(first, first + some)[:, None] * items + item, axis=1).ravel()
        keys.append(key[np.append(True, key[1:] != key[:-1])])
    owner, item = np.divmod(np.concatenate(keys), items)
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    parts = {
        part: Histories.from_pairs(owner[chosen], item[chosen], users, items)
        for part, chosen in (("valid", rank == 0), ("test", rank == 1), ("train", rank > 1))
    }
    return Split(
        SplitSpec(), parts["train"], parts["valid"], parts["test"], users_without_holdout=0, source="made-up lists"
    )


def parts_of(data: str | dict[str, int]) -> Split:
    """The split of a named data set, or made-up lists of a size."""
    if isinstance(data, dict):
        return made_up(**data)
    return split(load(data), SPLITS.get(data, SplitSpec()))


def configured(case: dict[str, Any]) -> ExperimentConfig:
    """The case as an experiment."""
    registered = method(case["method"])
    unprotected = PrivacyPlan.named("none", release=registered.traits.release)
    settings = {"name": registered.name, **case.get("settings", {})}
    task = registered.training.task(registered.config(**case.get("settings", {})))
    return ExperimentConfig(
        method=settings,
        privacy=PrivacyPlan.parse(case["privacy"]) if "privacy" in case else unprotected,
        protocol={"task": task},
        taps=TapConfig(places=()),
        fidelity=case.get("fidelity", "exact"),
        chunk=case.get("chunk"),
        device=case.get("device", "cpu"),
    )


class Running:
    """Both sides of a case and the simulation between them, timed round by round."""

    def __init__(self, config: ExperimentConfig, parts: Split, client_state: Path | None = None) -> None:
        self.experiment = e = Experiment(config, parts, client_state=client_state)
        with config.computing():
            chunk = e.registered.training.preferred_chunk()
        self.simulation = simulation_of(e, Simulation, chunk=config.chunk or chunk)
        self.done = 0

    def round(self) -> dict[str, float]:
        """One round: CPU and wall seconds, seconds of its stages, clients, and bytes of one client."""
        costs = self.simulation.costs
        before = (costs.client_rounds, costs.up_bytes, costs.down_bytes, *costs.seconds.values())
        cpu, wall = time.process_time(), time.perf_counter()
        with self.experiment.config.computing():
            self.simulation.run(self.experiment.server, self.done)
        if self.experiment.config.device != "cpu":
            torch.accelerator.synchronize(self.experiment.config.device)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        self.done += 1
        after = (costs.client_rounds, costs.up_bytes, costs.down_bytes, *costs.seconds.values())
        clients, up, down, *stages = (b - a for a, b in zip(before, after, strict=True))
        row = {"cpu_s": cpu, "wall_s": wall, "clients": clients}
        row |= {"up_bytes": up / max(clients, 1), "down_bytes": down / max(clients, 1)}
        row |= dict(zip((f"{stage}_s" for stage in STAGES), stages, strict=True))
        return row | {"server_s": wall - sum(stages)}


def accelerator_memory(device: str) -> dict[str, int]:
    """The most that tensors held on a GPU at any time, where there is one."""
    return {"device_bytes": torch.cuda.max_memory_allocated(device)} if device.startswith("cuda") else {}


def is_short(case: dict[str, Any], again: bool, spent: float) -> bool:
    """Whether so few CPU-seconds were spent on rounds that more of them tell more."""
    return not again and "rounds" not in case and spent < min(ENOUGH, case.get("seconds", SECONDS))


def typical(values: Sequence[float]) -> float:
    """The mean of the middle half; of three the one between."""
    ordered, aside = sorted(values), max(len(values) // 4, len(values) > 2)
    return statistics.fmean(ordered[aside : len(ordered) - aside])


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Everything about one case."""
    imported = memory("VmHWM")
    config, parts = configured(case), parts_of(case["data"])
    registered = method(case["method"])
    again = registered.traits.uploads_once and registered.name not in TRAINED_CENTRALLY
    most, seconds = case.get("rounds", ROUNDS), case.get("seconds", SECONDS)
    running = Running(config, parts)
    held = memory("VmRSS")
    train, e = parts.train, running.experiment
    work = None if "privacy" in case else counted(case["method"], config.settings(), train, e.server)
    first = running.round()
    rounds, began = [], time.process_time()
    if again or not case.get("warm", 1):
        rounds.append(first)
    while len(rounds) < (min(most, REPEATS) if again else most) or is_short(case, again, time.process_time() - began):
        if rounds and time.process_time() - began > seconds:
            break
        if again:
            running = Running(config, parts)
        rounds.append(running.round())
    # Before the rates are measured, which takes memory of its own.
    peak = memory("VmHWM")
    row = {name: typical([r[name] for r in rounds]) for name in first}
    return row | {
        "cpu_s_least": min(r["cpu_s"] for r in rounds),
        "cpu_s_first": first["cpu_s"],
        "rounds": len(rounds),
        "users": train.n_users,
        "items": train.n_items,
        "pairs": len(train),
        "imported_bytes": imported,
        "held_bytes": held,
        "peak_bytes": peak,
        **accelerator_memory(config.device),
        "work": work,
        "rates": rates.limits() if work else None,
        "once": again,
    }


def limited(case: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> None:
    """Print what was measured within the case's memory and CPU-seconds, or why it was not."""
    torch.set_num_threads(case.get("threads", 1))
    if "memory" in case:
        resource.setrlimit(resource.RLIMIT_DATA, (case["memory"], case["memory"]))
    if "limit" in case:
        resource.setrlimit(resource.RLIMIT_CPU, (case["limit"], case["limit"]))
    try:
        print(json.dumps(measure()))
    except (ValueError, MemoryError, RuntimeError) as failure:
        print(json.dumps({"failed": f"{type(failure).__name__}: {str(failure).splitlines()[0][:300]}"}))


def main() -> None:
    """Measure the case in the first argument."""
    case = json.loads(sys.argv[1])
    limited(case, lambda: measured(case))


if __name__ == "__main__":
    main()
