"""What a GPU makes of privfed: does it agree with the processor, how fast is it, what does it hold, and wait for.

    benchmarks/speed/gpu.sh [DEVICE]
    python -m benchmarks.speed.gpu rates agreement rounds profile growth [--device cuda] [--only fedvae] [--minutes 9]

    rates      products in float32, TF32 and bfloat16, and the triad a = b + s c over the device's memory
    agreement  every method's public and private state after two rounds, against the processor's and against itself
    rounds     a round of every method at the size of MovieLens-1M, and this project's goals, a process each
    profile    kernels of one warm round: the longest, how many there are, copies, and where the host waits
    growth     twice as many people each time, until memory ends

A row that fails keeps the first line of its error, and the next one is measured. Rounds whose work is counted
(`suite.work`) have the share of the limit that they reach at the rates measured here, random words left out.

Data are made up (`suite.case.made_up`), so nothing has to be brought along. Results go to
`benchmarks/results/gpu.json` after every row. No row is begun after `--minutes`, and the next call goes on: a machine
that is lent in pieces of ten minutes is enough. On a machine without a GPU `--device cpu --small` tries the script.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product as product_of
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import harness
from benchmarks.speed.suite.case import Running, configured, made_up
from benchmarks.speed.suite.cases import PUBLISHED, methods
from benchmarks.speed.suite.work import least_seconds
from privfed.data import Split

PARTS = ("rates", "agreement", "rounds", "profile", "growth")
TOLERANCE = 1e-3
"""Of the largest number of a tensor: sums of another order, not another result."""
Case = dict[str, Any]
Measurement = Callable[[], dict[str, Any]]
FILMS = {"users": 6040, "items": 3706, "each": 165}
FEW = {"users": 120, "items": 90, "each": 12}
MILLION = {"users": 1_000_000, "items": 10_000, "each": 20}
EPOCH = "none:release=total,sampling.kind=epoch,sampling.size=256"
GOALS: dict[str, tuple[float, Case]] = {
    "gpfedrec, exact graph": (0.25, {"method": "gpfedrec", "data": FILMS}),
    "fedvae, published widths": (0.1, {"method": "fedvae", "data": FILMS, "settings": PUBLISHED}),
    "feddae, published widths": (0.1, {"method": "feddae", "data": FILMS, "settings": PUBLISHED}),
    "hetefedrec, 256 people": (0.1 * 256 / 6040, {"method": "hetefedrec", "data": FILMS, "privacy": EPOCH}),
    "a million of fedvae": (10.0, {"method": "fedvae", "data": MILLION}),
    "a million of fedvae, local noise": (
        10.0,
        {"method": "fedvae", "data": MILLION, "privacy": "local-gaussian:clip_norm=1,noise_multiplier=5"},
    ),
    "a million of fedvae, shares of noise": (
        10.0,
        {
            "method": "fedvae",
            "data": MILLION,
            "privacy": "distributed-gaussian:clip_norm=1,noise_multiplier=5,n_min_honest=800000",
        },
    ),
}
"""Seconds of a round that this project aims at on an H200, and the round."""
GROWING = ("fedvae", "pfedrec", "gpfedrec")
_SQUARE, _TRIAD, _REPEATS, _LONGEST = 8192, 1 << 28, 10, 12


def synchronize(device: str) -> None:
    """Wait until a device has done all that it was given."""
    if device != "cpu":
        torch.accelerator.synchronize(device)


def seconds_of(step: Callable[[], object], device: str) -> float:
    """Wall seconds of a step, the best of some after one that warms up."""
    best = math.inf
    for _ in range(_REPEATS + 1):
        synchronize(device)
        started = time.perf_counter()
        step()
        synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best


def product(kind: str, device: str, side: int) -> dict[str, Any]:
    """Operations per second of a square product."""
    former, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, kind == "TF32"
    a = torch.rand(side, side, device=device, dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    flops = 2 * side**3 / seconds_of(partial(torch.mm, a, a), device)
    torch.backends.cuda.matmul.allow_tf32 = former
    return {"flops": flops}


def triad(device: str, length: int) -> dict[str, Any]:
    """Bytes per second of memory."""
    b, c = (torch.rand(length, device=device) for _ in range(2))
    taken = seconds_of(partial(torch.add, b, c, alpha=3.0, out=torch.empty_like(b)), device)
    return {"bytes_per_s": 3 * b.element_size() * length / taken}


def state_after(case: Case, parts: Split, rounds: int) -> dict[str, Tensor]:
    """All tensors of both sides after some rounds, on the host."""
    running = Running(configured(case), parts)
    for _ in range(rounds):
        running.round()
    e = running.experiment
    found = {f"server/{k}": v for k, v in e.server.state().items()}
    found |= {f"clients/{k}": v for k, v in e.clients.state().items()}
    return {name: value.detach().cpu() for name, value in found.items()}


def unlike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, float]:
    """Tensors that differ, each with the largest difference over the largest number in it."""
    found = {}
    for name, value in one.items():
        a, b = value.double(), other[name].double()
        if a.shape != b.shape:
            found[name] = math.inf
        elif not torch.equal(a, b):
            found[name] = float((a - b).abs().max() / a.abs().max().clamp_min(1e-30))
    return found


def agreement(name: str, device: str, parts: Split) -> dict[str, Any]:
    """A method on the device against the processor, and against itself in deterministic mode."""
    there = {"method": name, "device": device}
    known, found, again = (state_after(case, parts, 2) for case in ({"method": name}, there, there))
    differences = unlike(known, found)
    largest = max(differences.values(), default=0.0)
    return {
        "tensors": len(known),
        "largest_difference": largest,
        "agrees": largest <= TOLERANCE,
        "equal_twice": not unlike(found, again),
        "unlike": dict(sorted(differences.items(), key=lambda pair: -pair[1])[:5]),
    }


def profiled(case: Case) -> dict[str, Any]:
    """Where one round goes, after two that warm up."""
    running, device = Running(configured(case), made_up(**case["data"])), case["device"]
    for _ in range(2):
        running.round()
    seen = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.startswith("cuda") else [])
    with profile(activities=seen) as profiler:
        row = running.round()
    events = profiler.key_averages()
    key = "self_device_time_total" if device.startswith("cuda") else "self_cpu_time_total"
    longest = sorted(events, key=lambda event: -getattr(event, key))[:_LONGEST]

    def count(*words: str) -> int:
        return sum(event.count for event in events if any(word in event.key for word in words))

    return {
        "wall_s": row["wall_s"],
        "kernel_s": sum(getattr(event, key) for event in events) / 1e6,
        "launches": count("LaunchKernel"),
        "copies": count("Memcpy"),
        "waits": count("Synchronize", "aten::_local_scalar_dense", "aten::nonzero"),
        "longest": {event.key[:80]: [getattr(event, key) / 1e6, event.count] for event in longest},
    }


def attempted(measure: Measurement) -> dict[str, Any]:
    """A measurement, or why there is none: one kernel that a device lacks must not hide the rows behind it."""
    try:
        return measure()
    except (RuntimeError, ValueError, MemoryError) as failure:
        return {"failed": f"{type(failure).__name__}: {str(failure).partition(chr(10))[0][:300]}"}


def with_limit(row: dict[str, Any], rates: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """A round with its counted limit at the measured rates, and the share of it that the round reaches."""
    if not row.get("work") or not {"product, float32", "triad"} <= set(rates):
        return row
    flops, moved = rates["product, float32"].get("flops"), rates["triad"].get("bytes_per_s")
    if flops is None or moved is None:
        return row
    limit = least_seconds(row["work"], {"gemm": flops, "triad": moved, "cipher": math.inf})
    return row | {"limit_s": limit, "share_of_limit": limit / row["wall_s"]}


def child(case: Case, options: Any) -> dict[str, Any]:
    """A case in a process of its own, so that what it leaves in memory goes with it."""
    spec = json.dumps({"label": case["method"], "rounds": 3, "seconds": 30} | case | {"device": options.device})
    measured = harness.child("benchmarks.speed.suite.case", spec, limit=options.minutes * 60 / harness.PATIENCE)
    return measured | ({"goal_s": case["goal_s"]} if "goal_s" in case else {})


def planned(options: Any) -> Iterator[tuple[str, str, Measurement]]:
    """Part, name and measurement of every row."""
    films, million = (FEW, FEW) if options.small else (FILMS, MILLION)
    for kind in ("float32", "TF32", "bfloat16"):
        yield "rates", f"product, {kind}", partial(product, kind, options.device, 256 if options.small else _SQUARE)
    yield "rates", "triad", partial(triad, options.device, 1 << 16 if options.small else _TRIAD)
    few = made_up(**FEW)
    for name in methods():
        yield "agreement", name, partial(agreement, name, options.device, few)
    goals = {
        label: case | {"data": films if case["data"] == FILMS else million, "goal_s": goal}
        for label, (goal, case) in GOALS.items()
    }
    for label, case in (goals | {name: {"method": name, "data": films} for name in methods()}).items():
        yield "rounds", label, partial(child, case, options)
    for label, case in goals.items():
        if case["data"] == films:
            yield "profile", label, partial(profiled, case | {"device": options.device})
    first = FEW | {"users": 100} if options.small else MILLION | {"users": 10_000}
    for name, doubled in product_of(GROWING, range(3 if options.small else 12)):
        data = first | {"users": first["users"] << doubled}
        grown: Case = {"method": name, "data": data, "rounds": 1, "warm": 0}
        yield "growth", f"{name}/{data['users']}", partial(child, grown, options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, until time is over."""
    parser = harness.parser(__file__, __doc__, only=[])
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help="of " + ", ".join(PARTS))
    parser.add_argument("--device", default="cuda", help="as torch names it (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no row begins (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="sizes that any machine holds, to try the script")
    options = harness.parse(parser, arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))} is no part: choose from {', '.join(PARTS)}")
    record, until, ended = harness.Record("gpu", options, {}), time.monotonic() + 60 * options.minutes, set[str]()
    for part, name, measure in planned(options):
        wanted = part in options.parts and harness.chosen(name, options.only) and name.partition("/")[0] not in ended
        if not wanted or name in record.results.get(part, {}):
            continue
        if time.monotonic() > until:
            print(f"Time is over before {part}, {name}: call again to go on.")
            return
        row = {"device": options.device} | with_limit(attempted(measure), record.results.get("rates", {}))
        record.put(row, part, name)
        if part == "growth" and "failed" in row:
            ended.add(name.partition("/")[0])
    print("Nothing is left.")


if __name__ == "__main__":
    main()
