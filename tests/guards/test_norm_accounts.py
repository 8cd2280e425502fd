"""Devices keep account of what leaves them: clip, rounding, repeats and restarts, against sums of squares by hand."""

import numpy as np
import pytest
import torch

from privfed.contracts import Block
from privfed.federation import Call, Streams
from privfed.guards import ClientGuard, RingCode
from privfed.guards.norm_accounts import NormAccounts
from privfed.privacy import PrivacyPlan
from privfed.updates import ClientUpdates, Dense

STREAMS = Streams.from_seed(0)
CENTRAL = PrivacyPlan.parse("central-gaussian:clip_norm=2,noise_multiplier=1")
SHARED = PrivacyPlan.parse("distributed-gaussian:clip_norm=2,noise_multiplier=1,n_min_honest=3")


def query(length, norms, number=0, share=0.25, refreshes=5):
    """A query in which clients send vectors of these norms, and its schema."""
    schema = {"block": Block((length,), share=share, refreshes=refreshes)}
    values = torch.nn.functional.normalize(torch.randn(len(norms), length), dim=1) * torch.tensor(norms)[:, None]
    clients = torch.arange(len(norms))
    call = Call(number, number, "sum", 0, clients, STREAMS, schema, None, None)
    return call, ClientUpdates(clients, schema, [Dense("block", clients, values.float())])


def sent(guard, norms, number):
    updates = query(6, norms, number)[1]
    guard.accounts.begin((number, 0))
    guard.clip_(updates)
    return updates.norms(2)


@pytest.mark.parametrize("plan", [CENTRAL, SHARED])
def test_a_device_stops_when_its_norm_of_the_year_is_spent(plan):
    torch.manual_seed(0)
    guard, total = ClientGuard(plan, STREAMS), torch.zeros(3, dtype=torch.float64)
    norms = [[0.5, 0.9, 3.0], [0.5, 0.9, 3.0], [0.5, 0.9, 0.1], [0.5, 0.0, 0.0], [0.5, 0.9, 0.1]]
    for number, given in enumerate(norms):
        total += sent(guard, given, number).square()
    # A share of .25 of a clip norm of 2 is a norm of 1.
    assert (total <= 1).all()
    assert total.tolist() == pytest.approx([1, 1, 1], abs=1e-4)
    spent = guard.accounts.spent["block"]
    assert (spent <= 1).all()
    assert (spent >= total - 1e-12).all()


def test_what_leaves_is_counted_at_no_less_than_its_length_in_float32():
    """Scaling rounds every number, half of the vectors up: over a year that adds up to more than was counted."""
    torch.manual_seed(0)
    guard = ClientGuard(CENTRAL, STREAMS)
    realised = sent(guard, [3.0] * 300, 0).square()
    assert (guard.accounts.spent["block"] >= realised).all()
    assert (guard.accounts.spent["block"] <= 1).all()


def test_a_query_that_is_made_again_is_counted_once_and_the_next_is_not():
    torch.manual_seed(0)
    guard = ClientGuard(CENTRAL, STREAMS)
    assert sent(guard, [0.8], 0).item() == pytest.approx(0.8)
    assert sent(guard, [0.8], 0).item() == pytest.approx(0.8)
    assert guard.accounts.spent["block"].item() == pytest.approx(0.64, rel=1e-5)
    assert sent(guard, [0.8], 1).item() == pytest.approx(0.6, rel=1e-4)


def test_a_query_that_is_made_again_is_counted_at_its_longest():
    torch.manual_seed(0)
    guard = ClientGuard(CENTRAL, STREAMS)
    for norm in (0.5, 0.8, 0.1):
        sent(guard, [norm], 0)
    assert guard.accounts.spent["block"].item() == pytest.approx(0.64, rel=1e-5)


def test_accounts_are_kept_through_a_checkpoint():
    torch.manual_seed(0)
    guard, again = ClientGuard(CENTRAL, STREAMS), ClientGuard(CENTRAL, STREAMS)
    sent(guard, [0.8, 0.1], 0)
    again.accounts.load(guard.accounts.state())
    torch.manual_seed(1)
    one = sent(guard, [0.8, 0.9], 1)
    torch.manual_seed(1)
    assert torch.equal(one, sent(again, [0.8, 0.9], 1))
    assert guard.accounts.state() == again.accounts.state()


def test_rounding_keeps_to_the_norm_that_was_counted():
    """Ring elements without noise: squared norms in steps within the bound of what each query was charged with."""
    torch.manual_seed(0)
    guard, schema = ClientGuard(SHARED, STREAMS), query(400, [1.0])[0].schema
    code = RingCode(SHARED.mechanism, schema, 4)
    assert code.distributed is not None
    widths = []
    encode = type(code.distributed).encode

    def watched(mechanism, vectors, key=None, *, exact=False):
        widths.append(mechanism.clip)
        return encode(mechanism, vectors, key, exact=exact)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(code.distributed), "encode", watched)
        for number, norm in enumerate((0.6, 0.7, 0.9)):
            call, updates = query(400, [norm], number)
            guard.accounts.begin((number, 0))
            guard.clip_(updates)
            guard.ring_elements(code, updates.materialise(call.clients), call, call.clients)
    assert np.sqrt(np.square(widths).sum()) == pytest.approx(1, abs=1e-5)
    assert np.square(widths).sum() <= 1 + 1e-12
    assert widths[0] == pytest.approx(0.6, rel=1e-5)


def test_accounts_of_users_who_sent_nothing_are_empty():
    accounts = NormAccounts()
    users = torch.tensor([4, 0])
    assert accounts.left("a", users).tolist() == [1, 1]
    accounts.record_sent("a", users[:1], torch.tensor([0.3], dtype=torch.float64))
    assert accounts.left("a", users).tolist() == [1, 1]
    accounts.begin((0, 1))
    assert accounts.left("a", users).tolist() == [0.7, 1]
    assert accounts.left("b", users).tolist() == [1, 1]
    accounts.record_sent("a", users[:0], torch.empty(0, dtype=torch.float64))
