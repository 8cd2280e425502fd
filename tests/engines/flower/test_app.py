"""Both halves of the shipped app, with Flower's Grid played by functions: what is installed answers, and only that."""

import json
import shutil
import threading

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

from flwr.app import Context, Message, RecordDict

from privfed.data import load, split
from privfed.engines.flower.client import NodeConfigError, client_app
from privfed.engines.flower.payload import PayloadError, packed, unpacked
from privfed.engines.flower.server import (
    FederationConfig,
    FederationConfigError,
    TooFewNodesError,
    server_app,
    train_over,
)
from privfed.engines.flower.service import LARGEST, Limits, NodeService, ServiceError
from privfed.engines.flower.trial import share_out
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

NAMES = ("alpha", "beta", "gamma")
POLICY = """
[policy]
allow_simulation = true
evaluate = true
"""


class Echo:
    def handle(self, stage, request):
        return stage.encode() + b"|" + request


def context(run_config=None, **node_config):
    return Context(
        run_id=1, node_id=1, node_config=node_config, state=RecordDict(), run_config=run_config or {}, series_id=1
    )


def request(kind="train.share", payload=b"request", ttl=60.0):
    return Message(packed(payload), 7, kind, ttl=ttl)


@pytest.fixture
def socket_(tmp_path):
    with NodeService(Echo(), tmp_path / "node.sock", Limits(LARGEST)) as service:
        thread = threading.Thread(target=service.serve)
        thread.start()
        yield str(tmp_path / "node.sock")
        service.close()
        thread.join(timeout=10)


def test_the_client_carries_bytes_to_the_node_and_back(in_a_run, socket_):
    reply = client_app()(request(), context(socket=socket_))
    assert unpacked(reply.content) == b"train.share|request"
    assert reply.metadata.message_type == "train.share"


def test_nobody_behind_the_socket_is_an_error_that_flower_reports(in_a_run, tmp_path):
    with pytest.raises(ServiceError, match="start it with"):
        client_app()(request(), context(socket=str(tmp_path / "nobody.sock"), patience=0))


@pytest.mark.parametrize(
    "config", [{}, {"partition-id": 1}, {"socket": "a", "folder": "b"}, {"socket": "a", "patience": "long"}]
)
def test_the_node_is_named_by_the_supernode_alone(in_a_run, config):
    with pytest.raises(NodeConfigError, match="exactly one of socket and folder"):
        client_app()(request(), context({"socket": "from-the-run"}, **config))


@pytest.mark.parametrize("kind", ["train", "query", "evaluate.share"])
def test_other_messages_are_refused(in_a_run, socket_, kind):
    with pytest.raises(PayloadError, match="cannot name a stage"):
        client_app()(request(kind), context(socket=socket_))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    parts = split(load("synthetic-small"), ExperimentConfig().split)
    share_out(parts, POLICY, folder, NAMES)
    return folder, parts


def config(method="popularity", **plan):
    return ExperimentConfig(
        data="synthetic-small",
        method={"name": method},
        privacy=PrivacyPlan.named("secure-sum", clip_norm=1.0, **plan),
        protocol=Protocol(k=(20,), state="received"),
        rounds=1,
        taps=TapConfig(places=()),
    )


def test_a_run_over_the_grid_comes_to_the_bits_of_the_simulation(superlink, nodes, tmp_path):
    folder, parts = nodes
    app = client_app()
    grid = superlink({name: lambda m, name=name: app(m, context(folder=str(folder / name))) for name in NAMES})
    federation = FederationConfig(
        experiment=config(), data=folder / "server", folder=tmp_path / "run", seeded=True, parts=("test",)
    )
    trained = train_over(grid, federation)
    simulated = Experiment(config(), parts).run(parts=())
    expected = simulated.server.state()
    assert all(value.equal(expected[name]) for name, value in trained.server.state().items())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["quality"][0]["test"]["metrics"]
    assert result["up_bytes"] > 0
    assert not result["incidents"]
    assert len(result["nodes"]) == 3


def test_a_run_that_measures_nothing_says_so(superlink, nodes, tmp_path, capfd):
    app = client_app()
    grid = superlink({name: lambda m, name=name: app(m, context(folder=str(nodes[0] / name))) for name in NAMES})
    federation = FederationConfig(experiment=config(), data=nodes[0] / "server", folder=tmp_path / "run", seeded=True)
    assert not train_over(grid, federation).history
    assert "no quality was measured: set evaluation.private = true, or parts" in capfd.readouterr().out


def test_a_policy_that_forbids_the_run_ends_it_with_the_nodes_sentence(superlink, nodes, tmp_path):
    folder, _ = nodes
    strict = tmp_path / "strict"
    shutil.copytree(folder, strict)
    for name in NAMES:
        (strict / name / "node.toml").write_text(POLICY + 'methods = ["private-gram"]\n')
    app = client_app()
    grid = superlink({name: lambda m, name=name: app(m, context(folder=str(strict / name))) for name in NAMES})
    federation = FederationConfig(
        experiment=config(), data=folder / "server", folder=tmp_path / "run", seeded=True, timeout=30
    )
    with pytest.raises(TooFewNodesError, match="policy allows private-gram"):
        train_over(grid, federation)


def test_too_few_nodes_begin_nothing(superlink, nodes, tmp_path):
    federation = FederationConfig(experiment=config(), data=nodes[0] / "server", folder=tmp_path / "run", wait=0.1)
    with pytest.raises(TooFewNodesError, match="0 of 3 nodes connected"):
        train_over(superlink({}), federation)
    assert not (tmp_path / "run").exists()


def test_a_federation_is_read_from_toml_with_paths_of_its_own(tmp_path):
    (tmp_path / "federation.toml").write_text(
        '[federation]\nfolder = "run"\ndata = "/srv/catalogue"\n'
        '[federation.experiment]\nrounds = 3\nmethod = { name = "popularity" }\n'
    )
    federation = FederationConfig.read(tmp_path / "federation.toml")
    assert federation.folder == tmp_path / "run"
    assert str(federation.data) == "/srv/catalogue"
    assert federation.experiment.rounds == 3


def test_a_federation_survives_json(tmp_path):
    said = FederationConfig(experiment=config(), data=tmp_path / "data", folder=tmp_path / "run")
    (tmp_path / "federation.json").write_text(json.dumps({"federation": said.model_dump(mode="json")}))
    assert FederationConfig.read(tmp_path / "federation.json") == said


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("nonsense", FederationConfigError, "says nothing of a federation"),
        ("[other]\n", FederationConfigError, "says nothing of a federation"),
        ('[federation]\nfolder = "a"\ndata = "b"\nnodes = 2\n[federation.experiment]\n', PlanError, "nodes"),
        ('[federation]\nfolder = "a"\ndata = "b"\nspeed = 9\n[federation.experiment]\n', PlanError, "speed"),
    ],
)
def test_a_bad_file_is_answered_in_a_sentence(tmp_path, text, error, says):
    (tmp_path / "federation.toml").write_text(text)
    with pytest.raises(error, match=says):
        FederationConfig.read(tmp_path / "federation.toml")


@pytest.mark.parametrize("run_config", [{}, {"federation": ""}, {"federation": 3}])
def test_a_run_that_names_no_federation_says_how(superlink, run_config):
    with pytest.raises(FederationConfigError, match="--run-config"):
        server_app()(superlink({}), context(run_config))
