"""The small Flower app of `examples/guarded`, without its guard and with it: in this process, then in real ones."""

import difflib
import importlib
import json
import random
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

import torch
from flwr.app import Context, RecordDict

APP = Path(__file__).parents[2] / "examples" / "guarded"
CONFIG = {"num-server-rounds": 2, "fraction-evaluate": 0.0, "local-epochs": 1, "learning-rate": 0.5, "num-nodes": 2}


def test_a_guard_takes_fewer_than_ten_changed_lines():
    before, after = ((APP / "taste" / f"{name}client_app.py").read_text() for name in ("", "guarded_"))
    changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-" and line[2:]]
    assert sum("flower_mod" in line for line in changed) == 2
    assert len(changed) < 10


@pytest.fixture
def run(tmp_path, monkeypatch, in_a_run):
    """Runs the server's half against a ClientApp whose nodes are in this process; returns what the server wrote."""
    from flwr.serverapp import Grid

    monkeypatch.syspath_prepend(str(APP))

    class InProcess(Grid):
        run = property(lambda self: None)
        set_run = create_message = push_messages = pull_messages = get_nodes = None

        def __init__(self, app):
            self.app = app

        def get_node_ids(self):
            return [1, 2]

        def send_and_receive(self, messages, *, timeout=None):
            return [self.app(message, self.context(message.metadata.dst_node_id)) for message in messages]

        def context(self, node):
            config = {"partition-id": node - 1, "num-partitions": 2, "guard": str(tmp_path / f"node-{node}")}
            return Context(1, node, config, RecordDict(), CONFIG)

    InProcess.__abstractmethods__ = frozenset()

    def ran(client, **config):
        random.seed(0)
        torch.manual_seed(0)
        server = importlib.import_module("taste.server_app")
        app = importlib.import_module(f"taste.{client}").app
        given = CONFIG | config | {"result": str(tmp_path / "result.json")}
        server.main(InProcess(app), Context(1, 0, {}, RecordDict(), given))
        return json.loads((tmp_path / "result.json").read_text())

    return ran


def test_the_same_server_trains_over_guarded_nodes_and_learns_constants(run, tmp_path):
    open_run = run("client_app", **{"fraction-evaluate": 1.0})
    assert set(open_run["training"][0]) == {"train-loss"}
    assert set(open_run["evaluation"][0]) == {"hit-rate"}
    guarded = run("guarded_client_app", **{"fraction-evaluate": 1.0})
    assert guarded["training"] == [{}, {}]
    assert guarded["evaluation"] == []
    assert len(guarded["public"]) == 3
    for node in (1, 2):
        (ledger,) = (tmp_path / f"node-{node}").glob("ledger-*.jsonl")
        assert len(ledger.read_text().splitlines()) == 3
    assert guarded["public"][0] == open_run["public"][0]
    assert guarded["public"][1:] != open_run["public"][1:]


@pytest.mark.flower
@pytest.mark.process
def test_guarded_nodes_of_a_real_federation_stop_at_their_owner_s_policy(tmp_path):
    from privfed.engines.flower.trial import CONNECTION, Trial

    result, names = tmp_path / "result.json", ("alpha", "beta")
    with Trial(tmp_path / "trial", names) as trial:
        trial.start_superlink()
        trial.start_gateway()
        for place, name in enumerate(names):
            folder = tmp_path / name
            folder.mkdir()
            # The app allows twenty rounds; these owners one, and then they take part in no more.
            (folder / "node.toml").write_text(
                '[policy]\nmechanisms = ["local_gaussian"]\nmin_own_users = 1\nmax_epsilon = 1.6\n'
            )
            trial.start_supernode(name, f'partition-id={place} num-partitions=2 guard="{folder}"')
        given = f'num-server-rounds=2 result="{result}"'
        trial.flwr("run", str(APP), CONNECTION, "--run-config", given, "--stream", timeout=280)
        end = time.monotonic() + 60
        while not result.exists() and time.monotonic() < end:
            time.sleep(0.2)
        log = trial.log("flwr").read_text()
    found = json.loads(result.read_text())
    assert found["training"] == [{}]
    assert "this would be upload 2 of this node under its plan" in log
    for name in names:
        (ledger,) = (tmp_path / name).glob("ledger-*.jsonl")
        assert len(ledger.read_text().splitlines()) == 2
