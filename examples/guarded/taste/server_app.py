"""The server's half: FedAvg, and a look at public users of its own after every round."""

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write the metrics of every round where the run's configuration names a file."""
    config = context.run_config
    nodes = int(config.get("num-nodes", 2))
    strategy = FedAvg(
        fraction_evaluate=float(config["fraction-evaluate"]), min_train_nodes=nodes, min_available_nodes=nodes
    )

    def on_public_users(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        del server_round
        net = task.Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"hit-rate": task.test(net, *task.load_data(nodes, nodes + 1))})

    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.Net().state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=on_public_users,
    )
    if config["result"]:
        found = {
            "public": [dict(metrics) for metrics in result.evaluate_metrics_serverapp.values()],
            "training": [dict(metrics) for metrics in result.train_metrics_clientapp.values()],
            "evaluation": [dict(metrics) for metrics in result.evaluate_metrics_clientapp.values()],
        }
        Path(str(config["result"])).write_text(json.dumps(found))
