"""FedNCF in Flower's simulation: one ClientApp per user, FedAvg over everybody, the user's vector in its context.

    PEER_DATA=... PEER_MARK=... python -m benchmarks.peers.fedncf.with_flower ROUNDS SEED

runs where Flower is installed and prints one line of JSON: CPU-seconds of a round over all processes of the simulation
(the first round, in which they start, and the last, which is evaluated, left out), and HR@10 and NDCG@10 of the models
that clients have after their last local epoch.
"""

import importlib
import json
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.fedncf.plain import FedNCF, Marks, epoch, first_vector, rank, samples, world

client, server = ClientApp(), ServerApp()


@cache
def scratch() -> FedNCF:
    """The model that a process fills anew for every client."""
    return FedNCF(world().n_items)


@client.train()
def train(message: Message, context: Context) -> Message:
    """One local epoch; the last round also ranks the test item."""
    torch.set_num_threads(1)
    user, config = int(str(context.node_config["partition-id"])), message.content.config_records["config"]
    number, rounds, seed = (int(str(config[name])) for name in ("server-round", "rounds", "seed"))
    model = scratch()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    kept = context.state.array_records.get("vector")
    vector = first_vector(user) if kept is None else kept.to_torch_state_dict()["vector"]
    vector.requires_grad_()
    epoch(model, vector, *samples(user, np.random.default_rng([2, seed, number, user])))
    context.state["vector"] = ArrayRecord({"vector": vector.detach()})
    metrics: dict[str, int | float | list[int] | list[float]] = {"clients": 1}
    found = rank(model, user, vector) if number == rounds else None
    metrics |= {"ranked": float(found is not None)}
    metrics |= dict(zip(("hit", "gain"), found or (0.0, 0.0), strict=True))
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)


class Marked(FedAvg):
    """FedAvg that notes the clock after every round."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0, weighted_by_key="clients")
        self.marks, self.found = Marks(), MetricRecord()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As FedAvg; then note."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.marks.mark()
        self.found = metrics or MetricRecord()
        return arrays, metrics


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, then one line of JSON."""
    del context
    rounds, seed = map(int, sys.argv[1:])
    torch.manual_seed(seed)
    strategy = Marked()
    arrays = ArrayRecord(FedNCF(world().n_items).state_dict())
    strategy.start(grid, arrays, num_rounds=rounds, train_config=ConfigRecord({"rounds": rounds, "seed": seed}))
    share, hit, gain = (float(str(strategy.found[name])) for name in ("ranked", "hit", "gain"))
    row = strategy.marks.rows(left_out=1) | {
        "clients": world().n_users,
        "hr": hit / share,
        "ndcg": gain / share,
        "trained": rounds,
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    apps = importlib.import_module("benchmarks.peers.fedncf.with_flower")
    # Ray's processes find the apps by name, in a module that they can import.
    users = world().n_users
    one_core: dict[str, dict[str, Any]] = {"client_resources": {"num_cpus": 1}}
    run_simulation(apps.server, apps.client, users, backend_config=one_core)
