"""Flower without its processes: messages can be made, and a Grid is answered by functions."""

import pytest


@pytest.fixture
def in_a_run(monkeypatch):
    """Flower lets messages be made inside a run only."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def superlink(in_a_run):
    """A SuperLink with nodes that each answer in their own way; a way is a function of the request."""
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.serverapp import Grid

    class SuperLink(Grid):
        run = property(lambda self: None)

        def __init__(self, ways, numbers=None):
            self.ways, self.sent, self.delivered = ways, {}, set()
            self.numbers = numbers or {name: 2**63 + place for place, name in enumerate(ways)}

        def set_run(self, run):
            raise NotImplementedError

        def create_message(self, *args, **kwargs):
            raise NotImplementedError

        def get_node_ids(self):
            raise NotImplementedError

        def send_and_receive(self, *args, **kwargs):
            raise NotImplementedError

        def get_nodes(self):
            return [NodeInfo(node_id=self.numbers[name], public_key=name.encode()) for name in self.ways]

        def push_messages(self, messages):
            ids = []
            for message in messages:
                name = next(name for name, number in self.numbers.items() if number == message.metadata.dst_node_id)
                message.metadata.__dict__["_message_id"] = f"{name}-{len(self.sent)}"
                self.sent[message.metadata.message_id] = (name, message)
                ids.append(message.metadata.message_id)
            return ids

        def pull_messages(self, ids):
            out = []
            for message_id in set(ids) - self.delivered:
                name, message = self.sent[message_id]
                reply = self.ways[name](message)
                if reply is not None:
                    self.delivered.add(message_id)
                    out.append(reply)
            return out

    return SuperLink
