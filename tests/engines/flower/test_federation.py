"""A SuperLink and three organisations over TLS, node keys checked; one is killed with a masked sum's ask in its hands.

Started again, it goes on from its folder, and the sum is whole: public tensors, ledgers, guarantee and the quality that
one more noisy sum tells are, to the bit, those of the same experiment over nodes in this process that nothing happened
to. Meanwhile a stranger tries to join, to list, to read, to stop and to run an app of his own, and fails. A dozen
exchanges, which Flower answers with a process for each organisation; nothing here waits for a time-out unless the test
is about to fail.
"""

import json
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

import numpy as np
import safetensors.torch

from privfed.data import SplitSpec, load, split
from privfed.engines.flower.server import FederationConfig
from privfed.engines.flower.trial import Trial, share_out
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.open_histories import read_open_histories
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.run import train
from privfed.evaluation import Protocol
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

pytestmark = pytest.mark.flower

APP = Path(__file__).parents[3] / "examples" / "flower"
NAMES = ("alpha", "beta", "gamma")
PATIENCE, LONG = 240, 300
POLICY = """
[policy]
min_nodes = 3
min_threshold = 2
max_epsilon = 100.0
methods = ["popularity"]
mechanisms = ["distributed_gaussian"]
own_noise_suffices = false
allow_simulation = true
donors = "1,4-7"
"""
OPENED = (1, 5)
DYING = """
import os, signal, sys
from pathlib import Path
from privfed.engines.flower.service import LARGEST, Limits, NodeService
from privfed.engines.nodes.node import Node

class Dying(Node):
    def handle(self, stage, request):
        if stage == "train.input":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().handle(stage, request)

with NodeService(Dying(Path(sys.argv[1])), Path(sys.argv[2]), Limits(LARGEST)) as service:
    service.serve()
"""


@pytest.fixture
def trial(tmp_path):
    """All processes of a federation but the run; gamma's dies when it is asked for its masked input."""
    parts = split(load("synthetic-small"), SplitSpec())
    for place in ("flower", "here"):
        share_out(parts, POLICY, tmp_path / place, NAMES)
    own = parts.train.subset(np.array(OPENED))
    pairs = [f"{OPENED[row]},{item}" for row, item in zip(own.owners, own.items, strict=True)]
    (tmp_path / "donors.csv").write_text("\n".join(["user,item", *pairs]))
    (tmp_path / "dying.py").write_text(DYING)
    with Trial(tmp_path / "trial", NAMES) as trial:
        for name in NAMES:
            dying = [sys.executable, str(tmp_path / "dying.py"), str(tmp_path / "flower" / name)]
            trial.start_node(name, tmp_path / "flower" / name, dying if name == "gamma" else ())
        trial.start_superlink()
        trial.start_gateway()
        trial.start_supernodes(patience=PATIENCE)
        trial.wait_for_nodes()
        yield trial


def test_an_organisation_that_is_killed_and_started_again_is_in_the_sum(trial, stranger, tmp_path):
    federation = FederationConfig(
        experiment=experiment(), data=tmp_path / "flower" / "server", folder=tmp_path / "run", seeded=True,
        wait=LONG, timeout=LONG, donors=tmp_path / "donors.csv",
    )  # fmt: skip
    (tmp_path / "federation.json").write_text(json.dumps({"federation": federation.model_dump(mode="json")}))
    trial.start_run("run", APP, tmp_path / "federation.json")
    for command, (code, output) in stranger.tries(trial.gateway, trial.keys.authority).items():
        assert code != 0, command
        assert "403 Forbidden" in output, (command, output)
    while not trial.ended("node-gamma") and not trial.ended("run"):
        time.sleep(0.2)
    assert trial.ended("node-gamma"), trial.log("run").read_text()
    killed = trial.wait("node-gamma", 0)
    trial.start_node("gamma", tmp_path / "flower" / "gamma")
    assert trial.wait("run", LONG) == 0, trial.log("run").read_text()
    assert killed == -9
    assert not stranger.ran.exists()

    here = {place: Node(tmp_path / "here" / name) for place, name in enumerate(NAMES)}
    catalogue = NodeData.load(tmp_path / "here" / "server")
    opened = read_open_histories(tmp_path / "donors.csv", catalogue.population, catalogue.items)
    reference = train(
        experiment(), catalogue.with_donors(opened), Party.load(tmp_path / "here" / "server"),
        InProcess(here), tmp_path / "reference", seeded=True,
    )  # fmt: skip
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["aborted_rounds"], result["missing"], result["incidents"]) == (0, 0, [])
    ((_, measured),) = reference.history[0].results.items()
    assert result["quality"] == [{"round": 0, "test": measured.model_dump(mode="json")}]
    assert all(metric["noise"] > 0 for metric in result["quality"][0]["test"]["metrics"])
    assert result["guarantee"] == json.loads(reference.guarantee.model_dump_json())
    trained = safetensors.torch.load_file(tmp_path / "run" / "checkpoint" / "server.safetensors")
    expected = reference.server.state()
    assert trained.keys() == expected.keys()
    assert all(trained[name].equal(value) for name, value in expected.items())
    ledgers = [(tmp_path / place / "ledger.jsonl").read_text() for place in ("run", "reference")]
    assert ledgers[0] == ledgers[1]
    for name in NAMES:
        own = [charges(folder / name) for folder in (tmp_path / "flower", tmp_path / "here")]
        assert own[0] == own[1] != []


def experiment():
    """Counts of items under noise in shares, beside two open histories; measured by one more sum."""
    return ExperimentConfig(
        data="synthetic-small",
        method={"name": "popularity"},
        privacy=PrivacyPlan.named(
            "distributed-gaussian", clip_norm=1.0, noise_multiplier=2.0, n_min_honest=60, delta=1e-6
        ),
        protocol=Protocol(k=(20,), state="received"),
        split=SplitSpec(donors=tuple(map(str, OPENED))),
        evaluation={"private": True, "mu": 0.5},
        rounds=1,
        taps=TapConfig(places=()),
    )


def charges(folder):
    """What a node's own ledger says its users have spent, without the chain, which begins with the name of the run."""
    lines = [line for path in folder.glob("ledger-*.jsonl") for line in path.read_text().splitlines()[1:]]
    return [{key: v for key, v in json.loads(line).items() if key not in ("previous", "digest")} for line in lines]
