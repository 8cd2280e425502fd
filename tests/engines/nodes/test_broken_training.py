"""Whether a node answers does not depend on its users' data: whoever's training breaks down sends zeros."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes import answering
from privfed.engines.nodes.loopback import InProcess

PLANS = ("secure-sum:clip_norm=10.0", "clip:clip_norm=100.0")


def not_finite(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """Updates in which those users' numbers are NaN."""
    return updates.scale_(torch.where(torch.isin(call.clients, owners), torch.nan, 1.0))


def no_solution(call: Any, updates: Any, owners: torch.Tensor) -> Any:
    """A solver that gives up where one of those users is among the ones it solves for."""
    if torch.isin(call.clients, owners).any():
        raise torch.linalg.LinAlgError("the matrix is singular")
    return updates


@pytest.mark.parametrize("breaks", [not_finite, no_solution])
@pytest.mark.parametrize("plan", PLANS)
def test_users_whose_training_breaks_down_send_zeros(
    federation: Callable[..., Any], count_server: Any, monkeypatch: pytest.MonkeyPatch, plan: str, breaks: Any
) -> None:
    f, server = federation("feddae", plan), count_server()
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
