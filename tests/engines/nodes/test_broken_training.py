"""Whether a node answers does not depend on its users' data: whoever's training breaks down sends zeros."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from privfed.contracts import Block, UpdateError
from privfed.engines import device_training
from privfed.engines.nodes import private_side
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
    train, perform = f.parts.train, private_side.perform
    item = int(np.argsort(train.popularity())[-3])
    owners = torch.from_numpy(np.flatnonzero([item in train.items_of(user) for user in range(train.n_users)]))
    assert 0 < len(owners) < train.n_users
    for module in (device_training, private_side):
        monkeypatch.setattr(
            module, "perform", lambda clients, call, message: breaks(call, perform(clients, call, message), owners)
        )
    remote = f.remote(InProcess(f.nodes))
    assert remote.run(server, 0)
    assert not remote.incidents
    members = remote.guard.ledger.entries[-1].members()
    assert len(members) == train.n_users
    others = np.setdiff1d(members, owners.numpy())
    assert torch.allclose(server.sums[-1][1], f.counts(others), atol=1e-3)


@dataclass
class Trained:
    """A run over nodes in which the training of some users breaks down."""

    federation: Any
    incidents: list[Any]

    def private(self, place: int) -> dict[str, Tensor]:
        """What a node keeps of its users, and of the others where they start."""
        state: dict[str, Tensor] = self.federation.nodes[100 + place].private_side.assembly.clients.state()
        return state


@pytest.fixture
def trained(federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trained]:
    """One round of a method: `trained("fedmf", plan, broken=[0, 1], fresh=True)`."""
    perform = private_side.perform

    def run(method: str, plan: str, broken: Sequence[int], *, fresh: bool = False, rounds: int = 1) -> Trained:
        f, owners = federation(method, plan), torch.tensor(broken, dtype=torch.int64)

        def breaks(clients: Any, call: Any, message: Any) -> Any:
            return no_solution(call, perform(clients, call, message), owners if call.round == 0 else owners[:0])

        monkeypatch.setattr(device_training, "perform", breaks)
        monkeypatch.setattr(private_side, "perform", breaks)
        server = f.announced().assemble(f.server_data, bytes(32)).server
        remote = f.remote(InProcess(f.fresh() if fresh else f.nodes))
        for t in range(rounds):
            assert remote.run(server, t)
        return Trained(f, remote.incidents)

    return run


WITH_PRIVATE_STATE = ("fedmf", "fedncf", "pfedrec", "feddae", "fedrap", "hetefedrec", "fair", "colr", "fedlightgcn")


@pytest.mark.parametrize("method", WITH_PRIVATE_STATE)
def test_users_whose_training_breaks_down_keep_their_private_state(
    trained: Callable[..., Trained], tmp_path: Path, method: str
) -> None:
    plan, first = PLANS[0], list(range(12))
    whole = trained(method, plan, [])
    before = whole.federation.nodes[100].state.memory.start
    after = whole.private(0)
    assert any(not before[name].equal(after[name]) for name in before)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    broken = trained(method, plan, [*first, 12, 13])
    assert not broken.incidents
    assert all(values.equal(before[name]) for name, values in broken.private(0).items())
    assert all(values.equal(whole.private(2)[name]) for name, values in broken.private(2).items())
    for name, values in broken.private(1).items():
        if len(values) == 45:
            assert values[12:14].equal(before[name][12:14])
            assert values[14:].equal(whole.private(1)[name][14:])


@pytest.mark.parametrize("method", ["private-gram", "feddae"])
def test_a_new_process_repeats_a_query_in_which_training_broke_down(
    trained: Callable[..., Trained], method: str
) -> None:
    assert not trained(method, "secure-sum:clip_norm=1.0", [0, 1, 13], fresh=True, rounds=2).incidents
