"""What a device refuses in a federation, and that it is silent then."""

import json
import secrets
from types import ModuleType
from typing import Any

import pytest

from secure_agg.errors import SecureAggregationError
from secure_agg.masking.messages import Stage
from tests.device_client.aggregator import OURS, PEOPLE, POLICY, Aggregator, Device, joined


def test_a_device_refuses_what_its_owner_does_not_allow_and_is_silent(device: Device, vectors: ModuleType) -> None:
    for federation in joined(device, vectors, POLICY | {"epsilonPerYear": 0.1}):
        assert federation.announce(timeout=3) == set(range(PEOPLE)) - {OURS}
        refused, spent = device.end()
        assert "your policy allows 0.1 a year" in refused["refused"]
        assert spent["ledger"]["runs"] == 0


def test_a_query_is_answered_once_and_a_run_is_joined_once(federation: Aggregator, device: Device) -> None:
    federation.announce()
    federation.sum_of(0)
    asked = {"run": federation.run, "query": 0, "masking": secrets.token_hex(16)}
    assert OURS not in federation.ask("query", asked, timeout=2)
    assert OURS not in federation.announce(timeout=2)
    said = device.end()
    assert ["was answered" in said[0]["refused"], "joined twice" in said[1]["refused"]] == [True, True]


def test_a_server_that_tells_the_device_something_else_opens_nothing(federation: Aggregator) -> None:
    """Terms whose layout is not the digest of what the device was asked: it leaves, and no sum holds it."""
    federation.announce()
    true = federation.ask

    def lying(stage: str, content: Any, timeout: float = 20) -> dict[int, bytes]:
        replies = true(stage, content, timeout)
        federation.layout = bytes(32)
        return replies

    federation.ask = lying  # type: ignore[method-assign]
    try:
        _, survivors = federation.sum_of(0, timeout=2)
    except SecureAggregationError:
        survivors = ()
    assert OURS not in survivors


@pytest.mark.parametrize("ours", [True, False])
def test_a_server_that_announces_other_terms_to_some_under_the_same_name_opens_nothing_of_the_device(
    federation: Aggregator, ours: bool
) -> None:
    """Others who are announced a smaller clip norm add less noise, which the device's own epsilon counts on."""
    terms = federation.terms
    others = [
        {**one, "total_variance": one["total_variance"] / 100, "share": one["share"] / 100} for one in terms["queries"]
    ]
    told = {True: terms, False: {**terms, "queries": others}}
    requests = {
        seat: json.dumps({"run": federation.run, "terms": told[(seat == OURS) is ours]}).encode()
        for seat in range(PEOPLE)
    }
    agreed = federation.exchange("announce", requests, 5)
    assert set(agreed) == set(range(PEOPLE))
    federation.announced = agreed[0]
    true = federation.exchange

    def lying(stage: str, contents: dict[int, bytes], timeout: float) -> dict[int, bytes]:
        replies = true(stage, contents, timeout)
        if stage == "query":
            assert replies.pop(OURS) not in replies.values()
        return replies

    federation.exchange = lying  # type: ignore[method-assign]
    try:
        _, survivors = federation.sum_of(0, timeout=2)
    except SecureAggregationError:
        survivors = ()
    assert OURS not in survivors


def test_a_device_leaves_a_sum_of_fewer_people_than_its_noise_is_sized_for(
    federation: Aggregator, device: Device
) -> None:
    """The rules of its owner would do with four; the announced noise is that of five."""
    federation.terms["min_honest"] = 5
    federation.announce()
    federation.peers[4].leaves_at = Stage.GO_AHEAD
    with pytest.raises(SecureAggregationError):
        federation.sum_of(0, timeout=2)
    assert "your rules ask for 5" in device.end()[0]["refused"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scale": "0000807f" * 16}, "not finite"),
        ({"shares": "00"}, "whole numbers of 4 bytes"),
        ({"head": None}, "without its head"),
    ],
)
def test_a_device_refuses_a_head_whatever_its_history(
    federation: Aggregator, device: Device, change: dict[str, str | None], why: str
) -> None:
    federation.announce()
    head = "".join(f"{n:02x}000000" for n in range(16))
    whole = {"head": head, "shares": "00000000" * 16, "scale": "0000803f" * 16} | change
    asked = {"run": federation.run, "query": 1, "masking": secrets.token_hex(16)}
    asked |= {name: digits for name, digits in whole.items() if digits is not None}
    assert OURS not in federation.ask("query", asked, timeout=2)
    assert why in device.end()[0]["refused"]
