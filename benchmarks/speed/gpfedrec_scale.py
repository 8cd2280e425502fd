"""GPFedRec at full size: what a round costs next to its counted limit, and what cheaper graphs do to recommendations.

    python -m benchmarks.speed.gpfedrec_scale cost [--data ml-100k ml-1m] [--rounds 5] [--threads 1]
    python -m benchmarks.speed.gpfedrec_scale edges [--rounds 20]
    python -m benchmarks.speed.gpfedrec_scale quality [--rounds 40]

`cost`: every case in a fresh process; the median of rounds after the first two, with all clients. Beside it the FLOPs
of a round as counted here (half a product for a symmetric one), the rate of matrix products and the bandwidth of copies
measured in the same process, and the time that FLOPs and bytes would take at these rates. `edges`: the share of
directed edges on which a sketched graph differs from the exact one over the same uploads. `quality`: HR@10 and NDCG@10
on the validation part, 99 sampled candidates, negatives drawn honestly, and popularity as the baseline. Results go to
one JSON, a key for each; nothing is asserted.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.running import ForwardingFederation, expect, simulation_of
from privfed.contracts import Schema
from privfed.data import load
from privfed.engines.simulation import Simulation
from privfed.evaluation import HONEST
from privfed.experiment import Experiment
from privfed.federation import Cohort, Federation, Individual, Message
from privfed.methods.gpfedrec import GPFedRecClients, GPFedRecConfig, GPFedRecServer
from privfed.methods.gpfedrec.graph import cosines, neighbourhoods, sketched_cosines
from privfed.methods.gpfedrec.means import NeighbourhoodChain
from privfed.setup.config import ExperimentConfig, TapConfig

CASES: dict[str, dict[str, object]] = {
    "whole tables": {},
    "bfloat16": {"precision": "bfloat16"},
    "sketch 4096": {"sketch": 4096},
    "sketch 1024": {"sketch": 1024},
    "graph every 10 rounds": {"refresh_every": 10},
    "20 random neighbours": {"max_neighbours": 20},
    "20 nearest neighbours": {"max_neighbours": 20, "thinning": "nearest"},
    "sketch 4096, 20 random": {"sketch": 4096, "max_neighbours": 20},
    "no graph": {"graph": None},
}
WIDTHS = (256, 1024, 4096, 16384)
PROTOCOL = HONEST.model_copy(update={"candidates": "sampled", "select": "best_valid"})
_SIDE, _COPIED = 2048, 2**28


def experiment(data: str, settings: dict[str, object], rounds: int, seed: int = 0) -> Experiment:
    """GPFedRec without a privacy plan and without taps, evaluated after its last round."""
    config = ExperimentConfig(
        data=data,
        method={"name": "gpfedrec", **settings},
        protocol=PROTOCOL,
        rounds=rounds,
        evaluate_every=rounds,
        taps=TapConfig(places=()),
        seed=seed,
    )
    return Experiment.on(config, load(data))


def matrix_rate() -> float:
    """FLOP/s of CPU time of a product of two square float32 matrices, the best of five."""
    one, other = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    return 2 * _SIDE**3 / min(cpu_seconds(lambda: one @ other) for _ in range(5))


def copy_rate() -> float:
    """Bytes read and written per second of CPU time by a copy larger than any cache, the best of five."""
    one, other = torch.zeros(_COPIED // 4), torch.zeros(_COPIED // 4)
    return 2 * _COPIED / min(cpu_seconds(lambda: other.copy_(one)) for _ in range(5))


def cpu_seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    started = time.process_time()
    call()
    return time.process_time() - started


def counted(run: Experiment) -> dict[str, float]:
    """FLOPs of a round by part, and the least bytes: tables are written and read once for each thing made of them."""
    config, n = expect(run.config.settings(), GPFedRecConfig), run.n_users
    server, clients = expect(run.server, GPFedRecServer), expect(run.clients, GPFedRecClients)
    size = server.items.numel()
    widths = (2 * config.dim, *config.hidden, 1)
    weights = sum(a * b for a, b in pairwise(widths)) - config.dim * config.hidden[0]
    samples = int(clients.sampler.positive_counts.sum()) * (config.negatives + 1)
    flops = {"local training": 6.0 * weights * samples}
    passes = 2
    if config.graph is not None:
        chain = NeighbourhoodChain.from_neighbours(server.near)
        flops["means"] = float(len(chain.tables) + n) * size
        gram = n**2 * size if config.sketch is None else n**2 * config.sketch + 2 * n * size
        flops["graph"] = float(gram) / config.refresh_every
        passes = 5
    return flops | {"bytes": 4.0 * passes * n * size}


def cost(data: str, case: str, rounds: int, threads: int) -> dict[str, object]:
    """One case in this process, which computes with so many threads."""
    run = experiment(data, CASES[case], rounds + 2)
    cpu, wall = [time.process_time()], [time.perf_counter()]

    def after(*_: object) -> None:
        cpu.append(time.process_time())
        wall.append(time.perf_counter())

    result = run.run(progress=after)
    peak = harness.memory("VmHWM")
    clocks = {name: [b - a for a, b in pairwise(clock)][2:-1] for name, clock in (("cpu", cpu), ("wall", wall))}
    work, rate, bandwidth = counted(run), matrix_rate(), copy_rate()
    limit = sum(value for name, value in work.items() if name != "bytes") / rate + work["bytes"] / bandwidth
    seconds, near = statistics.median(clocks["cpu"]), expect(run.server, GPFedRecServer).near
    return {
        "data": data,
        "case": case,
        "threads": threads,
        "cpu_s_per_round": round(seconds, 3),
        "wall_s_per_round": round(statistics.median(clocks["wall"]), 3),
        "rounds": len(clocks["cpu"]),
        "peak_rss_mb": round(peak / 1e6),
        "gflop": {name: round(value / 1e9, 2) for name, value in work.items() if name != "bytes"},
        "gigabytes": round(work["bytes"] / 1e9, 2),
        "gflop_per_s": round(rate / 1e9, 1),
        "gigabytes_per_s": round(bandwidth / 1e9, 1),
        "limit_s": round(limit, 3),
        "times_the_limit": round(seconds / limit, 2),
        "density": round(float(near.float().mean()), 3) if near.numel() else None,
        "validation_ndcg@10": round(result.history[-1].results["valid"].metric("ndcg", 10).value, 4),
    }


class ComparingFederation(ForwardingFederation):
    """A federation whose uploads are looked at on their way to the server: other graphs next to the exact one.

    Args:
        inner: the federation.
        server: whose settings and table the graphs are made from.
        rows: takes what was compared.
    """

    def __init__(self, inner: Federation, server: GPFedRecServer, rows: list[dict[str, object]]) -> None:
        super().__init__(inner)
        self.server, self.rows = server, rows

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release single uploads, and compare the graphs made from them."""
        release = super().collect(step, cohort, message, schema)
        updates, base, c = release.uploads["items"].flatten(1), self.server.items.flatten(), self.server.config
        match c.graph:
            case "similarity" | "distance" as metric:
                pass
            case _:
                raise ValueError("graphs of item tables are compared, and these settings make none: set graph")
        exact = neighbourhoods(cosines(updates, base), metric, c.gamma, c.min_neighbours)
        for width in WIDTHS:
            cosine = sketched_cosines(updates, base, width, np.random.default_rng(cohort.round))
            near = neighbourhoods(cosine, metric, c.gamma, c.min_neighbours)
            self.rows.append(compared(cohort.round, f"sketch {width}", near, exact))
        coarse = neighbourhoods(cosines(updates, base, "bfloat16"), metric, c.gamma, c.min_neighbours)
        self.rows.append(compared(cohort.round, "bfloat16", coarse, exact))
        return release


