"""Flower without its processes: messages can be made, and a Grid is answered by functions. And a stranger."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOREIGN_APP = """[project]
name = "foreign"
version = "1.0.0"
description = "An app that nobody asked for."
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41,<2"]
[tool.flwr.app]
publisher = "stranger"
fab-format-version = 1
flwr-version-target = "1.41.0"
components = { serverapp = "foreign.app:server", clientapp = "foreign.app:client" }
"""
FOREIGN_CODE = """from pathlib import Path
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
Path({ran!r}).touch()
server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    pass
"""


@pytest.fixture
def stranger(tmp_path):
    """Flower's own commands, given by somebody who has an address and the authority's certificate."""
    from privfed.engines.flower.keys import node_keys

    return Stranger(tmp_path / "stranger", node_keys(tmp_path / "stranger" / "key"))


class Stranger:
    """Somebody with a key pair of his own and an app of his own.

    Attributes:
        ran: a file that exists once that app's code ran anywhere.
        key: his private key.
    """

    def __init__(self, folder, public):
        self.folder, self.ran, self.key = folder, folder / "ran", folder / "key" / "node.key"
        app = folder / "app" / "foreign"
        app.mkdir(parents=True)
        (app.parent / "pyproject.toml").write_text(FOREIGN_APP)
        (app.parent / "LICENSE").write_text("none")
        (app / "__init__.py").touch()
        (app / "app.py").write_text(FOREIGN_CODE.format(ran=str(self.ran)))
        self.commands = {
            "register": ("supernode", "register", str(public), "there"),
            "run": ("run", str(app.parent), "there"),
            "list": ("ls", "there"),
            "nodes": ("supernode", "list", "there"),
            "log": ("log", "1", "there", "--show"),
            "stop": ("stop", "1", "there"),
        }

    def tries(self, address, authority, *names):
        """Exit code and output of each command, of all where none is named."""
        (self.folder / "config.toml").write_text(
            f'[superlink]\ndefault = "there"\n[superlink.there]\naddress = "{address}"\n'
            f'root-certificates = "{authority}"\n'
        )
        return {name: self._run(self.commands[name]) for name in names or self.commands}

    def _run(self, command):
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(self.folder)}
        flwr = Path(sys.executable).parent / "flwr"
        ended = subprocess.run(
            [flwr, *command], env=os.environ | quiet, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr


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
