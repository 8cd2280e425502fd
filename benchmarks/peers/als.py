"""Alternating least squares on implicit feedback: our iALS and eALS, implicit's and LensKit's, time beside quality.

    python -m benchmarks.peers.als WHO DATA             # ials, eals, implicit or lenskit; one line of JSON
    python -m benchmarks.peers.als WHO DATA --choose    # NDCG@10 of the validation items for every setting of the grid

All have 64 columns and 16 passes over users and items, on one thread, of the same leave-one-out split; the test item of
a user is ranked among all items that it has not in training or validation. CPU-seconds are those of a pass, without
reading and ranking. Ours minimise with float64, implicit by three steps of conjugate gradients, LensKit by Cholesky.
The grid has six settings for each: three weights of what was or was not taken, and two strengths of regularisation.
`SETTINGS` has those with the highest NDCG@10 on the validation items of MovieLens-100K, used on every data set.
"""

import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks import harness
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.evaluation import Part, Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

DIM, PASSES, K = 64, 16, 10
Settings = dict[str, float]
GRID: dict[str, list[Settings]] = {
    "ials": [{"unobserved": a, "regularisation": r} for a in (0.1, 0.25, 0.5) for r in (0.005, 0.02)],
    "eals": [{"c0": c, "reg": r} for c in (100.0, 300.0, 900.0) for r in (1.0, 10.0)],
    "implicit": [{"alpha": w, "regularization": r} for w in (2.0, 4.0, 10.0) for r in (1.0, 10.0)],
    "lenskit": [{"weight": w, "regularization": r} for w in (2.0, 4.0, 10.0) for r in (1.0, 10.0)],
}
SETTINGS: dict[str, Settings] = {
    "ials": {"unobserved": 0.5, "regularisation": 0.005},
    "eals": {"c0": 300.0, "reg": 10.0},
    "implicit": {"alpha": 2.0, "regularization": 10.0},
    "lenskit": {"weight": 4.0, "regularization": 1.0},
}
"""Chosen from `GRID`."""


def ranked(user: np.ndarray, item: np.ndarray, held: Histories, known: list[Histories]) -> dict[str, float]:
    """Hit rate and NDCG of the one held-out item of every user, among items that are in none of the known lists."""
    hits, gains = [], []
    for owner, target in zip(held.owners.tolist(), held.items.tolist(), strict=True):
        scores = item @ user[owner]
        mine = scores[target]
        for lists in known:
            scores[lists.items[lists.indptr[owner] : lists.indptr[owner + 1]]] = -np.inf
        place = int((scores > mine).sum())
        hits.append(place < K)
        gains.append(1 / np.log2(place + 2) if place < K else 0.0)
    return {"hr": float(np.mean(hits)), "ndcg": float(np.mean(gains))}


def ours(name: str, data: str, settings: Settings, part: Part) -> dict[str, float]:
    """A reference of ours, by its own evaluation."""
    method = {"name": name, **settings}
    config = ExperimentConfig(
        data=data,
        method=method,
        privacy=PrivacyPlan.named("none", release="individual"),
        protocol=Protocol(k=(K,)),
        rounds=PASSES,
        evaluate_every=PASSES,
        taps=TapConfig(places=()),
    )
    clock = [time.process_time()]
    experiment = Experiment.on(config, load(data))
    result = experiment.run(progress=lambda *_: clock.append(time.process_time()), parts=(part,))
    # The first pass collects the lists, and the last one ends with the evaluation.
    found = result.selected.results[part]
    seconds = [after - before for before, after in pairwise(clock[1:-1])]
    return {"cpu_s": median(seconds), "hr": found.metric("hr", K).value, "ndcg": found.metric("ndcg", K).value}


def popularity(parts: Split, part: Part) -> dict[str, float]:
    """By the ranking of peers; ours says the same of ours."""
    counts = np.bincount(parts.train.items, minlength=parts.train.n_items).astype(np.float64)
    return theirs(parts, part, np.ones((parts.train.n_users, 1)), counts[:, None])


def theirs(parts: Split, part: Part, user: np.ndarray, item: np.ndarray) -> dict[str, float]:
    """Quality by factors."""
    known = [parts.train] if part == "valid" else [parts.train, parts.valid]
    return ranked(user, item, getattr(parts, part), known)


def by_implicit(parts: Split, settings: Settings, part: Part) -> dict[str, float]:
    """The ALS of implicit."""
    from implicit.cpu.als import AlternatingLeastSquares  # noqa: PLC0415

    train = parts.train
    ones = np.ones(len(train), np.float32)
    matrix = csr_matrix((ones, train.items, train.indptr), shape=(train.n_users, train.n_items))
    model = AlternatingLeastSquares(
        factors=DIM, iterations=PASSES, num_threads=1, random_state=0, calculate_training_loss=False, **settings
    )
    began = time.process_time()
    model.fit(matrix, show_progress=False)
    seconds = (time.process_time() - began) / PASSES
    return {"cpu_s": seconds, **theirs(parts, part, np.asarray(model.user_factors), np.asarray(model.item_factors))}


def by_lenskit(parts: Split, settings: Settings, part: Part) -> dict[str, float]:
    """The ALS of LensKit."""
    import pandas as pd  # noqa: PLC0415
    from lenskit.als import ImplicitMFScorer  # noqa: PLC0415
    from lenskit.data import from_interactions_df  # noqa: PLC0415
    from lenskit.training import TrainingOptions  # noqa: PLC0415

    train = parts.train
    frame = pd.DataFrame({"user_id": train.owners, "item_id": train.items})
    users, items = np.arange(train.n_users), np.arange(train.n_items)
    data = from_interactions_df(frame, users=users, items=items)
    scorer = ImplicitMFScorer(embedding_size=DIM, epochs=PASSES, **settings)
    began = time.process_time()
    scorer.train(data, TrainingOptions(rng=0))
    seconds = (time.process_time() - began) / PASSES
    user, item = np.zeros((train.n_users, DIM)), np.zeros((train.n_items, DIM))
    user[scorer.users.ids()], item[scorer.items.ids()] = scorer.user_embeddings, scorer.item_embeddings
    return {"cpu_s": seconds, **theirs(parts, part, user, item)}


PEERS: dict[str, Callable[[Split, Settings, Part], dict[str, float]]] = {
    "implicit": by_implicit,
    "lenskit": by_lenskit,
}


def measured(who: str, data: str, settings: Settings, part: Part = "test") -> dict[str, Any]:
    """A pass in CPU-seconds, and quality after the last one."""
    if who not in PEERS:
        return ours(who, data, settings | {"dim": DIM}, part)
    parts = split(load(data), SplitSpec())
    popular = {f"popularity_{name}": value for name, value in popularity(parts, part).items()}
    return PEERS[who](parts, settings, part) | popular


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one, or choose its settings."""
    parser = harness.parser(__file__, __doc__)
    parser.add_argument("who", choices=GRID)
    parser.add_argument("data")
    parser.add_argument("--choose", action="store_true", help="print the validation NDCG@10 of every setting")
    given = harness.parse(parser, arguments)
    if given.choose:
        for settings in GRID[given.who]:
            row = measured(given.who, given.data, settings, "valid")
            print(json.dumps(settings | {name: row[name] for name in ("ndcg", "cpu_s")}), flush=True)
    else:
        print(json.dumps(measured(given.who, given.data, SETTINGS[given.who]) | SETTINGS[given.who]))


if __name__ == "__main__":
    main()
