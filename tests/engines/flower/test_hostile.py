"""Ten lies over real Flower: a server that lies to three organisations, and a fourth that lies to the server.

One deployment and one run for all of them. Its app is the test's own: the server sends its lies under the federation's
server key through Flower's Grid, then counts items over four honest rounds in which `delta` lies in each. What a node
says, what the server adds up and what every ledger holds afterwards is what it is in process.
"""

import json
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

from privfed.data import load, split
from privfed.engines.flower.trial import Trial, share_out
from privfed.evaluation import Protocol
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

pytestmark = pytest.mark.flower

NAMES = ("alpha", "beta", "gamma", "delta")
LONG = 400
POLICY = """
[policy]
methods = ["popularity"]
mechanisms = ["unprotected"]
allow_simulation = true
max_message_mib = 4
"""
PROJECT = """[project]
name = "hostile"
version = "1.0.0"
description = "An app whose server lies."
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41,<2"]
[tool.flwr.app]
publisher = "liar"
fab-format-version = 1
flwr-version-target = "1.41.0"
components = { serverapp = "hostile.app:server", clientapp = "hostile.app:client" }
config = { federation = "" }
"""
APP = '''
import json
from pathlib import Path
import torch
from flwr.serverapp import ServerApp
from privfed.contracts import Block
from privfed.engines.flower.client import client_app
from privfed.engines.flower.transport import FlowerTransport
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Address, Packet
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.federation import Message
from privfed.guards.server_guard import ServerGuard
from privfed.privacy import Ledger
from privfed.setup.config import ExperimentConfig

client = client_app()
server = ServerApp()
FORGERY = "\\x1b[2J\\n2026-01-01 INFO all is well"


class Liar:
    """The federation's server, who says to each organisation what he likes."""

    def __init__(self, grid, folder, config):
        self.transport, self.party, self.data = FlowerTransport(grid), Party.load(folder), NodeData.load(folder)
        self.announced = Announcement.from_config(config, self.data, self.party.federation, seeded=True)
        self.nodes, self.nonces, self.counter = {}, {}, 0

    def exchange(self, stage, frames):
        """What each seat answers to its frame."""
        replies = self.transport.exchange(stage, {self.nodes[seat]: frame for seat, frame in frames.items()}, 120.0)
        told = {}
        for seat, frame in frames.items():
            packet = codec.answer(self.party.unframe("reply", replies[self.nodes[seat]], seat), frame)
            told[seat] = [packet.fields.get("code"), str(packet.fields["refused"]), len(packet.arrays)]
        return told

    def join(self):
        self.counter += 1
        for node in self.transport.wait_for(4, 300.0):
            address = Address(self.announced.run, -1, self.counter, "train.announce")
            said = {"counted": None, "announcement": self.announced.model_dump(mode="json")}
            frame = self.party.frame("request", codec.request(address, said))
            reply = self.transport.exchange("train.announce", {node: frame}, 120.0)[node]
            packet = Packet.decode(reply[:-64])
            seat = packet.whole("seat")
            self.party.verify("reply", reply[:-64], reply[-64:], seat)
            self.nodes[seat], self.nonces[seat] = node, packet.text("nonce")

    def frame(self, seat, *, step="count", users=None, stage="train.clear", signer=None, **address):
        self.counter += 1
        hosted = self.party.federation.users(seat) if users is None else users
        schema = {"counts": Block((self.data.items, 1), bound=1)}
        query = Query(step, 0, 0, 0, hosted, Message({}), schema, announced=self.announced.digest)
        place = query.address(self.announced.run, seat, self.counter, stage, self.nonces[seat])
        bound = {name: getattr(place, name) for name in Address.__slots__} | address
        fields = {"address": bound, "counted": None, **query.fields(), "each": False}
        return (signer or self.party).frame("request", Packet(fields).encode())


class Counting:
    """A server whose sums are counts of items."""

    def __init__(self, items):
        self.schema, self.sums = {"counts": Block((items, 1), bound=1)}, []

    def round(self, federation, t):
        total = federation.aggregate("count", federation.sample_cohort(t), Message({}), self.schema)
        self.sums.append(total.sums["counts"][:, 0].tolist())

    def state(self):
        return {}


@server.main()
def main(grid, context):
    about = json.loads(Path(context.run_config["federation"]).read_text())
    config = ExperimentConfig.model_validate(about["experiment"])
    liar = Liar(grid, Path(about["server"]), config)
    liar.join()
    told = {}
    one = liar.party.federation.users(1)[:1]
    organisation = Party.load(Path(about["delta"]))
    answers = liar.exchange("train.clear", {
        0: liar.frame(0)[:-64] + bytes(64), 1: liar.frame(1, users=one), 2: liar.frame(2, step="steal")})
    told |= dict(zip(("nobody signed", "one user alone", "no such step"), answers.values()))
    answers = liar.exchange("train.clear", {
        0: liar.frame(0, signer=organisation), 1: liar.frame(1, counter=-2), 2: liar.frame(2, model=FORGERY)})
    told |= dict(zip(("an organisation signed", "a negative counter", "another model"), answers.values()))
    announced = Announcement.from_config(config, liar.data, liar.party.federation, seeded=True)
    assembly = announced.assemble(liar.data, bytes(32))
    guard = ServerGuard(config.privacy, Ledger(config.privacy, liar.data.population), assembly.streams)
    remote = RemoteFederation(liar.transport, announced, liar.party, guard, timeout=120)
    counting = Counting(liar.data.items)
    opened = [remote.run(counting, t) for t in range(4)]
    incidents = [[i.node, i.stage, i.reason] for i in remote.incidents]
    Path(about["result"]).write_text(json.dumps(
        {"told": told, "opened": opened, "sums": counting.sums, "incidents": incidents, "honest": announced.run,
         "lying": liar.announced.run}))
'''
LYING = """
import sys
from pathlib import Path
import numpy as np
from privfed.engines.flower.service import LARGEST, Limits, NodeService
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.node import Node

def numbers(packet):
    return Packet(packet.fields, {"block/counts": np.full_like(packet.arrays["block/counts"], 1e300)})

LIES = [
    numbers,
    lambda packet: Packet({**packet.fields, "refused": "\\x1b[2J\\nall is well", "counter": 2**62}),
    lambda packet: Packet({**packet.fields, "seat": 0}, packet.arrays),
    lambda packet: Packet({**packet.fields, "within": 10**6}, packet.arrays),
]

class Lying(Node):
    def handle(self, stage, request):
        reply = super().handle(stage, request)
        packet = Packet.decode(reply[:-64])
        if stage != "train.clear" or packet.fields["refused"] is not None:
            return reply
        return self.party.frame("reply", LIES.pop(0)(packet).encode())

with NodeService(Lying(Path(sys.argv[1])), Path(sys.argv[2]), Limits(LARGEST)) as service:
    service.serve()
"""
REFUSED = {
    "nobody signed": ("bad_signature", "not signed by server"),
    "one user alone": ("refused", "leaves users out"),
    "no such step": ("refused", "no step"),
    "an organisation signed": ("bad_signature", "not signed by server"),
    "a negative counter": ("bad_message", "bad counter"),
    "another model": ("bad_message", "the model in the query is not the one"),
}
DROPPED = ("float32", r"\x1b[2J\nall is well", "another organisation", "within")