def compared(t: int, case: str, near: torch.Tensor, exact: torch.Tensor) -> dict[str, object]:
    """Shares of directed edges in two graphs of a round, and of pairs on which they differ."""
    edges, differ = float(exact.float().mean()), float((near ^ exact).float().mean())
    return {"round": t + 1, "graph": case, "edges": edges, "edges_differ": differ}


def edges(data: str, rounds: int) -> list[dict[str, object]]:
    """Disagreement of sketched graphs with the exact one, after the first, the middle and the last round."""
    run, rows = experiment(data, {}, rounds), list[dict[str, object]]()
    server, simulation = expect(run.server, GPFedRecServer), simulation_of(run, Simulation)
    for t in range(rounds):
        server.round(ComparingFederation(simulation, server, rows), t)
    shown = {1, rounds // 2, rounds}
    return [row for row in rows if row["round"] in shown]


def quality(data: str, case: str, rounds: int, seed: int) -> dict[str, object]:
    """One training and what it is worth on the validation part."""
    settings: dict[str, object] = {"name": "popularity"} if case == "popularity" else CASES[case]
    found = experiment(data, settings, rounds, seed).run().history[-1].results["valid"]
    row: dict[str, object] = {"data": data, "case": case, "rounds": rounds, "seed": seed}
    for name in ("hr", "ndcg"):
        metric = found.metric(name, 10)
        row[f"{name}@10"] = [round(value, 4) for value in (metric.value, metric.lo, metric.hi)]
    return row


def jobs(options: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    """What a process each measures: part, data set, and what the function of the part takes."""
    rounds = options.rounds or {"cost": 5, "edges": 20, "quality": 40}[options.part]
    for data in options.data:
        if options.part == "edges":
            yield "edges", data, rounds
        elif options.part == "cost":
            yield from (("cost", data, case, rounds, options.threads) for case in options.cases)
        else:
            cases = itertools.product(["popularity", *options.cases], range(options.seeds))
            yield from (("quality", data, case, rounds, seed) for case, seed in cases)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, a process for each case, and keep the results."""
    measures: dict[str, Any] = {"cost": cost, "edges": edges, "quality": quality}
    data = {"nargs": "+", "default": ["ml-100k"]}
    parser = harness.parser(__file__, __doc__, parts=measures, data=data, rounds=None, seeds=1)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="graphs (default: all)")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = harness.parse(parser, arguments)
    if options.job:
        part, *words = json.loads(options.job)
        print(json.dumps({"result": measures[part](*words)}))
        return
    record = harness.Record("gpfedrec_scale", options, {})
    for job in jobs(options):
        words = (options.part, "--threads", options.threads, "--job", json.dumps(job))
        row = harness.succeeded(harness.child("benchmarks.speed.gpfedrec_scale", *words, threads=options.threads))
        record.put(row | {"load_average": harness.load_average()}, " / ".join(map(str, job)))


if __name__ == "__main__":
    main()
