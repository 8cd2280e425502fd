"""Requests and replies over a Grid that misbehaves: what does not belong never counts, and nobody waits for it."""

import logging
import threading

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'privfed[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.engines.flower.payload import PayloadError, message_type, packed, unpacked
from privfed.engines.flower.transport import FlowerTransport, node_id


def answer(message, **metadata):
    reply = Message(packed(unpacked(message.content) + b"!"), reply_to=message)
    for key, value in metadata.items():
        reply.metadata.__dict__[f"_{key}"] = value
    return reply


def raw(message, content):
    return Message(content, reply_to=message)


ALPHA, BETA = node_id(b"alpha"), node_id(b"beta")


def exchange(grid, timeout=5.0):
    transport = FlowerTransport(grid, poll=0.01)
    return transport.exchange("train.share", dict.fromkeys(transport.nodes(), b"request"), timeout)


def test_every_node_gets_its_request_and_gives_its_reply(superlink):
    grid = superlink({"alpha": answer, "beta": answer})
    transport = FlowerTransport(grid, poll=0.01)
    assert transport.nodes() == sorted([ALPHA, BETA])
    replies = transport.exchange("train.share", {ALPHA: b"a", BETA: b""}, 5.0)
    assert replies == {ALPHA: b"a!", BETA: b"!"}
    kinds = {message.metadata.message_type for _, message in grid.sent.values()}
    assert kinds == {"train.share"}
    assert all(0 < message.metadata.ttl <= 5.0 for _, message in grid.sent.values())


def test_a_node_keeps_its_id_when_flower_numbers_it_afresh(superlink):
    first = FlowerTransport(superlink({"alpha": answer}, {"alpha": 7}))
    again = FlowerTransport(superlink({"alpha": answer}, {"alpha": 2**64 - 1}))
    assert first.nodes() == again.nodes() == [ALPHA]
    assert 0 <= ALPHA < 2**63
    assert again.exchange("train.share", {ALPHA: b"a"}, 5.0) == {ALPHA: b"a!"}


def test_groups_are_numbered_by_exchange(superlink):
    grid = superlink({"alpha": answer})
    transport = FlowerTransport(grid, poll=0.01)
    for _ in range(2):
        transport.exchange("train.share", {ALPHA: b""}, 5.0)
    assert [message.metadata.group_id for _, message in grid.sent.values()] == ["0", "1"]


HOSTILE = {
    "another stage": lambda m: answer(m, message_type="train.reveal"),
    "another node": lambda m: answer(m, src_node_id=5),
    "another exchange": lambda m: answer(m, group_id="17"),
    "an error": lambda m: Message(Error(3, "it broke"), reply_to=m),
    "nothing in it": lambda m: raw(m, RecordDict()),
    "another record": lambda m: raw(m, RecordDict({"payload": ConfigRecord({"bytes": b"abc"})})),
    "another name": lambda m: raw(m, RecordDict({"other": ArrayRecord([np.zeros(1, np.uint8)])})),
    "something beside it": lambda m: raw(m, RecordDict({**packed(b"abc"), "more": ConfigRecord({"loss": 0.1})})),
    "two arrays": lambda m: raw(m, RecordDict({"payload": ArrayRecord([np.zeros(1, np.uint8)] * 2)})),
    "floats": lambda m: raw(m, RecordDict({"payload": ArrayRecord([np.zeros(2)])})),
    "a matrix": lambda m: raw(m, RecordDict({"payload": ArrayRecord([np.zeros((2, 2), np.uint8)])})),
}


@pytest.mark.parametrize("way", HOSTILE.values(), ids=HOSTILE)
def test_a_reply_that_does_not_belong_is_refused_and_the_others_count(way, caplog, superlink):
    with caplog.at_level(logging.WARNING):
        replies = exchange(superlink({"alpha": way, "beta": answer}), timeout=2.0)
    assert replies == {BETA: b"request!"}
    assert str(ALPHA) in caplog.text
    assert "request!" not in caplog.text


def test_the_array_is_never_unpickled():
    record = packed(b"abc")
    array = next(iter(record["payload"].values()))
    array.data = b"\x80\x04K\x01."
    with pytest.raises(PayloadError, match="cannot be read"):
        unpacked(record)


def test_a_late_node_drops_out(caplog, superlink):
    came = threading.Event()

    def late(message):
        return answer(message) if came.is_set() else None

    grid = superlink({"alpha": late, "beta": answer})
    transport = FlowerTransport(grid, poll=0.01)
    assert transport.exchange("train.share", {ALPHA: b"1", BETA: b"1"}, 0.5) == {BETA: b"1!"}
    came.set()
    assert transport.exchange("train.input", {ALPHA: b"2", BETA: b"2"}, 5.0) == {ALPHA: b"2!", BETA: b"2!"}


def test_a_reply_that_never_finishes_holds_up_nobody(superlink):
    release, finished = threading.Event(), threading.Event()

    def stuck(message):
        release.wait(60)
        finished.set()
        return answer(message)

    replies = exchange(superlink({"alpha": stuck, "beta": answer}), timeout=1.0)
    assert not finished.is_set()
    release.set()
    assert replies == {BETA: b"request!"}


def test_a_grid_that_fails_for_one_node_is_asked_again(caplog, superlink):
    failed = []

    def flaky(message):
        if len(failed) < 2:
            failed.append(1)
            raise ConnectionError("the line is down")
        return answer(message)

    replies = exchange(superlink({"alpha": flaky, "beta": answer}))
    assert replies == {ALPHA: b"request!", BETA: b"request!"}
    assert "the line is down" not in caplog.text


def test_unknown_nodes_are_missing_and_nobody_is_asked(superlink):
    grid = superlink({"alpha": answer})
    assert FlowerTransport(grid).exchange("train.share", {BETA: b"x"}, 1.0) == {}
    assert not grid.sent


def test_waiting_for_nodes_ends_with_those_that_are_there(superlink):
    transport = FlowerTransport(superlink({"alpha": answer, "beta": answer}))
    assert len(transport.wait_for(2, 60.0)) == 2
    assert len(transport.wait_for(3, 0.0)) == 2


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=2000))
def test_bytes_come_back_as_they_went(payload):
    assert unpacked(packed(payload)) == payload


def test_a_payload_of_several_of_flowers_chunks_comes_back():
    payload = np.random.default_rng(0).bytes(11 * 2**20)
    assert unpacked(packed(payload)) == payload


@pytest.mark.parametrize(
    "stage", ["", "share", "train", "train.", "train.A", "train.a.b", "train.1", "evaluate.a", "train.a\n"]
)
def test_other_stages_are_refused(stage):
    with pytest.raises(PayloadError, match="cannot name a stage"):
        message_type(stage)
