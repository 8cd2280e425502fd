"""A SuperLink and four organisations over TLS, node keys checked, one of them killed inside a masked sum.

What comes out is, to the bit, what the same experiment gives over nodes in this process that lose the same organisation
at the same moment: public tensors, ledger, guarantee. About a minute on a quiet machine.
"""

import json
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

import safetensors.torch

from privfed.data import load, split
from privfed.engines.flower import FederationConfig, Trial, share_out
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.run import train
from privfed.evaluation import Protocol
from privfed.experiment import ExperimentConfig, TapConfig
from privfed.privacy import PrivacyPlan

APP = Path(__file__).parents[3] / "examples" / "flower"
NAMES = ("alpha", "beta", "gamma", "delta")
POLICY = """
[policy]
min_nodes = 3
min_threshold = 2
max_epsilon = 100.0
methods = ["popularity"]
protections = ["distributed_gaussian"]
allow_simulation = true
evaluate = true
"""
DYING = """
import os, signal, sys
from pathlib import Path
from privfed.engines.flower.service import NodeService
from privfed.engines.nodes.node import Node

class Dying(Node):
    def handle(self, stage, request):
        if stage == "train.input":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().handle(stage, request)

with NodeService(Dying(Path(sys.argv[1])), Path(sys.argv[2])) as service:
    service.serve()
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folders of nodes and server, and what is trained over them."""
    folder = tmp_path_factory.mktemp("federation")
    config = ExperimentConfig(
        data="synthetic-small",
        method={"name": "popularity"},
        privacy=PrivacyPlan.named(
            "distributed-gaussian", clip_norm=1.0, noise_multiplier=2.0, n_min_honest=60, delta=1e-6
        ),
        protocol=Protocol(k=(20,), state="received"),
        rounds=1,
        taps=TapConfig(places=()),
    )
    parts = split(load("synthetic-small"), config.split)
    for place in ("flower", "here"):
        share_out(parts, POLICY, folder / place, NAMES)
    return folder, config


def test_a_killed_organisation_changes_nothing_but_who_is_in_the_sum(prepared):
    folder, config = prepared
    server = folder / "flower" / "server"
    federation = FederationConfig(
        experiment=config, data=server, folder=folder / "run", nodes=len(NAMES), wait=120, timeout=60,
        dropout=0.3, seeded=True,
    )  # fmt: skip
    (folder / "federation.json").write_text(json.dumps({"federation": federation.model_dump(mode="json")}))
    (folder / "dying.py").write_text(textwrap.dedent(DYING))
    with Trial(folder / "trial", NAMES) as trial:
        for name in NAMES:
            dying = [sys.executable, str(folder / "dying.py"), str(folder / "flower" / name)]
            trial.start_node(name, folder / "flower" / name, dying if name == "delta" else ())
        trial.start_superlink()
        trial.start_supernodes()
        trial.wait_for_nodes()
        path = json.dumps(str(folder / "federation.json"))
        trial.flwr("run", str(APP), "trial", "--run-config", f"federation={path}", "--stream", timeout=600)
        killed = trial.processes["node-delta"].wait(5)
    assert killed == -9
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["lost_rounds"] == 0
    assert result["missing"] >= 1

    order = result["nodes"]
    here = {node: Node(folder / "here" / name) for node, name in zip(order, _named(order, folder), strict=True)}
    delta = next(node for node, handler in here.items() if handler.folder.name == "delta")
    reference = train(
        config,
        NodeData.load(folder / "here" / "server"),
        InProcess(here, faults=lambda node, stage: "drop" if (node, stage) == (delta, "train.input") else None),
        folder / "reference",
        seeded=True,
        dropout=0.3,
    )
    trained = safetensors.torch.load_file(folder / "run" / "checkpoint" / "server.safetensors")
    expected = reference.server.state()
    assert trained.keys() == expected.keys()
    assert all(trained[name].equal(value) for name, value in expected.items())
    ledgers = [(folder / place / "ledger.jsonl").read_text() for place in ("run", "reference")]
    assert ledgers[0] == ledgers[1]
    assert result["guarantee"] == json.loads(reference.guarantee.model_dump_json())


def _named(order, folder):
    """Names of nodes by their ids, which follow from their keys."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

    from privfed.engines.flower import TrialKeys, node_id

    keys, names = TrialKeys(folder / "trial" / "keys"), {}
    for name in NAMES:
        public = load_ssh_public_key(keys.public(name).read_bytes())
        names[node_id(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))] = name
    return [names[node] for node in order]
