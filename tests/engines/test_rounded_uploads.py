"""Rounded uploads in a whole round: summed and one by one, in any chunk, under any wire, seen as they travel."""

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import Transcript
from privfed.federation import Message, PrivateState, StatefulClients, Streams
from privfed.privacy import Ledger, PrivacyPlan
from privfed.updates import ClientUpdates, Dense

USERS = 40
SCHEMA = {"items": Block((9, 3))}


class Halves(StatefulClients):
    steps = frozenset({"train"})

    def __init__(self):
        self.private = PrivateState({"steps": torch.zeros(USERS)})

    def train(self, call, message):
        users = call.clients
        self.private.stage(users, self.private.rows(users))
        values = [torch.from_numpy(np.random.default_rng(u).normal(size=(9, 3))) for u in users.tolist()]
        return ClientUpdates(
            users, call.schema, [Dense("items", torch.arange(len(users)), torch.stack(values).float())]
        )


class Both:
    """Asks for the sum and for every upload."""

    def public(self):
        return Message({"x": torch.zeros(1)})

    def round(self, federation, t):
        cohort = federation.sample_cohort(t)
        self.each = federation.collect("train", cohort, self.public(), SCHEMA).uploads["items"].clone()
        self.sum = federation.aggregate("train", cohort, self.public(), SCHEMA).sums["items"]


def run(plan, **options):
    privacy, server = PrivacyPlan.parse(plan), Both()
    made = Simulation(Halves(), privacy, USERS, Streams.from_seed(0), Ledger(privacy, USERS), **options)
    made.run(server, 0)
    return server, made.costs


@pytest.mark.parametrize("plan", ["none", "local-gaussian:noise_multiplier=1,clip_norm=1"])
def test_results_do_not_depend_on_chunks_or_wire(plan):
    whole, costs = run(f"{plan}{',' if ':' in plan else ':'}upload_bits=6")
    for options in ({"chunk": 7}, {"fidelity": "analytic"}):
        other, same = run(f"{plan}{',' if ':' in plan else ':'}upload_bits=6", **options)
        assert other.each.equal(whole.each)
        torch.testing.assert_close(other.sum, whole.sum)
        assert same.up_bytes == costs.up_bytes == 2 * USERS * (4 + 21)
    steps = whole.each.abs().flatten(1).amax(1) / 31
    levels = whole.each / steps[:, None, None]
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-3)


def test_what_is_tapped_on_the_wire_is_what_was_rounded():
    seen = {}
    for plan in ("none", "none:upload_bits=4"):
        transcript = Transcript(torch.arange(USERS), frozenset({"raw", "wire"}))
        server, _ = run(plan, transcript=transcript)
        found = {one.tap: one.tensors["items"] for one in reversed(transcript.observations)}
        assert found["wire"].equal(server.each)
        seen[plan] = found
    assert seen["none"]["raw"].equal(seen["none"]["wire"])
    assert seen["none"]["raw"].equal(seen["none:upload_bits=4"]["raw"])
    assert not seen["none"]["wire"].equal(seen["none:upload_bits=4"]["wire"])
