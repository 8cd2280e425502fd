"""A year over nodes: a refresh a call, with people who come and go, processes that die, and accounts on disk."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.engines.nodes.account_file import AccountFile
from privfed.engines.nodes.errors import StateError
from privfed.engines.nodes.loopback import InProcess, Loopback
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.policy import Policy
from privfed.experiment import Experiment
from tests.engines.nodes.test_faults import replayed

T = 3
POLICY = """[policy]
allow_simulation = true
min_own_users = 1
own_noise_suffices = false
mechanisms = ["distributed_gaussian"]
"""
SHARES = "distributed-gaussian:noise_multiplier=0.05,clip_norm=1.0,n_min_honest=20"
SETTINGS = {"refreshes": T, "head": 8, "min_items": 1, "select": False, "histories": "long"}


def made(federation, **changes):
    fields = {"settings": SETTINGS, "nodes": 3, "rounds": T, "checkpoint_every": 1}
    return federation("private-gram-year", SHARES, **fields | changes)


def arriving(parts):
    """User 2 joins at the second refresh, user 20 leaves before the last; everybody else has everything at once."""
    counts = np.repeat(parts.train.counts[:, None], T, axis=1)
    counts[2, 0] = 0
    return counts


def at(parts, refresh, gone=()):
    counts = arriving(parts)[:, refresh].copy()
    counts[list(gone)] = 0
    return replace(parts, train=parts.train.first(counts), ratings=None)


def hosting(f, parts):
    """Nodes that start again with the data of now."""
    for number, users in zip(f.nodes, f.shards, strict=True):
        f.data[number] = NodeData.from_split(parts, users)
        f.nodes[number] = f.node(number)


def accounts(f):
    found = {}
    for number in f.nodes:
        for path in (f.folder / f"node{number}").glob("account-*.jsonl"):
            file = AccountFile(path, 0, "")
            for name, row in file.accounts.spent.items():
                for user in row.nonzero().squeeze(1).tolist():
                    found[name, user] = float(row[user])
    return found


def test_a_year_of_calls_and_processes_gives_the_bits_of_a_simulation(federation):
    """Every message meets a new process, every refresh a new server process, and user 2 a history in the second."""
    f = made(federation)
    parts = replace(f.parts, arrived=arriving(f.parts))
    simulated = Experiment(f.config, parts)
    simulated.run(parts=())
    for refresh in range(T):
        hosting(f, at(f.parts, refresh))
        trained = f.train(InProcess(f.fresh()), until=refresh + 1)
        assert not trained.incidents
        if refresh == 0:
            first = trained.guarantee.epsilon
    mine, theirs = simulated.server.public().shared, trained.server.public().shared
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert len(theirs["head"]) == 8
    assert trained.guarantee.epsilon == first
    spent = accounts(f)
    assert max(spent.values()) <= 1
    assert spent["popularity", 3] == pytest.approx(1, abs=1e-3)
    assert 0 < spent["popularity", 2] < spent["popularity", 3]
    charged = [row["event"]["kind"] for row in map(json.loads, f.ledger_lines()[1:])]
    assert charged == ["account"] * 2 * T


def test_processes_that_come_late_die_and_hear_of_new_people(federation):
    """Organisation 103 joins at the second refresh, in which 102 is killed over its masked input; user 2 comes, too."""
    f = made(federation, nodes=4)
    folders = {number: f.folder / f"node{number}" for number in f.nodes}

    def write(refresh):
        for number, users in zip(folders, f.shards, strict=True):
            NodeData.from_split(at(f.parts, refresh), users).save(folders[number])

    write(0)
    for number, folder in folders.items():
        f.parties[number].save(folder, f.server.federation.signature(f.operator), f.operator.public)
        (folder / "node.toml").write_text(POLICY)
    killed, spent = [], []

    def fault(node, stage):
        if (node, stage) == (102, "train.input") and len(spent) == 1 and not killed:
            killed.append(node)
            return "kill_before"
        return None

    for refresh in range(T):
        write(refresh)
        there = {number: folder for number, folder in folders.items() if refresh or number != 103}
        with Loopback(there, method="forkserver", faults=fault) as processes:
            trained = f.train(processes, until=refresh + 1, timeout=120.0)
        spent.append(accounts(f))
    assert killed == [102]
    lines = f.ledger_lines()
    f.parts = replace(f.parts, arrived=arriving(f.parts))
    expected = replayed(f, lines).server.public().shared
    assert all(torch.equal(trained.server.public().shared[name], expected[name]) for name in expected)
    taking_part = [set(trained.ledger.entries[2 * refresh].members().tolist()) for refresh in range(T)]
    assert taking_part == [
        set(range(45)) - set(f.shards[gone].tolist()) if gone else set(range(45)) for gone in (3, 2, 0)
    ]
    late, missed = int(f.shards[3][0]), int(f.shards[2][0])
    assert ("popularity", late) not in spent[0]
    assert spent[0]["popularity", missed] == spent[1]["popularity", missed] < spent[2]["popularity", missed]
    assert spent[1]["popularity", late] == pytest.approx(spent[0]["popularity", missed], abs=1e-3)
    assert ("popularity", 2) not in spent[0]
    assert max(spent[-1].values()) <= 1


def test_who_leaves_sends_nothing_and_fades(federation):
    f = made(federation)
    spent = []
    for refresh in range(T):
        hosting(f, at(f.parts, refresh, gone=[20] if refresh else ()))
        f.train(until=refresh + 1)
        spent.append(accounts(f))
    assert spent[0]["popularity", 20] == spent[-1]["popularity", 20]
    assert spent[0]["popularity", 21] < spent[-1]["popularity", 21] <= 1


def test_a_node_refuses_a_year_beyond_its_budget(federation):
    policy = Policy(
        allow_simulation=True, mechanisms=("distributed_gaussian",), min_own_users=1, own_noise_suffices=False,
        max_epsilon_per_run=0.1,
    )  # fmt: skip
    f = made(federation, policy=policy)
    trained = f.train(until=1)
    assert any("max_epsilon_per_run" in incident.reason for incident in trained.incidents)
    assert not accounts(f)


def test_an_account_file_is_a_chain_and_older_ones_are_refused(federation):
    f = made(federation)
    for refresh in (1, 2):
        f.train(until=refresh)
    folder = f.folder / "node100"
    (path,) = folder.glob("account-*.jsonl")
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    (record,) = (folder / "state").glob("*/record.json")
    seen = json.loads(record.read_text())
    assert seen["account_entries"] == 4
    whole = AccountFile(path, 4, seen["account_head"])
    path.write_text("\n".join(lines) + "\n" + lines[-1][:20])
    assert AccountFile(path, 4, seen["account_head"]).accounts.state() == whole.accounts.state()
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(StateError, match="does not begin with the 4 lines"):
        AccountFile(path, 4, seen["account_head"])
    f.nodes[100] = f.node(100)
    refused = f.train(until=3)
    assert any("its own folder" in incident.reason for incident in refused.incidents)
    path.write_text("\n".join([lines[0], lines[1].replace("[", "[ ", 1), *lines[2:]]) + "\n")
    with pytest.raises(StateError, match="edited"):
        AccountFile(path, 4, seen["account_head"])
