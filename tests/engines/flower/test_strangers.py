"""A deployment as strangers find it: what they may not do at the gateway they could do at the SuperLink's own port.

So the check is able to fail: it is the SuperLink that is open, as Flower ships it, and the gateway that closes it.
"""

import json
import time

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

from privfed.engines.flower.keys import node_keys
from privfed.engines.flower.strangers import StrangersError, check_strangers
from privfed.engines.flower.trial import Trial

pytestmark = [pytest.mark.flower, pytest.mark.slow]

LONG = 300


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    with Trial(tmp_path_factory.mktemp("strangers") / "trial", ["alpha", "beta"]) as trial:
        trial.start_superlink()
        trial.start_gateway()
        yield trial


def test_what_a_stranger_may_not_at_the_gateway_he_could_at_the_superlink(trial, stranger):
    refused = stranger.tries(trial.gateway, trial.keys.authority)
    assert {command: code for command, (code, _) in refused.items() if code == 0} == {}
    assert all("403 Forbidden" in output for _, output in refused.values())
    assert len(listed(trial)) == 2
    admitted = stranger.tries(trial.address, trial.keys.authority, "register", "run", "list", "nodes")
    assert {command: code for command, (code, _) in admitted.items() if code} == {}
    assert len(listed(trial)) == 3
    end = time.monotonic() + LONG
    while not stranger.ran.exists() and time.monotonic() < end:
        time.sleep(0.2)
    assert stranger.ran.exists()
    with pytest.raises(StrangersError, match="a stranger can register a node, run an app, list runs"):
        check_strangers(trial.address, trial.keys.authority)


def test_a_supernode_that_nobody_registered_does_not_come_online_and_a_registered_one_does(trial):
    node_keys(trial.keys.node("nobody"))
    for address in (trial.gateway, trial.address):
        trial.start_supernode("nobody", 'socket="/none"', address)
        trial.wait("supernode-nobody", LONG)
    assert listed(trial).count("online") == 0
    trial.start_supernode("alpha", 'socket="/none"')
    end = time.monotonic() + LONG
    while (online := listed(trial).count("online")) == 0 and time.monotonic() < end:
        assert not trial.ended("supernode-alpha"), trial.log("supernode-alpha").read_text()
        time.sleep(1)
    assert online == 1


def listed(trial):
    """What `flwr supernode list` says of each node to the operator."""
    before = len(trial.log("flwr").read_text())
    trial.flwr("supernode", "list", "trial", "--format", "json")
    answer = json.loads(trial.log("flwr").read_text()[before:])
    return [node["status"] for node in answer["nodes"]]
