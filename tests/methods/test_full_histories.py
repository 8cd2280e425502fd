"""Somebody who has almost every item of a catalogue, or every one, stops no method."""

import numpy as np
import pytest
import torch

from privfed.data import Histories
from privfed.methods import ClientData, method, methods
from privfed.testing import conformance
from privfed.testing.population import ITEMS, USERS, client_data

NAMES = sorted(methods())
FULL = 3


def with_one_history_of(count):
    """The usual population, in which one user has the first `count` items."""
    known = client_data()
    others = known.positives.owners != FULL
    owners = np.concatenate([known.positives.owners[others], np.full(count, FULL)])
    items = np.concatenate([known.positives.items[others], np.arange(count)])
    positives = Histories.from_pairs(owners, items, USERS, ITEMS)
    ratings = np.random.default_rng(1).integers(1, 6, len(positives)).astype(np.float32)
    return ClientData(positives, positives, known.auxiliary, ratings=ratings)


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_full_history_stops_no_method(monkeypatch, name, spare):
    monkeypatch.setattr(conformance, "client_data", lambda: with_one_history_of(ITEMS - spare))
    registered = method(name)
    subject = conformance.Subject(registered, {})
    parties = subject.build().rounds(0, 1)
    for value in parties.state().values():
        assert not value.is_floating_point() or torch.isfinite(value).all()
