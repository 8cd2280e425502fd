"""Malicious clients among honest ones: honest uploads stay what they are, and protections change what arrives."""

import numpy as np
import pytest
import torch

from privfed.audit.active.malicious_clients import MaliciousClients
from privfed.federation import Call, FederationError, begin_query
from privfed.privacy import PrivacyPlan
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig

BAD, TARGETS = torch.tensor([2, 5]), torch.tensor([3, 7])


def called(split, name, **settings):
    """A call of eight clients, and the assembly that it goes to."""
    plan = PrivacyPlan.parse("none")
    config = ExperimentConfig(method={"name": name} | settings, privacy=plan, rounds=1, evaluate_every=1)
    assembly = Assembly(config, split)
    users = torch.from_numpy(np.flatnonzero(split.train.counts)[:8])
    message = assembly.server.public()
    call = Call(0, 0, "train", 0, users, assembly.streams, assembly.server.schema)
    return assembly, call, message


@pytest.mark.parametrize(("name", "settings"), [("fedmf", {"dim": 8}), ("fedncf", {"dim": 8, "hidden": [8, 4]})])
def test_honest_uploads_stay_and_malicious_ones_are_replaced(small_split, name, settings):
    assembly, call, message = called(small_split, name, **settings)
    block, width = "items", message.shared["items"].shape[1]
    rows = torch.arange(2.0 * width).view(2, width) + 1

    def poison(sent, round, malicious):
        assert torch.equal(sent.shared["items"], message.shared["items"])
        return rows * malicious

    begin_query(assembly.clients, "train", message)
    honest = assembly.clients.train(call, message).materialise(torch.arange(8))
    assembly.clients.discard()
    clients = MaliciousClients(assembly.clients, call.clients[BAD], block, TARGETS, poison)
    found = clients.train(call, message).materialise(torch.arange(8))
    good = np.setdiff1d(np.arange(8), BAD)
    for name_of_block, values in found.items():
        torch.testing.assert_close(values[good], honest[name_of_block][good])
    for place in BAD.tolist():
        assert torch.equal(found[block][place, TARGETS], 2 * rows)
        assert torch.equal(found[block][place].any(1).nonzero().squeeze(1), TARGETS)


def test_parts_that_cannot_be_moved_are_refused(small_split):
    assembly, call, message = called(small_split, "fair", dim=4, epochs=1)
    clients = MaliciousClients(assembly.clients, call.clients[BAD], "items.gmf", TARGETS, lambda *_: torch.zeros(2, 4))
    with pytest.raises(FederationError, match="choose a method"):
        clients.train(call, message)