@pytest.fixture(scope="module")
def parts():
    return split(load("synthetic-small"), experiment().split)


@pytest.fixture(scope="module")
def told(parts, tmp_path_factory):
    """What the whole run came to; it is played once for all tests."""
    folder = tmp_path_factory.mktemp("hostile")
    share_out(parts, POLICY, folder / "nodes", NAMES)
    app = folder / "app" / "hostile"
    app.mkdir(parents=True)
    (app.parent / "pyproject.toml").write_text(PROJECT)
    (app.parent / "LICENSE").write_text("none")
    (app / "__init__.py").touch()
    (app / "app.py").write_text(APP)
    (folder / "lying.py").write_text(LYING)
    about = {name: str(folder / "nodes" / name) for name in ("server", "delta")} | {
        "result": str(folder / "result.json")
    }
    about["experiment"] = experiment().model_dump(mode="json")
    (folder / "about.json").write_text(json.dumps(about))
    with Trial(folder / "trial", NAMES) as trial:
        for name in NAMES:
            lying = [sys.executable, str(folder / "lying.py"), str(folder / "nodes" / name)]
            trial.start_node(name, folder / "nodes" / name, lying if name == "delta" else ())
        trial.start_superlink()
        trial.start_gateway()
        trial.start_supernodes()
        trial.wait_for_nodes()
        trial.start_run("run", app.parent, folder / "about.json")
        code = trial.wait("run", LONG)
        logs = {path.stem: path.read_text() for path in (folder / "trial" / "logs").iterdir()}
    assert code == 0, logs["run"]
    assert (folder / "result.json").exists(), logs["run"]
    return json.loads((folder / "result.json").read_text()) | {"logs": logs, "folder": folder}


@pytest.mark.parametrize("lie", REFUSED)
def test_a_lying_server_is_refused_and_charges_nothing(told, lie):
    code, words = REFUSED[lie]
    given, said, arrays = told["told"][lie]
    assert (given, arrays) == (code, 0)
    assert words in said
    for name in NAMES:
        assert entries(told["folder"] / "nodes" / name, told["lying"]) == 0


@pytest.mark.parametrize("t", range(4), ids=("huge numbers", "a huge counter", "another's seat", "too many users"))
def test_a_lying_node_is_left_out_of_the_sum_and_nobody_else_is(told, parts, t):
    assert told["opened"][t]
    node, stage, reason = told["incidents"][t]
    assert (node, stage) == ("delta", "train.clear")
    assert DROPPED[t] in reason
    honest = np.concatenate([np.arange(place, parts.train.n_users, 4) for place in range(3)])
    held = np.zeros(parts.train.n_items)
    np.add.at(held, parts.train.subset(np.sort(honest)).items, 1)
    assert told["sums"][t] == held.tolist()
    assert [entries(told["folder"] / "nodes" / name, told["honest"]) for name in NAMES] == [4] * 4


def test_no_log_has_a_line_that_a_liar_wrote(told):
    assert not any(
        line.startswith("all is well") or "\x1b[2J" in line
        for log in told["logs"].values()
        for line in log.splitlines()
    )


def entries(folder, run):
    """How many queries of a run a node has recorded."""
    ledger = folder / f"ledger-{run}.jsonl"
    return len(ledger.read_text().splitlines()) - 1 if ledger.exists() else 0


def experiment():
    return ExperimentConfig(
        data="synthetic-small", method={"name": "popularity"}, privacy=PrivacyPlan.named("none"),
        protocol=Protocol(k=(20,), state="received"), rounds=10, taps=TapConfig(places=()),
    )  # fmt: skip
