"""Private state is a transaction: what a lost round staged never becomes current."""

import pytest
import torch

from privfed.federation import ClientStateError, PrivateState, StatefulClients


def users(*ids):
    return torch.tensor(ids, dtype=torch.int64)


@pytest.fixture
def state():
    return PrivateState({"w": torch.arange(10.0).view(5, 2), "b": torch.zeros(5)})


def test_staged_values_are_seen_by_their_clients_and_become_current_on_commit(state):
    new = {"w": torch.full((2, 2), 7.0), "b": torch.ones(2)}
    state.stage(users(3, 1), new)
    assert state.rows(users(3, 1))["w"].tolist() == [[6, 7], [2, 3]]
    assert state.staged(users(3, 1))["w"].equal(new["w"])
    state.commit()
    assert state.rows(users(3, 1))["w"].equal(new["w"])
    assert state.rows(users(0, 2, 4))["w"].tolist() == [[0, 1], [4, 5], [8, 9]]
    assert state.rows(users(1, 2))["b"].tolist() == [1, 0]


def test_order_of_users_is_kept(state):
    state.stage(users(4, 0), {"b": torch.tensor([4.0, 0.5])})
    state.commit()
    assert state.rows(users(0, 4))["b"].tolist() == [0.5, 4]


def test_a_discarded_round_leaves_no_trace(state):
    before = {name: value.clone() for name, value in state.state().items()}
    state.stage(users(0), {"w": torch.full((1, 2), 9.0)})
    state.discard()
    state.commit()
    assert all(state.state()[name].equal(before[name]) for name in before)
    assert state.staged(users(0))["w"].tolist() == [[0, 1]]


def test_the_last_staging_of_a_user_wins(state):
    state.stage(users(2), {"b": torch.tensor([1.0])})
    state.stage(users(2), {"b": torch.tensor([2.0])})
    assert state.staged(users(2))["b"].item() == 2
    state.commit()
    assert state.rows(users(2))["b"].item() == 2


def test_a_copy_can_be_changed_freely(state):
    state.rows(users(0, 1))["w"].fill_(-1)
    assert state.rows(users(0))["w"].tolist() == [[0, 1]]


def test_without_a_staging_the_committed_values_are_seen(state):
    state.stage(users(0), {"w": torch.full((1, 2), 9.0)})
    assert state.staged(users(1))["w"].tolist() == [[2, 3]]


def test_loading_replaces_what_is_current_and_forgets_what_is_staged(state):
    saved = {name: value.clone() for name, value in state.state().items()}
    state.stage(users(0), {"b": torch.tensor([3.0])})
    state.commit()
    state.stage(users(1), {"b": torch.tensor([4.0])})
    state.load(saved)
    state.commit()
    assert all(state.state()[name].equal(saved[name]) for name in saved)
    state.stage(users(0), {"b": torch.tensor([5.0])})
    state.commit()
    assert saved["b"][0] == 0  # a loaded checkpoint is not written to


@pytest.mark.parametrize(
    "other",
    [{"w": torch.zeros(5, 1)}, {"w": torch.zeros(5, 3)}, {"w": torch.zeros(4, 2)}, {"b": torch.zeros(5, 1)}, {"c": 0}],
)
def test_a_checkpoint_of_other_users_or_settings_is_refused(state, other):
    with pytest.raises(ClientStateError, match="was expected, and the checkpoint holds"):
        state.load({**state.state(), **{name: torch.as_tensor(values) for name, values in other.items()}})
    assert state.state()["w"].shape == (5, 2)


def test_both_sides_pass_the_transaction_on(state):
    class Half(StatefulClients):
        steps = frozenset({"train"})

        private = state

    half = Half()
    state.stage(users(0), {"b": torch.tensor([1.0])})
    half.discard()
    half.commit()
    assert half.state()["b"][0] == 0
    state.stage(users(0), {"b": torch.tensor([1.0])})
    half.commit()
    assert half.state()["b"][0] == 1
    half.load({**half.state(), "b": torch.full((5,), 6.0)})
    assert half.state()["b"].tolist() == [6] * 5
