"""What FedDAE's gates learn, by how active people are.

    python -m benchmarks.quality.feddae_gates --data ml-100k --seeds 3

The paper says that the gate adapts to each user. Here is the weight that it gives to the shared encoder after training,
of four groups of equally many people from the least to the most active: mean and standard deviation over people. Both
start at a half. Trained as `feddae_encoders` trains, with an own first layer, and with an own vector alone, as the
default is; NDCG@20 of every group stands beside it, as does popularity's. Results go to
`benchmarks/results/feddae_gates_<data>.json`. One process, one thread.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from benchmarks import harness
from benchmarks.quality.feddae import IN_THE_OPEN, LONG, PERSONAL, PROTOCOL
from benchmarks.quality.feddae_encoders import METHOD
from privfed.data import load
from privfed.evaluation import RoundEvaluation
from privfed.experiment import Experiment
from privfed.methods.feddae.client import FedDAEClients
from privfed.setup.config import ExperimentConfig, TapConfig

POPULARITY = "popularity"
METHODS: Mapping[str, dict[str, Any]] = {
    POPULARITY: {"name": POPULARITY},
    "own vector": {**PERSONAL, "local_steps": 5},
    "own first layer": METHOD,
}
GROUPS = 4


def groups(counts: Int64[np.ndarray, " users"]) -> list[Int64[np.ndarray, " some"]]:
    """Users from the least to the most active, in groups of equal size."""
    return np.array_split(np.argsort(counts, kind="stable"), GROUPS)


def weights(experiment: Experiment) -> Float[np.ndarray, " users"]:
    """Weight of the shared encoder in everybody's mean."""
    clients = experiment.clients
    assert isinstance(clients, FedDAEClients)
    found: Float[np.ndarray, " users"] = clients.state()["gate"].softmax(1)[:, 0].double().numpy()
    return found


def ndcg(evaluated: RoundEvaluation, users: int) -> Float[np.ndarray, " users"]:
    """NDCG of everybody; all people have a held-out item here."""
    assert evaluated.by_user is not None
    assert len(evaluated.by_user[2]) == users
    return evaluated.by_user[2]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every form once per seed."""
    options = harness.parse(harness.parser(__file__, __doc__, data="ml-100k", seeds=3), arguments)
    interactions = load(options.data)
    record = harness.Record(f"feddae_gates_{options.data}", options, [])
    for seed, (name, method) in itertools.product(range(options.seeds), METHODS.items()):
        if record.has(seed=seed, form=name):
            continue
        rounds = 1 if name == POPULARITY else LONG
        config = ExperimentConfig(
            data=options.data, method=method, privacy=IN_THE_OPEN, protocol=PROTOCOL.model_copy(update={"k": (20,)}),
            rounds=rounds, seed=seed, fidelity="analytic", taps=TapConfig(places=()), evaluate_every=rounds,
        )  # fmt: skip
        experiment = Experiment.on(config, interactions)
        quality = ndcg(experiment.run().selected, interactions.n_users)
        counts = np.diff(experiment.parts.train.indptr)
        gates = None if name == POPULARITY else weights(experiment)
        rows = [
            {
                "items": [int(counts[users].min()), int(counts[users].max())],
                "ndcg@20": float(quality[users].mean()),
                "weight": None if gates is None else [float(gates[users].mean()), float(gates[users].std())],
            }
            for users in groups(counts)
        ]
        record.add({"seed": seed, "form": name, "users": len(counts), "groups": rows})


if __name__ == "__main__":
    main()
