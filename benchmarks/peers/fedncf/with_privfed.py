"""Our side of the comparison with peers: the data they read, and our FedNCF, round by round, on one thread.

python -m benchmarks.peers.fedncf.with_privfed write FILE      histories of MovieLens-100K for `plain.World`
python -m benchmarks.peers.fedncf.with_privfed fedncf ROUNDS   one line of JSON, as the peers print it
"""

import json
import statistics
import sys
import time
from itertools import pairwise

import numpy as np
import torch

from privfed.data import Histories, SplitSpec, load, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

DATA = "ml-100k"


def one_each(held: Histories) -> np.ndarray:
    """The one held-out item of every user, -1 where there is none."""
    items = np.full(held.n_users, -1)
    items[held.owners] = held.items
    return items


def write(file: str) -> None:
    """Write the histories."""
    parts = split(load(DATA), SplitSpec())
    np.savez(
        file,
        offsets=parts.train.indptr,
        items=parts.train.items,
        test=one_each(parts.test),
        valid=one_each(parts.valid),
        n_items=parts.train.n_items,
    )
    print("{}")


def fedncf(rounds: int, seed: int) -> dict[str, float]:
    """Train; the last round is evaluated and not timed."""
    torch.set_num_threads(1)
    config = ExperimentConfig(
        data=DATA,
        method={"name": "fedncf"},
        privacy=PrivacyPlan.named("none", release="total"),
        protocol=Protocol(k=(10,)),
        rounds=rounds,
        seed=seed,
        evaluate_every=rounds,
        taps=TapConfig(places=()),
    )
    experiment = Experiment.on(config, load(DATA))
    cpu, wall = [time.process_time()], [time.perf_counter()]

    def note(t: int, evaluated: object) -> None:
        del t, evaluated
        cpu.append(time.process_time())
        wall.append(time.perf_counter())

    result = experiment.run(progress=note, parts=("test",))
    popular = Experiment.on(config.model_copy(update={"method": {"name": "popularity"}, "rounds": 1}), load(DATA))
    baseline = popular.run(parts=("test",)).test
    spent = {
        name: [after - before for before, after in pairwise(clock)]
        for name, clock in (("cpu_s", cpu), ("wall_s", wall))
    }
    return {name: statistics.fmean(seconds[1:-1]) for name, seconds in spent.items()} | {
        "cpu_s_first": spent["cpu_s"][0],
        "rounds": rounds - 2,
        "clients": experiment.n_users,
        "hr": result.test.metric("hr", 10).value,
        "ndcg": result.test.metric("ndcg", 10).value,
        "popularity_hr": baseline.metric("hr", 10).value,
        "popularity_ndcg": baseline.metric("ndcg", 10).value,
        "trained": rounds,
    }


def main() -> None:
    """Do one of the two."""
    what, *arguments = sys.argv[1:]
    if what == "write":
        write(*arguments)
    else:
        print(json.dumps(fedncf(*map(int, arguments))))


if __name__ == "__main__":
    main()
