"""Whether a node answers does not depend on its users' data: whoever's training breaks down sends zeros."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from privfed.contracts import Block, UpdateError
from privfed.engines.nodes import answering
from privfed.engines.nodes.loopback import InProcess
from privfed.updates import ClientUpdates, Dense

PLANS = ("secure-sum:clip_norm=10.0", "clip:clip_norm=100.0")


def not_finite(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """Updates in which those users' numbers are NaN."""
    return updates.scale_(torch.where(torch.isin(call.clients, owners), torch.nan, 1.0))


def no_solution(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """A solver that gives up where one of those users is among the ones it solves for."""
    if torch.isin(call.clients, owners).any():
        raise torch.linalg.LinAlgError("the matrix is singular")
    return updates


def no_such_row(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """A table in the model that ends before an item of those users."""
    if torch.isin(call.clients, owners).any():
        raise IndexError("index 49 is out of bounds for dimension 0 with size 40")
    return updates


def no_such_coordinate(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """A block that ends before an item of those users."""
    if torch.isin(call.clients, owners).any():
        raise UpdateError("row ids must lie in 0..39")
    return updates


def above_the_bound(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """Whole numbers that are above the declared bound for those users alone."""
    values = torch.where(torch.isin(call.clients, owners), WHOLE.bound + 1, 1).unsqueeze(1)
    everyone = torch.arange(len(values))
    return ClientUpdates(call.clients, call.schema, [*updates.parts, Dense("whole", everyone, values)])


WHOLE = Block((1,), "integer", bound=3)
DATA_DEPENDENT = [not_finite, no_solution, no_such_row, no_such_coordinate, above_the_bound]


@pytest.mark.parametrize("breaks", DATA_DEPENDENT)
@pytest.mark.parametrize("plan", PLANS)
def test_users_whose_training_breaks_down_send_zeros(
    federation: Callable[..., Any], count_server: Any, monkeypatch: pytest.MonkeyPatch, plan: str, breaks: Any
) -> None:
    f, server = federation("feddae", plan), count_server()
    if breaks is above_the_bound:
        server.schema = {**server.schema, "whole": WHOLE}
    train, perform = f.parts.train, answering.perform
    item = int(np.argsort(train.popularity())[-3])
    owners = torch.from_numpy(np.flatnonzero([item in train.items_of(user) for user in range(train.n_users)]))
    assert 0 < len(owners) < train.n_users
    monkeypatch.setattr(
        answering, "perform", lambda clients, call, message: breaks(call, perform(clients, call, message), owners)
    )
    remote = f.remote(InProcess(f.nodes))
    assert remote.run(server, 0)
    assert not remote.incidents
    members = remote.guard.ledger.entries[-1].members()
    assert len(members) == train.n_users
    others = np.setdiff1d(members, owners.numpy())
    assert torch.allclose(server.sums[-1][1], f.counts(others), atol=1e-3)
