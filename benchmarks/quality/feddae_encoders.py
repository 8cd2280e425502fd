"""Figure 3 of FedDAE in numbers: what its shared, local and mixed encoders tell of a user's items.

    python -m benchmarks.quality.feddae_encoders --data ml-100k --seeds 3

The figure draws items by the product of an encoder's layers: those that a user has and all others, in the shared
encoder, in the user's own, in the plain and in the gate's mean of both. Here an item's share of training items among
its nearest ten (itself left out) ranks a user's training items, and the held-out ones, against the items the user has
in no part: AUC, means over a hundred users; how many users have an item ranks them, too. Before the first round all
encoders are random. One layer of width 64, as `feddae personalisation` trains it with an own first layer;
leave-one-out. Results go to `benchmarks/results/feddae_encoders_<data>.json`. One process, one thread.
"""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy.stats import mannwhitneyu

from benchmarks import harness
from benchmarks.quality.feddae import IN_THE_OPEN, LONG, PERSONAL, PROTOCOL
from privfed.data import load
from privfed.experiment import Experiment
from privfed.methods.feddae.client import LOCAL_START, FedDAEClients
from privfed.methods.shared.vae_server import initial_parameters
from privfed.setup.config import ExperimentConfig, TapConfig

METHOD: dict[str, Any] = {**PERSONAL, "local_encoder": "sparse_first_layer", "local_steps": 5}
LATENT, NEAREST, USERS = 64, 10, 100
FIRST = "encoder.0.weight"

Table = Float[np.ndarray, "items latent"]


def tables(experiment: Experiment, user: int) -> dict[str, Table]:
    """Item representations by encoder; rows that a user never reads stay where they began."""
    clients, positives = experiment.clients, experiment.parts.train
    assert isinstance(clients, FedDAEClients)
    begun = initial_parameters(clients.architecture, clients.config, experiment.streams, query_id=LOCAL_START)
    both = experiment.server.public().shared[FIRST], begun[FIRST]
    shared, local = (rows[:, :LATENT].numpy().copy() for rows in both)
    state = clients.state()
    own = np.sort(positives.items_of(user))
    entries = slice(*positives.indptr[user : user + 2].tolist())
    local[own] = state["first.rows"][entries, :LATENT].numpy()
    weight = float(state["gate"][user].softmax(0)[0])
    return {
        "shared": shared,
        "local": local,
        "mean of both": (shared + local) / 2,
        "weighted by the gate": weight * shared + (1 - weight) * local,
    }


def own_among_nearest(table: Table, own: Int64[np.ndarray, " k"]) -> Float[np.ndarray, " items"]:
    """Share of `own` items among the nearest of every item, itself left out."""
    squares = (table**2).sum(1)
    distance = squares[:, None] + squares - 2 * table @ table.T
    np.fill_diagonal(distance, np.inf)
    nearest = np.argpartition(distance, NEAREST, axis=1)[:, :NEAREST]
    share: Float[np.ndarray, " items"] = np.isin(nearest, own).mean(1)
    return share


def separation(experiment: Experiment, users: Sequence[int]) -> dict[str, dict[str, float]]:
    """AUC of training items and of held-out ones against items in no part, by encoder, means over users."""
    parts = experiment.parts
    popularity = np.bincount(parts.train.items, minlength=parts.train.n_items)
    found: dict[str, dict[str, list[float]]] = {}
    for user in users:
        own, held_out = parts.train.items_of(user), np.append(parts.valid.items_of(user), parts.test.items_of(user))
        rest = np.setdiff1d(np.arange(parts.train.n_items), np.append(own, held_out))
        shares = {name: own_among_nearest(table, own) for name, table in tables(experiment, user).items()}
        for encoder, share in {"popularity": popularity, **shares}.items():
            for kind, items in (("training", own), ("held out", held_out)):
                auc = mannwhitneyu(share[items], share[rest]).statistic / (len(items) * len(rest))
                found.setdefault(encoder, {}).setdefault(kind, []).append(float(auc))
    return {encoder: {kind: statistics.fmean(aucs) for kind, aucs in kinds.items()} for encoder, kinds in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure before and after training, for every seed."""
    options = harness.parse(harness.parser(__file__, __doc__, data="ml-100k", seeds=3), arguments)
    interactions = load(options.data)
    record = harness.Record(f"feddae_encoders_{options.data}", options, [])
    for seed, rounds in itertools.product(range(options.seeds), (0, LONG)):
        if record.has(seed=seed, rounds=rounds):
            continue
        config = ExperimentConfig(
            data=options.data, method=METHOD, privacy=IN_THE_OPEN, protocol=PROTOCOL, rounds=LONG, seed=seed,
            fidelity="analytic", taps=TapConfig(places=()), evaluate_every=LONG,
        )  # fmt: skip
        experiment = Experiment.on(config, interactions)
        if rounds:
            experiment.run(parts=())
        users = np.random.default_rng(seed).choice(interactions.n_users, USERS, replace=False)
        record.add({"seed": seed, "rounds": rounds, "users": USERS, "auc": separation(experiment, users.tolist())})


if __name__ == "__main__":
    main()
