"""The nodes' half: trains on the node's users, and measures on them."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from . import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model for some epochs."""
    net, (taken, _) = _received(message), _own(context)
    loss = task.train(net, taken, int(context.run_config["local-epochs"]), float(context.run_config["learning-rate"]))
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(taken)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Measure the received model."""
    taken, held_out = _own(context)
    metrics = MetricRecord({"hit-rate": task.test(_received(message), taken, held_out), "num-examples": len(taken)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def _received(message: Message) -> task.Net:
    net = task.Net()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return net


def _own(context: Context) -> tuple[Tensor, Tensor]:
    """The node's users; one part more is the server's, whose users are public."""
    return task.load_data(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]) + 1)
