"""A year of `private-gram-year`: quality refresh by refresh, beside one release and beside independent releases.

    python -m benchmarks.quality.refreshes --data ml-100k --on valid --seeds 1
    python -m benchmarks.quality.refreshes --data ml-1m --epsilons 2

People arrive over `--refreshes` refreshes: on data with timestamps each refresh brings as many ratings, by time; on
others (MovieLens-1M as published has none) everybody joins at a time drawn once, with half of the ratings, and the rest
follows evenly until the end of the year. Rows, for the same epsilon of the whole year: running totals ("year"); a
release at every refresh with sqrt(refreshes) times the noise, each by itself ("independent"); a single release of the
histories of that refresh, which nobody could repeat ("one release"); and popularity of what has arrived, without noise.
All are fitted on what has arrived and ranked for everybody by their whole history, so that refreshes differ in what was
learned alone: NDCG@20 over the whole catalogue, noise of a trusted server, one person present or absent, delta =
people^-1.1. Intervals are 95 % over people (bootstrap, 1,000), noise seeds averaged per person.

One process, one thread; results go to `benchmarks/results/refreshes_<on>_<data>.json` after every row, and rows found
there are not repeated.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from benchmarks import harness
from benchmarks.quality.private_populations import PROTOCOL, Row, averaged, central, users_of
from benchmarks.quality.ranking import with_validation
from privfed.contracts import RunningTotals
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.privacy import Ledger, PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

AT = (1, 2, 4, 8, 13, 26, 39, 52)
"""Refreshes, from 1, after which quality is measured."""
YEAR, ONCE = "private-gram-year", "private-gram"
Rows = Iterator[tuple[str, Callable[[], Row]]]


def parts_of(name: str, on: str, refreshes: int) -> Split:
    """The split to rank on, and how many of its items everybody has at every refresh."""
    interactions = load(name)
    by_time = interactions.split is None
    spec = SplitSpec(kind="leave_one_out" if by_time else "published")
    parts = split(interactions, spec)
    if on == "valid":
        nobody = np.empty(0, np.int64)
        empty = Histories.from_pairs(nobody, nobody, parts.train.n_users, parts.train.n_items)
        parts = replace(parts, test=parts.valid, valid=empty, ratings=None)
    else:
        parts = with_validation(parts)
    if not by_time or interactions.time is None:
        return replace(parts, arrived=joining(parts.train.counts, refreshes))
    return in_order_of_time(
        parts, interactions.user * parts.train.n_items + interactions.item, interactions.time, refreshes
    )


def joining(counts: Int64[np.ndarray, " users"], refreshes: int) -> Int64[np.ndarray, "users refreshes"]:
    """Items by refresh of people who join at a time drawn once, with half of them, and add the rest evenly."""
    join = np.random.default_rng(7).random(len(counts))[:, None]
    now = np.arange(1, refreshes + 1) / refreshes
    grown = 0.5 + 0.5 * (now - join) / np.maximum(1 - join, 1e-9)
    return np.where(now < join, 0, np.ceil(counts[:, None] * np.clip(grown, 0, 1))).astype(np.int64)


def in_order_of_time(
    parts: Split, pairs: Int64[np.ndarray, " n"], times: Int64[np.ndarray, " n"], refreshes: int
) -> Split:
    """The same, training items oldest first, and which of them there are when every refresh brings as many."""
    train, order = parts.train, np.argsort(pairs, kind="stable")
    own = train.owners * train.n_items + train.items
    when = times[order][np.searchsorted(pairs[order], own)]
    oldest = np.lexsort((when, train.owners))
    train = Histories.from_pairs(train.owners[oldest], train.items[oldest], train.n_users, train.n_items)
    until = np.sort(when)[np.ceil(np.arange(1, refreshes + 1) * len(when) / refreshes).astype(np.int64) - 1]
    place = train.owners * refreshes + np.searchsorted(until, when[oldest])
    arrived = np.bincount(place, minlength=train.n_users * refreshes).reshape(-1, refreshes).cumsum(1)
    return replace(parts, train=train, ratings=None, arrived=arrived)


def by_then(parts: Split, refresh: int) -> Split:
    """What has arrived by a refresh, counted from 1, and nothing that arrives."""
    assert parts.arrived is not None
    return replace(parts, train=parts.train.first(parts.arrived[:, refresh - 1]), arrived=None)


def year_plan(epsilon: float, users: int, refreshes: int, parts: Split) -> PrivacyPlan:
    """Noise for a year of running totals."""
    first = configured(parts, YEAR, central(epsilon, users), 0, refreshes)
    program = [query.schema for query in first.registered.training.program(first.server)]
    return plan_for_target(central(epsilon, users), epsilon, refreshes, users, program=program)


def configured(parts: Split, method: str, plan: PrivacyPlan, seed: int, refreshes: int) -> Experiment:
    """One run, its noise drawn under `seed`."""
    settings: dict[str, Any] = {"name": method} | ({"refreshes": refreshes} if method == YEAR else {})
    config = ExperimentConfig(
        data="ml-1m", split=SplitSpec(kind="published"), method=settings, privacy=plan, protocol=PROTOCOL,
        rounds=refreshes, seed=seed, taps=TapConfig(places=()), fidelity="analytic",
    )  # fmt: skip
    return Experiment(config, parts)


def running(parts: Split, epsilon: float, refreshes: int, seeds: int) -> Row:
    """A year, measured after some refreshes."""
    users, measured = parts.train.n_users, [at for at in AT if at <= refreshes]
    plan = year_plan(epsilon, users, refreshes, parts)
    found: dict[int, list[dict[str, np.ndarray]]] = {at: [] for at in measured}
    heads: dict[int, int] = {}
    for seed in range(seeds):
        e = configured(parts, YEAR, plan, seed, refreshes)
        ledger = Ledger(plan, users)
        chunk = e.registered.training.chunk
        simulation = Simulation(e.clients, plan, users, e.streams, ledger, chunk=chunk, fidelity="analytic")
        for t in range(refreshes):
            simulation.run(e.server, t)
            if t + 1 in found:
                found[t + 1].append(users_of(e))
                heads[t + 1] = len(e.server.public().shared["head"])
    return {
        "noise_multiplier": plan.mechanism.noise_over_clip,
        "noise_of_totals": round(RunningTotals(refreshes).factor, 3),
        "epsilon_charged": ledger.guarantee().epsilon,
        "heads": {str(at): head for at, head in heads.items()},
        "arrived": shares(parts, measured),
        "at": {str(at): averaged(rows) for at, rows in found.items()},
    }


def shares(parts: Split, measured: Sequence[int]) -> dict[str, float]:
    """Share of all training items that have arrived."""
    assert parts.arrived is not None
    return {str(at): round(float(parts.arrived[:, at - 1].sum() / len(parts.train)), 3) for at in measured}


def single(parts: Split, plan: PrivacyPlan, refresh: int, seeds: int) -> Row:
    """One release of what has arrived by a refresh."""
    found, whole = [], replace(parts, arrived=None)
    for seed in range(seeds):
        cut, e = (configured(these, ONCE, plan, seed + 1000 * refresh, 1) for these in (by_then(parts, refresh), whole))
        Simulation(
            cut.clients, plan, parts.train.n_users, cut.streams, Ledger(plan, parts.train.n_users),
            chunk=cut.registered.training.chunk, fidelity="analytic",
        ).run(cut.server, 0)  # fmt: skip
        e.server = cut.server
        found.append(users_of(e))
    return averaged(found)


def singles(parts: Split, plan: PrivacyPlan, measured: Sequence[int], seeds: int) -> Row:
    """A release by itself after each of some refreshes."""
    return {"at": {str(at): single(parts, plan, at, seeds) for at in measured}}


def popular(parts: Split, refresh: int) -> Row:
    """Popularity of what has arrived."""
    e = configured(replace(parts, arrived=None), ONCE, PrivacyPlan.named("none"), 0, 1)
    counts = torch.from_numpy(by_then(parts, refresh).train.popularity()).float()
    state = dict(e.server.state())
    e.server.load(state | {"order": counts / counts.max(), "head": torch.empty(0, dtype=torch.int64)})
    return averaged([users_of(e)])


def rows(name: str, on: str, epsilons: Sequence[float], refreshes: int, seeds: int) -> Rows:
    """All rows, a year at a time."""
    parts = parts_of(name, on, refreshes)
    users, measured = parts.train.n_users, [at for at in AT if at <= refreshes]
    yield "popularity", lambda: {"at": {str(at): popular(parts, at) for at in measured}}
    for epsilon in epsilons:
        once, often = central(epsilon, users), central(epsilon, users, math.sqrt(refreshes))
        yield f"year, epsilon {epsilon:g}", partial(running, parts, epsilon, refreshes, seeds)
        for label, plan in (("independent", often), ("one release", once)):
            yield f"{label}, epsilon {epsilon:g}", partial(singles, parts, plan, measured, seeds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing."""
    parser = harness.parser(__file__, __doc__, data="ml-1m", seeds=3, only=[])
    parser.add_argument("--on", choices=("test", "valid"), default="test", help="part to rank (default: %(default)s)")
    parser.add_argument("--epsilons", nargs="*", type=float, default=[2.0], help="of the year (default: %(default)s)")
    parser.add_argument("--refreshes", type=int, default=52, help="refreshes of the year (default: %(default)s)")
    options = harness.parse(parser, arguments)
    record = harness.Record(f"refreshes_{options.on}_{options.data}", options, [])
    for label, run in rows(options.data, options.on, options.epsilons, options.refreshes, options.seeds):
        if harness.chosen(label, options.only) and not record.has(label=label):
            started = time.process_time()
            row = {"label": label, "refreshes": options.refreshes} | run()
            record.add(row | {"all_cpu_s": round(time.process_time() - started, 2)})


if __name__ == "__main__":
    main()
