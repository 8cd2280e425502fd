"""Messages, releases and the contract of a step."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block
from privfed.federation import Call, Cohort, FederationError, Individual, Message, Streams, Total, begin_query, perform
from privfed.updates import ClientUpdates, Dense

ITEMS = torch.arange(12.0).view(4, 3)
TARGETS = torch.arange(6 * 4 * 3.0).view(6, 4, 3) + 100


def longs(*values):
    return torch.tensor(values, dtype=torch.int64)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, unique=True))
def test_a_device_receives_its_own_part_only(clients):
    """Contiguous ranges are views, others copies: both must hold the same rows."""
    message = Message({"items": ITEMS}, {"targets": TARGETS}, {"lr": 0.5}).addressed_to(longs(*clients))
    assert message.personal["targets"].tolist() == [TARGETS[c].tolist() for c in clients]
    assert message.shared["items"] is ITEMS
    assert message.config == {"lr": 0.5}


@pytest.mark.parametrize("clients", [(0, 1, 2, 3, 4, 5), (2, 3), (3, 2), (0, 2, 4), (5,), (1, 2, 4)])
def test_ranges_and_gaps(clients):
    message = Message({}, {"targets": TARGETS}).addressed_to(longs(*clients))
    assert message.personal["targets"].equal(torch.stack([TARGETS[c] for c in clients]))


def test_a_message_for_everybody_is_the_same_for_nobody():
    message = Message({"items": ITEMS})
    assert message.addressed_to(longs()) is message
    personal = Message({"items": ITEMS}, {"targets": TARGETS})
    assert personal.addressed_to(longs()).personal["targets"].shape == (0, 4, 3)


def test_rows_hide_whether_a_table_is_shared_or_personal():
    message = Message({"items": ITEMS}, {"targets": TARGETS}).addressed_to(longs(4, 1))
    owner, ids = longs(0, 1, 1, 0), longs(3, 0, 0, 2)
    assert message.rows("items", owner, ids).equal(ITEMS[ids])
    assert message.rows("targets", owner, ids).equal(TARGETS[longs(4, 1, 1, 4), ids])
    assert message.rows("items", longs(), longs()).shape == (0, 3)


def test_download_bytes_of_one_device():
    message = Message({"items": ITEMS}, {"targets": TARGETS})
    assert message.bytes_per_client() == 4 * (12 + 12)
    assert message.addressed_to(longs(0, 1, 2)).bytes_per_client() == 4 * (12 + 12)
    assert Message({}).bytes_per_client() == 0


def test_a_total_divides_by_its_own_denominator():
    sums = {"items": torch.tensor([[10.0, 20.0]])}
    assert Total(sums, 4.0).mean("items").tolist() == [[2.5, 5.0]]
    assert Total(sums, 2.5).mean("items").tolist() == [[4.0, 8.0]]
    assert sums["items"].tolist() == [[10, 20]]


@pytest.mark.parametrize("denominator", [0.0, 0.3, 1.0])
def test_fewer_than_one_expected_client_never_blows_a_mean_up(denominator):
    assert Total({"b": torch.tensor([3.0])}, denominator).mean("b").tolist() == [3.0]


def test_an_individual_release_is_averaged_over_its_uploads():
    uploads = {"b": torch.tensor([[1.0, 2.0], [3.0, 6.0]])}
    assert Individual(longs(5, 9), uploads).mean("b").tolist() == [2, 4]


def test_what_crosses_the_wire_cannot_be_rewritten():
    cohort = Cohort(0, 0, "all", 3.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cohort.expected = 1.0
    assert not any("seed" in field.name or "key" in field.name for field in dataclasses.fields(Cohort))


SCHEMA = {"b": Block((1,))}


class Honest:
    steps = frozenset({"train"})

    def train(self, call, message):
        n = len(call.clients)
        return ClientUpdates(call.clients, call.schema, [Dense("b", torch.arange(n), torch.ones(n, 1))])


class Sorted(Honest):
    def train(self, call, message):
        n = len(call.clients)
        return ClientUpdates(call.clients.sort().values, call.schema, [Dense("b", torch.arange(n), torch.ones(n, 1))])


class Fewer(Honest):
    steps = frozenset({"train"})

    def train(self, call, message):
        return ClientUpdates(call.clients[1:], call.schema, [])


class Others(Honest):
    steps = frozenset({"train"})

    def train(self, call, message):
        return ClientUpdates(call.clients + 1, call.schema, [])


def call(step="train", clients=(7, 3, 5)):
    return Call(0, 0, step, 0, longs(*clients), Streams.from_seed(0), SCHEMA)


@pytest.mark.usefixtures("unchecked")
def test_a_step_that_answers_for_the_clients_it_was_called_with_is_accepted():
    updates = perform(Honest(), call(), Message({}))
    assert updates.clients.tolist() == [7, 3, 5]


@pytest.mark.parametrize("clients", [Sorted(), Fewer(), Others()])
@pytest.mark.usefixtures("unchecked")
def test_updates_in_another_order_or_of_other_clients_are_refused(clients):
    """Accepted, they would attach uploads to the wrong pseudonyms without a sound."""
    with pytest.raises(FederationError, match="'train' returned updates of other clients or in another order"):
        perform(clients, call(), Message({}))


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_step_is_named():
    with pytest.raises(FederationError, match="step 'trian', which Honest lacks"):
        perform(Honest(), call("trian"), Message({}))


@pytest.mark.parametrize("step", ["commit", "load", "state", "private_state", "__init__", "steps", "helper"])
def test_what_clients_do_not_declare_is_no_step(step):
    """Clients have methods and attributes that no server may call."""

    class Helpful(Honest):
        def helper(self, call, message):
            return self.train(call, message)

    with pytest.raises(FederationError, match=f"step '{step}', which Helpful lacks; it answers train"):
        perform(Helpful(), call(step), Message({}))
    with pytest.raises(FederationError, match=f"step '{step}', which Helpful lacks"):
        begin_query(Helpful(), step, Message({}))


def test_clients_hear_of_a_query_by_step_and_message():
    heard, message = [], Message({})

    class Listening(Honest):
        def receive(self, step, message):
            heard.append((step, message))

    begin_query(Listening(), "train", message)
    assert heard == [("train", message)]
